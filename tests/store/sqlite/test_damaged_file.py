"""A damaged SQLite file, a lost one and a full disk: what can be read is right, and the rest is an error of our own."""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.records import Entry
from holdfast.store.commits import Snapshot
from holdfast.store.errors import StoreUnavailableError
from holdfast.store.sqlite.schema import PAGE_BYTES
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.patience import HANG_S, soon
from holdfast.testing.sessions import begin, entries_of, feed, ids_of
from tests.store.sqlite.helpers import LARGE, lines_until_end, python, settle


async def many_sessions(path: str) -> dict[str, list[Entry]]:
    written: dict[str, list[Entry]] = {}
    async with SqliteStore(path) as store:
        for number in range(12):
            session = await begin(store, f"s-{number}", hold_ms=0)
            for step in range(4):
                await session.log(f"{number}.{step} " + "text " * 60, hold_ms=0)
            await session.log(f"{number} {LARGE}", hold_ms=0, snapshot=Snapshot(1, LARGE.encode()))
            await store.send(session.id, "m-1", feed(number), 1)
            written[session.id] = session.entries
    settle(path)
    return written


def rows_of(path: str, session_id: str) -> list[Any] | None:
    """The stored rows of a session as SQLite itself can read them, or None where it cannot."""
    try:
        with closing(sqlite3.connect(path)) as connection:
            session = connection.execute("SELECT * FROM sessions WHERE id = ?", (session_id,)).fetchone()
            journal = "SELECT * FROM journal WHERE session = ? ORDER BY first"
            records = connection.execute(journal, session[:1]).fetchall()
            kept = connection.execute("SELECT blob FROM blob_refs WHERE session = ?", session[:1]).fetchall()
            blobs = [connection.execute("SELECT * FROM blobs WHERE id = ?", blob).fetchone() for blob in kept]
            return [session, records, kept, blobs]
    except (sqlite3.Error, TypeError, UnicodeDecodeError):  # TypeError: there is no such row
        return None


async def readable_after(path: str, damaged: str, written: dict[str, list[Entry]]) -> int:
    """Check that a damaged copy gives right sessions or our own errors, and count the sessions it gives.

    A session whose rows SQLite can still read as they were must load.
    """
    intact = {session_id for session_id in written if rows_of(damaged, session_id) == rows_of(path, session_id)}
    loaded = 0
    store = SqliteStore(damaged)
    try:
        await store.open()
    except HoldfastError:
        assert not intact
        return 0
    try:
        for session_id, entries in written.items():
            try:
                session = await store.load(session_id)
                found = await entries_of(store, session_id)
            except HoldfastError:
                assert session_id not in intact
            else:
                assert (session.position, found) == (len(entries), entries)
                loaded += 1
        for look in _looks(store, list(written)):
            with suppress(HoldfastError):
                await look()
    finally:
        await store.close()
    return loaded


def _looks(store: SqliteStore, session_ids: Sequence[str]) -> list[Callable[[], Awaitable[Any]]]:
    looks: list[Callable[[], Awaitable[Any]]] = [store.sessions, lambda: store.due(2**62)]
    looks += [lambda session_id=s: store.mailbox(session_id) for s in session_ids]  # type: ignore[misc]
    looks += [lambda session_id=s: store.snapshot(session_id) for s in session_ids]  # type: ignore[misc]
    return looks


