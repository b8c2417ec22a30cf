"""A session that is damaged in the SQLite file is named, and harms no other."""

from __future__ import annotations

from contextlib import suppress

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.core.records import Entry
from holdfast.core.state import Session
from holdfast.core.summary import summarize
from holdfast.store.errors import CorruptSessionError
from holdfast.store.session_rows import SessionFilter
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.sessions import begin, entries_of, feed, ids_of, messages_of
from tests.store.sqlite.helpers import LARGE, edit

# --- damage to one session -----------------------------------------------------------------------


async def three_sessions(path: str) -> dict[str, list[Entry]]:
    """Three sessions of five records each; in the middle one, `hurt`, records 1 and 3 have a large value."""
    written: dict[str, list[Entry]] = {}
    async with SqliteStore(path) as store:
        for session_id in ("first", "hurt", "last"):
            session = await begin(store, session_id, ctx={"text": f"{session_id} {LARGE}"}, hold_ms=0)
            for text in ("one", f"{session_id} {LARGE}", "three", "four"):
                await session.log(text)
            await session.append(hold_ms=0)
            await store.send(session_id, "m-1", feed(session_id), 1)
            written[session_id] = session.entries
    return written


HURT = "(SELECT num FROM sessions WHERE id = 'hurt')"


def at(position: int) -> str:
    return f"WHERE session = {HURT} AND first = {position}"


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
        (2, f"UPDATE journal SET first = first + 10 {at(2)}"),
        (2, f"UPDATE journal SET first = first + 10, last = last + 10 {at(2)}"),
        ("2 to 3", f"UPDATE journal SET last = last + 1 {at(2)}"),
        (2, f"UPDATE journal SET last = 0 {at(2)}"),
        (2, f"UPDATE journal SET last = 'two' {at(2)}"),
        (2, f"UPDATE journal SET first = 'two' {at(2)}"),
        (4, f"UPDATE journal SET later = '[0]' {at(4)}"),
        (1, "UPDATE journal SET session = session + 10 WHERE first = 1 AND session = " + HURT),
    ],
)
async def test_a_damaged_record_is_named_and_hurts_no_other_session(
    path: str, place: int | str, damage: str, reading: str
) -> None:
    written = await three_sessions(path)
    edit(path, damage)
    async with SqliteStore(path) as store:
        with pytest.raises(CorruptSessionError) as caught:
            await (store.load("hurt") if reading == "load" else store.read("hurt"))
        named = f"position {place}" if isinstance(place, int) else f"positions {place}"
        assert (caught.value.session_id, caught.value.place) == ("hurt", named)
        for healthy in ("first", "last"):
            assert await entries_of(store, healthy) == written[healthy]


async def test_two_records_that_changed_places_are_noticed(path: str) -> None:
    await three_sessions(path)
    for old, new in ((2, 99), (4, 2), (99, 4)):
        edit(path, f"UPDATE journal SET first = {new}, last = {new} {at(old)}")
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
