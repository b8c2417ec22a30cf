"""What the tests of PostgreSQL share: connections beside the store, and ways to disturb it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from holdfast.store.watch import Watch
from holdfast.testing.patience import HANG_S

NEVER_MS = 3_600_000


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Any]:
    connection = await _connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def _connect(url: str) -> Any:
    """A connection, as soon as the server has one left: those of stores that have just lost theirs go before."""
    async with asyncio.timeout(HANG_S):
        while True:
            try:
                return await asyncpg.connect(url)
            except asyncpg.TooManyConnectionsError:
                await asyncio.sleep(0.05)


async def execute(url: str, statement: str, *arguments: object) -> None:
    async with connected(url) as connection:
        await connection.execute(statement, *arguments)


async def end_connections(url: str) -> None:
    """As an administrator or a restart would; returns once they are ended."""
    statement = "select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = current_database()"
    await execute(url, f"{statement} and pid <> pg_backend_pid()")


async def until_someone_waits(connection: Any) -> None:
    """Until a statement waits for a lock, which `connection` holds."""
    waits = "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    async with asyncio.timeout(HANG_S):
        while await connection.fetchrow(waits) is None:
            await asyncio.sleep(0.01)  # the server does not tell
            await connection.execute("select pg_stat_clear_snapshot()")  # else a transaction sees the first look again


async def settle(watch: Watch) -> None:
    """Until the listener listens, and all is quiet."""
    assert await watch.changed(10)
    while await watch.changed(0.3):
        pass
