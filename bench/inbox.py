"""The benchmarks of inboxes: how soon a turn begins with an item that was sent, and how many are begun in a second."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

from bench import Figure, Plan, Rate, UnavailableError, interleave, latencies
from bench.floor import SqliteFloor, asyncpg_module, warm_up
from holdfast.agent.providers.provider import ModelRequest
from holdfast.agent.runtime import Runtime
from holdfast.agent.session import AgentSession
from holdfast.core.queries import Usage
from holdfast.testing.provider import ScriptedProvider, ScriptedReply, ScriptStep

SENT = 200
"""Items whose way is timed, each sent when the one before is done."""

SESSIONS = 16
"""Sessions that are worked at the same time, as many as a worker has turns under way; and connections of the floor."""

AHEAD = 8
"""Items that wait in each session while the claims are counted."""

USAGE = Usage(prompt_tokens=100, completion_tokens=20)


def _answer(request: ModelRequest) -> ScriptStep:
    return ScriptedReply(parts=["Done."], usage=USAGE)


class _Timed:
    """A model that notes when it is asked, and answers at once."""

    def __init__(self, note: Callable[[str, int], None]) -> None:
        self._note = note

    def __call__(self, request: ModelRequest) -> ScriptStep:
        self._note(request.messages[-1].text, time.time_ns())
        return _answer(request)


# --- how soon ----------------------------------------------------------------------------------------


async def _sent(session: AgentSession, asked: dict[str, asyncio.Future[int]]) -> list[float]:
    """Milliseconds from the wish to send each item until the model was asked, sorted."""
    took = []
    for number in range(SENT + 10):
        asked[f"i-{number}"] = asyncio.get_running_loop().create_future()
        began = time.time_ns()
        await session.enqueue(f"i-{number}").id(f"i-{number}")
        took.append((await asked[f"i-{number}"] - began) / 1e6)
        await session.wait_for(f"i-{number}")
    return sorted(took[10:])


async def _here(url: str) -> list[float]:
    asked: dict[str, asyncio.Future[int]] = {}
    provider = ScriptedProvider([_Timed(lambda item, at: asked[item].set_result(at))], loop=True)
    async with Runtime(url, provider=provider, model="m") as runtime:
        session = await runtime.session("chat").open()
        async with runtime.work():
            return await _sent(session, asked)


async def _elsewhere(url: str) -> list[float]:
    asked: dict[str, asyncio.Future[int]] = {}
    async with Runtime(url, provider=ScriptedProvider([]), model="m") as runtime, _worker(url, asked):
        return await _sent(await runtime.session("chat").open(), asked)


@contextlib.asynccontextmanager
async def _worker(url: str, asked: dict[str, asyncio.Future[int]]) -> AsyncIterator[None]:
    """A worker in a process of its own, which tells when its model is asked."""
    program = f"from bench import inbox; inbox.worker_alone({url!r})"
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=pipe)
    assert process.stdout is not None
    await process.stdout.readline()

    async def read() -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            item, at = json.loads(line)
            asked[item].set_result(at)

    reading = asyncio.create_task(read())
    try:
        yield
    finally:
        process.kill()
        await process.wait()
        await reading


def worker_alone(url: str) -> None:
    """Run in a process of its own: work what is sent, and print when the model was asked about which item."""

    async def run() -> None:
        timed = _Timed(lambda item, at: print(json.dumps([item, at]), flush=True))
        async with Runtime(url, provider=ScriptedProvider([timed], loop=True), model="m") as runtime:
            print("ready", flush=True)
            await runtime.work().run()

    asyncio.run(run())


SENT_TO_BEGUN = "sent to begun"


async def latency(plan: Plan) -> list[Figure]:
    """With the worker in the same process."""
    figures = latencies(plan, SENT_TO_BEGUN, "inbox-memory", await _here("memory:"))
    figures += latencies(plan, SENT_TO_BEGUN, "inbox-sqlite", await _here(f"sqlite:///{plan.directory}/inbox-here.db"))
    with durable_server(plan) as url:
        figures += latencies(plan, SENT_TO_BEGUN, "inbox-pg", await _here(url))
    return figures


async def elsewhere(plan: Plan) -> list[Figure]:
    """With the worker in another process."""
    found = await _elsewhere(f"sqlite:///{plan.directory}/inbox-elsewhere.db")
    figures = latencies(plan, SENT_TO_BEGUN, "inbox-sqlite, another process", found, 100)
    with durable_server(plan) as url:
        figures += latencies(plan, SENT_TO_BEGUN, "inbox-pg, another process", await _elsewhere(url), 100)
    return figures


# --- how many ----------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _draining(url: str) -> AsyncIterator[Rate]:
    """Turns that a worker begins, with nothing to wait for in any of them, and always something in each inbox."""
    async with Runtime(url, provider=ScriptedProvider([_answer], loop=True), model="m") as runtime:

        async def rate(seconds: float) -> float:
            names = [f"s-{time.monotonic_ns()}-{number}" for number in range(SESSIONS)]
            sessions = [await runtime.session(name).open() for name in names]
            for session in sessions:
                for _ in range(AHEAD):
                    await session.enqueue("x")
            async with runtime.work(SESSIONS) as worker:
                began = time.perf_counter()
                refilling = [asyncio.create_task(_refill(session, began + seconds)) for session in sessions]
                await asyncio.sleep(seconds)
                done, took = worker.begun, time.perf_counter() - began
                await asyncio.gather(*refilling)
            return done / took

        yield rate


async def _refill(session: AgentSession, until: float) -> None:
    while time.perf_counter() < until:
        if len(await session.queued_work()) < AHEAD:
            await session.enqueue("x")
        else:
            await asyncio.sleep(0.01)


class ClaimFloor:
    """Rows of a table taken one by one by several connections, each claim a commit, as queues on PostgreSQL do it."""

    _CLAIM = """
        update public.jobs set taken = true where id = (
            select id from public.jobs where not taken order by id for update skip locked limit 1
        ) returning body
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._connections: list[Any] = []

    async def open(self) -> None:
        driver = asyncpg_module()
        self._connections = [await driver.connect(self._url) for _ in range(SESSIONS)]
        await self._connections[0].execute(
            "create table public.jobs (id bigserial primary key, body text, taken boolean not null default false);"
            "create index on public.jobs (id) where not taken"
        )

    async def claims(self, seconds: float) -> float:
        """Claims per second, over all connections."""
        await self._connections[0].execute("truncate public.jobs")
        await self._connections[0].execute(
            f"insert into public.jobs (body) select repeat('x', 200) from generate_series(1, {int(seconds * 20_000)})"
        )
        began = time.perf_counter()
        until = began + seconds
        done = await asyncio.gather(*(self._claim(connection, until) for connection in self._connections))
        return sum(done) / (time.perf_counter() - began)

    async def _claim(self, connection: Any, until: float) -> int:
        claim = await connection.prepare(self._CLAIM)
        done = 0
        while time.perf_counter() < until and await claim.fetchval() is not None:
            done += 1
        return done

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close()


