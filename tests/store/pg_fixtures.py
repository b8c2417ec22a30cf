"""For tests on a real PostgreSQL server: one server for each test process, one database for each test; old schemas."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest
import pytest_asyncio

from holdfast.store.codec import encode_entry
from holdfast.store.memory import MemoryStore
from holdfast.store.postgres.schema import MIGRATIONS, migrate
from holdfast.store.postgres.store import PostgresStore
from holdfast.testing.postgres_server import fresh_database
from holdfast.testing.sessions import Scenario, begin

__all__ = ["database", "old_session", "postgres_url", "store"]


@pytest.fixture
def postgres_url(server: str) -> str:
    return server


@pytest.fixture
def database(postgres_url: str) -> str:
    return fresh_database(postgres_url)


@pytest_asyncio.fixture
async def store(database: str) -> AsyncIterator[PostgresStore]:
    async with PostgresStore(database) as opened:
        yield opened


async def old_session(url: str, version: int) -> Scenario:
    """Make a schema of an older version with a session in it, as that version wrote it."""
    async with MemoryStore() as model:
        session = await begin(model)
        await session.log("a line", "another")
    connection = await asyncpg.connect(url)
    try:
        await migrate(connection, "here", MIGRATIONS[:version])
        await connection.execute(
            "insert into holdfast.sessions (id, state, position, epoch, pending, waiting_for, program_kind, program,"
            " created_at, updated_at) values ($1, 'running', 3, 1, 0, '', 'native', 'task', 1, 1)",
            session.id,
        )
        for entry in session.entries:
            stored = encode_entry(session.id, entry)
            values = (stored.position, stored.at, stored.checksum, stored.body)
            await connection.execute("insert into holdfast.journal values (1, $1, $2, $3, $4)", *values)
    finally:
        await connection.close()
    return session
