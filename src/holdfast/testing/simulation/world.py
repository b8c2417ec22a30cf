"""`World`: everything that a run consists of: simulated OS processes, their store, the outside world, and the faults.

Every fault has a number. Its draws are made whether or not it happens, so leaving one out changes nothing before it:
that is how a run that fails is shrunk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

from holdfast.core.errors import HoldfastError
from holdfast.store.commits import Commit, CommitReceipt
from holdfast.store.environment import Environment, SteadyClock
from holdfast.testing.simulation.faults import Faults
from holdfast.testing.simulation.loop import CURRENT, ProcessState, SimulatedLoop
from holdfast.testing.simulation.outside import Outside
from holdfast.testing.simulation.store import WRITES, Fate, Link, SimulatedStore, StoreServer
from holdfast.testing.simulation.trace import TraceLine, commit_bytes, commit_text

EPOCH_MS = 1_700_000_000_000
"""The time of day at which every run begins (unix ms)."""

NEAR_S = (0.0001, 0.002)
"""Seconds, from and to, that a call takes to the store or back."""

NOTICE_S = (0.0002, 0.02)
"""Seconds, from and to, after which a notification arrives."""

LOOK_S = 1.0
"""Seconds after which a store looks by itself for a notification that was lost."""

RESTART_S = (0.1, 2.0)
"""Seconds, from and to, after which a process that has ended is started again."""

LONG_S = 0.25
"""Seconds of one call that may cost a process its leases, which it renews three times a second."""

STUCK_S = (4.0, 12.0)
"""Seconds, from and to, after which the caller of a stuck call gets an error."""

AIM = 150
"""Callbacks, at most, between the moment that is drawn for a fault and the fault: most of them are under way together,
so a moment alone would seldom hit one that matters."""

Body: TypeAlias = Callable[["SimulatedProcess"], Awaitable[None]]
"""What runs in a process; it is called anew for each of its lives."""


class SimulatedClock(SteadyClock):
    """The clock of one life of a simulated OS process."""

    def __init__(self, loop: SimulatedLoop, skew_s: float = 0.0) -> None:
        self._loop = loop
        self.skew_s = skew_s
        """By how much it is wrong."""
        super().__init__(self._day_ns, lambda: loop.now_ns)

    def _day_ns(self) -> int:
        return EPOCH_MS * 1_000_000 + self._loop.now_ns + int(self.skew_s * 1e9)

    def monotonic(self) -> float:
        return float(self._loop.time())


class SimulatedProcess:
    """One life of a simulated OS process: it has its own memory, clock and randomness, and its own way to the store."""

    def __init__(self, world: World, name: str, life: int, *, is_near: bool = False) -> None:
        self.world = world
        self.name = name
        self.life = life
        self._is_near = is_near
        self.state: ProcessState = world.loop.new_process(name)
        random = Random(f"{world.seed}/{name}/{life}/clock")
        skew_s = random.uniform(-world.faults.skew_s, world.faults.skew_s)
        self.clock = SimulatedClock(world.loop, skew_s)
        self.environment = Environment(self.clock, Random(f"{world.seed}/{name}/{life}"), f"{name}.{life}")
        self.random = Random(f"{world.seed}/{name}/{life}/workload")
        self.cut_until_s = 0.0
        self.is_closing = asyncio.Event()
        """Set when it has been asked to close."""
        self.stores: list[SimulatedStore] = []

    @property
    def is_alive(self) -> bool:
        """Whether it has not been killed."""
        return not self.state.is_dead

    def store(self) -> SimulatedStore:
        """The store, as this process reaches it."""
        link = _ShortLink(self) if self._is_near else _FaultyLink(self)
        made = SimulatedStore(self.world.server, link, f"{self.name}.{self.life}")
        self.stores.append(made)
        return made

    def note(self, text: str) -> None:
        """Write something into the trace."""
        self.world.note(self.name, text)


class _ShortLink(Link):
    """No way at all: the process is where the store is."""

    is_short = True

    def __init__(self, process: SimulatedProcess) -> None:
        self.server = process.world.server_context
        self.client = process.world.loop.context_of(process.state)


class _FaultyLink(Link):
    """A way to the store on which everything goes wrong that the faults of the run allow."""

    def __init__(self, process: SimulatedProcess) -> None:
        self._world = process.world
        self._process = process
        self.server = process.world.server_context
        self.client = process.world.loop.context_of(process.state)

    def fate(self, call: str) -> Fate:
        world, process = self._world, self._process.name
        faults, random = world.faults, world.network
        there_s, back_s = random.uniform(*NEAR_S), random.uniform(*NEAR_S)
        if faults.slow_calls and world.strikes(faults.slow_calls, process, f"slow {call}", random):
            slow_s = self._until_calm(random.expovariate(1 / faults.slow_s))
            if slow_s > LONG_S:
                world.disturbances.setdefault(process, []).append(world.loop.time())
            there_s, back_s = (there_s + slow_s, back_s) if random.random() < 0.5 else (there_s, back_s + slow_s)
        is_refused = is_lost = False
        if faults.store_errors:
            is_refused = world.strikes(faults.store_errors, process, f"error at {call}", random)
        if faults.lost_replies and call in WRITES:
            is_lost = world.strikes(faults.lost_replies, process, f"lost reply of {call}", random)
        if faults.stuck_calls and world.strikes(faults.stuck_calls, process, f"stuck {call}", random):
            happens = random.random() < 0.5
            back_s, is_refused, is_lost = self._until_calm(random.uniform(*STUCK_S)), not happens, happens
            world.disturbances.setdefault(process, []).append(world.loop.time())
        if is_lost:
            world.disturbances.setdefault(process, []).append(world.loop.time())
        return Fate(there_s, back_s, is_refused, is_lost)

    def _until_calm(self, seconds: float) -> float:
        """As long as this, but not longer than things go wrong."""
        return min(seconds, max(0.0, self._world.faults.until_s - self._world.loop.time()))

    def is_cut(self) -> bool:
        return self._world.loop.time() < self._process.cut_until_s

    def notices_s(self) -> Sequence[float]:
        world, process = self._world, self._process.name
        faults, random = world.faults, world.network
        after_s = random.uniform(*NOTICE_S)
        if world.strikes(faults.late_notices, process, "late notification", random):
            after_s += random.uniform(0, LOOK_S)
        if self.is_cut():
            after_s += self._process.cut_until_s - world.loop.time()
        if world.strikes(faults.repeated_notices, process, "repeated notification", random):
            return (after_s, after_s + random.uniform(*NOTICE_S))
        return (after_s,)

    def loses_live_message(self) -> bool:
        return self.is_cut() or self._world.strikes(
            self._world.faults.late_notices, self._process.name, "lost live message", self._world.network
        )


@dataclass
class _Program:
    """What a process runs, in all its lives."""

    body: Body
    restarts: bool
    """Whether it is started again when it returns."""
    is_near: bool
    """Whether it is where the store is, so that its calls take no time."""
    process: SimulatedProcess | None = None
    lives: int = 0
    is_done: bool = False


class World:
    """One run. The seed, its faults, and which of them may happen decide everything in it."""

    def __init__(self, seed: int, faults: Faults, only: Collection[int] | None = None) -> None:
        self.seed = seed
        self.faults = faults
        self.loop = SimulatedLoop(Random(f"{seed}/schedule"), shuffled=faults.shuffled)
        self.network = Random(f"{seed}/network")
        self.chaos = Random(f"{seed}/chaos")
        self.trace: list[TraceLine] = []
        self.struck: list[str] = []
        """The faults that have happened, or would have if they had not been left out, by number."""
        self.is_calm = False
        """Whether nothing goes wrong any more."""
        self.calm_s = 0.0
        """Since when."""
        self.errors: list[str] = []
        """What must not happen in any run, as it happened."""
        self.disturbances: dict[str, list[float]] = {}
        """When each process was killed, closed or cut off, stood still, or waited for its store for long or in vain."""
        self.server_context = self.loop.context_of(self.loop.new_process("store"))
        self.server = StoreServer(SimulatedClock(self.loop), reports_deaths=faults.reports_deaths)
        self.server.on_commit = self._note_commit
        if faults.aims:
            self.server.on_taken = lambda holder: self.wake_stalled(holder.name.rpartition(".")[0])
        self.outside = Outside(self)
        self._only = only
        self._programs: dict[str, _Program] = {}

    def note(self, process: str, text: str) -> None:
        """Write something into the trace."""
        self.loop.note(f"{process}: {text};".encode())
        self.trace.append(TraceLine(self.loop.time(), process, text))

    def _note_commit(self, client: SimulatedStore, commit: Commit, receipt: CommitReceipt) -> None:
        for written in commit_bytes(commit):
            self.loop.note(written)
        self.note(client.name.rpartition(".")[0], commit_text(commit, receipt))

    # --- faults --------------------------------------------------------------------------------------

    def strikes(self, rate: float, process: str, what: str, random: Random) -> bool:
        """Whether a fault happens here and now. The draw is made in any case."""
        return bool(rate) and random.random() < rate and not self.is_calm and self.allows(process, what)

    def allows(self, process: str, what: str) -> bool:
        """Whether a fault that is about to happen is not left out."""
        number = len(self.struck)
        self.struck.append(f"{process}: {what}")
        if self._only is not None and number not in self._only:
            return False
        self.note(process, f"fault {number}: {what}")
        return True

    # --- processes -----------------------------------------------------------------------------------

    def add_process(self, name: str, body: Body, *, restarts: bool, is_near: bool = False) -> None:
        """Start a process. It is started again after it was killed; with `restarts`, also after it has returned.

        One that `is_near` the store reaches it without delay and without faults.
        """
        self._programs[name] = _Program(body, restarts, is_near)
        self._start(name)

    @property
    def processes(self) -> dict[str, SimulatedProcess]:
        """The processes that live now, by name."""
        return {name: each.process for name, each in self._programs.items() if each.process is not None}

    @property
    def current(self) -> SimulatedProcess:
        """The process that the running code belongs to."""
        return next(each for each in self.processes.values() if each.state is CURRENT.get())

    @property
    def names(self) -> list[str]:
        """The names of all processes."""
        return list(self._programs)

    @property
    def unfinished(self) -> list[str]:
        """Processes that are to return by themselves, and have not."""
        return [name for name, each in self._programs.items() if not each.restarts and not each.is_done]

    def _start(self, name: str) -> None:
        program = self._programs[name]
        if program.process is not None or program.is_done:
            return
        program.lives += 1
        process = program.process = SimulatedProcess(self, name, program.lives, is_near=program.is_near)
        if program.lives > 1:
            self.note(name, f"starts again, life {program.lives}")
        self.loop.start(process.state, self._live(process, program))

    async def _live(self, process: SimulatedProcess, program: _Program) -> None:
        try:
            await program.body(process)
            program.is_done = not program.restarts
        except HoldfastError as error:
            process.note(f"gives up: {error}")
        except Exception as error:
            self.errors.append(f"{process.name} broke: {error!r}")
            program.is_done = True  # it would break again and again
        self._end(process)

    def _end(self, process: SimulatedProcess) -> None:
        """A process is over, one way or another."""
        self.disturbances.setdefault(process.name, []).append(self.loop.time())
        self.loop.kill(process.state)
        for store in process.stores:
            if store in self.server.clients:
                self.server.clients.remove(store)
                self.server.lose_holder(store)
        program = self._programs[process.name]
        if program.process is process:
            program.process = None
            if not program.is_done:
                after_s = 0.05 if self.is_calm else self.chaos.uniform(*RESTART_S)
                self.loop.call_later(after_s, self._start, process.name, context=self.server_context)

    def kill(self, process: SimulatedProcess) -> None:
        """End a process, in between two callbacks."""
        if process.is_alive:
            self._lose(process, "is killed")
            self._end(process)

    def remove(self, name: str) -> None:
        """End a process for good."""
        program = self._programs[name]
        program.is_done = True
        if program.process is not None:
            self._end(program.process)

    def close(self, process: SimulatedProcess) -> None:
        """Ask a process to close."""
        if process.is_alive:
            self._lose(process, "is asked to close")
            process.is_closing.set()

    def stall(self, process: SimulatedProcess, seconds: float) -> None:
        """Let a process stand still."""
        self._lose(process, f"stands still for {seconds:.2f} s")
        process.state.stands_until = self.loop.now_ns + int(seconds * 1e9)
        self._lose_for(process, seconds)

    def cut(self, process: SimulatedProcess, seconds: float) -> None:
        """Let nothing pass between a process and the store."""
        self._lose(process, f"is cut off for {seconds:.2f} s")
        process.cut_until_s = self.loop.time() + seconds
        self._lose_for(process, seconds)

    def lose_leases(self, process: SimulatedProcess) -> None:
        """Let others have what a process holds."""
        self._lose(process, "loses its leases")
        for store in process.stores:
            self.server.end_leases(store)

    def jump(self, process: SimulatedProcess, seconds: float) -> None:
        """Set the clock of a process."""
        process.note(f"its clock jumps by {seconds:.2f} s")
        process.clock.skew_s += seconds

    def _lose(self, process: SimulatedProcess, what: str) -> None:
        process.note(what)
        self.disturbances.setdefault(process.name, []).append(self.loop.time())

    def _lose_for(self, process: SimulatedProcess, seconds: float) -> None:
        """The store takes a process for dead that it does not hear of, until it does."""
        for store in process.stores:
            self.server.lose_holder(store)
            self.loop.call_later(seconds, self.server.find_holder, store, context=self.server_context)

    def wake_stalled(self, name: str) -> None:
        """Let a process that stands still go on now."""
        process = self._programs[name].process if name in self._programs else None
        if process is not None and process.state.stands_until > self.loop.now_ns:
            process.note("goes on, because its session was taken")
            process.state.stands_until = 0

    def heal(self) -> None:
        """End all faults, and start what does not run."""
        self.is_calm, self.calm_s = True, self.loop.time()
        self.note("world", "calm")
        for name, program in self._programs.items():
            if program.process is not None:
                program.process.cut_until_s = 0.0
                program.process.state.stands_until = 0
                program.process.state.on_step = None
                program.process.clock.skew_s = 0.0
                for store in program.process.stores:
                    self.server.find_holder(store)
            self._start(name)
