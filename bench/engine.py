"""The benchmarks of the engine: round trips, bytes, resuming, sessions at rest, and what a pause does to the disk."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from bench import Figure, Plan, Rate, Round, Target, UnavailableError, interleave, texts
from bench.floor import PostgresFloor, SqliteFloor, asyncpg_module, warm_up
from bench.journal import _database
from bench.langgraph_peer import LangGraph
from holdfast.core.events import CompletedEvent, PausedEvent
from holdfast.core.records import Program
from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import Strategy, strategy

TEXT_BYTES = 1024
"""Bytes of a prompt, and of an answer."""

SESSIONS = 200
PAUSES = 20
"""Sessions fed at once, and pauses of each, in `engine-200`."""

FOREVER = 1_000_000
"""Pauses of a session that is not to end while it is measured."""

STORED = ((100, 20), (10, 200))
"""Sessions and answers in each, for `engine-bytes`: the same payload, in short sessions and in long ones."""

RESUMES = 15
RESUME_PAUSES = 200

IDLE_SESSIONS = 10_000

TRACED_PAUSES = (10, 30)
"""Pauses under strace, as in `shared/peers/count_syncs.py`: too few for a checkpoint of the log."""

TRACED_LONG = (200, 1_800)
"""Enough for several checkpoints."""

PEER_ROUNDS = 3
"""Rounds of LangGraph, which takes about 20 s for each."""


@strategy(name="bench-asks")
async def asks(ctx: Context) -> str:
    """Asks as often as its data says, one question at a time."""
    prompts = texts(TEXT_BYTES)
    for number in range(ctx["pauses"]):
        await ctx.llm(prompts[number % len(prompts)])
    return "done"


class Host:
    """Whoever starts and feeds sessions."""

    def __init__(self, holdfast: Holdfast, program: Strategy | Program = asks) -> None:
        self._holdfast = holdfast
        self._program = program
        self._answers = texts(TEXT_BYTES)[::-1]

    async def start(self, pauses: int, session_id: str | None = None) -> str:
        """A session at its first pause."""
        event = await self._holdfast.start(self._program, ctx={"pauses": pauses}, id=session_id)
        if not isinstance(event, PausedEvent):
            raise AssertionError(f"expected a question, got {event.to_json()}")
        return event.session_id

    async def feed(self, session_id: str, number: int) -> None:
        """One round trip: the answer is durable, and the next question is there."""
        event = await self._holdfast.feed(session_id, self._answers[number % len(self._answers)])
        if not isinstance(event, (PausedEvent, CompletedEvent)):
            raise AssertionError(f"expected a question or the end, got {event.to_json()}")

    async def run(self, pauses: int, answers: int) -> str:
        """A session that asks so often and is answered so often."""
        session_id = await self.start(pauses)
        for number in range(answers):
            await self.feed(session_id, number)
        return session_id


# --- round trips -----------------------------------------------------------------------------------


async def one_session(holdfast: Holdfast, program: Strategy | Program = asks) -> Rate:
    """Round trips per second of one session that never ends."""
    host = Host(holdfast, program)
    session_id = await host.start(FOREVER)

    async def rate(seconds: float) -> float:
        began = time.perf_counter()
        done = 0
        while (now := time.perf_counter()) < began + seconds:
            await host.feed(session_id, done)
            done += 1
        return done / (now - began)

    return rate


def many_sessions(holdfast: Holdfast, program: Strategy | Program = asks) -> Rate:
    """Round trips per second of `SESSIONS` at once, from their start to their end, as often as time allows."""
    host = Host(holdfast, program)

    async def rate(seconds: float) -> float:
        began = time.perf_counter()
        done = 0
        while time.perf_counter() < began + seconds:
            await asyncio.gather(*(host.run(PAUSES, PAUSES) for _ in range(SESSIONS)))
            done += SESSIONS * PAUSES
        return done / (time.perf_counter() - began)

    return rate


async def in_turn(holdfast: Holdfast, commit: Callable[[], int]) -> Rate:
    """Round trips per second of one session in memory, with a raw commit after each of them."""
    host = Host(holdfast)
    session_id = await host.start(FOREVER)

    async def rate(seconds: float) -> float:
        began = time.perf_counter()
        done = 0
        while (now := time.perf_counter()) < began + seconds:
            await host.feed(session_id, done)
            done += commit()
        return done / (now - began)

    return rate


async def engine_1(plan: Plan) -> list[Figure]:
    """One session, SQLite: against raw commits of one row, beside LangGraph, and the most that this machine leaves."""
    path, floor_path = plan.directory / "engine-1.db", plan.directory / "engine-1-floor.db"
    with contextlib.closing(SqliteFloor(floor_path)) as floor:
        async with open_holdfast(f"sqlite:///{path}") as holdfast:
            rate = await one_session(holdfast)
            await warm_up(floor_path, floor.singles)
            await warm_up(path, rate)
            rates, costs = await interleave(plan, "engine-1", floor.singles, rate)
            figures = _figures("engine-1", "SQLite, 1 row a commit", rates, costs, Target("ratio", ">=", 0.55))
            async with open_holdfast("memory:") as in_memory:
                most = await in_turn(in_memory, floor.commit_one)
                rates, _ = await interleave(plan, "engine-1, in memory, and a raw commit", floor.singles, most)
            name = "engine-1: in memory, and a raw commit"
            figures.append(Figure(name, "of both/s", rates, "SQLite, 1 row a commit"))
            return figures + await _beside_langgraph(plan, "engine-1", rate, sessions=1, targets=[])


async def engine_200(plan: Plan) -> list[Figure]:
    """Many sessions in one process, SQLite: against raw commits of as many rows, and beside LangGraph."""
    path, floor_path = plan.directory / "engine-200.db", plan.directory / "engine-200-floor.db"
    with contextlib.closing(SqliteFloor(floor_path)) as floor:
        async with open_holdfast(f"sqlite:///{path}") as holdfast:
            rate = many_sessions(holdfast)
            await warm_up(floor_path, floor.groups)
            await warm_up(path, rate)
            rates, costs = await interleave(plan, "engine-200", floor.groups, rate)
            figures = _figures("engine-200", "SQLite, 200 rows a commit", rates, costs, Target("value", ">=", 4_000))
            targets = [Target("ratio", ">=", 25)]
            return figures + await _beside_langgraph(plan, "engine-200", rate, sessions=SESSIONS, targets=targets)


async def engine_pg_1(plan: Plan) -> list[Figure]:
    """One session, PostgreSQL: against raw asyncpg on one connection."""
    return await _on_postgres(plan, "engine-pg-1", 1)


async def engine_pg_200(plan: Plan) -> list[Figure]:
    """Many sessions in one process, PostgreSQL: against raw asyncpg on as many connections as the store has."""
    asyncpg_module()
    from holdfast.store.postgres.connection import POOL_CONNECTIONS

    return await _on_postgres(plan, "engine-pg-200", POOL_CONNECTIONS)


async def _on_postgres(plan: Plan, name: str, connections: int) -> list[Figure]:
    async with _database(plan) as url:
        floor = PostgresFloor(url)
        await floor.open(connections)
        async with open_holdfast(url) as holdfast:
            rate = await one_session(holdfast) if connections == 1 else many_sessions(holdfast)
            for warming in (floor.singles, rate):
                await warming(plan.seconds)
            rates, costs = await interleave(plan, name, floor.singles, rate)
        await floor.close()
    return _figures(name, f"asyncpg, connections: {connections}", rates, costs, Target("ratio", ">=", 0.6))


def _figures(name: str, floor: str, rates: list[Round], costs: list[Round], *targets: Target) -> list[Figure]:
    return [
        Figure(name, "round trips/s", rates, floor, list(targets)),
        Figure(f"{name}: CPU per round trip", "us", costs, floor),
    ]


async def _beside_langgraph(plan: Plan, name: str, rate: Rate, *, sessions: int, targets: list[Target]) -> list[Figure]:
    """The same loop in LangGraph, taking turns with ours; nothing where it is not installed."""
    try:
        peer = await LangGraph.begin(plan.directory / f"{name}-langgraph.db", sessions, PAUSES)
    except UnavailableError as reason:
        plan.say(f"{name}: LangGraph is left out: {reason}")
        return []
    async with contextlib.aclosing(peer):
        rates, _ = await interleave(
            Plan(plan.seconds, PEER_ROUNDS, plan.directory, plan.say), f"{name} beside LangGraph", peer.rate, rate
        )
    return [Figure(f"{name}: beside LangGraph", "round trips/s", rates, "LangGraph, SqliteSaver, sync", targets)]


# --- bytes -----------------------------------------------------------------------------------------


async def engine_bytes(plan: Plan) -> list[Figure]:
    """Bytes at rest for each byte of prompts and answers, of sessions that wait for their next answer."""
    figures = []
    for sessions, answers in STORED:
        plan.say(f"engine-bytes: {sessions} sessions of {answers} pauses")
        path = plan.directory / f"engine-bytes-{answers}.db"
        async with open_holdfast(f"sqlite:///{path}") as holdfast:
            host = Host(holdfast)
            await asyncio.gather(*(host.run(answers + 1, answers) for _ in range(sessions)))
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        payload = sessions * (2 * answers + 1) * TEXT_BYTES
        ratio = path.stat().st_size / payload
        name = f"engine-bytes: at rest, {answers} pauses"
        figures.append(Figure(name, "x payload", [Round(ratio)], targets=[Target("value", "<=", 1.5)]))
    return figures


# --- resuming --------------------------------------------------------------------------------------


async def engine_resume(plan: Plan) -> list[Figure]:
    """A new process answers a session with many pauses behind it: from opening the store to the next question."""
    path = plan.directory / "engine-resume.db"
    async with open_holdfast(f"sqlite:///{path}") as holdfast:
        host = Host(holdfast)
        sessions = [await host.run(FOREVER, RESUME_PAUSES) for _ in range(RESUMES)]
    opens, firsts, totals, costs = [], [], [], []
    for number, session_id in enumerate(sessions, 1):
        opened, fed, cost = _child("resume_alone", str(path), session_id)
        opens.append(Round(opened))
        firsts.append(Round(fed))
        totals.append(Round(opened + fed))
        costs.append(Round(cost))
        plan.say(f"engine-resume: round {number}/{RESUMES}: {opened:.1f} + {fed:.1f} ms, {cost:.1f} ms of CPU")
    return [
        Figure("engine-resume: open + first feed", "ms", totals, targets=[Target("value", "<=", 14)]),
        Figure("engine-resume: open", "ms", opens),
        Figure("engine-resume: first feed", "ms", firsts),
        Figure("engine-resume: CPU of both", "ms", costs),
    ]


def resume_alone(path: str, session_id: str) -> tuple[float, float, float]:
    """Run in a process of its own: milliseconds to open the store and to feed the session, and CPU time of both."""
    import holdfast.store.sqlite.store  # noqa: F401 - imports are not part of what is measured

    texts(TEXT_BYTES)

    async def run() -> tuple[float, float, float]:
        began, spent = time.perf_counter(), time.process_time()
        async with open_holdfast(f"sqlite:///{path}") as holdfast:
            opened = time.perf_counter()
            await Host(holdfast).feed(session_id, RESUME_PAUSES)
            fed, spent = time.perf_counter(), time.process_time() - spent
        return (opened - began) * 1000, (fed - opened) * 1000, spent * 1000

    return asyncio.run(run())


# --- sessions at rest ------------------------------------------------------------------------------


async def engine_idle(plan: Plan) -> list[Figure]:
    """How much a process grows by starting many sessions that then wait."""
    plan.say(f"engine-idle: starting {IDLE_SESSIONS:,} sessions")
    grown: float = _child("idle_alone", str(plan.directory / "engine-idle.db"))
    name = f"engine-idle: {IDLE_SESSIONS:,} paused sessions"
    return [Figure(name, "MB", [Round(grown)], targets=[Target("value", "<=", 100)])]


def idle_alone(path: str) -> float:
    """Run in a process of its own: the megabytes by which it grew."""

    async def run() -> float:
        async with open_holdfast(f"sqlite:///{path}") as holdfast:
            host = Host(holdfast)
            await host.run(PAUSES, PAUSES)
            gc.collect()
            before = _resident()
            for _ in range(IDLE_SESSIONS // SESSIONS):
                await asyncio.gather(*(host.start(PAUSES) for _ in range(SESSIONS)))
            gc.collect()
            return (_resident() - before) / 1e6

    return asyncio.run(run())


def _resident(pid: int | str = "self") -> int:
    """Bytes of a process in memory."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    if found is None:
        raise UnavailableError("this system does not say how much memory a process has")
    return int(found[1]) * 1024


