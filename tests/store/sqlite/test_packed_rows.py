"""Old rows of a journal are packed once a segment covers them, and nothing else about them changes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from holdfast.core.records import StatRecord
from holdfast.core.values import Json
from holdfast.store.commits import Checkpoint, Segment
from holdfast.store.errors import CorruptSessionError
from holdfast.store.limits import ROW_RECORDS, SMALL_ROW_BYTES
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.laws.forks import assert_reads, fork_of
from holdfast.testing.sessions import ScriptedSession, begin
from tests.store.sqlite.helpers import LARGE, edit, found

LINES = 2 * ROW_RECORDS + 10


async def put_away(session: ScriptedSession) -> None:
    """One more record, with a segment of all that is not in one yet."""
    known = await session.store.checkpoint(session.id)
    after = known[1][-1].position if known and known[1] else 0
    position = session.position + 1
    await session.log("put away", checkpoint=Checkpoint(position, b"state"), segment=Segment(after, position, b"part"))


async def packed(store: SqliteStore, session_id: str = "s-1", lines: int = LINES) -> ScriptedSession:
    """A session with a line in each commit, all of them in a segment."""
    session = await begin(store, session_id)
    for number in range(lines):
        await session.log(f"line {number}")
    await put_away(session)
    return session


def rows_in(path: str, session_id: str = "s-1") -> list[tuple[int, int, bool]]:
    """The rows of a session: first and last position, and whether it is packed."""
    number = f"(SELECT num FROM sessions WHERE id = '{session_id}')"
    query = f"SELECT first, last, size IS NOT NULL FROM journal WHERE session = {number} ORDER BY first"
    return [(first, last, bool(is_packed)) for first, last, is_packed in found(path, query)]


def in_the_shell(path: str, query: str) -> list[str]:
    return subprocess.run(["sqlite3", path, query], capture_output=True, check=True, text=True).stdout.splitlines()


def highest_id(path: str) -> int:
    return int(found(path, "SELECT max(id) FROM journal")[0][0])


async def test_rows_that_a_segment_covers_are_packed_but_for_those_of_its_own_commit(path: str) -> None:
    async with SqliteStore(path) as store:
        session = await packed(store)
        assert rows_in(path) == [
            (1, ROW_RECORDS, True),
            (ROW_RECORDS + 1, 2 * ROW_RECORDS, True),
            (2 * ROW_RECORDS + 1, session.position - 1, True),
            (session.position, session.position, False),
        ]
        await assert_reads(session)
        for number in range(3):
            await session.log(f"more {number}")
        await put_away(session)
        assert [is_packed for *_, is_packed in rows_in(path)] == [True, True, True, True, False]
        await assert_reads(session)
    async with SqliteStore(path) as store:
        session.store = store
        await assert_reads(session)


async def test_packed_records_keep_their_times(path: str) -> None:
    async with SqliteStore(path) as store:
        session = await begin(store)
        for step in (0, 7, 0, 1_000_000, 0):
            session.now += step
            await session.log("two lines", "of one commit")
        await put_away(session)
        assert rows_in(path)[0] == (1, session.position - 1, True)
        await assert_reads(session)


@pytest.mark.parametrize("value", [LARGE, "x" * SMALL_ROW_BYTES, {"$blob": 1}], ids=["blob", "long", "mark"])
async def test_what_is_large_or_has_marks_stays_as_it_is(path: str, value: Json) -> None:
    async with SqliteStore(path) as store:
        session = await begin(store)
        for each in ("one", "two", value, "four", "five"):
            await session.append(StatRecord(key="seen", value=each))
        await put_away(session)
        assert rows_in(path)[:-1] == [(1, 3, True), (4, 4, False), (5, 6, True)]
        await assert_reads(session)


async def test_forks_of_packed_rows_keep_what_they_share_when_the_session_is_deleted(path: str) -> None:
    async with SqliteStore(path) as store:
        session = await packed(store)
        middle, late = await fork_of(session, "s-middle", 20), await fork_of(session, "s-late", ROW_RECORDS + 5)
        await middle.log("on its own")
        await assert_reads(session, middle, late)
        await store.delete(session.id, 1)
        await assert_reads(middle, late)
        await store.delete(late.id, 1)
        await assert_reads(middle)


async def test_the_sqlite3_shell_shows_packed_records(path: str) -> None:
    async with SqliteStore(path) as store:
        session = await packed(store)
    query = "SELECT position, type, body FROM journal_lines ORDER BY position"
    shown = in_the_shell(path, query)
    assert len(shown) == session.position
    assert shown[1] == '2|logged|{"message":"line 0"}'
    assert shown[ROW_RECORDS + 1] == f'{ROW_RECORDS + 2}|logged|{{"message":"line {ROW_RECORDS}"}}'


@pytest.mark.parametrize(
    "damage",
    [
        "body = x'789c00'",
        "body = substr(body, 1, length(body) - 1)",
        "body = CAST('[]' AS BLOB)",
        "size = size + 1",
        "size = NULL",
        "size = 'many'",
        "later = NULL",
    ],
)
async def test_damage_to_a_packed_row_is_named_by_its_positions(path: str, damage: str) -> None:
    async with SqliteStore(path) as store:
        session = await packed(store)
    edit(path, f"UPDATE journal SET {damage} WHERE first = {ROW_RECORDS + 1}")
    async with SqliteStore(path) as store:
        with pytest.raises(CorruptSessionError, match=f"positions {ROW_RECORDS + 1} to {2 * ROW_RECORDS}"):
            await store.load(session.id)
        session.store = store
        await assert_reads(await fork_of(session, "s-fork", ROW_RECORDS))
        await store.delete(session.id, 1)


async def test_a_damaged_row_is_not_packed_and_the_others_are(path: str) -> None:
    async with SqliteStore(path) as store:
        session = await begin(store)
        for number in range(9):
            await session.log(f"line {number}")
        edit(path, "UPDATE journal SET body = '' WHERE first = 5")
        await put_away(session)
        assert rows_in(path) == [(1, 4, True), (5, 5, False), (6, 10, True), (11, 11, False)]
        with pytest.raises(CorruptSessionError, match="position 5"):
            await store.load(session.id)


async def test_the_highest_number_that_watchers_follow_grows_when_rows_are_packed(path: str) -> None:
    async with SqliteStore(path) as store:
        await packed(store)
        highest = highest_id(path)
        other = await packed(store, "s-2", 3)
        await put_away(other)
        assert highest_id(path) > highest


async def test_packed_rows_take_less_than_a_third(path: str, tmp_path: Path) -> None:
    async with SqliteStore(path) as store:
        await packed(store)
    async with SqliteStore(str(tmp_path / "plain.db")) as store:
        plain = await begin(store)
        for number in range(LINES):
            await plain.log(f"line {number}")
    stored = "SELECT sum(length(CAST(body AS BLOB)) + coalesce(length(later), 0) + 30) FROM journal"
    assert 3 * found(path, stored)[0][0] < found(str(tmp_path / "plain.db"), stored)[0][0]
