"""The SQLite file: how it is opened, what its damage does, how writes are grouped, and how other processes are noticed.

What every store promises is in the conformance kit; here is what only a file can do.
"""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.core.errors import HoldfastError
from holdfast.core.queries import HumanQuery
from holdfast.core.records import Entry, LoggedRecord
from holdfast.core.state import Session
from holdfast.core.summary import summarize
from holdfast.store.commits import Commit, Snapshot
from holdfast.store.contract import SessionFilter
from holdfast.store.errors import CorruptSessionError, PositionConflictError, StoreUnavailableError
from holdfast.store.sqlite.schema import PAGE_BYTES
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.patience import HANG_S, soon
from holdfast.testing.sessions import begin, entries_of, feed, ids_of, line, messages_of

LARGE = "large " * 1_000


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "store.db")


@pytest.fixture
async def store(path: str) -> AsyncIterator[SqliteStore]:
    async with SqliteStore(path) as opened:
        yield opened


def edit(path: str, *statements: str) -> None:
    """Change the file as someone with the sqlite3 shell would."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def settle(path: str) -> None:
    """Put everything into the one file, so that it can be copied or cut."""
    edit(path)
    assert not os.path.exists(f"{path}-wal")


def python(script: str, *arguments: object) -> subprocess.Popen[str]:
    """Another process with Holdfast in it."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def tell(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdin
    process.stdin.write(f"{text}\n")
    process.stdin.flush()


def heard(process: subprocess.Popen[str]) -> str:
    """The next line a process says."""
    assert process.stdout
    return process.stdout.readline().removesuffix("\n")


def told(process: subprocess.Popen[str]) -> list[str]:
    """What a process said until its end, which must be a good one."""
    out, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, err
    return out.splitlines()


async def refused_to_open(path: str, error: type[Exception]) -> str:
    store = SqliteStore(path)
    with pytest.raises(error) as caught:
        await store.open()
    assert str(path) in str(caught.value)
    return str(caught.value)


# --- opening -------------------------------------------------------------------------------------


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
        told(opener)
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
    await asyncio.gather(begin(store, "s-2"), begin(store, "s-3"), *(store.load("s-1") for _ in range(8)))
    await session.log("one")

    def settings(connection: sqlite3.Connection) -> tuple[Any, ...]:
        names = ("journal_mode", "synchronous", "page_size")
        return tuple(connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names)

    connections = list(store._connections)
    assert len(connections) >= 3  # two that write, and a reader or more
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


# --- damage to one session -----------------------------------------------------------------------


async def three_sessions(path: str) -> dict[str, list[Entry]]:
    """Three sessions of five records each; in the middle one, `hurt`, records 1 and 3 have a large value."""
    written: dict[str, list[Entry]] = {}
    async with SqliteStore(path) as store:
        for session_id in ("first", "hurt", "last"):
            session = await begin(store, session_id, ctx={"text": f"{session_id} {LARGE}"}, hold_ms=0)
            await session.log("one", f"{session_id} {LARGE}", "three")
            await session.log("four", hold_ms=0)
            await store.send(session_id, "m-1", feed(session_id), 1)
            written[session_id] = session.entries
    return written


HURT = "(SELECT num FROM sessions WHERE id = 'hurt')"


def at(position: int) -> str:
    return f"WHERE session = {HURT} AND position = {position}"


@pytest.mark.parametrize("reading", ["load", "read"])
@pytest.mark.parametrize(
    ("place", "damage"),
    [
        (2, f"UPDATE journal SET body = replace(body, 'one', 'two') {at(2)}"),
        (2, f"UPDATE journal SET body = '' {at(2)}"),
        (2, f"UPDATE journal SET body = x'00ff' {at(2)}"),
        pytest.param(2, f"UPDATE journal SET body = CAST(x'7bff' AS TEXT) {at(2)}", id="2-body that is no Unicode"),
        (2, f"UPDATE journal SET body = 7 {at(2)}"),
        (3, f"UPDATE journal SET checksum = checksum + 1 {at(3)}"),
        (3, f"UPDATE journal SET checksum = 'none' {at(3)}"),
        (4, f"UPDATE journal SET at = at + 1 {at(4)}"),
        (1, f"DELETE FROM journal {at(1)}"),
        (3, f"DELETE FROM journal {at(3)}"),
        (5, f"DELETE FROM journal {at(5)}"),
        (1, f"DELETE FROM journal WHERE session = {HURT}"),
        (2, f"UPDATE journal SET position = position + 10 {at(2)}"),
        (1, "UPDATE journal SET session = session + 10 WHERE position = 1 AND session = " + HURT),
    ],
)
async def test_a_damaged_record_is_named_and_hurts_no_other_session(
    path: str, place: int, damage: str, reading: str
) -> None:
    written = await three_sessions(path)
    edit(path, damage)
    async with SqliteStore(path) as store:
        with pytest.raises(CorruptSessionError) as caught:
            await (store.load("hurt") if reading == "load" else store.read("hurt"))
        assert (caught.value.session_id, caught.value.place) == ("hurt", f"position {place}")
        for healthy in ("first", "last"):
            assert await entries_of(store, healthy) == written[healthy]


