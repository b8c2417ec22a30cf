"""Snapshots on disk: what damage does to them, what they take, and what only one kind of store has to take care of.

What every store promises about them is in the conformance kit.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from holdfast.core.state import State
from holdfast.store.commits import Snapshot
from holdfast.store.export import export_session, import_session
from holdfast.store.limits import GROUP_BESIDE_BYTES
from holdfast.store.memory import MemoryStore
from holdfast.store.postgres.append import PostgresAppend
from holdfast.store.postgres.group_commit import CommitConnection, Outcome
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.sqlite.schema import PAGE_BYTES
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.laws.snapshots import DATA, pause
from holdfast.testing.patience import HANG_S
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


# --- SQLite --------------------------------------------------------------------------------------


async def test_two_hundred_snapshots_take_the_place_of_one(path: str) -> None:
    async with SqliteStore(path) as sqlite:
        task = await begin(sqlite)
        await pause(task)
        pages = execute(path, "PRAGMA page_count")
        for n in range(200):
            await task.append(snapshot=Snapshot(2, bytes([n]) * len(DATA)))
        assert execute(path, "SELECT count(*), sum(length(data)) FROM snapshots") == [(1, len(DATA))]
        assert execute(path, "PRAGMA page_count") == pages


async def test_snapshots_that_grow_and_shrink_leave_no_more_than_the_largest_took(path: str) -> None:
    async with SqliteStore(path) as sqlite:
        task = await begin(sqlite)
        for n in range(100):
            await task.append(snapshot=Snapshot(1, b"x" * (n * 777 % 20_000)))
        [(pages,)] = execute(path, "PRAGMA page_count")
        [(spare,)] = execute(path, "PRAGMA freelist_count")
        assert execute(path, "SELECT count(*) FROM snapshots") == [(1,)]
        assert spare * PAGE_BYTES < 3 * 20_000  # the next one is written before the last one goes
        assert pages * PAGE_BYTES < 5 * 20_000


async def test_ended_and_deleted_sessions_leave_no_row(path: str) -> None:
    async with SqliteStore(path) as sqlite:
        for n, state in enumerate((State.COMPLETED, State.FAILED, State.CANCELLED, State.EXPIRED)):
            ended = await begin(sqlite, f"s-{n}")
            await pause(ended)
            await ended.end(state)
        deleted = await begin(sqlite, "s-deleted")
        await pause(deleted)
        await sqlite.delete(deleted.id, 1)
    assert execute(path, "SELECT * FROM snapshots") == []


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM snapshots",
        "UPDATE snapshots SET data = 'text'",
        "UPDATE snapshots SET data = CAST(x'ff00fe' AS TEXT)",
        "UPDATE snapshots SET data = 7",
        "UPDATE snapshots SET position = 'two'",
        "UPDATE snapshots SET position = x'00'",
        "UPDATE snapshots SET position = 0",
        "UPDATE snapshots SET position = 3",
    ],
)
async def test_a_damaged_snapshot_is_a_lost_one_and_the_session_goes_on(path: str, damage: str) -> None:
    async with SqliteStore(path) as sqlite:
        hurt, well = await begin(sqlite, "s-hurt", hold_ms=0), await begin(sqlite, "s-well")
        await pause(hurt)
        kept = await pause(well)
    execute(path, f"{damage} WHERE session = (SELECT num FROM sessions WHERE id = 's-hurt')")
    async with SqliteStore(path) as sqlite:
        assert await sqlite.snapshot(hurt.id) is None
        assert await sqlite.snapshot(well.id) == kept
        assert await entries_of(sqlite, hurt.id) == hurt.entries
        hurt.store = sqlite
        assert await sqlite.snapshot(hurt.id) != await pause(hurt, b"new") == await sqlite.snapshot(hurt.id)
        await hurt.complete()
        assert await sqlite.snapshot(hurt.id) is None


async def test_a_snapshot_whose_pages_are_damaged_is_a_lost_one(path: str) -> None:
    async with SqliteStore(path) as sqlite:
        task = await begin(sqlite)
        await pause(task, b"mark" * 5_000)
    settled = execute(path, "SELECT rootpage FROM sqlite_master WHERE name = 'snapshots'")
    content = bytearray(Path(path).read_bytes())
    [(root,)] = settled
    content[(root - 1) * PAGE_BYTES : root * PAGE_BYTES] = b"\xa5" * PAGE_BYTES
    Path(path).write_bytes(content)
    async with SqliteStore(path) as sqlite:
        assert await sqlite.snapshot(task.id) is None
        assert await entries_of(sqlite, task.id) == task.entries
        task.store = sqlite
        await task.log("goes on without")


# --- copies --------------------------------------------------------------------------------------


async def test_exports_and_imports_do_without_the_snapshot(path: str, tmp_path: Path) -> None:
    async with SqliteStore(path) as sqlite:
        task = await begin(sqlite)
        await task.log("a line")
        await export_session(sqlite, task.id, tmp_path / "without.export")
        kept = await pause(task, b"not for export")
        await export_session(sqlite, task.id, tmp_path / "with.export")
        assert b"not for export" not in (tmp_path / "with.export").read_bytes()
        assert (await import_session(sqlite, tmp_path / "with.export")).replayed
        assert await sqlite.snapshot(task.id) == kept
        for other in (sqlite, MemoryStore()):
            await import_session(other, tmp_path / "with.export", "s-copy")
            assert await other.snapshot("s-copy") is None
            copied = [entry.record for entry in await exported_entries(other, "s-copy")]
            assert copied == [entry.record for entry in task.entries]


# --- PostgreSQL ----------------------------------------------------------------------------------


@asynccontextmanager
async def connected(url: str) -> Any:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def rows_of(url: str) -> list[tuple[int, int]]:
    """Position and size of all snapshots that are stored."""
    async with connected(url) as connection:
        found = await connection.fetch("select position, length(data) from holdfast.snapshots order by session")
        return [(position, size) for position, size in found]


async def test_postgres_keeps_one_row_a_living_session(store: PostgresStore, database: str) -> None:
    tasks = [await begin(store, f"s-{n}") for n in range(4)]
    for _ in range(5):
        await asyncio.gather(*(pause(task) for task in tasks))
    await asyncio.gather(tasks[0].complete(), tasks[1].complete(), pause(tasks[2], b"last"), tasks[3].log("a line"))
    assert await rows_of(database) == [(7, 4), (6, len(DATA))]
    await store.delete(tasks[2].id, 1)
    assert await rows_of(database) == [(6, len(DATA))]


@pytest.mark.parametrize("change", ["delete from holdfast.snapshots", "update holdfast.snapshots set position = 9"])
async def test_a_snapshot_lost_or_changed_in_postgres_leaves_the_session_as_it_was(
    store: PostgresStore, database: str, change: str
) -> None:
    task = await begin(store)
    await pause(task)
    async with connected(database) as connection:
        await connection.execute(change)
    assert await store.snapshot(task.id) is None
    assert await pause(task) == await store.snapshot(task.id)


async def test_an_end_that_waited_for_the_first_snapshot_leaves_none_to_be_seen(
    store: PostgresStore, database: str
) -> None:
    task = await begin(store)
    waits = "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    async with connected(database) as connection:
        async with connection.transaction():
            num = await connection.fetchval("update holdfast.sessions set epoch = epoch returning num")
            ending = asyncio.create_task(task.complete())
            async with asyncio.timeout(HANG_S), connected(database) as other:
                while await other.fetchrow(waits) is None:  # noqa: ASYNC110 - the server does not tell
                    await asyncio.sleep(0.01)
            await connection.execute("insert into holdfast.snapshots values ($1, 1, 'late')", num)
        await ending
    assert await store.snapshot(task.id) is None
    await store.delete(task.id, 1)
    assert await rows_of(database) == []


async def test_large_snapshots_go_to_postgres_alone_and_small_ones_together(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One statement holds 1 GB at most: a group of large ones would be refused, with all that is in it."""
    tasks = [await begin(store, f"s-{n}") for n in range(12)]
    sizes = [GROUP_BESIDE_BYTES + n % 2 for n in range(12)]
    together: list[int] = []
    write = CommitConnection.write

    async def noted(connection: CommitConnection, group: Sequence[PostgresAppend]) -> dict[str, Outcome]:
        together.extend(len(append.snapshot.data) for append in group if append.snapshot is not None)
        return await write(connection, group)

    monkeypatch.setattr(CommitConnection, "write", noted)
    kept = await asyncio.gather(*(pause(task, b"x" * size) for task, size in zip(tasks, sizes, strict=True)))
    assert together == [GROUP_BESIDE_BYTES] * 6
    assert [await store.snapshot(task.id) for task in tasks] == kept
