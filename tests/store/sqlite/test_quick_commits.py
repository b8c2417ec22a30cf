"""Commits that are written together with one statement say the same as those that are written one by one."""

from __future__ import annotations

import asyncio
import itertools
import random
import sqlite3
from collections.abc import Awaitable, Callable, Sequence

import msgspec
import pytest

from holdfast.core.errors import SessionDeletedError, SessionExistsError
from holdfast.core.queries import HumanQuery, LlmQuery
from holdfast.core.records import LabelledRecord
from holdfast.core.state import State
from holdfast.store.commits import CommitReceipt, Snapshot
from holdfast.store.contract import Store
from holdfast.store.errors import LeaseLostError
from holdfast.store.memory import MemoryStore
from holdfast.store.session_rows import SessionRow
from holdfast.store.sqlite.schema import StoreConnection
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.sessions import ScriptedSession, begin, entries_of, feed, line
from tests.store.sqlite.helpers import LARGE, found

Act = Callable[[ScriptedSession], Awaitable[CommitReceipt]]

HELD_MS = 600_000


def _acts(session: ScriptedSession, chance: random.Random) -> list[Act]:
    """What may come next in a session."""
    hold = chance.choice([0, HELD_MS])
    if not session.entries:
        return []
    if session.session.state is State.PAUSED:
        asked = next(iter(session.session.pending))
        return [
            lambda s: s.answer(asked, "yes", hold_ms=hold),
            lambda s: s.answer(asked, LARGE, hold_ms=hold),
            lambda s: s.log("while it waits", hold_ms=hold),
        ]
    return [
        lambda s: s.log("a step", hold_ms=hold),
        lambda s: s.append(LabelledRecord(title=f"at {s.position}", labels=["three"]), hold_ms=hold),
        lambda s: s.log("a step", "of two", hold_ms=hold),
        lambda s: s.ask(LlmQuery(prompt="?"), hold_ms=hold),
        lambda s: s.ask(HumanQuery(prompt="?", timeout_ms=5_000), LlmQuery(prompt="?"), hold_ms=hold),
        lambda s: s.complete("done"),
        lambda s: s.end(State.FAILED),
    ]


async def _live(store: Store, seed: int) -> list[tuple[SessionRow, list[object]]]:
    """Thirty sessions that begin, go on and end in groups; what is stored of each then."""
    chance = random.Random(seed)
    sessions = [ScriptedSession(store, f"s-{number}") for number in range(30)]
    for _ in range(12):
        works: list[Awaitable[object]] = []
        for session in chance.sample(sessions, chance.choice([1, 2, 7, 20, 30])):
            if not session.entries:
                works.append(_begin(session, hold_ms=chance.choice([0, HELD_MS])))
            elif not session.session.is_terminal:
                works.append(_act(session, chance.choice(_acts(session, chance))))
        await asyncio.gather(*works)
    return [
        (
            msgspec.structs.replace(await store.session(session.id), lease_until=0),
            [*await entries_of(store, session.id)],
        )
        for session in sessions
        if session.entries
    ]


async def _begin(session: ScriptedSession, hold_ms: int) -> None:
    made = await begin(session.store, session.id, hold_ms=hold_ms, title="a title", labels=["one", "two"])
    session.entries, session.now = made.entries, made.now
    session.epoch = made.epoch if hold_ms else None


async def _act(session: ScriptedSession, act: Act) -> None:
    await act(session)
    if (await session.store.session(session.id)).owner is None:
        session.epoch = None


@pytest.mark.parametrize("seed", range(8))
async def test_groups_leave_what_a_store_without_groups_leaves(store: SqliteStore, seed: int) -> None:
    async with MemoryStore() as memory:
        assert await _live(store, seed) == await _live(memory, seed)


async def _statements(store: SqliteStore, works: Sequence[Awaitable[object]]) -> list[str]:
    """What SQLite is told to do for works that are given at once. It says so again for each step of a trigger."""
    traced: list[str] = []
    connections: list[StoreConnection] = store._connections
    for connection in connections:
        connection.set_trace_callback(traced.append)
    await asyncio.gather(*works)
    for connection in connections:
        connection.set_trace_callback(None)
    return [statement.split()[0] for statement, _ in itertools.groupby(traced)]