def _child(function: str, *arguments: str, module: str = "engine", patience: str = "1") -> Any:
    """What a function of this module, or another one here, returns in a new process."""
    environment = {**os.environ, "HOLDFAST_PATIENCE": patience}
    program = f"import json; from bench import {module}; print(json.dumps({module}.{function}(*{arguments!r})))"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise AssertionError(f"{function} failed: {done.stderr.strip()[-2000:]}")
    return json.loads(done.stdout)


# --- the disk --------------------------------------------------------------------------------------


async def engine_disk(plan: Plan) -> list[Figure]:
    """What one pause of one session syncs and writes, counted by strace: free of noise."""
    if shutil.which("strace") is None:
        raise UnavailableError("strace is not installed")
    plan.say("engine-disk: counting under strace")
    syncs, written = _per_pause(plan, TRACED_PAUSES)
    long_syncs, long_written = _per_pause(plan, TRACED_LONG)
    return [
        Figure("engine-disk: syncs per pause", "calls", [Round(syncs)], targets=[Target("value", "<=", 1)]),
        Figure("engine-disk: written per pause", "bytes", [Round(written)], targets=[Target("value", "<=", 25_000)]),
        Figure("engine-disk: syncs per pause, with checkpoints", "calls", [Round(long_syncs)]),
        Figure("engine-disk: written per pause, with checkpoints", "bytes", [Round(long_written)]),
    ]


