"""The work of a round trip, of resuming a session and of reopening a chat, in instructions that callgrind counts."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

from bench import Figure, Plan, Round, Target
from bench.agent import REOPENED, chat, open_chat
from bench.callgrind import difference, require_callgrind
from bench.engine import FOREVER, RESUME_PAUSES, Host
from holdfast.engine.holdfast import open_holdfast

TRIPS = (100, 400)
"""Round trips of two runs."""

LIMITS = {"memory": 300_000, "sqlite": 400_000}
"""Instructions of a round trip, by where the session lives."""

RESUME_LIMIT = 28_000_000
"""Instructions to open a store and feed a session of `RESUME_PAUSES` pauses."""

REOPEN_LIMIT = 25_000_000
"""Instructions to open a store and a chat of `REOPENED` turns."""


async def engine_instructions(plan: Plan) -> list[Figure]:
    """Pause, feed, pause: one round trip, in memory and on SQLite."""
    require_callgrind()
    return [await asyncio.to_thread(_round_trip, plan, place, limit) for place, limit in LIMITS.items()]


def _round_trip(plan: Plan, place: str, limit: int) -> Figure:
    fewer, more = ((place, trips, str(plan.directory)) for trips in TRIPS)
    found = difference(plan, "instructions", "make_trips", fewer, more) / (TRIPS[1] - TRIPS[0])
    return _figure(plan, f"engine-instructions: round trip, {place}", found, limit)


def _figure(plan: Plan, name: str, found: float, limit: int | None) -> Figure:
    plan.say(f"{name}: {found:,.0f}")
    targets = [] if limit is None else [Target("value", "<=", limit)]
    return Figure(name, "instructions", [Round(found)], targets=targets)


def make_trips(place: str, trips: int, directory: str) -> None:
    """Run in a process of its own: one session, fed so often."""
    path = Path(directory) / f"engine-instructions-{trips}.db"

    async def run() -> None:
        async with open_holdfast("memory:" if place == "memory" else f"sqlite:///{path}") as holdfast:
            await Host(holdfast).run(FOREVER, trips)

    asyncio.run(run())


async def resume_instructions(plan: Plan) -> list[Figure]:
    """A process that has done its imports opens a store and feeds a session with many pauses behind it."""
    require_callgrind()
    path = plan.directory / "resume-instructions.db"
    async with open_holdfast(f"sqlite:///{path}") as holdfast:
        session_id = await Host(holdfast).run(FOREVER, RESUME_PAUSES)
    work = ((str(path), each) for each in ("", session_id))
    found = await asyncio.to_thread(difference, plan, "instructions", "resume", *work)
    name = f"resume-instructions: open + first feed after {RESUME_PAUSES} pauses"
    return [_figure(plan, name, found, RESUME_LIMIT)]


def resume(path: str, session_id: str) -> None:
    """Run in a process of its own: a short session in another store; then feed the session that is named, if one is."""

    async def run() -> None:
        async with open_holdfast(f"sqlite:///{_beside(path)}") as holdfast:
            await Host(holdfast).run(FOREVER, 2)
        if session_id:
            holdfast = await open_holdfast(f"sqlite:///{path}").__aenter__()
            await Host(holdfast).feed(session_id, RESUME_PAUSES)
        _leave()

    asyncio.run(run())


async def reopen_instructions(plan: Plan) -> list[Figure]:
    """A process that has done its imports opens a store and a chat, of some turns and of many."""
    require_callgrind()
    figures = []
    for turns, limit in {plan.turns: None, REOPENED: REOPEN_LIMIT}.items():
        plan.say(f"reopen-instructions: a chat of {turns:,} turns")
        path = plan.directory / f"reopen-instructions-{turns}.db"
        await chat(path, turns)
        work = ((str(path), each) for each in (0, turns))
        found = await asyncio.to_thread(difference, plan, "instructions", "reopen", *work)
        figures.append(_figure(plan, f"reopen-instructions: a chat of {turns:,} turns", found, limit))
    return figures


def reopen(path: str, turns: int) -> None:
    """Run in a process of its own: a short chat in another store; then open the one with so many turns, if any."""

    async def run() -> None:
        warm_up = _beside(path)
        await chat(warm_up, 2)
        await (await open_chat(warm_up, 2)).__aexit__(None, None, None)
        if turns:
            await open_chat(Path(path), turns)
        _leave()

    asyncio.run(run())


def _beside(path: str) -> Path:
    """A new store in the directory of another one."""
    return Path(tempfile.mkdtemp(dir=Path(path).parent)) / "warm-up.db"


def _leave() -> None:
    """End the process here: closing what was opened is no part of what is counted."""
    os._exit(0)


BENCHMARKS = {
    "engine-instructions": engine_instructions,
    "resume-instructions": resume_instructions,
    "reopen-instructions": reopen_instructions,
}
