"""The benchmarks of schedules: what ten thousand cost while none is due, and how late those that are due start."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench import Figure, Plan, Round, Target
from holdfast.agent.processes.terms import OutsideWork
from holdfast.agent.runtime import Runtime
from holdfast.agent.triggers.machine import trigger_fold
from holdfast.agent.triggers.terms import IntervalSource
from holdfast.testing.provider import ScriptedProvider

SCHEDULES = 10_000

AT_ONCE = 200
"""Schedules that are registered at the same time."""

HOUR_MS = 3_600_000

SETTLE_S = 5.0
"""Seconds before the cost is measured: a process that has just begun looks at everything once."""

DUE = 200
"""Schedules that come due while their delay is measured, evenly over that time."""


def _runtime(file: Path) -> Runtime:
    return Runtime(f"sqlite:///{file}", provider=ScriptedProvider([]), model="m")


async def _register(runtime: Runtime, count: int, since: Callable[[int], int], prefix: str) -> None:
    """Register schedules of one run an hour, whose hours begin at different times."""

    async def one(number: int) -> None:
        source = IntervalSource(every_ms=HOUR_MS, since=since(number))
        await runtime.triggers.register(f"{prefix}{number}", source, OutsideWork(), recovery="external")

    for first in range(0, count, AT_ONCE):
        await asyncio.gather(*(one(number) for number in range(first, min(count, first + AT_ONCE))))


async def _until_planned(runtime: Runtime, count: int) -> None:
    """Wait until so many schedules know when they are due."""
    while True:
        rows = await runtime.mount.store.all_sessions()
        if sum(row.summary.due_at is not None for row in rows) >= count:
            return
        await asyncio.sleep(0.5)


async def ten_thousand(plan: Plan) -> list[Figure]:
    """The processor time of a process that has 10,000 schedules, and the delay of those that come due."""
    file, seconds = plan.directory / "schedules.db", max(plan.seconds, 20.0)
    async with _runtime(file) as runtime:
        now = runtime.mount.holdfast.now()
        began = time.monotonic()
        await _register(runtime, SCHEDULES, lambda number: now - number * 60, "far-")  # due in 50 minutes or later
        await _until_planned(runtime, SCHEDULES)
        plan.say(f"{SCHEDULES} schedules registered in {time.monotonic() - began:.0f} s")
    async with _runtime(file) as runtime:  # one that has set none of these timers itself
        await asyncio.sleep(SETTLE_S)
        spent, began = time.process_time(), time.monotonic()
        await asyncio.sleep(seconds)
        idle = 100 * (time.process_time() - spent) / (time.monotonic() - began)
    async with _runtime(file) as runtime:
        now = runtime.mount.holdfast.now()
        ahead, step = round(SETTLE_S * 1000) + 5_000, round(seconds * 1000 / DUE)
        await _register(runtime, DUE, lambda number: now + ahead + number * step - HOUR_MS, "due-")
    late: list[float] = []
    async with _runtime(file) as runtime:
        await asyncio.sleep(SETTLE_S + ahead / 1000 + seconds)
        for number in range(DUE):
            view = await runtime.triggers.show(f"due-{number}")
            assert view.last is not None, f"{view.name} has not started anything"
            planned = (await runtime.processes.show(view.last)).terms.origin["at"]
            started = (await runtime.mount.holdfast.session(view.last)).metrics.started_at
            late.append(started - int(planned))
            assert trigger_fold(await runtime.mount.holdfast.session(view.id)).state.failed == ""
    late.sort()
    p50, p99 = late[len(late) // 2], late[int(len(late) * 0.99)]
    return [
        Figure("schedules-idle-cpu", "% of a core", [Round(idle)], targets=[Target("value", "<=", 1.0)]),
        Figure("schedules-late-p50", "ms", [Round(p50)]),
        Figure("schedules-late-p99", "ms", [Round(p99)], targets=[Target("value", "<=", 1_000.0)]),
    ]


BENCHMARKS: dict[str, Callable[[Plan], Awaitable[list[Figure]]]] = {"schedules": ten_thousand}
