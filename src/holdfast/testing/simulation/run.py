"""Runs: `simulate` makes one of a seed, and `sweep` one for each step of a process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random

from holdfast.store.patience import PATIENCE
from holdfast.testing.simulation.evidence import CommitFolds, Evidence, Problem
from holdfast.testing.simulation.faults import Faults, profile
from holdfast.testing.simulation.laws import LAWS, LAWS_OF_THE_END, errors
from holdfast.testing.simulation.loop import CURRENT, EndlessRunError
from holdfast.testing.simulation.scenario import Scenario
from holdfast.testing.simulation.store import ServerCall
from holdfast.testing.simulation.trace import TraceLine
from holdfast.testing.simulation.world import AIM, SimulatedProcess, World

CALM_S = 90.0
"""Virtual seconds in which everything must come to its end once nothing goes wrong any more: leases (1 s), looks for
orphans (2 s) and lost notifications (2 s), and timers and effects of up to 10 s, some of them one after the other."""


QUIET_EVERY_S = 2.5
"""Virtual seconds between two quiet moments at which the laws are checked: most runs have two to four of them."""

IN_COMPANY = 0.25
"""Share of the runs in which the engines are still at work while all sessions are inspected."""

GENERATOR = 6
"""Version of what is drawn in the scenarios of Holdfast: a seed means another run once it has changed."""


@dataclass
class Run:
    """One run and what came of it."""

    scenario: type[Scenario]
    seed: int
    faults: Faults
    only: frozenset[int] | None
    """Numbers of the faults that were allowed to happen; None for all."""
    left_out: frozenset[str]
    """Parts of the scenario that were left out."""
    parts: list[str]
    """Parts of the scenario that can be left out."""
    problems: list[Problem]
    struck: list[str]
    """The faults that were about to happen, by number."""
    trace: list[TraceLine]
    digest: str
    virtual_s: float
    callbacks: int
    steps: dict[str, int] = field(default_factory=dict)
    """Callbacks of each process that was alive when everything had come to rest, before it was inspected."""
    calls: list[ServerCall] = field(default_factory=list)

    @property
    def command(self) -> str:
        """The command that makes the same run again."""
        only = "" if self.only is None else f" --only {','.join(map(str, self.happened)) or 'none'}"
        left_out = f" --leave-out {','.join(sorted(self.left_out))}" if self.left_out else ""
        patience = f"HOLDFAST_PATIENCE={PATIENCE:g} " if PATIENCE != 1 else ""
        command = f"python -m holdfast.testing.simulation {self.scenario.name} {self.seed}"
        return f"{patience}{command}{only}{left_out} --trace"

    @property
    def corpus_line(self) -> str:
        """The line that keeps this run among those that have failed once, except for what it was."""
        only = "all" if self.only is None else ",".join(map(str, self.happened)) or "none"
        law = self.problems[0].law if self.problems else "-"
        left_out = ",".join(sorted(self.left_out)) or "-"
        return f"{self.scenario.name} {self.seed} {only} {left_out} v{GENERATOR} {law}"

    @property
    def happened(self) -> list[int]:
        """Numbers of the faults that have happened."""
        return [number for number in range(len(self.struck)) if self.only is None or number in self.only]


Crash = tuple[str, int]
"""A process, and the number of the callback before which it is killed."""


def simulate(
    scenario: type[Scenario],
    seed: int,
    faults: Faults | None = None,
    *,
    only: Collection[int] | None = None,
    leave_out: Collection[str] = (),
    crash: Crash | None = None,
) -> Run:
    """Make one run. `faults` are by default drawn for the seed; `only` allows but some of them, by number.

    `leave_out` names parts of the scenario that are left out, as `Scenario.keeps` knows them.
    """
    faults = profile(seed) if faults is None else faults
    world = World(seed, faults, only)
    made = scenario(world)
    made.left_out = frozenset(leave_out)
    problems: list[Problem] = []
    steps: dict[str, int] = {}

    async def main() -> None:
        made.prepare()
        quiet_points = _QuietPoints(world, made, problems)
        world.loop.on_quiet = quiet_points.look
        if crash is not None:
            process = world.processes[crash[0]]
            process.state.on_step = (crash[1], lambda: world.kill(process))
        await _go_wrong(world)
        world.heal()
        unsettled = await made.settle(CALM_S)
        world.loop.on_quiet = None
        run = Evidence(world, made.history, not unsettled, unsettled, quiet_points.folds)
        for law in (*LAWS, *LAWS_OF_THE_END):
            problems.extend(law(run))
        problems.extend(made.problems(run))
        problems.extend(made.liveness.problems())
        steps.update({name: process.state.steps for name, process in world.processes.items()})
        if run.is_settled:
            known = len(list(errors(run)))
            problems.extend(await _inspected(world, made))
            problems.extend(list(errors(run))[known:])

    try:
        with logged_to(world):
            world.loop.run(main())
    except EndlessRunError as error:
        problems.append(Problem("ends", "", str(error)))
    return Run(
        scenario,
        seed,
        faults,
        None if only is None else frozenset(only),
        made.left_out,
        made.parts,
        problems,
        world.struck,
        world.trace,
        world.loop.digest,
        world.loop.time(),
        world.loop.callbacks,
        steps,
        world.server.calls,
    )


class _QuietPoints:
    """Holds a run to the laws while it goes on, when every process waits."""

    def __init__(self, world: World, scenario: Scenario, problems: list[Problem]) -> None:
        self._world = world
        self._scenario = scenario
        self._problems = problems
        self._next_s = QUIET_EVERY_S
        self.folds = CommitFolds()

    def look(self) -> None:
        """Every process waits now."""
        now_s = self._world.loop.time()
        if now_s < self._next_s or self._problems:
            return
        self._next_s = now_s + QUIET_EVERY_S
        run = Evidence(self._world, self._scenario.history, is_settled=True, folds=self.folds)
        for law in LAWS:
            for each in law(run):
                self._problems.append(replace(each, text=f"{each.text} (at {now_s:.3f}, when all was quiet)"))


async def _inspected(world: World, scenario: Scenario) -> list[Problem]:
    """What an inspector finds in a process of its own.

    It is mostly alone with the store, which takes a third of the time; in company, engines take up what it forks.
    """
    is_alone = Random(f"{world.seed}/inspection").random() >= IN_COMPANY
    for name in world.names if is_alone else ():
        if name.startswith("engine"):
            world.remove(name)
    found: asyncio.Future[list[Problem]] = asyncio.get_running_loop().create_future()

    async def inspect(process: SimulatedProcess) -> None:
        found.set_result(await scenario.inspect(process))

    world.add_process("inspector", inspect, restarts=False, is_near=is_alone)
    try:
        async with asyncio.timeout(CALM_S):
            return await found
    except TimeoutError:
        return [Problem("no bricks", "", f"the inspection has not ended after {CALM_S:g} s; {world.errors}")]


async def _go_wrong(world: World) -> None:
    """Let happen to the processes what is planned for them.

    That goes on when all sessions have come to their end: what was under way then, as a late call or a process that
    stands still, must not change them any more.
    """
    for at_s, what, act in sorted(_plan(world), key=lambda each: each[0]):
        await _until(world, at_s)
        alive = sorted(world.processes)
        name = alive[world.chaos.randrange(len(alive))] if alive else ""
        steps = world.chaos.randint(1, AIM)
        if name and world.allows(name, what):
            process = world.processes[name]
            process.state.on_step = (process.state.steps + steps, _acting(act, process))
    await _until(world, world.faults.until_s)


async def _until(world: World, moment_s: float) -> None:
    await asyncio.sleep(max(0.0, moment_s - world.loop.time()))


def _acting(act: Callable[[SimulatedProcess], None], process: SimulatedProcess) -> Callable[[], None]:
    return lambda: act(process)


def _plan(world: World) -> Iterator[tuple[float, str, Callable[[SimulatedProcess], None]]]:
    faults, random = world.faults, Random(f"{world.seed}/plan")

    def moments(count: int) -> Iterator[float]:
        return (random.uniform(0.0, faults.until_s * 0.9) for _ in range(count))

    def lasting(act: Callable[[SimulatedProcess, float], None], *span: float) -> Callable[[SimulatedProcess], None]:
        seconds = random.uniform(*span)
        return lambda process: act(process, seconds)

    for at_s in moments(faults.kills):
        yield at_s, "kill", world.kill
    for at_s in moments(faults.closes):
        yield at_s, "close", world.close
    for at_s in moments(faults.stalls):
        yield at_s, "stall", lasting(world.stall, 0.3, 6.0)
    for at_s in moments(faults.cuts):
        yield at_s, "cut", lasting(world.cut, 0.5, 3.0)
    for at_s in moments(faults.lost_leases):
        yield at_s, "lease", world.lose_leases
    for at_s in moments(faults.jumps):
        yield at_s, "jump", lasting(world.jump, -3.0, 3.0)


def sweep(
    scenario: type[Scenario], seed: int, process: str, faults: Faults | None = None, *, every: int = 1
) -> Iterator[Run]:
    """A run for each step of a process, or every so many steps, which is killed right before it."""
    faults = Faults(until_s=2.0) if faults is None else faults
    whole = simulate(scenario, seed, faults)
    yield whole
    for step in range(1, whole.steps.get(process, 0), every):
        yield simulate(scenario, seed, faults, crash=(process, step))


def without(faults: Faults, *names: str) -> Faults:
    """Faults of which some classes are off."""
    return replace(faults, **{name: type(getattr(faults, name))() for name in names})


@contextmanager
def logged_to(world: World) -> Iterator[None]:
    """While this is open, what Holdfast logs goes to the trace of a run."""
    log = logging.getLogger("holdfast")
    handler, propagates = _TraceHandler(world), log.propagate
    log.addHandler(handler)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = propagates


class _TraceHandler(logging.Handler):
    def __init__(self, world: World) -> None:
        super().__init__(logging.WARNING)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        self._world.note(CURRENT.get().name, f"logs: {record.getMessage()}")
