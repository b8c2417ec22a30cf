"""One locked row holds up nobody else, and a server without free connections is waited for."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import asyncpg
import pytest

from holdfast.store.postgres import pool as postgres_pool
from holdfast.store.postgres.pool import ConnectionPool, connect_in_turn
from holdfast.store.postgres.store import PostgresStore
from holdfast.testing.patience import patience, soon
from holdfast.testing.sessions import begin
from tests.store.postgres.helpers import connected


async def test_one_locked_row_does_not_hold_up_the_commits_of_others(store: PostgresStore, database: str) -> None:
    tasks = [await begin(store, f"s-{number}") for number in range(40)]
    locked, others = tasks[0], tasks[1:]
    async with connected(database) as connection:
        holding = connection.transaction()
        await holding.start()
        await connection.execute("select from holdfast.sessions where id = $1 for update", locked.id)
        began = time.monotonic()
        waiting = asyncio.create_task(locked.log("has to wait"))
        for number in range(3):
            await soon(asyncio.gather(*(task.log(f"goes on {number}") for task in others)))
        took = time.monotonic() - began
        assert not waiting.done()
        assert took < patience(3)
        await holding.rollback()
        await soon(waiting)
    assert (await store.session(locked.id)).position == 2


async def test_the_pool_waits_its_turn_while_the_server_has_no_connection_left(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_pool, "CROWDED_PAUSE_S", 0.01)
    refusals = 5

    async def connect() -> Any:
        nonlocal refusals
        if refusals:
            refusals -= 1
            raise asyncpg.TooManyConnectionsError("sorry, too many clients already")
        return await asyncpg.connect(database)

    pool = ConnectionPool(connect, 2)
    assert await soon(asyncio.gather(*(pool.fetchval("select $1::int", n) for n in range(8)))) == list(range(8))
    await pool.close()
    refusals = 5
    await (await soon(connect_in_turn(connect))).close()


async def test_statements_take_turns_on_few_connections_rather_than_make_many(database: str) -> None:
    made: list[Any] = []

    async def connect() -> Any:
        made.append(await asyncpg.connect(database))
        return made[-1]

    pool = ConnectionPool(connect, 8)
    assert await pool.fetchval("select 0") == 0
    for _ in range(20):
        assert await asyncio.gather(*(pool.fetchval("select $1::int", n) for n in range(4))) == list(range(4))
    assert len(made) < 8
    await asyncio.gather(*(pool.fetchval("select pg_sleep(0.5)") for _ in range(8)))
    assert len(made) > 1, "but nobody waits long for a slow one"
    await pool.close()


async def test_a_connection_that_came_while_one_could_not_be_made_is_not_lost(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_pool, "GROW_S", 0)
    made: list[Any] = []
    refuse = asyncio.Event()

    async def connect() -> Any:
        if made:
            await refuse.wait()
            raise ConnectionRefusedError
        made.append(await asyncpg.connect(database))
        return made[-1]

    pool = ConnectionPool(connect, 2)
    async with pool.acquire():
        waiting = asyncio.create_task(pool.fetchval("select 1"))
        while pool._count < 2:  # noqa: ASYNC110 - it does not tell
            await asyncio.sleep(0)
    refuse.set()  # in the moment in which the first one is given to who waits
    with pytest.raises(ConnectionRefusedError):
        await soon(waiting)
    assert await soon(pool.fetchval("select 2")) == 2
    assert len(made) == 1
    await pool.close()


async def test_connections_that_nobody_needs_are_given_back(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_pool, "IDLE_S", 0.05)
    pool = ConnectionPool(lambda: asyncpg.connect(database), 8)
    await asyncio.gather(*(pool.fetchval("select pg_sleep(0.05)") for _ in range(8)))
    async with asyncio.timeout(patience(20)):
        while pool._count > 1:  # noqa: ASYNC110 - it does not tell
            await asyncio.sleep(0.02)
    await pool.close()
    assert pool._count == 0


async def test_a_connection_whose_statement_was_given_up_is_not_used_again(database: str) -> None:
    pool = ConnectionPool(lambda: asyncpg.connect(database), 1)
    backend = await pool.fetchval("select pg_backend_pid()")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await pool.fetchval("select pg_sleep(60)")
    assert await soon(pool.fetchval("select pg_backend_pid()")) != backend
    with pytest.raises(asyncpg.DivisionByZeroError):
        await pool.fetchval("select 1 / 0")
    assert await soon(pool.fetchval("select 41 + 1")) == 42
    await pool.close()