async def test_two_records_that_changed_places_are_noticed(path: str) -> None:
    await three_sessions(path)
    edit(path, *(f"UPDATE journal SET position = {new} {at(old)}" for old, new in ((2, 99), (4, 2), (99, 4))))
    async with SqliteStore(path) as store:
        with pytest.raises(CorruptSessionError, match="position 2"):
            await store.load("hurt")


async def test_records_before_the_damage_can_still_be_read(path: str) -> None:
    written = await three_sessions(path)
    edit(path, f"UPDATE journal SET body = '' {at(4)}")
    async with SqliteStore(path) as store:
        assert await store.read("hurt", limit=3) == written["hurt"][:3]


async def test_a_session_with_a_damaged_record_is_listed_and_can_be_deleted(path: str) -> None:
    await three_sessions(path)
    edit(path, f"UPDATE journal SET body = '' {at(2)}")
    async with SqliteStore(path) as store:
        assert await ids_of(store) == ["last", "hurt", "first"]
        await store.delete("hurt", at=1)
        assert await ids_of(store) == ["last", "first"]


@pytest.mark.parametrize("position", [0, 4, 6])
async def test_a_position_that_does_not_fit_the_journal_never_gives_a_shorter_one(path: str, position: int) -> None:
    written = await three_sessions(path)
    edit(path, f"UPDATE sessions SET position = {position} WHERE id = 'hurt'")
    async with SqliteStore(path) as store:
        with suppress(CorruptSessionError):
            assert (await store.load("hurt")).position == len(written["hurt"])


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM blobs",
        "UPDATE blobs SET data = x'00'",
        "UPDATE blobs SET data = 'text'",
        "UPDATE blobs SET size = 1",
        "UPDATE blobs SET size = 'large'",
        "UPDATE blobs SET packing = 'raw'",
    ],
)
async def test_a_lost_or_changed_blob_is_noticed_at_the_record_that_needs_it(path: str, damage: str) -> None:
    written = await three_sessions(path)
    edit(path, f"{damage} WHERE id IN (SELECT blob FROM blob_refs WHERE session = {HURT})")
    async with SqliteStore(path) as store:
        with pytest.raises(CorruptSessionError, match="position 1") as caught:
            await store.load("hurt")
        assert caught.value.session_id == "hurt"
        assert await store.read("hurt", after=3) == written["hurt"][3:]
        assert await entries_of(store, "last") == written["last"]


@pytest.mark.parametrize("damage", ["'{'", "x'00ff'", "CAST(x'22ff22' AS TEXT)"])
async def test_a_damaged_state_item_raises_an_error_of_our_own(path: str, damage: str) -> None:
    async with SqliteStore(path) as store:
        await store.put_state("notes", "hurt", 1)
        await store.put_state("notes", "well", 2)
    edit(path, f"UPDATE state SET value = {damage} WHERE key = 'hurt'")
    async with SqliteStore(path) as store:
        with pytest.raises(HoldfastError):
            await store.get_state("notes", "hurt")
        item = await store.get_state("notes", "well")
        assert item is not None
        assert item.value == 2


@pytest.mark.parametrize("damage", ["'{}'", "replace(body, 'hurt', 'forged')", "x'00ff'", "CAST(x'22ff22' AS TEXT)"])
async def test_a_message_that_was_edited_is_noticed(path: str, damage: str) -> None:
    await three_sessions(path)
    edit(path, f"UPDATE mailbox SET body = {damage} WHERE session = {HURT}")
    async with SqliteStore(path) as store:
        with pytest.raises(CorruptSessionError) as caught:
            await store.mailbox("hurt")
        assert caught.value.session_id == "hurt"
        assert await messages_of(store, "last") == [feed("last")]


# --- damage to a summary -------------------------------------------------------------------------

BAD_SUMMARIES = [
    "state = 'asleep'",
    "state = x'00'",
    "program = CAST(x'ff' AS TEXT)",
    "pending = 'many'",
    "epoch = 'x'",
]


@pytest.mark.parametrize("damage", BAD_SUMMARIES)
async def test_a_damaged_summary_leaves_the_listing_of_the_others_alone(path: str, damage: str) -> None:
    await three_sessions(path)
    edit(path, f"UPDATE sessions SET {damage} WHERE id = 'hurt'")
    async with SqliteStore(path) as store:
        listed = await ids_of(store)
        assert [session_id for session_id in listed if session_id != "hurt"] == ["last", "first"]
        page = await store.sessions(SessionFilter(id_prefix="la"))
        assert [row.session_id for row in page.rows] == ["last"]


