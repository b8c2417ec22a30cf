"""Growth: what a feed costs early and late in a session's life, and how much memory a long session takes."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Awaitable, Callable

from bench import Figure, Plan, Round, Target
from bench.agent import _provider, _turn
from bench.callgrind import count, mark, require_callgrind
from bench.engine import FOREVER, Host, _child
from holdfast.agent.runtime import Runtime
from holdfast.core.ids import query_id
from holdfast.engine.holdfast import open_holdfast

EARLY = 10
LATE = 10_000
"""The pauses of a session from which on feeds are counted."""

LATE_TURN = 1_000
"""The turn of a chat from which on turns are counted."""

COUNTED = 100
"""Feeds, or turns, that are counted."""

WARM_UP = 60
"""Feeds, or turns, of another session before."""

MOST_GROWTH = 1.1
MOST_TURN_GROWTH = 1.5
"""What a late feed and a late turn cost at most, beside an early one. The request of a turn has the whole window."""

MOST_KEPT = 256
"""KB that a hot session may take more after `LATE` pauses. Its journal is then 20 MB long."""


async def growth_feed(plan: Plan) -> list[Figure]:
    """Instructions of a feed after few pauses and after many, in memory and on SQLite."""
    require_callgrind()
    figures = []
    for place in ("memory", "sqlite"):
        plan.say(f"growth-feed: {LATE:,} pauses, {place}")
        found = await asyncio.to_thread(count, plan, "growth", "feeds", _url(plan, place))
        figures += _early_and_late(f"growth-feed: {place}, a feed at pause", (EARLY, LATE), found, MOST_GROWTH)
    return figures


async def growth_turn(plan: Plan) -> list[Figure]:
    """Instructions of a plain agent turn after few others and after many, on SQLite."""
    require_callgrind()
    plan.say(f"growth-turn: {LATE_TURN:,} turns")
    found = await asyncio.to_thread(count, plan, "growth", "turns", _url(plan, "turns"))
    return _early_and_late("growth-turn: turn", (EARLY, LATE_TURN), found, MOST_TURN_GROWTH)


async def growth_memory(plan: Plan) -> list[Figure]:
    """What a hot session on SQLite takes more after many pauses than after few."""
    plan.say(f"growth-memory: {LATE:,} pauses")
    found = await asyncio.to_thread(_child, "kilobytes", _url(plan, "kept"), module="growth")
    name = f"growth-memory: from pause {EARLY} to pause {LATE:,}"
    return [Figure(name, "KB", [Round(found)], targets=[Target("value", "<=", MOST_KEPT)])]


def _url(plan: Plan, name: str) -> str:
    return "memory:" if name == "memory" else f"sqlite:///{plan.directory / f'growth-{name}.db'}"


def _early_and_late(name: str, when: tuple[int, int], found: list[int], most: float) -> list[Figure]:
    """`found` is what was counted early, in between, and late."""
    early, late = found[0] / COUNTED, found[2] / COUNTED
    targets = [Target("ratio", "<=", most)]
    return [
        Figure(f"{name} {when[0]:,}", "instructions", [Round(early)]),
        Figure(f"{name} {when[1]:,}", "instructions", [Round(late, early, early)], f"at {when[0]}", targets),
    ]


async def _count_early_and_late(work: Callable[[int], Awaitable[object]], late: int) -> None:
    """Work so often, with marks around what is counted early and late."""
    for number in range(late + COUNTED):
        if number in (EARLY, EARLY + COUNTED, late):
            mark()
        await work(number)
    mark()


def feeds(url: str) -> None:
    """Run in a process of its own: one session with many pauses, after a short one."""

    async def run() -> None:
        async with open_holdfast(url) as holdfast:
            host = Host(holdfast)
            await host.run(WARM_UP, WARM_UP)
            session_id = await host.start(FOREVER)
            await _count_early_and_late(lambda number: host.feed(session_id, number), LATE)

    asyncio.run(run())


def turns(url: str) -> None:
    """Run in a process of its own: one chat of many turns, after a short one."""

    async def run() -> None:
        async with Runtime(url, provider=_provider(WARM_UP + LATE_TURN + COUNTED)) as runtime:
            other = await runtime.session("other").open()
            for number in range(WARM_UP):
                await _turn(other, number)
            session = await runtime.session("chat").open()
            await _count_early_and_late(lambda number: _turn(session, number), LATE_TURN)

    asyncio.run(run())


def kilobytes(url: str) -> float:
    """Run in a process of its own: what was allocated between an early pause and a late one, and is still held."""

    async def run() -> float:
        async with open_holdfast(url) as holdfast:
            host = Host(holdfast)
            await host.run(WARM_UP, WARM_UP)
            session_id = await host.run(FOREVER, EARLY)
            gc.collect()
            tracemalloc.start()
            for number in range(EARLY, LATE):
                await host.feed(session_id, number)
            query_id.cache_clear()  # some thousand ids, which are the process's and not the session's
            gc.collect()
            return tracemalloc.get_traced_memory()[0] / 1024

    return asyncio.run(run())


BENCHMARKS: dict[str, Callable[[Plan], Awaitable[list[Figure]]]] = {
    "growth-feed": growth_feed,
    "growth-turn": growth_turn,
    "growth-memory": growth_memory,
}
