"""For tests on a real PostgreSQL server: one server for each test process, one database for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from holdfast.store.postgres.store import PostgresStore
from holdfast.testing.postgres_server import fresh_database

__all__ = ["database", "postgres_url", "store"]


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
