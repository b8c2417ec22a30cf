"""Copies of whole stores: everything comes along, between all kinds of stores, in as many tries as it takes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.core.decide import WakeMessage
from holdfast.core.errors import SessionDeletedError
from holdfast.core.queries import HumanQuery
from holdfast.store import Store, open_store
from holdfast.store.copy import CopyReport, copy_store
from holdfast.testing.laws.forks import fork_of
from holdfast.testing.postgres_server import fresh_database
from holdfast.testing.sessions import ScriptedSession, begin, entries_of, picture
from tests.store.test_export import LARGE


@pytest.fixture
async def source(tmp_path: Path) -> AsyncIterator[Store]:
    """A store with sessions, mail, state and a deletion."""
    async with open_store(f"sqlite:///{tmp_path}/source.db") as store:
        await fill(store)
        yield store


@pytest.fixture(params=["sqlite", "postgresql", "memory"])
async def target(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    urls = {"sqlite": f"sqlite:///{tmp_path}/target.db", "memory": "memory:"}
    url = urls.get(request.param) or fresh_database(request.getfixturevalue("server"))
    async with open_store(url) as store:
        yield store


async def add_line(session: ScriptedSession) -> None:
    await session.log("a line", epoch=None, hold_ms=0)


async def known(store: Store, session_id: str) -> ScriptedSession:
    """A session that is in a store, for writing on."""
    session = ScriptedSession(store, session_id)
    session.entries = await entries_of(store, session_id)
    return session


async def fork_at(store: Store, session_id: str, at: int) -> None:
    """Fork a session, and let the fork go on."""
    await add_line(await fork_of(await known(store, session_id), "s-fork", at))


async def fill(store: Store) -> None:
    large = await begin(store, "s-large", ctx=LARGE)
    await large.ask(HumanQuery(prompt="well?"), hold_ms=0)
    await add_line(await begin(store, "s-plain"))
    await store.send("s-plain", "first", WakeMessage(), 1)
    await store.send("s-plain", "second", WakeMessage(), 2)
    await store.put_state("notes", "b", {"x": [1, 2.5, None]})
    await store.put_state("notes", "a", "text")
    await store.put_state("left-out", "a", 1)
    await begin(store, "s-gone")
    await store.delete("s-gone", 77)


async def copied(source: Store, target: Store) -> CopyReport:
    reports = [report async for report in copy_store(source, target, leave_out=["left-out"])]
    return reports[-1]


async def test_a_copy_has_all_that_the_source_has(source: Store, target: Store) -> None:
    report = await copied(source, target)
    assert report.skipped == []
    assert (report.sessions, report.copied, report.messages, report.items, report.deleted) == (2, 2, 2, 2, 1)
    for session_id in ("s-large", "s-plain"):
        assert await entries_of(target, session_id) == await entries_of(source, session_id)
        ours, theirs = await source.session(session_id), await target.session(session_id)
        assert (theirs.summary, theirs.owner) == (ours.summary, None)
    listed = [[row.session_id for row in (await store.sessions()).rows] for store in (source, target)]
    assert listed[0] == listed[1]
    assert [(item.key, item.at) for item in await target.mailbox("s-plain")] == [("first", 1), ("second", 2)]
    assert await target.namespaces() == ["notes"]
    item = await target.get_state("notes", "b")
    assert item is not None
    assert item.value == {"x": [1, 2.5, None]}
    with pytest.raises(SessionDeletedError):
        await target.session("s-gone")


async def test_a_second_copy_finds_everything_there_and_writes_nothing(source: Store, target: Store) -> None:
    await copied(source, target)
    before = await picture(target)
    report = await copied(source, target)
    assert (report.copied, report.equal, report.messages, report.items) == (0, 2, 0, 0)
    assert await picture(target) == before


async def test_a_copy_that_was_broken_off_is_continued(source: Store, target: Store) -> None:
    async for report in copy_store(source, target):
        if report.copied == 1:
            break
    await add_line(await known(source, "s-plain"))
    report = await copied(source, target)
    assert (report.copied, report.equal) == (1, 1)
    assert await entries_of(target, "s-plain") == await entries_of(source, "s-plain")


async def test_what_was_added_since_is_added_to_the_copy(source: Store, target: Store) -> None:
    await copied(source, target)
    await add_line(await known(source, "s-plain"))
    report = await copied(source, target)
    assert (report.copied, report.records) == (1, 1)
    assert await entries_of(target, "s-plain") == await entries_of(source, "s-plain")


async def test_a_fork_shares_its_history_in_the_copy_too(source: Store, target: Store) -> None:
    await fork_at(source, "s-large", 2)
    report = await copied(source, target)
    assert report.skipped == []
    assert await entries_of(target, "s-fork") == await entries_of(source, "s-fork")
    assert (await target.session("s-fork")).summary == (await source.session("s-fork")).summary
    await target.delete("s-large", 1)
    assert await entries_of(target, "s-fork") == await entries_of(source, "s-fork")


async def test_a_fork_whose_source_is_gone_is_copied_whole(source: Store, target: Store) -> None:
    await fork_at(source, "s-large", 2)
    await source.delete("s-large", 1)
    report = await copied(source, target)
    assert report.skipped == []
    assert await entries_of(target, "s-fork") == await entries_of(source, "s-fork")


async def test_a_session_that_a_process_owns_is_left_out_and_named(source: Store, target: Store) -> None:
    await begin(source, "s-busy", owner="alice")
    report = await copied(source, target)
    assert [each.session_id for each in report.skipped] == ["s-busy"]
    assert "alice" in report.skipped[0].why
    assert report.copied == 2


async def test_another_session_of_the_same_id_is_not_touched(source: Store, target: Store) -> None:
    await begin(target, "s-plain", ctx="another", hold_ms=0)
    before = await entries_of(target, "s-plain")
    report = await copied(source, target)
    assert [each.session_id for each in report.skipped] == ["s-plain"]
    assert "differs at position 1" in report.skipped[0].why
    assert await entries_of(target, "s-plain") == before
