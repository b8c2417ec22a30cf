"""The store contract, on every store."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest

from holdfast.store import Store
from holdfast.store.memory import MemoryStore
from holdfast.testing import StoreContract

CHANGE = """update {journal} set body = '{{"type": "logged", "message": "forged"}}' """
REMOVE = "delete from {journal} "
WHERE = "where {position} between first and last and session = (select num from {sessions} where id = '{session_id}')"

EMPTY = """
do $$ declare name text; begin
    set session_replication_role = replica;  -- no foreign key is looked at, so any order will do
    for name in select tablename from pg_tables where schemaname = 'holdfast' and tablename <> 'meta' loop
        execute format('delete from holdfast.%I', name);
    end loop;
end $$
"""


class TestMemoryStore(StoreContract):
    shareable = False

    @pytest.fixture
    def store_url(self) -> str:
        return "memory:"

    async def blob_ids(self, store: Store) -> set[str]:
        assert isinstance(store, MemoryStore)
        return set(store._blobs)


class TestSqliteStore(StoreContract):
    @pytest.fixture
    def store_url(self, tmp_path: Path) -> str:
        return f"sqlite:///{tmp_path}/holdfast.db"

    async def damage(self, url: str, session_id: str, position: int) -> None:
        self._execute(url, CHANGE, session_id, position)

    async def lose(self, url: str, session_id: str, position: int) -> None:
        self._execute(url, REMOVE, session_id, position)

    async def blob_ids(self, store: Store) -> set[str]:
        with closing(sqlite3.connect(store.url.removeprefix("sqlite:///"))) as database:
            return {blob_id for (blob_id,) in database.execute("SELECT id FROM blobs")}

    @staticmethod
    def _execute(url: str, what: str, session_id: str, position: int) -> None:
        names = {"journal": "journal", "sessions": "sessions"}
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database, database:
            statement = (what + WHERE).format(**names, session_id=session_id, position=position)
            assert database.execute(statement).rowcount == 1


@pytest.fixture(scope="module")
def empty_tables(server: str) -> Iterator[Callable[[], None]]:
    """Empties the tables of one database, on a connection that stays: a new one costs ten times as much."""
    with asyncio.Runner() as runner:
        connection = runner.run(asyncpg.connect(server))
        yield lambda: runner.run(connection.execute(EMPTY))
        runner.run(connection.close())


class TestPostgresStore(StoreContract):
    @pytest.fixture
    def store_url(self, server: str, empty_tables: Callable[[], None]) -> str:
        """One database for all, with its tables: emptying them costs a fraction of making them."""
        empty_tables()
        return server

    async def damage(self, url: str, session_id: str, position: int) -> None:
        await self._execute(url, CHANGE, session_id, position)

    async def lose(self, url: str, session_id: str, position: int) -> None:
        await self._execute(url, REMOVE, session_id, position)

    async def blob_ids(self, store: Store) -> set[str]:
        connection = await asyncpg.connect(store.url)
        try:
            return {blob_id for (blob_id,) in await connection.fetch("select id from holdfast.blobs")}
        finally:
            await connection.close()

    @staticmethod
    async def _execute(url: str, what: str, session_id: str, position: int) -> None:
        names = {"journal": "holdfast.journal", "sessions": "holdfast.sessions"}
        done = await _execute(url, (what + WHERE).format(**names, session_id=session_id, position=position))
        assert done.endswith(" 1")


async def _execute(url: str, statement: str) -> str:
    connection = await asyncpg.connect(url)
    try:
        return str(await connection.execute(statement))
    finally:
        await connection.close()
