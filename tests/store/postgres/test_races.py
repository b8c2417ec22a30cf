"""Races on PostgreSQL: of those who write at the same time exactly one wins, and nobody waits in a circle."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.core.errors import SessionDeletedError, SessionExistsError
from holdfast.core.values import encode
from holdfast.store.codec import blob_id_of
from holdfast.store.commits import CommitReceipt, StateWrite
from holdfast.store.contract import StateItem
from holdfast.store.errors import StateConflictError
from holdfast.store.journal_rows import encode_commit
from holdfast.store.postgres import statements as sql
from holdfast.store.postgres.append import PostgresAppend, append_call
from holdfast.store.postgres.group_commit import CommitConnection, Outcome
from holdfast.store.postgres.store import PostgresStore
from holdfast.testing.laws.blobs import LARGE
from holdfast.testing.sessions import ScriptedSession, begin, entries_of, feed, line
from tests.store.postgres.helpers import connected, until_someone_waits


def outcomes(results: list[Any]) -> list[str]:
    return sorted(type(result).__name__ for result in results)


async def test_of_sixteen_who_append_at_one_position_exactly_one_wins(store: PostgresStore, database: str) -> None:
    async with PostgresStore(database) as other:
        task = await begin(store, hold_ms=0)
        for number in range(10):
            sent = await store.send(task.id, f"key-{number}", feed(), 1)
            commits = [
                task.commit(line(f"{n}"), owner=f"owner-{n}", epoch=None, hold_ms=0, takes=[sent.number][: number % 2])
                for n in range(16)
            ]
            results = await asyncio.gather(
                *((store, other)[n % 2].append(commit) for n, commit in enumerate(commits)), return_exceptions=True
            )
            assert outcomes(results) == ["CommitReceipt", *["PositionConflictError"] * 15]
            [winner] = [
                commit for commit, result in zip(commits, results, strict=True) if type(result) is CommitReceipt
            ]
            task.entries += winner.entries
        assert await entries_of(store, task.id) == task.entries
        assert len(await store.mailbox(task.id)) == 5


async def test_of_sixteen_who_hold_one_epoch_exactly_one_wins(store: PostgresStore) -> None:
    task = await begin(store)
    results = await asyncio.gather(
        *(store.append(task.commit(line(f"{n}"))) for n in range(16)), return_exceptions=True
    )
    assert outcomes(results) == ["CommitReceipt", *["PositionConflictError"] * 15]


async def test_of_sixteen_who_create_a_session_exactly_one_wins(store: PostgresStore) -> None:
    results = await asyncio.gather(*(begin(store, owner=f"o-{n}") for n in range(16)), return_exceptions=True)
    assert outcomes(results) == ["ScriptedSession", *[SessionExistsError.__name__] * 15]


async def test_a_session_created_while_its_id_is_deleted_is_refused(store: PostgresStore, database: str) -> None:
    task = await begin(store)
    async with connected(database) as connection:
        async with connection.transaction():
            await connection.execute("insert into holdfast.tombstones values ($1, 7)", task.id)
            await connection.execute("delete from holdfast.sessions where id = $1", task.id)
            creating = asyncio.create_task(begin(store, task.id))
            await until_someone_waits(connection)
        with pytest.raises(SessionDeletedError):
            await creating
    with pytest.raises(SessionDeletedError):
        await store.session(task.id)


async def test_a_message_to_a_session_that_is_just_deleted_is_refused(store: PostgresStore, database: str) -> None:
    task = await begin(store)
    async with connected(database) as connection:
        async with connection.transaction():
            await connection.execute("insert into holdfast.tombstones values ($1, 7)", task.id)
            await connection.execute("delete from holdfast.sessions where id = $1", task.id)
            sending = asyncio.create_task(store.send(task.id, "key", feed(), 1))
            await until_someone_waits(connection)
        with pytest.raises(SessionDeletedError):
            await sending
        assert await connection.fetchval("select count(*) from holdfast.mailbox") == 0


async def test_a_blob_that_is_just_said_again_is_not_dropped(store: PostgresStore, database: str) -> None:
    one, two = await begin(store, "s-1", ctx=LARGE), await begin(store, "s-2")
    commit = two.commit(line(LARGE))
    async with connected(database) as connection:
        async with connection.transaction():
            statement, arguments = append_call([PostgresAppend(commit, encode_commit(commit))])
            assert await connection.fetchrow(statement, *arguments)
            deleting = asyncio.create_task(store.delete(one.id, 1))
            await until_someone_waits(connection)
        await deleting
    assert (await entries_of(store, two.id))[1].record == line(LARGE)


async def test_a_blob_that_is_just_dropped_is_stored_anew(store: PostgresStore, database: str) -> None:
    task = await begin(store, ctx=LARGE)
    async with connected(database) as connection:
        async with connection.transaction():
            await connection.execute("delete from holdfast.blob_refs")
            await sql.drop_unkept(connection, [blob_id_of(encode(LARGE))])
            appending = asyncio.create_task(task.log(LARGE))
            await until_someone_waits(connection)
        await appending
    assert await entries_of(store, task.id) == task.entries


async def test_commits_that_write_the_same_state_items_never_wait_for_each_other_in_a_circle(
    store: PostgresStore,
) -> None:
    tasks = [await begin(store, f"s-{n}") for n in range(8)]
    for _ in range(5):
        await asyncio.gather(
            *(
                task.log("write", writes=[StateWrite(namespace="notes", key=key, value=1) for key in keys])
                for task, keys in zip(tasks, ["abc", "cba"] * 4, strict=True)
            )
        )
    assert [await store.get_state("notes", key) for key in "abc"] == [StateItem(1, 40)] * 3


async def test_a_state_item_written_twice_in_a_commit_counts_twice_or_nothing_is_written(store: PostgresStore) -> None:
    task = await begin(store)
    first, second, late = (StateWrite(namespace="notes", key="k", value=n, expected=n) for n in (0, 1, 1))
    await task.log("two writes", writes=[first, second])
    assert await store.get_state("notes", "k") == StateItem(1, 2)
    with pytest.raises(StateConflictError):
        await task.log("refused", writes=[StateWrite(namespace="notes", key="a", value=1), late])
    assert await entries_of(store, task.id) == task.entries
    assert await store.list_state("notes") == ["k"]
    await task.log("gone", writes=[StateWrite(namespace="notes", key="k", delete=True, expected=2)])
    assert await store.get_state("notes", "k") is None


async def test_sessions_that_share_blobs_never_wait_for_each_other_in_a_circle(store: PostgresStore) -> None:
    texts = [f"{n} {LARGE}" for n in range(6)]

    async def live(number: int) -> None:
        for generation in range(5):
            task = await begin(store, f"s-{number}-{generation}", ctx=texts[:: 1 if number % 2 else -1])
            await task.log(*texts)
            assert await entries_of(store, task.id) == task.entries
            await store.delete(task.id, 1)

    await asyncio.gather(*(live(number) for number in range(12)))
    async with store._transaction() as connection:
        assert await connection.fetchval("select count(*) from holdfast.blobs") == 0


async def test_sessions_that_are_created_together_have_outcomes_of_their_own(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(store, "s-there")
    await store.delete((await begin(store, "s-gone")).id, 1)
    going_on = await begin(store, "s-going-on")
    groups: list[int] = []
    write = CommitConnection.write

    async def noted(connection: CommitConnection, group: Sequence[PostgresAppend]) -> dict[str, Outcome]:
        groups.append(len(group))
        return await write(connection, group)

    monkeypatch.setattr(CommitConnection, "write", noted)
    ids = [*(f"s-{number}" for number in range(20)), "s-there", "s-gone"]
    logging, *results = await asyncio.gather(
        going_on.log("at the same time"), *(begin(store, each) for each in ids), return_exceptions=True
    )
    assert not isinstance(logging, BaseException)
    assert sum(sorted(groups)[-2:]) > 20, "they were not written together"
    assert [type(result) for result in results[-2:]] == [SessionExistsError, SessionDeletedError]
    for session in (going_on, *results[:-2]):
        assert isinstance(session, ScriptedSession)
        assert await entries_of(store, session.id) == session.entries