async def test_a_file_cut_off_anywhere_gives_right_sessions_or_our_own_errors(path: str, tmp_path: Path) -> None:
    written = await many_sessions(path)
    content = Path(path).read_bytes()
    chance = random.Random(20)
    cuts = {1, 15, 16, 99, 100, 101, PAGE_BYTES - 1, PAGE_BYTES, PAGE_BYTES + 1, len(content) - 1, len(content) - 100}
    cuts |= {chance.randrange(1, len(content)) for _ in range(14)}
    cuts |= {chance.randrange(1, len(content) // PAGE_BYTES) * PAGE_BYTES for _ in range(8)}
    loaded = 0
    for cut in sorted(cuts):
        damaged = tmp_path / f"cut-{cut}.db"
        damaged.write_bytes(content[:cut])
        loaded += await soon(readable_after(path, str(damaged), written))
    assert loaded  # a cut in the last page leaves the others


async def test_noise_anywhere_in_the_file_gives_right_sessions_or_our_own_errors(path: str, tmp_path: Path) -> None:
    written = await many_sessions(path)
    content = Path(path).read_bytes()
    chance = random.Random(21)
    loaded = hurt = 0
    for number in range(25):
        noisy = bytearray(content)
        start, size = chance.randrange(len(content)), chance.choice([1, 2, 16, 200, PAGE_BYTES])
        noise = chance.choice([bytes(size), chance.randbytes(size)])
        noisy[start : start + size] = noise[: len(content) - start]
        damaged = tmp_path / f"noise-{number}.db"
        damaged.write_bytes(noisy)
        found = await soon(readable_after(path, str(damaged), written))
        loaded, hurt = loaded + found, hurt + (found < len(written))
    assert loaded
    assert hurt


async def test_a_log_cut_off_anywhere_leaves_whole_commits_up_to_one_moment(path: str, tmp_path: Path) -> None:
    """What a machine leaves behind that lost power while it wrote: the file, and a part of its write-ahead log."""
    store = SqliteStore(path)
    await store.open()
    sessions = [await begin(store, f"s-{number}") for number in range(3)]
    order = [session.id for session in sessions]
    for step in range(20):
        session = sessions[step % 3]
        await session.log(f"{step}.a", f"{step}.b {LARGE}", f"{step}.c")
        order += [session.id] * 3
    base, log = Path(path).read_bytes(), Path(f"{path}-wal").read_bytes()
    await store.close()
    chance = random.Random(22)
    moments = set()
    for cut in [0, 31, 32, len(log) - 1, *(chance.randrange(len(log)) for _ in range(20))]:
        torn = str(tmp_path / f"torn-{cut}.db")
        Path(torn).write_bytes(base)
        Path(f"{torn}-wal").write_bytes(log[:cut])
        async with SqliteStore(torn) as store:
            found = {session_id: await entries_of(store, session_id) for session_id in await ids_of(store)}
        moment = sum(len(entries) for entries in found.values())
        moments.add(moment)
        for session in sessions:
            entries = found.get(session.id, [])
            assert entries == session.entries[: len(entries)]
            assert len(entries) == order[:moment].count(session.id)
            assert len(entries) % 3 == min(len(entries), 1)
    assert len(moments) > 5


async def test_a_file_removed_under_an_open_store_leaves_no_caller_waiting(path: str) -> None:
    store = SqliteStore(path)
    await store.open()
    session = await begin(store)
    os.unlink(path)
    async with asyncio.timeout(HANG_S):
        try:
            await session.log("one")
            await asyncio.gather(begin(store, "s-2"), begin(store, "s-3"))
        except StoreUnavailableError:
            pass
    await store.close()


FULL_DISK = """
import asyncio, resource, sys
from holdfast.store.errors import StoreUnavailableError
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.sessions import begin

def room(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

async def fill(session):
    while True:
        await session.log("text " * 200)

async def main(path):
    async with SqliteStore(path) as store, asyncio.timeout(60):
        session = await begin(store)
        for limit in (100_000, 200_000):
            room(limit)
            try:
                await fill(session)
            except StoreUnavailableError:
                print("refused at", session.position)
            refused = await asyncio.gather(*(begin(store, f"x-{limit}-{n}", ctx="text " * 500) for n in range(3)),
                return_exceptions=True)
            assert all(isinstance(error, StoreUnavailableError) for error in refused), refused
            room(resource.RLIM_INFINITY)
            assert (await store.session("s-1")).position == session.position
            await session.log("room again")
        print("in the end", session.position)

asyncio.run(main(sys.argv[1]))
"""


async def test_a_full_disk_refuses_what_it_cannot_hold_and_keeps_the_rest(path: str) -> None:
    *refusals, end = lines_until_end(python(FULL_DISK, path))
    assert len(refusals) == 2
    async with SqliteStore(path) as store:
        session = await store.load("s-1")
        assert f"in the end {session.position}" == end
        assert await ids_of(store) == ["s-1"]
