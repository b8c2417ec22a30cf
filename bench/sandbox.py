"""The benchmarks of sandboxed Python: round trips by snapshot, what a snapshot takes, resuming, and both cores."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench import Figure, Plan, Rate, Round, Target, interleave, texts
from bench.engine import (
    FOREVER,
    PAUSES,
    RESUME_PAUSES,
    RESUMES,
    SESSIONS,
    TEXT_BYTES,
    Host,
    _child,
    many_sessions,
    one_session,
)
from bench.floor import warm_up
from holdfast.core.records import Program
from holdfast.engine.holdfast import open_holdfast
from holdfast.programs.sandbox.source import python_code

LOOKS = (10, 300)
"""Pauses after which a session's snapshot is looked at."""

CODE = f"""
def run(ctx):
    words = "a question of about the same length as the others " * {TEXT_BYTES // 50}
    for number in range(ctx["pauses"]):
        answer = llm(f"{{number:08d}} {{words}}")
    return "done"
"""


def asks() -> Program:
    """The sandboxed twin of the native program that is measured: it asks as often as its data says."""
    return python_code(CODE, name="bench-asks-python")


BUSY = CODE.replace("answer = llm(", "sum([n * n for n in range(4_000)])\n        answer = llm(")
"""The same, with some computing before each question."""


def computes() -> Program:
    """A program that has something to compute between its questions."""
    return python_code(BUSY, name="bench-computes-python")


def bare() -> tuple[Rate, Callable[[], int], Callable[[], None]]:
    """The interpreter alone, in one thread: dump, release, checkout, load, resume; and the size of its dump."""
    from pydantic_monty import FunctionSnapshot, Monty

    pool = Monty(max_processes=1)
    pool.__enter__()
    answers = texts(TEXT_BYTES)
    with pool.checkout() as session:
        first = session.feed_start(f"{CODE}\nrun(ctx)\n", inputs={"ctx": {"pauses": FOREVER}})
        assert isinstance(first, FunctionSnapshot)
        dumps = [first.dump()]

    async def rate(seconds: float) -> float:
        began = time.perf_counter()
        done = 0
        while (now := time.perf_counter()) < began + seconds:
            with pool.checkout() as session:
                waiting = session.load_snapshot(dumps[0])
                assert isinstance(waiting, FunctionSnapshot)
                asked = waiting.resume({"return_value": answers[done % len(answers)]})
                assert isinstance(asked, FunctionSnapshot)
                dumps[0] = asked.dump()
            done += 1
        return done / (now - began)

    return rate, lambda: len(dumps[0]), lambda: pool.__exit__(None, None, None)


async def sandbox_1(plan: Plan) -> list[Figure]:
    """One session, SQLite: each pause stored with its snapshot, against the interpreter alone, which stores nothing."""
    path = plan.directory / "sandbox-1.db"
    floor, _, close = bare()
    with contextlib.closing(_Closing(close)):
        async with open_holdfast(f"sqlite:///{path}") as holdfast:
            rate = await one_session(holdfast, asks())
            await warm_up(path, rate)
            rates, costs = await interleave(plan, "sandbox-1", floor, rate)
    return [
        Figure("sandbox-1: round trips", "/s", rates, "monty alone", [Target("value", ">=", 600)]),
        Figure("sandbox-1: CPU per round trip, engine", "µs", costs, "monty alone"),
    ]


async def sandbox_200(plan: Plan) -> list[Figure]:
    """Many sessions in one process: how fast, and how many cores it and its workers keep busy."""
    name = f"sandbox-200: {SESSIONS} sessions × {PAUSES} pauses"
    rates, cores = await _many(plan, "sandbox-200", asks())
    busy_rates, busy_cores = await _many(plan, "sandbox-200, computing", computes())
    of_all = f"of {os.cpu_count()}"
    return [
        Figure(name, "round trips/s", rates),
        Figure("sandbox-200: cores in use", of_all, cores),
        Figure(f"{name}, computing", "round trips/s", busy_rates),
        Figure("sandbox-200: cores in use, computing", of_all, busy_cores, targets=[Target("value", ">=", 1.5)]),
    ]


