"""The benchmark of an idle fleet: what eight workers cost that have nothing to do, and their PostgreSQL server.

The store is one of many sessions that all wait for something: `HOLDFAST_BENCH_SESSIONS`, 20,000 by default. All figures
are read from outside of the processes: CPU time and memory from /proc, transactions from the server's statistics.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from bench import Figure, Plan, Round, Target, UnavailableError
from bench.floor import asyncpg_module
from bench.inbox import durable_server
from bench.loader import load
from holdfast.testing.postgres_server import fresh_database

PROCESSES = 8

SESSIONS = int(os.environ.get("HOLDFAST_BENCH_SESSIONS") or 20_000)
"""Sessions of the store, a quarter for each of the kinds."""

KINDS = ("model", "timer", "chat", "person")
"""Kinds of sessions that wait; see `bench.loader`."""

FIRST_S = 8.0
"""Seconds for what a process does once when it begins."""

IDLE_S = 30.0
"""Seconds for which all are watched: three of the looks that each makes by itself."""

_TICKS = os.sysconf("SC_CLK_TCK")
_TRANSACTIONS = "select xact_commit + xact_rollback from pg_stat_database where datname = current_database()"
_PROCESSES = "select count(*) from holdfast.holders"


class Spent(NamedTuple):
    """What was used up so far."""

    workers: list[float]
    """CPU seconds of each."""
    server: float
    """CPU seconds of all processes of the server."""
    transactions: int


def _cpu_s(pid: int) -> tuple[float, float]:
    """The CPU seconds of a process, and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own, ended = (sum(int(fields[at]) for at in place) / _TICKS for place in ((11, 12), (13, 14)))
    return own, ended


def _server_cpu_s(postmaster: int) -> float:
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
    total = sum(_cpu_s(postmaster))
    for child in children:
        with contextlib.suppress(FileNotFoundError):  # it has just ended, and counts with those
            total += _cpu_s(int(child))[0]
    return total


def _memory_mb(pid: int) -> float:
    """The most memory that a process had."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise UnavailableError("the memory of a process is read from /proc")


@contextlib.contextmanager
def _workers(url: str) -> Iterator[list[int]]:
    """Idle workers; their process ids."""
    command = [sys.executable, "-m", "bench.fleet", url]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(PROCESSES)]
    try:
        yield [process.pid for process in processes]
    finally:
        for process in processes:
            process.communicate()


async def _spent(connection: Any, workers: Sequence[int], postmaster: int) -> Spent:
    used = [_cpu_s(pid)[0] for pid in workers]
    return Spent(used, _server_cpu_s(postmaster), await connection.fetchval(_TRANSACTIONS))


async def idle(plan: Plan) -> list[Figure]:
    """What each of eight idle workers costs, and the server."""
    if not Path("/proc/self/stat").exists():
        raise UnavailableError("CPU times of processes are read from /proc")
    with durable_server(plan) as server:
        url = await asyncio.to_thread(fresh_database, server)
        for kind in KINDS:
            await load(url, kind, SESSIONS // len(KINDS))
        (data,) = parse_qs(urlsplit(server).query)["host"]
        postmaster = int((Path(data) / "postmaster.pid").read_text().split()[0])
        connection = await asyncpg_module().connect(url)
        try:
            await connection.execute("vacuum analyze")
            with _workers(url) as workers:
                while await connection.fetchval(_PROCESSES) < PROCESSES:  # noqa: ASYNC110 - nothing tells
                    await asyncio.sleep(0.1)
                await asyncio.sleep(FIRST_S)
                before = await _spent(connection, workers, postmaster)
                await asyncio.sleep(IDLE_S)
                after = await _spent(connection, workers, postmaster)
                memory = max(map(_memory_mb, workers))
        finally:
            await connection.close()
    each = [100 * (last - first) / IDLE_S for first, last in zip(before.workers, after.workers, strict=True)]
    served = 100 * (after.server - before.server) / IDLE_S
    transactions = (after.transactions - before.transactions) / IDLE_S
    plan.say(f"fleet-idle: {', '.join(f'{cpu:.2f}' for cpu in sorted(each))} % of a core; the server {served:.2f} %")
    name = f"fleet-idle: {PROCESSES} workers, {SESSIONS:,} sessions"
    return [
        Figure(f"{name}, each", "% of a core", [Round(cpu) for cpu in each], targets=[Target("value", "<=", 1)]),
        Figure(f"{name}, most memory", "MB", [Round(memory)], targets=[Target("value", "<=", 80)]),
        Figure(f"{name}, PostgreSQL", "% of a core", [Round(served)], targets=[Target("value", "<=", PROCESSES)]),
        Figure(f"{name}, transactions of each", "a second", [Round(transactions / PROCESSES)]),
    ]


BENCHMARKS: dict[str, Callable[[Plan], Awaitable[list[Figure]]]] = {"fleet-idle": idle}
