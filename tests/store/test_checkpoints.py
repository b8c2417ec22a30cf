"""Checkpoints and segments on disk: what damage does to them, and that copies do without.

What every store promises about them is in the conformance kit.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from holdfast.store.export import export_session, import_session
from holdfast.store.memory import MemoryStore
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.sqlite.schema import PAGE_BYTES
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.laws.checkpoints import mark
from holdfast.testing.sessions import begin, entries_of, exported_entries
from tests.store.pg_fixtures import database, postgres_url, store

__all__ = ["database", "postgres_url", "store"]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "store.db")


def execute(path: str, statement: str) -> list[Any]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        found = connection.execute(statement).fetchall()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return found


DAMAGE = [
    "DELETE FROM checkpoints",
    "DELETE FROM segments",
    "DELETE FROM segments WHERE after = 0",
    "UPDATE checkpoints SET state = 'text'",
    "UPDATE checkpoints SET state = x'00' || state",
    "UPDATE checkpoints SET position = 1",
    "UPDATE checkpoints SET position = 99",
    "UPDATE checkpoints SET position = 'two'",
    "UPDATE checkpoints SET checksum = 0",
    "UPDATE segments SET data = x'00ff'",
    "UPDATE segments SET data = 7",
    "UPDATE segments SET after = 1 WHERE after = 0",
    "UPDATE segments SET checksum = 'none'",
]


@pytest.mark.parametrize("damage", DAMAGE)
async def test_a_damaged_checkpoint_or_segment_is_a_lost_one_and_the_session_goes_on(path: str, damage: str) -> None:
    async with SqliteStore(path) as sqlite:
        hurt, well = await begin(sqlite, "s-hurt", hold_ms=0), await begin(sqlite, "s-well")
        await mark(hurt)
        await mark(hurt)
        checkpoint, segment = await mark(well)
    which = "session = (SELECT num FROM sessions WHERE id = 's-hurt')"
    execute(path, f"{damage} AND {which}" if "WHERE" in damage else f"{damage} WHERE {which}")
    async with SqliteStore(path) as sqlite:
        lost = await sqlite.checkpoint(hurt.id)
        assert lost is None or (damage == "DELETE FROM segments" and lost[1] == [])
        assert await sqlite.checkpoint(well.id) == (checkpoint, [segment])
        assert await entries_of(sqlite, hurt.id) == hurt.entries
        hurt.store = sqlite
        checkpoint, segment = await mark(hurt, after=0)
        assert await sqlite.checkpoint(hurt.id) == (checkpoint, [segment])


@pytest.mark.parametrize("table", ["checkpoints", "segments"])
async def test_a_checkpoint_whose_pages_are_damaged_is_a_lost_one(path: str, table: str) -> None:
    async with SqliteStore(path) as sqlite:
        task = await begin(sqlite)
        await mark(task)
    [(root,)] = execute(path, f"SELECT rootpage FROM sqlite_master WHERE name = '{table}'")
    content = bytearray(Path(path).read_bytes())
    content[(root - 1) * PAGE_BYTES : root * PAGE_BYTES] = b"\xa5" * PAGE_BYTES
    Path(path).write_bytes(content)
    async with SqliteStore(path) as sqlite:
        assert await sqlite.checkpoint(task.id) is None
        assert await entries_of(sqlite, task.id) == task.entries
        task.store = sqlite
        await task.log("goes on without")


async def test_a_deleted_session_leaves_no_checkpoint_and_no_segment(path: str) -> None:
    async with SqliteStore(path) as sqlite:
        task = await begin(sqlite)
        await mark(task)
        await sqlite.delete(task.id, 1)
    assert execute(path, "SELECT session FROM checkpoints UNION ALL SELECT session FROM segments") == []


async def test_exports_and_imports_do_without_checkpoints(path: str, tmp_path: Path) -> None:
    async with SqliteStore(path) as sqlite:
        task = await begin(sqlite)
        await mark(task)
        await export_session(sqlite, task.id, tmp_path / "file.export")
        for other in (sqlite, MemoryStore()):
            await import_session(other, tmp_path / "file.export", "s-copy")
            assert await other.checkpoint("s-copy") is None
            copied = [entry.record for entry in await exported_entries(other, "s-copy")]
            assert copied == [entry.record for entry in task.entries]


@pytest.mark.parametrize(
    "damage",
    [
        "delete from holdfast.checkpoints",
        "update holdfast.checkpoints set position = 99",
        "update holdfast.checkpoints set state = 'changed'",
        "update holdfast.segments set data = 'changed'",
        "delete from holdfast.segments where after = 0",
    ],
)
async def test_what_is_lost_or_changed_in_postgres_is_not_given(
    store: PostgresStore, database: str, damage: str
) -> None:
    task = await begin(store)
    await mark(task)
    await mark(task)
    connection = await asyncpg.connect(database)
    try:
        await connection.execute(damage)
    finally:
        await connection.close()
    assert await store.checkpoint(task.id) is None
    checkpoint, segment = await mark(task, after=0)
    assert await store.checkpoint(task.id) == (checkpoint, [segment])
    await store.delete(task.id, 1)