@pytest.mark.parametrize("damage", [*BAD_SUMMARIES[:4], "state = 'completed', pending = 7, due_at = 1, program = 'x'"])
async def test_a_damaged_summary_is_mended_from_the_journal(path: str, damage: str) -> None:
    written = await three_sessions(path)
    edit(path, f"UPDATE sessions SET {damage} WHERE id = 'hurt'")
    async with SqliteStore(path) as store:
        right = summarize(Session.fold("hurt", await store.read("hurt")))
        await store.repair("hurt", right)
        row = await store.session("hurt")
        assert (row.summary, row.position) == (right, len(written["hurt"]))
        assert await ids_of(store) == ["last", "hurt", "first"]
        assert await store.due(2**62) == []


@pytest.mark.parametrize("damage", BAD_SUMMARIES[:4])
async def test_a_session_with_a_damaged_summary_still_loads(path: str, damage: str) -> None:
    written = await three_sessions(path)
    edit(path, f"UPDATE sessions SET {damage} WHERE id = 'hurt'")
    async with SqliteStore(path) as store:
        assert (await store.load("hurt")).position == len(written["hurt"])


# --- damage to the file --------------------------------------------------------------------------


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
            journal = "SELECT position, at, checksum, body FROM journal WHERE session = ? ORDER BY position"
            records = connection.execute(journal, session[:1]).fetchall()
            kept = connection.execute("SELECT blob FROM blob_refs WHERE session = ?", session[:1]).fetchall()
            blobs = [connection.execute("SELECT * FROM blobs WHERE id = ?", blob).fetchone() for blob in kept]
            return [session, records, kept, blobs]
    except (sqlite3.Error, TypeError):  # TypeError: there is no such row
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
    *refusals, end = told(python(FULL_DISK, path))
    assert len(refusals) == 2
    async with SqliteStore(path) as store:
        session = await store.load("s-1")
        assert f"in the end {session.position}" == end
        assert await ids_of(store) == ["s-1"]


# --- writing together ----------------------------------------------------------------------------


async def test_of_a_hundred_appends_at_once_the_stale_ones_fail_alone(store: SqliteStore) -> None:
    sessions = [await begin(store, f"s-{number}") for number in range(100)]
    chance = random.Random(5)
    stale = set(chance.sample(range(100), 30))
    commits = [session.commit(line("a"), line("b")) for session in sessions]
    for number in stale:
        late = [Entry(e.position + 1, e.at, e.record) for e in commits[number].entries]
        commits[number] = msgspec.structs.replace(commits[number], expected=2, entries=late)
    results = await asyncio.gather(*(store.append(commit) for commit in commits), return_exceptions=True)
    for number, (session, result) in enumerate(zip(sessions, results, strict=True)):
        if number in stale:
            assert isinstance(result, PositionConflictError)
            assert (result.session_id, result.actual) == (session.id, 1)
            assert await entries_of(store, session.id) == session.entries
        else:
            assert not isinstance(result, BaseException)
            assert result.position == 3
            assert await entries_of(store, session.id) == [*session.entries, *commits[number].entries]


async def test_an_append_that_sqlite_cannot_take_fails_alone_in_its_group(store: SqliteStore) -> None:
    sessions = [await begin(store, f"s-{number}") for number in range(20)]
    commits = [session.commit(line("a")) for session in sessions]
    past = [Entry(2, 2**70, LoggedRecord(message="no column holds this time"))]
    commits[7] = msgspec.structs.replace(commits[7], entries=past)
    results = await asyncio.gather(*(store.append(commit) for commit in commits), return_exceptions=True)
    assert [number for number, result in enumerate(results) if isinstance(result, BaseException)] == [7]
    assert [(await store.session(session.id)).position for session in sessions] == [2] * 7 + [1] + [2] * 12


async def test_appends_to_one_session_in_one_group_are_made_in_order(store: SqliteStore) -> None:
    session = await begin(store)
    commits: list[Commit] = []
    for number in range(50):
        commits.append(session.commit(line(str(number))))
        session.entries += commits[-1].entries
    await asyncio.gather(*(store.append(commit) for commit in commits))
    assert await entries_of(store, "s-1") == session.entries


