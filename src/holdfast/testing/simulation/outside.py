"""The outside world: what the effects of a run have really done, whatever the sessions know of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from holdfast.core.errors import HoldfastError
from holdfast.core.queries import Usage
from holdfast.core.values import Json
from holdfast.engine.drivers import Attempt, NotDone

if TYPE_CHECKING:
    from holdfast.testing.simulation.world import SimulatedProcess, World

QUICK_S = 0.15
"""Seconds that an effect takes on average."""

LONG_S = (1.0, 5.0)
"""Seconds, from and to, that one of fourteen effects takes: longer than a lease."""


@dataclass
class Execution:
    """One time that an effect was begun."""

    key: str
    """The idempotency key: the session and the query."""
    policy: str
    """What is to happen after a crash: `never`, `safe`, `idempotent` or `confirm`."""
    attempt: int
    process: str
    life: int
    began_s: float
    happened_s: float | None = None
    """When it had its effect; None if it never had."""
    value: Json = None
    """What it returned, or would have returned."""
    is_failed: bool = False
    """Whether it raised an error of its own, without having an effect."""


class ToolFaultError(Exception):
    """An effect fails, and has done nothing."""


class Outside:
    """Where effects happen. Tools of a scenario go through `perform`; its probes through `probe`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._repeating: list[asyncio.Task[None]] = []
        self.executions: list[Execution] = []
        self.denials: dict[str, list[float]] = {}
        """When probes were told that an effect has not happened, by its key."""
        self.reported: dict[str, list[Usage]] = {}
        """What models have said that each call cost, by its key, each time that they were asked."""

    def of(self, key: str) -> list[Execution]:
        """The executions of one query's effect."""
        return [each for each in self.executions if each.key == key]

    async def perform(
        self,
        process: SimulatedProcess,
        policy: str,
        attempt: Attempt,
        value: Callable[[int], Json] | None = None,
        call_back: Callable[[Json], Awaitable[None]] | None = None,
    ) -> Json:
        """Do something. It takes time, happens at one moment of it, and is remembered here.

        Returns `value` of how often this query's effect has happened by now; by default, a text that says so. The
        service may also repeat itself by `call_back`, before or after this returns.
        """
        world, random = self._world, process.random
        execution = Execution(
            attempt.key, policy, attempt.number, process.name, process.life, began_s=world.loop.time()
        )
        self.executions.append(execution)
        process.note(f"effect {attempt.key} ({policy}), attempt {attempt.number}")
        takes_s = random.uniform(*LONG_S) if random.random() < 1 / 14 else random.expovariate(1 / QUICK_S)
        if world.strikes(world.faults.tool_faults, process.name, "tool fails or hangs", random):
            if random.random() < 0.5:
                await asyncio.sleep(takes_s / 2)
                execution.is_failed = True
                raise ToolFaultError("the tool is out of order")
            takes_s += random.uniform(*LONG_S)
        before_s = random.random() * takes_s
        await asyncio.sleep(before_s)
        done = [each for each in self.of(attempt.key) if each.happened_s is not None]
        number = 1 if policy == "idempotent" else len(done) + 1
        execution.value = value(number) if value is not None else f"{attempt.key} happened, {number}"
        if not (policy == "idempotent" and done):
            execution.happened_s = world.loop.time()
            process.note(f"effect {attempt.key} has happened")
        else:
            execution.value = done[0].value
        if call_back is not None and world.strikes(world.faults.repeats, process.name, "tool repeats itself", random):
            for _ in range(2):
                self._repeat(call_back, execution.value, random.uniform(0.0, 2 * (takes_s - before_s)))
        await asyncio.sleep(takes_s - before_s)
        return execution.value

    def _repeat(self, call_back: Callable[[Json], Awaitable[None]], value: Json, after_s: float) -> None:
        async def repeat() -> None:
            await asyncio.sleep(after_s)
            with contextlib.suppress(HoldfastError):  # whoever calls back does not mind
                await call_back(value)

        task = asyncio.get_running_loop().create_task(repeat())
        self._repeating.append(task)

    def report(self, key: str, random: Random) -> Usage:
        """What a model says that a call has cost: something else each time, so that no two are mistaken."""
        usage = Usage(prompt_tokens=random.randint(1, 100_000), completion_tokens=random.randint(1, 100_000))
        self.reported.setdefault(key, []).append(usage)
        return usage

    def probe(self, attempt: Attempt) -> Json | NotDone:
        """What became of an effect, as its service would say."""
        done = [each for each in self.of(attempt.key) if each.happened_s is not None]
        if done:
            return done[-1].value
        self.denials.setdefault(attempt.key, []).append(self._world.loop.time())
        return NotDone()
