"""Opening the SQLite file: it is made where there is none, shared by processes, and refused if it is not ours."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast.store.errors import StoreUnavailableError
from holdfast.store.sqlite.schema import PAGE_BYTES
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.patience import HANG_S
from holdfast.testing.sessions import begin, entries_of, ids_of
from tests.store.sqlite.helpers import LARGE, edit, heard, lines_until_end, python, refused_to_open, tell


async def test_a_new_file_is_made_together_with_its_directories(tmp_path: Path) -> None:
    path = tmp_path / "not" / "yet" / "there.db"
    async with SqliteStore(str(path)) as store:
        await begin(store)
    assert path.is_file()


async def test_what_was_written_is_there_after_closing_and_opening(path: str) -> None:
    async with SqliteStore(path) as store:
        written = await begin(store, ctx={"text": LARGE})
        await written.log("one", "two")
    async with SqliteStore(path) as store:
        assert await entries_of(store, "s-1") == written.entries


OPENER = """
import asyncio, sys, time
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.sessions import begin

async def main(directory, me, files):
    print("ready", flush=True)
    start = float(sys.stdin.readline())
    for number in range(files):
        time.sleep(max(0, start + number * 0.04 - time.time()))
        async with SqliteStore(f"{directory}/{number}.db") as store:
            await begin(store, me)

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


async def test_processes_that_open_a_new_file_at_the_same_time_all_get_it(tmp_path: Path) -> None:
    files, names = 30, ["one", "two", "three"]
    openers = [python(OPENER, tmp_path, name, files) for name in names]
    for opener in openers:
        assert heard(opener) == "ready"
    start = time.time() + 0.1
    for opener in openers:
        tell(opener, str(start))
    for opener in openers:
        lines_until_end(opener)
    for number in range(files):
        async with SqliteStore(str(tmp_path / f"{number}.db")) as store:
            assert sorted(await ids_of(store)) == sorted(names)


@pytest.mark.parametrize(
    "made_by", ["CREATE TABLE sessions (id)", "PRAGMA user_version = 1", "PRAGMA application_id = 7"]
)
async def test_a_file_of_another_program_is_refused_and_left_as_it_was(path: str, made_by: str) -> None:
    edit(path, made_by)
    before = Path(path).read_bytes()
    assert "another program" in await refused_to_open(path, StoreUnavailableError)
    assert Path(path).read_bytes() == before


@pytest.mark.parametrize("content", [b"# Notes\n" * 500, b"SQLite format 3\0" + b"\xff" * 5_000])
async def test_a_file_that_is_no_database_is_refused_and_left_as_it_was(path: str, content: bytes) -> None:
    Path(path).write_bytes(content)
    await refused_to_open(path, StoreUnavailableError)
    assert Path(path).read_bytes() == content


async def test_a_directory_is_refused(tmp_path: Path) -> None:
    await refused_to_open(str(tmp_path), StoreUnavailableError)


async def test_a_path_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    await refused_to_open(str(tmp_path / "file" / "store.db"), StoreUnavailableError)


async def test_what_is_asked_of_a_closed_store_is_refused(path: str) -> None:
    store = SqliteStore(path)
    await store.open()
    session = await begin(store)
    await store.close()
    await store.close()
    with pytest.raises(StoreUnavailableError):
        await session.log("too late")
    with pytest.raises(StoreUnavailableError):
        await store.load("s-1")


async def test_every_connection_waits_for_the_disk_and_uses_the_log_and_small_pages(store: SqliteStore) -> None:
    session = await begin(store)
    await asyncio.gather(begin(store, "s-2"), begin(store, "s-3"), *(store.sessions() for _ in range(8)))
    await session.log("one")
    await asyncio.to_thread(store._connect)  # as the threads that write and read make theirs, when they are needed

    def settings(connection: sqlite3.Connection) -> tuple[Any, ...]:
        names = ("journal_mode", "synchronous", "page_size")
        return tuple(connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names)

    connections = list(store._connections)
    assert len(connections) >= 2  # that of the event loop, and that of a thread
    assert {settings(connection) for connection in connections} == {("wal", 2, PAGE_BYTES)}


async def test_the_working_directory_may_change_after_opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(tmp_path)
    async with SqliteStore("store.db") as store, asyncio.timeout(HANG_S):
        monkeypatch.chdir(elsewhere)
        session = await begin(store)
        await asyncio.gather(begin(store, "s-2"), begin(store, "s-3"))
        assert await entries_of(store, "s-1") == session.entries
    assert not list(elsewhere.iterdir())


async def test_a_session_is_opened_read_and_written_with_one_connection_and_no_thread(path: str) -> None:
    async with SqliteStore(path) as store:
        session = await begin(store)
        await session.log(*(f"line {n}" for n in range(400)), hold_ms=0)
    before = threading.active_count()
    async with SqliteStore(path) as store:
        assert await entries_of(store, session.id) == session.entries
        session.store = store
        await session.log("one more")
        assert (len(store._connections), threading.active_count()) == (1, before)
