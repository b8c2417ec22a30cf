"""While the connections of a PostgreSQL server are dropped, and the server is restarted, nothing is lost but time."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.core.queries import Value
from holdfast.core.state import State
from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.engine.upkeep import Upkeep
from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import strategy
from holdfast.store.errors import StoreUnavailableError
from holdfast.store.postgres.connection import LOCK_WAIT_S
from holdfast.store.postgres.store import PostgresStore
from holdfast.testing.patience import HANG_S, patience, soon
from holdfast.testing.postgres_server import RunningServer, fresh_database, running_server
from tests.store.postgres.helpers import connected, end_connections

CLIENTS = 6
STEPS = 12
QUESTIONS = 500
CALM_S = patience(15)
"""Seconds within which everything moves again: a few looks of the upkeep, on a machine with much else to do."""


@strategy(name="trouble-self-driving")
async def self_driving(ctx: Context) -> int:
    done = 0
    for _ in range(STEPS):
        done += await ctx.tool("count", n=1)
        await ctx.sleep(0.2)
    return done


@strategy(name="trouble-asked")
async def asked(ctx: Context) -> list[str]:
    return [await ctx.llm(f"question {number}") for number in range(QUESTIONS)]


async def _count(n: int) -> int:
    await asyncio.sleep(0.05)
    return n


class Fleet:
    """Several engines on one database, as many processes have them, whose clients answer questions all the time."""

    def __init__(self, url: str) -> None:
        self.engines = [Holdfast(PostgresStore(url)) for _ in range(CLIENTS)]
        self.leaks: Counter[str] = Counter()
        """Errors that came out of `feed` and are not of our own kinds."""
        self.fed = 0

    async def answer(self, hf: Holdfast, session_id: str, over: asyncio.Event) -> None:
        """Answer the questions of a session one after the other, each until it is accepted."""
        number = 0
        while not over.is_set():
            try:
                await hf.feed(session_id, {f"q-{number}": Value(value=f"answer {number}")}, wait=0)
                number += 1
                self.fed += 1
                await asyncio.sleep(0.02)  # all clients share one process here, and should not take all of it
            except StoreUnavailableError:
                await asyncio.sleep(0.02)
            except HoldfastError:
                number += 1  # an answer whose receipt was lost, or the end
            except Exception as error:
                self.leaks[repr(error)] += 1
                await asyncio.sleep(0.02)
            if number == QUESTIONS:
                return


@contextlib.asynccontextmanager
async def _fleet(url: str) -> AsyncIterator[Fleet]:
    fleet = Fleet(url)
    async with contextlib.AsyncExitStack() as stack:
        for hf in fleet.engines:
            hf.drive("count", _count, recovery="safe")
            await stack.enter_async_context(hf)
        yield fleet


async def _in_trouble(fleet: Fleet, disturb: Callable[[], Awaitable[None]]) -> None:
    """Let a fleet work while it is disturbed; afterwards everything must move and end, soon."""
    over = asyncio.Event()
    driven = []
    for number, hf in enumerate(fleet.engines):
        await hf.start(asked, id=f"asked-{number}", wait=0)
        for twin in range(2):
            driven.append(f"driven-{number}-{twin}")
            await hf.start(self_driving, id=driven[-1], wait=0)
    clients = [
        asyncio.create_task(fleet.answer(hf, f"asked-{number}", over)) for number, hf in enumerate(fleet.engines)
    ]
    results = [asyncio.create_task(fleet.engines[number % CLIENTS].result(each)) for number, each in enumerate(driven)]
    await disturb()
    calm = time.monotonic()
    done = await asyncio.wait_for(asyncio.gather(*results, return_exceptions=True), HANG_S)
    took = time.monotonic() - calm
    over.set()
    await asyncio.gather(*clients)
    assert not fleet.leaks
    lost = [each for each in done if isinstance(each, BaseException) and not isinstance(each, StoreUnavailableError)]
    assert not lost
    again = [await fleet.engines[0].result(each, timeout=HANG_S) for each in driven]
    assert again == [STEPS] * len(driven)
    assert took < CALM_S
    for hf in fleet.engines:  # and every process is well again
        assert len(hf.engine.owner.supervisor.names) >= 5


async def test_self_driving_sessions_move_on_after_their_connections_were_dropped(server: str) -> None:
    database = fresh_database(server)

    async def drop_connections() -> None:
        for _ in range(8):
            await end_connections(database)
            await asyncio.sleep(0.05)

    async with _fleet(database) as fleet:
        await _in_trouble(fleet, drop_connections)
        assert fleet.fed > 0


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[RunningServer]:
    with running_server(tmp_path) as running:
        yield running


async def test_self_driving_sessions_move_on_after_the_server_was_restarted(own_server: RunningServer) -> None:
    async def restart() -> None:
        for _ in range(2):
            await asyncio.sleep(0.5)
            await asyncio.to_thread(own_server.stop)
            await asyncio.sleep(0.5)
            await asyncio.to_thread(own_server.start)

    async with _fleet(fresh_database(own_server.get_uri())) as fleet:
        await _in_trouble(fleet, restart)


@strategy(name="trouble-naps")
async def naps(ctx: Context) -> str:
    await ctx.sleep(0.2)
    return "awake"


@strategy(name="trouble-any-model")
async def asks_any_model(ctx: Context) -> str:
    return str(await ctx.llm("hello?"))


async def test_a_session_whose_row_is_locked_does_not_hold_up_the_takeover_of_others(server: str) -> None:
    url = fresh_database(server)
    async with open_holdfast(url, upkeep=Upkeep(on=False)) as starter, open_holdfast(url) as heir:
        for session_id in ("other-0", "other-1", "other-2", "locked"):  # the last one is listed first
            await starter.start(asks_any_model, id=session_id, llm="any", wait=0)
        async with connected(url) as connection, connection.transaction():
            await connection.execute("select from holdfast.sessions where id = 'locked' for update")
            heir.drive("llm", lambda query: "hello")
            async with asyncio.timeout(0.8 * LOCK_WAIT_S):  # as long as its commit waits, and no longer
                assert [await heir.result(f"other-{number}") for number in range(3)] == ["hello"] * 3
            assert (await heir.store.session("locked")).summary.state is State.PAUSED
        assert await soon(heir.result("locked")) == "hello"


async def test_a_session_whose_row_is_locked_does_not_hold_up_the_timers_of_others(server: str) -> None:
    url = fresh_database(server)
    async with open_holdfast(url) as hf:
        await hf.start(naps, id="locked", wait=0)
        async with connected(url) as connection, connection.transaction():
            await connection.execute("select from holdfast.sessions where id = 'locked' for update")
            await asyncio.sleep(0.3)  # it is due by now, and first in line
            for number in range(3):
                await hf.start(naps, id=f"other-{number}", wait=0)
            async with asyncio.timeout(0.8 * LOCK_WAIT_S):  # as long as its commit waits, and no longer
                assert [await hf.result(f"other-{number}") for number in range(3)] == ["awake"] * 3
            assert (await hf.store.session("locked")).summary.state is State.PAUSED
        assert await soon(hf.result("locked")) == "awake"