async def test_a_group_is_one_statement(store: SqliteStore) -> None:
    assert store._writer is not None
    sessions = [await begin(store, f"s-{number}", hold_ms=0) for number in range(50)]
    for session in sessions:
        session.epoch = None
    await asyncio.gather(*(session.log("the thread is there", hold_ms=0) for session in sessions))
    for session in sessions:
        session.epoch = None
    store._guard.next_look_s = store._writer._waits.rests_until = float("inf")  # nothing is written in place
    assert await _statements(store, [session.log("a step", hold_ms=0) for session in sessions]) == ["INSERT"]
    for session in sessions:
        session.epoch = None
    changes = [session.ask(LlmQuery(prompt="?"), hold_ms=HELD_MS) for session in sessions]
    assert await _statements(store, changes) == ["INSERT"]
    assert await _statements(store, [begin(store, f"new-{number}") for number in range(50)]) == [
        *("BEGIN", "INSERT", "SELECT", "COMMIT")
    ]
    mixed = [
        begin(store, "new"),
        *(session.answer("q-0", "yes") for session in sessions[:5]),
        sessions[5].log("a step"),
    ]
    assert await _statements(store, mixed) == ["BEGIN", "INSERT", "INSERT", "INSERT", "SELECT", "COMMIT"]


async def test_in_a_group_only_those_are_refused_whose_sessions_somebody_else_took(
    store: SqliteStore, path: str
) -> None:
    sessions = [await begin(store, f"s-{number}") for number in range(20)]
    async with SqliteStore(path) as other:
        theirs = msgspec.structs.replace(sessions[3].commit(line("theirs")), epoch=None)
        await other.append(theirs)
    works = [session.log("mine") for session in sessions] + [begin(store, f"new-{number}") for number in range(3)]
    results = await asyncio.gather(*works, return_exceptions=True)
    assert [type(each) for each in results if isinstance(each, BaseException)] == [LeaseLostError]
    assert isinstance(results[3], LeaseLostError)
    assert [(await store.session(session.id)).position for session in sessions] == [2] * 20
    assert (await entries_of(store, "s-3"))[1:] == theirs.entries
    assert (await store.session("new-2")).position == 1


async def test_in_a_group_only_those_do_not_begin_whose_ids_are_taken_or_deleted(store: SqliteStore) -> None:
    taken = await begin(store, "taken")
    await (await begin(store, "gone")).complete()
    await store.delete("gone", 1)
    names = ["one", "taken", "two", "gone", "three"]
    results = await asyncio.gather(*(begin(store, name) for name in names), return_exceptions=True)
    refusals = {name: type(each) for name, each in zip(names, results, strict=True) if isinstance(each, Exception)}
    assert refusals == {"taken": SessionExistsError, "gone": SessionDeletedError}
    for name in ("one", "two", "three"):
        assert (await store.session(name)).position == 1
    assert await entries_of(store, "taken") == taken.entries


@pytest.mark.parametrize("together", [1, 3])
async def test_a_session_that_ends_leaves_no_snapshot_and_no_mail(store: SqliteStore, path: str, together: int) -> None:
    sessions = [await begin(store, f"s-{number}") for number in range(together)]
    for session in sessions:
        await session.append(line(), snapshot=Snapshot(2, b"frozen"))
        await store.send(session.id, "m-1", feed("too late"), 1)
    await asyncio.gather(*(session.complete() for session in sessions))
    assert found(path, "SELECT * FROM snapshots") == []
    assert found(path, "SELECT DISTINCT body FROM mailbox") == [(None,)]
    assert found(path, "SELECT ended_at = updated_at FROM sessions") == [(1,)] * together
    for session in sessions:
        assert (await store.session(session.id)).summary.state is State.COMPLETED


async def test_a_group_that_cannot_be_written_leaves_nothing_and_is_tried_one_by_one(
    store: SqliteStore, path: str
) -> None:
    sessions = [await begin(store, f"s-{number}") for number in range(10)]
    with sqlite3.connect(path) as file:
        file.execute(
            "CREATE TRIGGER no_seven BEFORE INSERT ON journal WHEN new.session = 8 AND new.first > 1"
            " BEGIN SELECT RAISE(ABORT, 'not this one'); END"
        )
    results = await asyncio.gather(*(session.log("a step") for session in sessions), return_exceptions=True)
    assert [number for number, each in enumerate(results) if isinstance(each, BaseException)] == [7]
    assert "not this one" in str(results[7])
    assert [(await store.session(session.id)).position for session in sessions] == [2] * 7 + [1] + [2] * 2
