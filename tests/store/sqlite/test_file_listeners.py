"""Commits are told to those who listen, and cost nothing where nobody does."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from holdfast.store.sqlite import notify
from holdfast.store.sqlite.file_listeners import KNOWN_S
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.patience import HANG_S, until
from holdfast.testing.sessions import ScriptedSession, begin, entries_of
from tests.store.sqlite.helpers import heard, python

LISTENER = """
import asyncio, sys
from holdfast.store.sqlite.store import SqliteStore

async def main(path):
    async with SqliteStore(path) as store:
        with store.watch() as watch:
            while await watch.changed(60):
                print("changed", flush=True)

asyncio.run(main(sys.argv[1]))
"""


def _is_held(path: str) -> bool:
    """Whether a process listens, by the locks that the kernel lists."""
    inode = os.stat(f"{path}-holders").st_ino
    with open("/proc/locks") as locks:
        return any(f":{inode} 0 0" in each and " READ " in each for each in locks)


async def _touches(session: ScriptedSession, path: str) -> bool:
    """Whether the file is touched by a commit that is made long after the last look for listeners."""
    before = os.stat(path).st_mtime_ns
    await asyncio.sleep(2 * KNOWN_S)
    await session.log("a step")
    return os.stat(path).st_mtime_ns != before


async def test_a_file_to_which_nobody_listens_is_not_touched(store: SqliteStore, path: str) -> None:
    session = await begin(store)
    for _ in range(5):
        assert not await _touches(session, path)


async def test_it_is_touched_while_another_store_listens(store: SqliteStore, path: str) -> None:
    session = await begin(store)
    async with SqliteStore(path) as other:
        with other.watch("s-1") as watch:
            await until(lambda: _is_held(path))
            assert await _touches(session, path)
            assert await watch.changed(HANG_S)
    assert not await _touches(session, path)


async def test_who_listens_itself_does_not_touch_for_itself(store: SqliteStore, path: str) -> None:
    session = await begin(store)
    with store.watch("s-1"):
        await until(lambda: _is_held(path))
        assert not await _touches(session, path)


async def test_a_listener_that_was_killed_is_soon_told_nothing(store: SqliteStore, path: str) -> None:
    session = await begin(store)
    listener = python(LISTENER, path)
    await asyncio.to_thread(heard, listener)  # it looks around first
    await until(lambda: _is_held(path))
    assert await _touches(session, path)
    assert await asyncio.to_thread(heard, listener) == "changed"
    listener.kill()
    await asyncio.to_thread(listener.communicate)
    assert not await _touches(session, path)


async def test_what_was_committed_while_a_listener_came_is_not_missed(
    store: SqliteStore, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer knows of the listener a moment late: what it commits in silence is found by a second look."""
    monkeypatch.setattr(notify, "NOTIFY_POLL_MS", 10 * HANG_S * 1000)  # and by no other
    session = await begin(store)
    for _ in range(10):
        async with SqliteStore(path) as other:
            await asyncio.sleep(2 * KNOWN_S)
            await session.log("the writer asks, and hears that nobody listens")
            with other.watch("s-1") as watch:
                assert await watch.changed(HANG_S)  # it looks around first
                await session.log("in silence")
                while (await other.session("s-1")).position < session.position:
                    assert await watch.changed(HANG_S)
                await session.log("and so this")
                assert await watch.changed(HANG_S)


async def test_listeners_are_told_after_the_file_of_holders_was_removed(store: SqliteStore, path: str) -> None:
    session = await begin(store)
    async with SqliteStore(path) as other:
        with other.watch("s-1") as watch:
            await until(lambda: _is_held(path))
            os.unlink(f"{path}-holders")
            await session.log("nobody is known to listen")
            seen = -1
            while seen < session.position:
                assert await watch.changed(HANG_S)  # it looks by itself, and is there again from then on
                seen = (await other.session("s-1")).position
            await until(lambda: os.path.exists(f"{path}-holders") and _is_held(path))
            assert await _touches(session, path)


async def test_where_no_lock_can_be_had_a_listener_looks_by_itself_and_all_is_told(
    store: SqliteStore, path: str
) -> None:
    Path(f"{path}-holders").mkdir()
    session = await begin(store)
    assert await _touches(session, path)
    async with SqliteStore(path) as other:
        with other.watch("s-1") as watch:
            seen = -1
            while seen < session.position:
                assert await watch.changed(HANG_S)
                seen = (await other.session("s-1")).position
            await session.log("heard")
            assert await watch.changed(HANG_S)
        assert await entries_of(other, "s-1") == session.entries


async def test_two_stores_that_write_and_listen_hear_each_other(
    store: SqliteStore, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "NOTIFY_POLL_MS", 10 * HANG_S * 1000)
    mine = await begin(store, "s-1")
    async with SqliteStore(path) as other:
        theirs = await begin(other, "s-2")
        with store.watch("s-2") as of_theirs, other.watch("s-1") as of_mine:
            await until(lambda: _is_held(path))
            for _ in range(3):
                await mine.log("mine")
                await theirs.log("theirs")
                assert await of_theirs.changed(HANG_S)
                assert await of_mine.changed(HANG_S)
