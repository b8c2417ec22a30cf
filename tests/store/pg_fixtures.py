"""Fixtures for tests on a real PostgreSQL server: one server for each test process, one database for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from holdfast.store.postgres import PostgresStore
from holdfast.testing.servers import fresh_database, postgres_server

__all__ = ["database", "postgres_url", "store"]


@pytest.fixture(scope="session")
def postgres_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with postgres_server(tmp_path_factory.mktemp("postgres")) as url:
        yield url


@pytest.fixture
def database(postgres_url: str) -> str:
    return fresh_database(postgres_url)


@pytest_asyncio.fixture
async def store(database: str) -> AsyncIterator[PostgresStore]:
    async with PostgresStore(database) as opened:
        yield opened
