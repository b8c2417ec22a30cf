"""The work of a round trip, of resuming a session and of reopening a chat, in instructions that callgrind counts."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bench import Figure, Plan
from bench.agent import REOPENED, chat, open_chat
from bench.callgrind import count, instructions, mark, require_callgrind
from bench.engine import FOREVER, RESUME_PAUSES, Host, asks
from holdfast.core.records import Program
from holdfast.engine.holdfast import open_holdfast
from holdfast.engine.upkeep import Upkeep
from holdfast.programs.registry import Strategy

WARM_UP = 100
TRIPS = 300
"""Round trips that are not counted, and that are."""

LIMITS = {"memory": 300_000, "sqlite": 400_000}
"""Instructions of a round trip, by where the session lives."""

RESUME_LIMIT = 28_000_000
"""Instructions to open a store and feed a session of `RESUME_PAUSES` pauses."""

REOPEN_LIMIT = 25_000_000
"""Instructions to open a store and a chat of `REOPENED` turns."""


async def engine_instructions(plan: Plan) -> list[Figure]:
    """Pause, feed, pause: one round trip, in memory and on SQLite."""
    require_callgrind()
    figures = []
    for place, limit in LIMITS.items():
        url = trips_url(plan, place, "engine-instructions")
        (found,) = await asyncio.to_thread(count, plan, "instructions", "make_trips", url)
        name = f"engine-instructions: round trip, {place}"
        figures.append(instructions(plan, name, found / TRIPS, limit))
    return figures


def trips_url(plan: Plan, place: str, name: str) -> str:
    """Where the session lives whose round trips are counted."""
    return "memory:" if place == "memory" else f"sqlite:///{plan.directory / name}.db"


def make_trips(url: str, program: Strategy | Program = asks) -> None:
    """Run in a process of its own: feed one session."""

    async def run() -> None:
        idle = Upkeep(on=False)  # it looks at the clock, and callgrind is slow: it would have its turn every few trips
        async with open_holdfast(url, upkeep=idle) as holdfast:
            host = Host(holdfast, program)
            session_id = await host.run(FOREVER, WARM_UP)
            mark()
            for number in range(TRIPS):
                await host.feed(session_id, number)
            mark()

    asyncio.run(run())


async def resume_instructions(plan: Plan) -> list[Figure]:
    """A process that has fed another session opens a store and feeds one with many pauses behind it."""
    require_callgrind()
    path = plan.directory / "resume-instructions.db"
    async with open_holdfast(f"sqlite:///{path}") as holdfast:
        session_id = await Host(holdfast).run(FOREVER, RESUME_PAUSES)
    opened, fed = await asyncio.to_thread(count, plan, "instructions", "resume", str(path), session_id)
    name = f"resume-instructions: open + first feed after {RESUME_PAUSES} pauses"
    return [
        instructions(plan, name, opened + fed, RESUME_LIMIT),
        instructions(plan, "resume-instructions: open", opened),
    ]


def resume(path: str, session_id: str) -> None:
    """Run in a process of its own: feed a session, after all imports were done for another one."""

    async def run() -> None:
        async with open_holdfast(f"sqlite:///{path}.other") as holdfast:
            await Host(holdfast).run(FOREVER, 2)
        mark()
        async with open_holdfast(f"sqlite:///{path}") as holdfast:
            mark()
            await Host(holdfast).feed(session_id, RESUME_PAUSES)
            mark()

    asyncio.run(run())


async def reopen_instructions(plan: Plan) -> list[Figure]:
    """A process that has opened another chat opens a store and a chat in it, of some turns and of many."""
    require_callgrind()
    figures = []
    for turns, limit in {plan.turns: None, REOPENED: REOPEN_LIMIT}.items():
        plan.say(f"reopen-instructions: a chat of {turns:,} turns")
        path = plan.directory / f"reopen-instructions-{turns}.db"
        await chat(path, turns)
        (found,) = await asyncio.to_thread(count, plan, "instructions", "reopen", str(path), turns)
        figures.append(instructions(plan, f"reopen-instructions: a chat of {turns:,} turns", found, limit))
    return figures


def reopen(path: str, turns: int) -> None:
    """Run in a process of its own: open a chat, after all imports were done for another one."""

    async def run() -> None:
        other = Path(f"{path}.other")
        await chat(other, 2)
        async with open_chat(other, 2):
            mark()
        async with open_chat(Path(path), turns):
            mark()

    asyncio.run(run())


BENCHMARKS = {
    "engine-instructions": engine_instructions,
    "resume-instructions": resume_instructions,
    "reopen-instructions": reopen_instructions,
}
