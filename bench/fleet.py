"""The benchmarks of fleets: turns of 1, 2 and 4 workers on one PostgreSQL, each in a process, beside raw claims.

python -m bench.fleet URL    one of those workers, until its standard input ends
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

from bench import Figure, Plan, Target, UnavailableError, interleave
from bench.floor import asyncpg_module
from bench.inbox import SESSIONS, ClaimFloor, durable_server
from holdfast.agent.machine.messages import TextBlock
from holdfast.agent.providers.provider import ModelReply, ModelRequest, StreamItem, TextDelta
from holdfast.agent.runtime import Runtime
from holdfast.cli.own_process import collect_seldom
from holdfast.engine.upkeep import Upkeep
from holdfast.testing.postgres_server import fresh_database

WORKERS = (1, 2, 4)

CHATS = 4 * SESSIONS
"""Conversations with something in their inboxes: more than all workers together have turns under way."""

TURNS_A_SECOND = 8_000
"""Inputs that are sent beforehand for each second: more than any machine's workers have got through."""

SETTLE_S = 2.0
"""Seconds from when all workers are at work to when they are measured: at first, they all learn the same sessions."""

_TURNS = "select coalesce(sum(turns), 0)::bigint from holdfast.sessions"


class PromptModel:
    """A model that takes no time. Unlike a scripted one it keeps no requests, which were a tenth of a long run."""

    id = "prompt"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem, None]:
        yield TextDelta("done")
        yield ModelReply(content=[TextBlock("done")], model=request.model)


def _runtime(url: str, upkeep: Upkeep | None = None) -> Runtime:
    return Runtime(url, provider=PromptModel(), model="m", upkeep=upkeep)


async def _work(url: str) -> None:
    """A worker of the fleet, as `holdfast worker` is one."""
    collect_seldom()
    async with _runtime(url) as runtime, runtime.work(SESSIONS, drain_s=0):
        await asyncio.to_thread(sys.stdin.read)


@contextlib.contextmanager
def _fleet(url: str, workers: int) -> Iterator[None]:
    processes = [
        subprocess.Popen([sys.executable, "-m", "bench.fleet", url], stdin=subprocess.PIPE, env=os.environ)
        for _ in range(workers)
    ]
    try:
        yield
    finally:
        for process in processes:
            process.communicate()


async def _fill(url: str, seconds: float) -> int:
    """Send to all conversations what is worked through while it is measured; how many inputs that is."""
    each = max(4, int(seconds * TURNS_A_SECOND) // CHATS)
    async with _runtime(url, Upkeep(on=False)) as runtime:

        async def fill(number: int) -> None:
            session = await runtime.session(f"s-{time.monotonic_ns()}-{number}").open()
            for _ in range(each):
                await session.enqueue("x")

        await asyncio.gather(*(fill(number) for number in range(CHATS)))
    return each * CHATS


@contextlib.asynccontextmanager
async def _connection(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg_module().connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def _turns_per_second(url: str, workers: int, seconds: float) -> float:
    """Turns begun by all workers together in a database of their own, once all of them are at work."""
    url = await asyncio.to_thread(fresh_database, url)
    sent = await _fill(url, seconds + SETTLE_S + 1)
    async with _connection(url) as connection:
        before = await connection.fetchval(_TURNS)
        with _fleet(url, workers):
            at_work = "select count(distinct owner) from holdfast.sessions where owner is not null"
            while await connection.fetchval(at_work) < workers:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.05)
            await asyncio.sleep(SETTLE_S)
            began, first = time.perf_counter(), await connection.fetchval(_TURNS)
            await asyncio.sleep(seconds)
            last, took = await connection.fetchval(_TURNS), time.perf_counter() - began
        if last - before >= sent:
            raise UnavailableError(f"{workers} workers were through with {sent} inputs too soon: raise TURNS_A_SECOND")
        return float(last - first) / took


async def turns(plan: Plan) -> list[Figure]:
    """Turns of 1, 2 and 4 workers, beside raw claims of rows on the same server."""
    figures: list[Figure] = []
    with durable_server(plan) as url:
        floor = ClaimFloor(url)
        await floor.open()
        try:
            for workers in WORKERS:

                async def rate(seconds: float, workers: int = workers) -> float:
                    return await _turns_per_second(url, workers, seconds)

                name = f"fleet-turns-pg: turns of {workers} worker{'' if workers == 1 else 's'}"
                rounds, _ = await interleave(plan, name, floor.claims, rate)
                figures.append(Figure(name, "/s", rounds, "raw skip-locked claims", [Target("ratio", ">=", 0.3)]))
        finally:
            await floor.close()
    return figures


BENCHMARKS: dict[str, Callable[[Plan], Awaitable[list[Figure]]]] = {"fleet-turns-pg": turns}

if __name__ == "__main__":
    asyncio.run(_work(sys.argv[1]))
