"""What forks cost and leave behind in the stores on disk: rows, bytes, old versions, and processes that were killed."""

from __future__ import annotations

import asyncio
import itertools
import re
import sqlite3
import sys
import zlib
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from holdfast.core.errors import SessionDeletedError
from holdfast.store import Store, open_store
from holdfast.testing.laws.forks import fork_of
from holdfast.testing.sessions import all_rows, begin, entries_of
from tests.store.pg_fixtures import database, postgres_url

__all__ = ["database", "postgres_url"]

FIXTURES = Path(__file__).parent.parent / "fixtures"
RECORDS = 10_000
LARGE = "x" * 6_000

Rows = Callable[[str], Coroutine[Any, Any, list[tuple[Any, ...]]]]
"""Runs a statement behind the store's back; `{}` stands for where its tables are."""


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db"
    given: str = request.getfixturevalue("database")
    return given


@pytest.fixture
def rows(url: str) -> Rows:
    async def run(statement: str) -> list[tuple[Any, ...]]:
        if url.startswith("sqlite"):
            with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
                connection.create_function("sqlar_uncompress", 2, lambda data, size: zlib.decompress(data))
                return connection.execute(statement.format("")).fetchall()
        async with connected(url) as connection:
            return [tuple(row) for row in await connection.fetch(statement.format("holdfast."))]

    return run


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def count(rows: Rows, table: str, where: str = "true") -> int:
    return int((await rows(f"select count(*) from {{}}{table} where {where}"))[0][0])


async def assert_nothing_is_left(rows: Rows) -> None:
    assert await count(rows, "sessions") == 0
    assert await count(rows, "journal", "session <> 0") == 0  # SQLite keeps the place of its last row
    for table in ("shares", "blob_refs", "blobs", "mailbox", "snapshots"):
        assert await count(rows, table) == 0, table


async def bytes_of(url: str, rows: Rows) -> int:
    if url.startswith("sqlite"):
        [(pages,)], [(size,)] = await rows("pragma page_count"), await rows("pragma page_size")
        return int(pages * size)
    return int((await rows("select pg_database_size(current_database())"))[0][0])


async def test_a_fork_of_a_long_session_costs_one_record(
    url: str, rows: Rows, capsys: pytest.CaptureFixture[str]
) -> None:
    async with open_store(url) as store:
        source = await begin(store)
        for start in range(0, RECORDS - 1, 1_000):
            end = min(start + 1_000, RECORDS - 1)
            await source.log(*(f"line {number} of some length, as lines are" for number in range(start, end)))
        before, bytes_before = await count(rows, "journal"), await bytes_of(url, rows)
        assert source.position == RECORDS
        fork = await fork_of(source, "s-fork", hold_ms=0)
        assert await count(rows, "journal") == before + 1
        assert await count(rows, "shares") == 1
        grown = await bytes_of(url, rows) - bytes_before
        assert await entries_of(store, fork.id) == fork.entries
    with capsys.disabled():
        print(f"\n{url.partition(':')[0]}: a fork of {RECORDS} records ({bytes_before} bytes) costs {grown} bytes")
    assert grown < bytes_before / 50


async def test_nothing_is_left_once_all_are_deleted_in_whatever_order(url: str, rows: Rows) -> None:
    async with open_store(url) as store:
        for number, order in enumerate(itertools.permutations(range(3))):
            first = await begin(store, f"s{number}-first", ctx={"text": f"{number} {LARGE}"})
            await first.log(f"{number} a {LARGE}", "b", f"{number} c {LARGE}")
            second = await fork_of(first, f"s{number}-second", 3)
            await second.log(f"{number} d {LARGE}")
            third = await fork_of(second, f"s{number}-third")
            for gone in order:
                await store.delete((first, second, third)[gone].id, 1)
            await assert_nothing_is_left(rows)