async def _many(plan: Plan, name: str, program: Program) -> tuple[list[Round], list[Round]]:
    path = plan.directory / f"{program.name}.db"
    rates, cores = [], []
    async with open_holdfast(f"sqlite:///{path}") as holdfast:
        rate = many_sessions(holdfast, program)
        await warm_up(path, rate)
        for number in range(1, plan.repeat + 1):
            began, spent = time.perf_counter(), _cpu_seconds()
            rates.append(Round(await rate(plan.seconds)))
            cores.append(Round((_cpu_seconds() - spent) / (time.perf_counter() - began)))
            figures = f"{rates[-1].value:,.0f}/s on {cores[-1].value:.2f} cores"
            plan.say(f"{name}: round {number}/{plan.repeat}: {figures}")
    return rates, cores


async def sandbox_bytes(plan: Plan) -> list[Figure]:
    """What is kept of a session's state, early and late in its life, against the interpreter's own dump."""
    path = plan.directory / "sandbox-bytes.db"
    floor, size, close = bare()
    await floor(0.05)
    dump = size()
    close()
    figures = []
    async with open_holdfast(f"sqlite:///{path}") as holdfast:
        host = Host(holdfast, asks())
        session_id = await host.start(FOREVER)
        fed = rows = 0
        for pauses in LOOKS:
            while fed < pauses:
                await host.feed(session_id, fed)
                fed += 1
            rows, kept = _snapshots(path)
            plan.say(f"sandbox-bytes: after {pauses} pauses: {rows} snapshot, {kept:,} bytes; monty's dump {dump:,}")
            rounds = [Round(kept, dump, dump)]
            name = f"sandbox-bytes: kept after {pauses} pauses"
            figures.append(Figure(name, "bytes", rounds, "monty's dump", [Target("ratio", "<=", 2)]))
    return [
        *figures,
        Figure("sandbox-bytes: snapshots kept", "rows", [Round(rows)], targets=[Target("value", "<=", 1)]),
    ]


def _snapshots(path: Path) -> tuple[int, int]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        rows, size = connection.execute("SELECT count(*), coalesce(sum(length(data)), 0) FROM snapshots").fetchone()
        return int(rows), int(size)


async def sandbox_resume(plan: Plan) -> list[Figure]:
    """A new process answers a session with many pauses behind it: from opening the store to the next question."""
    path = plan.directory / "sandbox-resume.db"
    async with open_holdfast(f"sqlite:///{path}") as holdfast:
        host = Host(holdfast, asks())
        sessions = [await host.run(FOREVER, RESUME_PAUSES) for _ in range(RESUMES)]
    totals, costs = [], []
    for number, session_id in enumerate(sessions, 1):
        total, cost = _child("resume_alone", str(path), session_id, module="sandbox")
        totals.append(Round(total))
        costs.append(Round(cost))
        plan.say(f"sandbox-resume: round {number}/{RESUMES}: {total:.1f} ms, {cost:.1f} ms of CPU")
    return [
        Figure("sandbox-resume: open, load, feed", "ms", totals, targets=[Target("value", "<=", 30)]),
        Figure("sandbox-resume: CPU of the engine", "ms", costs),
    ]


def resume_alone(path: str, session_id: str) -> tuple[float, float]:
    """Run in a process of its own: milliseconds to open the store and to feed the session, and CPU time of both."""
    import holdfast.programs.sandbox.instance
    import holdfast.programs.sandbox.workers
    import holdfast.store.sqlite.store  # noqa: F401 - imports are not part of what is measured

    texts(TEXT_BYTES)

    async def run() -> tuple[float, float]:
        began, spent = time.perf_counter(), time.process_time()
        async with open_holdfast(f"sqlite:///{path}") as holdfast:
            await Host(holdfast).feed(session_id, RESUME_PAUSES)
            took, spent = time.perf_counter() - began, time.process_time() - spent
        return took * 1000, spent * 1000

    return asyncio.run(run())


def _cpu_seconds() -> float:
    """CPU time of this process and of all that it has started and that run."""
    own = time.process_time()
    ticks = os.sysconf("SC_CLK_TCK")
    children = {os.getpid()}
    total = 0.0
    for _ in range(4):  # as deep as a worker can be: the jail, and what is in it
        for directory in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = (directory / "stat").read_text().rpartition(") ")[2].split()
                pid = int(directory.name)
                if int(fields[1]) in children and pid not in children:
                    children.add(pid)
                    total += (int(fields[11]) + int(fields[12])) / ticks
    return own + total


class _Closing:
    def __init__(self, close: Callable[[], None]) -> None:
        self.close = close


BENCHMARKS: dict[str, Callable[[Plan], Awaitable[list[Figure]]]] = {
    "sandbox-1": sandbox_1,
    "sandbox-200": sandbox_200,
    "sandbox-bytes": sandbox_bytes,
    "sandbox-resume": sandbox_resume,
}