def _per_pause(plan: Plan, pauses: tuple[int, int]) -> tuple[float, float]:
    """Syncs and bytes for each pause; the difference of two runs leaves out opening and closing."""
    fewer, more = (_trace(plan.directory / f"engine-disk-{count}.db", count) for count in pauses)
    syncs, written = ((b - a) / (pauses[1] - pauses[0]) for a, b in zip(fewer, more, strict=True))
    return syncs, written


def _trace(path: Path, pauses: int) -> tuple[int, int]:
    """Syncs, and bytes written, to a database and its log."""
    trace = path.with_suffix(".strace")
    program = f"from bench import engine; engine.pauses_alone({str(path)!r}, {pauses})"
    tracer = ["strace", "-f", "-y", "-qq", "-s", "0", "-o", str(trace), "-e", "trace=fsync,fdatasync,write,pwrite64"]
    done = subprocess.run([*tracer, sys.executable, "-c", program], capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnavailableError(f"strace does not work here: {done.stderr.strip()[-200:]}")
    syncs = written = 0
    for line in trace.read_text().splitlines():
        if str(path) not in line:
            continue
        if "sync(" in line:
            syncs += 1
        elif (size := re.search(r"= (\d+)$", line)) is not None:
            written += int(size[1])
    return syncs, written


def pauses_alone(path: str, pauses: int) -> None:
    """Run in a process of its own, under strace."""

    async def run() -> None:
        async with open_holdfast(f"sqlite:///{path}") as holdfast:
            await Host(holdfast).run(FOREVER, pauses)

    asyncio.run(run())


BENCHMARKS: dict[str, Callable[[Plan], Awaitable[list[Figure]]]] = {
    "engine-1": engine_1,
    "engine-200": engine_200,
    "engine-bytes": engine_bytes,
    "engine-resume": engine_resume,
    "engine-idle": engine_idle,
    "engine-disk": engine_disk,
    "engine-pg-1": engine_pg_1,
    "engine-pg-200": engine_pg_200,
}
