"""The benchmarks of Lua strategies: round trips through a worker, the first pause, replay, and sessions at rest."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench import Figure, Plan, Round, Target, interleave
from bench.engine import (
    FOREVER,
    IDLE_SESSIONS,
    PAUSES,
    SESSIONS,
    TEXT_BYTES,
    Host,
    _child,
    _figures,
    _resident,
    many_sessions,
    one_session,
)
from bench.floor import SqliteFloor, warm_up
from holdfast.alc.lua.kind import LuaKind
from holdfast.alc.lua.source import lua_code
from holdfast.core.records import Program
from holdfast.engine.holdfast import open_holdfast

STARTS = 50
"""Sessions started for one round of `lua-start`."""

ANSWERS = 1_000
"""Answers that are replayed in `lua-replay`."""


def asks() -> Program:
    """The Lua twin of the native program that is measured: it asks as often as its data says."""
    code = f"""
    local words = ("a question of about the same length as the others "):rep({TEXT_BYTES // 50})
    for number = 1, ctx.pauses do
        alc.llm(("%08d "):format(number) .. words)
    end
    return "done"
    """
    return lua_code(code, name="bench-asks-lua")


async def lua_1(plan: Plan) -> list[Figure]:
    """One Lua session, SQLite: against raw commits of one row, and against the same program in Python."""
    path, floor_path = plan.directory / "lua-1.db", plan.directory / "lua-1-floor.db"
    with contextlib.closing(SqliteFloor(floor_path)) as floor:
        async with open_holdfast(f"sqlite:///{path}") as holdfast:
            rate = await one_session(holdfast, asks())
            native = await one_session(holdfast)
            await warm_up(floor_path, floor.singles)
            await warm_up(path, rate)
            rates, costs = await interleave(plan, "lua-1", floor.singles, rate)
            beside, _ = await interleave(plan, "lua-1 beside native", native, rate)
    figures = _figures("lua-1", "SQLite, 1 row a commit", rates, costs, Target("ratio", ">=", 0.4))
    targets = [Target("ratio", ">=", 0.75)]
    return [*figures, Figure("lua-1: beside native", "round trips/s", beside, "the native program", targets)]


async def lua_200(plan: Plan) -> list[Figure]:
    """Many Lua sessions in one process, SQLite: against as many native ones."""
    path = plan.directory / "lua-200.db"
    async with open_holdfast(f"sqlite:///{path}") as holdfast:
        native, rate = many_sessions(holdfast), many_sessions(holdfast, asks())
        await warm_up(path, native)
        await warm_up(path, rate)
        rates, costs = await interleave(plan, "lua-200", native, rate)
    return _figures("lua-200", "200 native sessions", rates, costs, Target("ratio", ">=", 0.5))


async def lua_start(plan: Plan) -> list[Figure]:
    """A new session to its first question, in a worker that runs already."""
    path = plan.directory / "lua-start.db"
    rounds = []
    async with open_holdfast(f"sqlite:///{path}") as holdfast:
        host = Host(holdfast, asks())
        await host.start(PAUSES)
        for number in range(1, plan.repeat + 1):
            began = time.perf_counter()
            for _ in range(STARTS):
                await host.start(PAUSES)
            rounds.append(Round((time.perf_counter() - began) * 1000 / STARTS))
            plan.say(f"lua-start: round {number}/{plan.repeat}: {rounds[-1].value:.2f} ms")
    return [Figure("lua-start: to the first pause, warm", "ms", rounds, targets=[Target("value", "<=", 10)])]


async def lua_replay(plan: Plan) -> list[Figure]:
    """A session with many answers whose VM is gone, in a process that is warm."""
    path = plan.directory / "lua-replay.db"
    async with open_holdfast(f"sqlite:///{path}") as holdfast:
        session_id = await Host(holdfast, asks()).run(FOREVER, ANSWERS)
    replays, wholes = [], []
    for number in range(1, plan.repeat + 1):
        async with open_holdfast(f"sqlite:///{path}") as holdfast:
            kind = LuaKind()
            holdfast.add_kind(kind)
            await Host(holdfast, asks()).start(1)  # so that there is a worker
            host = Host(holdfast)
            await host.feed(session_id, 0)
            # Hot, then lost: only the program has to be rebuilt; the session is known.
            kind.pool.close_vms()
            began = time.perf_counter()
            await host.feed(session_id, 1)
            replays.append(Round((time.perf_counter() - began) * 1000))
            whole = await _cold(path, session_id)
            wholes.append(Round(whole))
        plan.say(
            f"lua-replay: round {number}/{plan.repeat}: {replays[-1].value:.1f} ms, cold {wholes[-1].value:.1f} ms"
        )
    return [
        Figure(f"lua-replay: {ANSWERS:,} answers, a lost VM", "ms", replays, targets=[Target("value", "<=", 50)]),
        Figure(f"lua-replay: {ANSWERS:,} answers, a new engine", "ms", wholes),
    ]


async def _cold(path: Path, session_id: str) -> float:
    """Milliseconds of the first feed by an engine that has never seen the session; its worker runs already."""
    async with open_holdfast(f"sqlite:///{path}") as holdfast:
        await Host(holdfast, asks()).start(1)
        began = time.perf_counter()
        await Host(holdfast).feed(session_id, 2)
        return (time.perf_counter() - began) * 1000


async def lua_idle(plan: Plan) -> list[Figure]:
    """How much memory many paused Lua sessions need, in the engine and its workers."""
    plan.say(f"lua-idle: starting {IDLE_SESSIONS:,} sessions")
    grown, workers = _child("idle_alone", str(plan.directory / "lua-idle.db"), module="lua")
    name = f"lua-idle: {IDLE_SESSIONS:,} paused sessions"
    return [
        Figure(f"{name}, all processes", "MB", [Round(grown)], targets=[Target("value", "<=", 200)]),
        Figure(f"{name}, workers alone", "MB", [Round(workers)]),
    ]


def idle_alone(path: str) -> tuple[float, float]:
    """Run in a process of its own: megabytes of it and all its workers together, and of the workers."""

    async def run() -> tuple[float, float]:
        async with open_holdfast(f"sqlite:///{path}") as holdfast:
            kind = LuaKind()
            holdfast.add_kind(kind)
            host = Host(holdfast, asks())
            for _ in range(IDLE_SESSIONS // SESSIONS):
                await asyncio.gather(*(host.start(PAUSES) for _ in range(SESSIONS)))
            gc.collect()
            workers = sum(_resident(pid) for pid in kind.pool.pids)
            return (_resident() + workers) / 1e6, workers / 1e6

    return asyncio.run(run())


BENCHMARKS: dict[str, Callable[[Plan], Awaitable[list[Figure]]]] = {
    "lua-1": lua_1,
    "lua-200": lua_200,
    "lua-start": lua_start,
    "lua-replay": lua_replay,
    "lua-idle": lua_idle,
}
