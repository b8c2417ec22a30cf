"""Commits that the SQLite store writes together succeed and fail each on its own, and in order."""

from __future__ import annotations

import asyncio
import random

import msgspec

from holdfast.core.queries import HumanQuery
from holdfast.core.records import Entry, LoggedRecord
from holdfast.store.commits import Commit
from holdfast.store.errors import PositionConflictError
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.patience import soon
from holdfast.testing.sessions import begin, entries_of, feed, line
from tests.store.sqlite.helpers import LARGE, heard, lines_until_end, python, tell


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
    lines_until_end(locker)
    assert await entries_of(store, "s-1") == session.entries
