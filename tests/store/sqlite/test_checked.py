"""Whatever is wrong with a session in the SQLite file, a check of all sessions doubts it, and no other."""

from __future__ import annotations

import pytest

from holdfast.core.queries import HumanQuery
from holdfast.core.summary import Summary
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.laws.forks import fork_of
from holdfast.testing.sessions import begin
from tests.store.sqlite.helpers import LARGE, edit

OTHERS = ["fork", "large", "other"]


async def write_sessions(path: str) -> None:
    """One session to be hurt, and others that are not: one with large values, and a fork."""
    async with SqliteStore(path) as store:
        for session_id in ("other", "hurt", "large"):
            session = await begin(store, session_id, ctx=LARGE if session_id == "large" else 1, hold_ms=0)
            await session.log("one", hold_ms=0)
            await session.ask(HumanQuery(prompt="two?"), hold_ms=0)
            if session_id == "other":
                await fork_of(session, "fork", 2)


JOURNAL = "WHERE session = (SELECT num FROM sessions WHERE id = 'hurt') AND first = 2"
SESSION = "WHERE id = 'hurt'"
DAMAGES = [
    f"UPDATE journal SET body = replace(body, 'one', 'two') {JOURNAL}",
    f"UPDATE journal SET body = '' {JOURNAL}",
    f"UPDATE journal SET body = x'00ff' {JOURNAL}",
    f"UPDATE journal SET body = 7 {JOURNAL}",
    f"UPDATE journal SET checksum = checksum + 1 {JOURNAL}",
    f"UPDATE journal SET checksum = 'none' {JOURNAL}",
    f"UPDATE journal SET at = at + 1 {JOURNAL}",
    f"UPDATE journal SET later = '[0]' {JOURNAL}",
    f"UPDATE journal SET size = 5 {JOURNAL}",
    f"UPDATE journal SET last = last + 1 {JOURNAL}",
    f"UPDATE journal SET last = 'two' {JOURNAL}",
    f"UPDATE journal SET first = first + 10 {JOURNAL}",
    f"UPDATE journal SET first = 'two' {JOURNAL}",
    f"DELETE FROM journal {JOURNAL}",
    f"DELETE FROM journal {JOURNAL.replace('= 2', '>= 3')}",
    f"DELETE FROM journal {JOURNAL.replace('= 2', '>= 1')}",
    f"UPDATE sessions SET position = position - 1 {SESSION}",
    f"UPDATE sessions SET position = position + 1 {SESSION}",
    f"UPDATE sessions SET position = 0 {SESSION}",
    f"UPDATE sessions SET position = 'none' {SESSION}",
    f"UPDATE sessions SET epoch = 'none' {SESSION}",
    f"UPDATE sessions SET owner = x'00' {SESSION}",
    f"UPDATE sessions SET lease_until = 'never' {SESSION}",
    f"UPDATE sessions SET title = CAST(x'7bff' AS TEXT) {SESSION}",
    f"UPDATE sessions SET title = x'41' {SESSION}",
    f"UPDATE sessions SET labels = 'urgent' {SESSION}",
    f"UPDATE sessions SET cost = 0.1 {SESSION}",
    *[f"UPDATE sessions SET {column} = 'nonsense' {SESSION}" for column in Summary.__struct_fields__],
    *[
        f"UPDATE sessions SET {column} = {column} + 1 {SESSION}"
        for column in ("created_at", "updated_at", "pending", "asks", "turns", "tokens")
    ],
    f"UPDATE sessions SET due_at = 1 {SESSION}",
]


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_check_doubts_what_is_damaged_and_nothing_else(path: str, damage: str) -> None:
    await write_sessions(path)
    edit(path, damage)
    async with SqliteStore(path) as store:
        page = await store.checked()
        assert page.doubtful == ["hurt"]
        assert sorted(session.id for session in page.sound) == OTHERS


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
async def test_spans_have_every_session_once(path: str, size: int) -> None:
    await write_sessions(path)
    async with SqliteStore(path) as store:
        pages = [await store.checked_span(span) for span in await store.spans(size)]
        listed = [row.session_id for row in await store.all_sessions()]
        assert [session.id for page in pages for session in page.sound] == listed
        assert [len(page.sound) for page in pages] == [size] * (4 // size) + [4 % size] * (4 % size > 0)


async def test_a_span_keeps_its_bounds_when_others_come_and_go(path: str) -> None:
    await write_sessions(path)
    async with SqliteStore(path) as store:
        first, second = await store.spans(2)
        await begin(store, "later")
        edit(path, "DELETE FROM sessions WHERE id = 'large'")
        assert [session.id for session in (await store.checked_span(first)).sound] == ["hurt"]
        assert [session.id for session in (await store.checked_span(second)).sound] == ["fork", "other"]


async def test_an_empty_store_has_no_spans(path: str) -> None:
    async with SqliteStore(path) as store:
        assert await store.spans(1_000) == []


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_check_of_spans_doubts_what_is_damaged_and_nothing_else(path: str, damage: str) -> None:
    await write_sessions(path)
    edit(path, damage)
    async with SqliteStore(path) as store:
        pages = [await store.checked_span(span) for span in await store.spans(3)]
        assert [session_id for page in pages for session_id in page.doubtful] == ["hurt"]
        assert sorted(session.id for page in pages for session in page.sound) == OTHERS


async def test_a_check_finds_sound_sessions_sound(path: str) -> None:
    await write_sessions(path)
    async with SqliteStore(path) as store:
        page = await store.checked()
        assert page.doubtful == []
        assert sorted(session.id for session in page.sound) == sorted([*OTHERS, "hurt"])