async def test_a_deleted_session_keeps_only_the_records_that_forks_share(url: str, rows: Rows) -> None:
    async with open_store(url) as store:
        source = await begin(store)
        await source.log(*(f"line {number}" for number in range(9)))
        early, late = await fork_of(source, "s-early", 3), await fork_of(source, "s-late", 6)
        again = await fork_of(late, "s-again", 5)
        await store.delete(source.id, 1)
        assert await lines_kept(rows) == [0, 1, 2, 3, 4]
        await store.delete(late.id, 1)
        assert await lines_kept(rows) == [0, 1, 2, 3]
        await store.delete(again.id, 1)
        assert await lines_kept(rows) == [0, 1]
        await store.delete(early.id, 1)
        await assert_nothing_is_left(rows)


async def lines_kept(rows: Rows) -> list[int]:
    """The numbers of the lines that are stored, whoever may read them."""
    found = await rows("select body from {}journal")
    return sorted(int(number) for (body,) in found for number in re.findall(r"line (\d)", body))


async def test_the_readable_view_shows_a_fork_whole(url: str, rows: Rows) -> None:
    async with open_store(url) as store:
        source = await begin(store)
        await source.log("a", "b")
        fork = await fork_of(source, "s-fork", 2)
        await fork.log("c")
        await store.delete(source.id, 1)
    seen = await rows("select position, type, body from {}journal_lines where session_id = 's-fork'")
    assert [(position, kind) for position, kind, _ in seen] == [(1, "started"), (2, "logged"), (3, "logged")]
    assert ["a" in seen[1][2], "c" in seen[2][2]] == [True, True]
    assert await count(rows, "journal_lines") == 3


# --- kills -----------------------------------------------------------------------------------------


class Writer:
    """A process that forks and deletes, and what it has said."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.made: dict[str, int] = {}
        """Sessions whose making was acknowledged, and the position they were at then."""
        self.deleting: set[str] = set()
        self.deleted: set[str] = set()

    @classmethod
    async def start(cls, url: str, number: int) -> Writer:
        arguments = ("-m", "tests.store.fork_child", url, f"w{number}", str(number))
        return cls(await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE))

    async def until_killed(self, after: int) -> None:
        """Let it work until it has said so much, kill it there, and hear what it had said."""
        assert self.process.stdout is not None
        lines = 0
        async for line in self.process.stdout:
            lines += 1
            word, session_id, position = line.decode().split()
            assert word != "fault", line
            if word == "made":
                self.made[session_id] = int(position)
            else:
                (self.deleting if word == "deletes" else self.deleted).add(session_id)
            if lines == after:
                self.process.kill()
        await self.process.wait()
        assert lines >= after


async def assert_kept(store: Store, writer: Writer) -> int:
    """What was acknowledged is so; gives how many of its sessions live."""
    living = 0
    for session_id, position in writer.made.items():
        if session_id in writer.deleted:
            with pytest.raises(SessionDeletedError):
                await store.position(session_id)
            continue
        try:
            entries = await entries_of(store, session_id)
        except SessionDeletedError:
            assert session_id in writer.deleting
            continue
        living += 1
        assert [entry.position for entry in entries] == list(range(1, len(entries) + 1))
        assert len(entries) >= position
    return living


async def test_processes_killed_while_they_fork_and_delete_leave_whole_sessions(
    url: str, rows: Rows, capsys: pytest.CaptureFixture[str]
) -> None:
    async with open_store(url) as store:
        writers = [await Writer.start(url, number) for number in range(3)]
        await asyncio.gather(*(each.until_killed(after) for each, after in zip(writers, (25, 60, 110), strict=True)))
        living = [await assert_kept(store, each) for each in writers]
        for row in await all_rows(store):
            await store.delete(row.session_id, 1)
        await assert_nothing_is_left(rows)
    made, deleted = sum(len(each.made) for each in writers), sum(len(each.deleted) for each in writers)
    with capsys.disabled():
        print(f"\n{url.partition(':')[0]}: {len(writers)} killed, {made} made, {deleted} deleted, {sum(living)} live")