async def test_cancelled_appends_have_written_everything_or_nothing(store: SqliteStore) -> None:
    chance = random.Random(6)
    outcomes = set()
    for round_number in range(25):
        session = await begin(store, f"s-{round_number}")
        await session.ask(HumanQuery(prompt="well?"))
        receipt = await store.send(session.id, "m-1", feed("yes"), 1)
        commit = session.commit(line("a"), line("b"), line(LARGE), takes=[receipt.number])
        others = [begin(store, f"o-{round_number}-{n}") for n in range(chance.choice([0, 3]))]
        appending = asyncio.ensure_future(store.append(commit))
        beside = asyncio.gather(*others)
        for _ in range(chance.choice([0, 1, 2, 3])):
            await asyncio.sleep(0)
        appending.cancel()
        await asyncio.gather(appending, return_exceptions=True)
        await beside
        await store.release(session.lease())  # comes after the cancelled one, if that is still on its way
        found, waiting = await entries_of(store, session.id), await store.mailbox(session.id)
        if len(found) == 2:
            assert len(waiting) == 1
        else:
            assert (found[2:], waiting) == (list(commit.entries), [])
        assert (await store.session(session.id)).position == len(found)
        outcomes.add((len(found), appending.cancelled()))
    assert (2, True) in outcomes
    assert {count for count, _ in outcomes} == {2, 5}


LOCKER = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.readline()
connection.execute("ROLLBACK")
"""


async def test_a_writer_in_another_process_delays_appends_and_not_the_event_loop(store: SqliteStore, path: str) -> None:
    session = await begin(store)
    locker = python(LOCKER, path)
    assert heard(locker) == "locked"
    writing = asyncio.gather(session.log("one"), begin(store, "s-2"))
    for _ in range(30):
        await asyncio.sleep(0.01)
        assert not writing.done()
    tell(locker, "go on")
    await soon(writing)
    told(locker)
    assert await entries_of(store, "s-1") == session.entries


# --- noticing other processes --------------------------------------------------------------------

ACTOR = """
import asyncio, sys, time
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.sessions import ScriptedSession, entries_of, feed

async def main(path):
    async with SqliteStore(path) as store:
        session = ScriptedSession(store, "s-1", "bob")
        session.entries = await entries_of(store, "s-1")
        print("ready", flush=True)
        while action := sys.stdin.readline().strip():
            if action == "append":
                await session.log("from another process")
            elif action == "send":
                await store.send("s-1", "m-1", feed("hello"), 1)
            elif action == "delete":
                await store.delete("s-1", 1)
            print(time.time(), flush=True)

asyncio.run(main(sys.argv[1]))
"""


class LiveSession:
    """Another process that does one thing when told, and says when that was done."""

    def __init__(self, path: str) -> None:
        self.process = python(ACTOR, path)

    async def does(self, action: str) -> float:
        tell(self.process, action)
        return float(await self.says())

    async def says(self) -> str:
        return await asyncio.to_thread(heard, self.process)

    def ends(self) -> None:
        told(self.process)


async def test_what_another_process_does_is_noticed_within_moments(store: SqliteStore, path: str) -> None:
    await begin(store, hold_ms=0)
    await begin(store, "s-2", hold_ms=0)
    live = LiveSession(path)
    assert await live.says() == "ready"
    with store.watch("s-1") as watch, store.watch() as any_session:
        for action in ("append", "send", "delete"):
            while await watch.changed(0.1) or await any_session.changed(0.1):
                pass
            doing = asyncio.create_task(live.does(action))
            assert await watch.changed(HANG_S)
            noticed = time.time()
            assert noticed - await doing < 0.5
            assert await any_session.changed(0.5)
    live.ends()


async def test_watching_an_idle_file_costs_next_to_nothing(store: SqliteStore, path: str) -> None:
    await begin(store)
    with store.watch("s-1") as watch:
        while await watch.changed(0.2):
            pass
        before = time.process_time()
        assert not await watch.changed(1.5)
        assert time.process_time() - before < 0.1


NO_NOTIFICATIONS = """
import asyncio, contextlib, os, resource, sys
from holdfast.store.sqlite.store import SqliteStore

async def main(path):
    async with SqliteStore(path) as store:
        await asyncio.gather(*(store.due(0) for _ in range(20)))
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 4096))
        with contextlib.suppress(OSError):
            while True:
                os.open("/dev/null", os.O_RDONLY)
        with store.watch("s-1") as watch:
            while await watch.changed(0.3):
                pass
            print("ready", flush=True)
            print(await watch.changed(5), flush=True)

asyncio.run(main(sys.argv[1]))
"""


async def test_a_system_that_has_no_notifications_left_is_watched_by_looking(store: SqliteStore, path: str) -> None:
    session = await begin(store)
    watcher = python(NO_NOTIFICATIONS, path)
    assert await asyncio.to_thread(heard, watcher) == "ready"
    await session.log("one")
    assert await asyncio.to_thread(told, watcher) == ["True"]
