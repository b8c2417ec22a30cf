"""A SQLite file that is removed, replaced or migrated under a running process is noticed before anything is said."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.store.errors import SchemaVersionError, StoreReplacedError, StoreUnavailableError
from holdfast.store.sqlite import file_guard, schema
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.sessions import begin, entries_of
from tests.tables import each_row


def _remove(path: Path) -> None:
    for each in path.parent.glob(f"{path.name}*"):
        each.unlink()


def _replace_by_a_copy(path: Path) -> None:
    copy = path.with_suffix(".copy")
    shutil.copy(path, copy)
    copy.replace(path)


def _replace_by_an_empty_file(path: Path) -> None:
    _remove(path)
    path.touch()


def _remove_the_log(path: Path) -> None:
    Path(f"{path}-wal").unlink()


@pytest.fixture
def always_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look every 0.2 s is usual."""
    monkeypatch.setattr(file_guard, "LOOK_S", 0.0)


@pytest.mark.usefixtures("always_looks")
@each_row("harm", [_remove, _replace_by_a_copy, _replace_by_an_empty_file, _remove_the_log])
@pytest.mark.parametrize("in_thread", [False, True])
async def test_nothing_is_acknowledged_once_the_file_is_not_the_one_that_was_opened(
    tmp_path: Path, harm: Callable[[Path], None], in_thread: bool
) -> None:
    path = tmp_path / f"{harm.__name__}-{in_thread}.db"
    async with SqliteStore(str(path)) as store:
        task = await begin(store)
        await task.log("kept")
        harm(path)
        if in_thread:
            store._writer._with_thread += 1  # type: ignore[union-attr] # all writes are left to the thread
        with pytest.raises(StoreUnavailableError) as refusal:
            await task.log("lost")
        if harm is not _remove_the_log or not in_thread:  # SQLite itself notices that, and has no words for it
            assert isinstance(refusal.value, StoreReplacedError)
            assert "while this process had it open" in str(refusal.value)
        with pytest.raises(StoreUnavailableError):
            await begin(store, "s-2")


def _move_its_directory(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


@each_row("harm", [_remove, _replace_by_a_copy, _replace_by_an_empty_file, _move_its_directory])
async def test_a_file_that_changes_its_place_between_two_looks_is_noticed_with_the_next_commit(
    tmp_path: Path, harm: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_guard, "LOOK_S", 1e9)
    path = tmp_path / harm.__name__ / "sessions.db"
    async with SqliteStore(str(path)) as store:
        task = await begin(store)
        harm(path)
        with pytest.raises(StoreReplacedError):
            await task.log("lost")


async def test_a_link_that_leads_to_another_file_is_noticed_with_the_next_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_guard, "LOOK_S", 1e9)
    for name in ("first", "second"):
        async with SqliteStore(str(tmp_path / name)):
            pass
    link = tmp_path / "sessions.db"
    link.symlink_to(tmp_path / "first")
    async with SqliteStore(str(link)) as store:
        task = await begin(store)
        await task.log("kept")
        link.unlink()
        link.symlink_to(tmp_path / "second")
        with pytest.raises(StoreReplacedError):
            await task.log("lost")


async def test_a_layout_that_became_newer_is_refused_by_a_running_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_guard, "LOOK_S", 0.0)
    path = tmp_path / "sessions.db"
    async with SqliteStore(str(path)) as store:
        task = await begin(store)
        connection = sqlite3.connect(path)
        connection.execute(f"PRAGMA user_version = {schema.current_version() + 1}")
        connection.close()
        with pytest.raises(SchemaVersionError, match="Use a newer Holdfast"):
            await task.log("in the old layout")
        with pytest.raises(SchemaVersionError):
            await entries_of(store, task.id)


async def test_a_symbolic_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "real.db")
    async with SqliteStore(str(tmp_path / "link.db")) as store:
        task = await begin(store)
        await task.log("a commit")
        assert await entries_of(store, task.id) == task.entries


DIES = """
import asyncio, os, signal, sqlite3, sys
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.sessions import begin

async def main():
    async with SqliteStore(sys.argv[1]) as store:
        task = await begin(store)
        await task.log("acknowledged")
        if sys.argv[2] == "copied":
            sqlite3.connect(sys.argv[1]).execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("log", "is_removed", "is_told"),
    [("", True, True), ("", False, False), ("copied", True, False)],
    ids=["removed", "there", "removed when all of it was in the file"],
)
async def test_a_log_that_was_removed_after_a_crash_is_told_with_what_is_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, log: str, is_removed: bool, is_told: bool
) -> None:
    path = tmp_path / "sessions.db"
    died = await asyncio.create_subprocess_exec(sys.executable, "-c", DIES, str(path), log)
    assert await died.wait() == -signal.SIGKILL
    if is_removed:
        _remove_the_log(path)
    async with SqliteStore(str(path)) as store:
        listed = await store.sessions()
    assert ("write-ahead log (-wal) was removed" in caplog.text) == is_told
    assert bool(listed.rows) != is_told


async def test_a_file_that_was_closed_in_order_has_lost_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        async with SqliteStore(str(tmp_path / "sessions.db")) as store:
            await store.sessions()
    assert caplog.text == ""