async def claims_sqlite(plan: Plan) -> list[Figure]:
    """Turns of a worker on SQLite, beside raw commits."""
    floor_path = plan.directory / "inbox-floor.db"
    with contextlib.closing(SqliteFloor(floor_path)) as floor:
        await warm_up(floor_path, floor.singles)
        async with _draining(f"sqlite:///{plan.directory}/inbox-claims.db") as rate:
            rounds, _ = await interleave(plan, "inbox-claims-sqlite", floor.singles, rate)
    return [Figure("inbox-claims-sqlite: turns begun and ended", "/s", rounds, "raw commits")]


async def claims_postgres(plan: Plan) -> list[Figure]:
    """Turns of a worker on PostgreSQL, beside raw claims of rows on the same server."""
    with durable_server(plan) as url:
        floor = ClaimFloor(url)
        await floor.open()
        try:
            async with _draining(url) as rate:
                rounds, _ = await interleave(plan, "inbox-claims-pg", floor.claims, rate)
        finally:
            await floor.close()
    return [Figure("inbox-claims-pg: turns begun and ended", "/s", rounds, "raw skip-locked claims")]


@contextlib.contextmanager
def durable_server(plan: Plan) -> Iterator[str]:
    """A PostgreSQL server that waits for the disk."""
    try:
        from holdfast.testing.postgres_server import postgres_server
    except ImportError as error:
        raise UnavailableError(f"no PostgreSQL: {error}") from None
    with postgres_server(plan.directory, durable=True) as url:
        yield url


BENCHMARKS: dict[str, Callable[[Plan], Awaitable[list[Figure]]]] = {
    "inbox-latency": latency,
    "inbox-elsewhere": elsewhere,
    "inbox-claims-sqlite": claims_sqlite,
    "inbox-claims-pg": claims_postgres,
}
