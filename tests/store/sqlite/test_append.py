"""The SQLite store appends with one fenced statement where it knows a session's row, and is never wrong about it."""

from __future__ import annotations

import asyncio
import sqlite3

import msgspec
import pytest

from holdfast.core.decide import decide_pause
from holdfast.core.queries import LlmQuery
from holdfast.core.state import State
from holdfast.core.summary import summarize
from holdfast.core.values import encode
from holdfast.store.errors import LeaseHeldError, LeaseLostError, PositionConflictError
from holdfast.store.sqlite.store import SqliteStore
from holdfast.store.sqlite.writer import Writer
from holdfast.testing.patience import until
from holdfast.testing.sessions import begin, entries_of, line


async def test_bodies_are_stored_as_they_are_and_read_back_as_the_records(store: SqliteStore) -> None:
    session = await begin(store)
    texts = ["plain", 'a "$blob" in a text', '{"$blob": "x"}', "long" * 5_000]
    for text in texts:
        commit = session.commit(line(text))
        await session.make(msgspec.structs.replace(commit, bodies=[encode(commit.entries[0].record)]))
    assert await entries_of(store, session.id) == session.entries


async def test_many_records_in_one_commit_are_all_there_in_order(store: SqliteStore) -> None:
    session = await begin(store)
    for count in (1, 3, 4, 5, 8, 11):
        await session.append(*(line(f"{count}.{number}") for number in range(count)))
    assert await entries_of(store, session.id) == session.entries


async def test_the_summary_in_the_row_follows_each_commit(store: SqliteStore) -> None:
    session = await begin(store)
    paused = decide_pause(session.session, [LlmQuery(prompt="?", timeout_ms=50)], session.now)
    await session.append(paused.record, hold_ms=0)
    assert (await store.session(session.id)).summary == session.summary
    session.epoch = None
    await session.append(line("still waiting"), hold_ms=0)
    assert (await store.session(session.id)).summary == session.summary
    await session.answer("q-0", "yes")
    row = await store.session(session.id)
    assert (row.summary, row.owner) == (session.summary, session.owner)
    await session.complete("done")
    assert (await store.session(session.id)).summary.state is State.COMPLETED


async def test_whoever_wrote_last_here_learns_that_another_process_wrote_since(store: SqliteStore, path: str) -> None:
    session = await begin(store)
    await session.append(line("known here"), hold_ms=0)
    async with SqliteStore(path) as other:
        theirs = msgspec.structs.replace(session.commit(line("theirs"), owner="bob"), epoch=None)
        taken = await other.append(theirs)
        with pytest.raises(LeaseLostError):
            await store.append(session.commit(line("mine")))
        with pytest.raises(LeaseHeldError):
            await store.append(session.commit(line("mine"), epoch=None))
        session.entries += theirs.entries
        await other.append(session.commit(line("let go"), owner="bob", epoch=taken.epoch, hold_ms=0))
        with pytest.raises(PositionConflictError):
            await store.append(session.commit(line("mine"), epoch=None))


async def test_a_repaired_or_released_session_is_written_to_as_before(store: SqliteStore) -> None:
    session = await begin(store)
    await session.append(line("one"))
    await store.repair(session.id, summarize(session.session))
    await session.append(line("two"))
    await store.release(session.lease())
    session.epoch = None
    await session.append(line("three"))
    assert await entries_of(store, session.id) == session.entries


async def test_a_task_that_is_alone_writes_without_a_turn_of_the_loop_and_not_for_ever(store: SqliteStore) -> None:
    session = await begin(store)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count_turns())
    for number in range(200):
        await session.append(line(str(number)))
    counting.cancel()
    assert turns > 0
    assert await entries_of(store, session.id) == session.entries


async def test_two_tasks_that_write_without_pause_both_get_on(store: SqliteStore) -> None:
    one, two = await begin(store, "s-1"), await begin(store, "s-2")
    done: list[str] = []

    async def write(session_id: str) -> None:
        session = one if session_id == "s-1" else two
        for number in range(60):
            await session.append(line(str(number)))
            done.append(session_id)

    await asyncio.gather(write("s-1"), write("s-2"))
    assert "s-2" in done[:40]
    assert await entries_of(store, "s-1") == one.entries
    assert await entries_of(store, "s-2") == two.entries


async def test_own_writes_in_place_are_told_from_those_of_others(store: SqliteStore, path: str) -> None:
    writer = store._writer
    assert isinstance(writer, Writer)
    session = await begin(store)

    async def is_own() -> bool:  # not so where a slow machine has left the writing to the thread
        await session.append(line("mine"))
        await asyncio.sleep(0)
        return not writer.others_wrote()

    await until(is_own)
    other = sqlite3.connect(path)
    other.execute("UPDATE sessions SET updated_at = updated_at + 1")
    other.commit()
    other.close()
    assert writer.others_wrote()


async def test_each_commit_of_a_held_session_renews_the_lease(store: SqliteStore) -> None:
    session = await begin(store)
    await session.append(line("held"), hold_ms=60_000)
    before = (await store.session(session.id)).lease_until
    await session.append(line("for longer"), hold_ms=600_000)
    row = await store.session(session.id)
    assert (row.owner, row.summary) == (session.owner, session.summary)
    assert before is not None
    assert row.lease_until is not None
    assert row.lease_until - before >= 540_000


async def test_a_commit_under_another_name_names_the_new_holder(store: SqliteStore) -> None:
    session = await begin(store)
    await session.append(line("held"))
    await session.make(session.commit(line("by another"), owner="bob"))
    assert (await store.session(session.id)).owner == "bob"


async def test_a_step_sets_no_column_that_stays_as_it_was(store: SqliteStore, path: str) -> None:
    session = await begin(store)
    await session.append(line("held"))
    with sqlite3.connect(path) as watched:
        watched.execute("CREATE TABLE changes (column_name TEXT)")
        for column in ("state", "due_at", "owner", "lease_lock", "needs"):
            watched.execute(
                f"CREATE TRIGGER set_{column} AFTER UPDATE OF {column} ON sessions"
                f" BEGIN INSERT INTO changes VALUES ('{column}'); END"
            )
    await session.append(line("held on"))
    with sqlite3.connect(path) as watched:
        assert watched.execute("SELECT column_name FROM changes").fetchall() == []
