"""The tables of the PostgreSQL store: every text survives, psql can read them, and what SQL damages is named."""

from __future__ import annotations

import re
from contextvars import ContextVar
from typing import Any

import asyncpg
import pytest

from holdfast.core.state import State
from holdfast.store.errors import CorruptSessionError
from holdfast.store.postgres.store import PostgresStore
from holdfast.testing.laws.blobs import LARGE
from holdfast.testing.sessions import START, begin, entries_of, feed, messages_of
from tests.store.postgres.helpers import connected, execute


async def test_the_character_nul_survives_everywhere(store: PostgresStore) -> None:
    value = {"a\0b": ["\0", "\\0", "\\u0000", LARGE + "\0"]}
    task = await begin(store, ctx=value, program="pro\0gram\\0")
    await store.send(task.id, "key", feed(value), 1)
    await store.put_state("notes", "key", value)
    assert await entries_of(store, task.id) == task.entries
    assert (await store.session(task.id)).summary == task.summary
    assert await messages_of(store, task.id) == [feed(value)]
    item = await store.get_state("notes", "key")
    assert item is not None
    assert item.value == value


async def test_a_journal_can_be_read_line_by_line_with_psql(store: PostgresStore, database: str) -> None:
    task = await begin(store, ctx="nul \0", at=1_700_000_000_123)
    await task.log("hello")
    async with connected(database) as connection:
        first, second = await connection.fetch(
            "select session_id, position, time::text, type, body from holdfast.journal_lines where session_id = $1",
            task.id,
        )
    assert first["type"] == "started"
    assert first["body"] == '{"program":{"kind":"native","name":"task"},"ctx":"nul \\u0000"}'
    assert re.match(r"2023-11-14 22:13:20\.123", first["time"])
    assert (second["session_id"], second["position"], second["type"]) == (task.id, 2, "logged")


async def test_a_record_edited_with_sql_damages_its_session_only(store: PostgresStore, database: str) -> None:
    hurt, sound = await begin(store, "s-hurt"), await begin(store, "s-sound")
    await hurt.log("I owe you 10")
    await sound.log("I owe you 10")
    await execute(
        database,
        "update holdfast.journal set body = replace(body, '10', '90') from holdfast.sessions"
        " where num = session and id = 's-hurt'",
    )
    with pytest.raises(CorruptSessionError, match="'s-hurt' is damaged at position 2"):
        await store.read(hurt.id)
    assert await entries_of(store, sound.id) == sound.entries


async def test_a_summary_edited_with_sql_damages_its_session_only_and_can_be_repaired(
    store: PostgresStore, database: str
) -> None:
    hurt, sound = await begin(store, "s-hurt"), await begin(store, "s-sound")
    await execute(database, "update holdfast.sessions set state = 'nonsense' where id = 's-hurt'")
    with pytest.raises(CorruptSessionError, match="'s-hurt' is damaged at its summary"):
        await store.session(hurt.id)
    page = await store.sessions()
    assert ([row.session_id for row in page.rows], page.damaged) == ([sound.id], [hurt.id])
    assert await entries_of(store, hurt.id) == hurt.entries
    await store.repair(hurt.id, hurt.summary)
    assert (await store.session(hurt.id)).summary == hurt.summary


@pytest.mark.parametrize("change", ["delete from holdfast.blobs", "update holdfast.blobs set data = '\\x00'"])
async def test_a_blob_that_is_gone_or_edited_damages_the_record(
    store: PostgresStore, database: str, change: str
) -> None:
    task = await begin(store, ctx=LARGE)
    await execute(database, change)
    with pytest.raises(CorruptSessionError, match="position 1"):
        await store.read(task.id)


@pytest.mark.parametrize("position", [2, 3])
async def test_a_record_removed_with_sql_is_missed(store: PostgresStore, database: str, position: int) -> None:
    task = await begin(store)
    for text in ("two", "three"):
        await task.log(text)
    await execute(database, "delete from holdfast.journal where first = $1", position)
    with pytest.raises(CorruptSessionError, match=f"position {position}: the record is missing"):
        await store.read(task.id)


async def test_deleting_what_is_too_old_takes_as_many_statements_for_many_sessions_as_for_one(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = 0
    pruning = ContextVar("pruning", default=False)  # false in tasks of the store, which may execute something meanwhile
    run = asyncpg.Connection._do_execute

    async def counted(*arguments: Any, **named: Any) -> Any:
        nonlocal made
        made += pruning.get()
        return await run(*arguments, **named)

    monkeypatch.setattr(asyncpg.Connection, "_do_execute", counted)
    statements = list[int]()
    for count in (1, 20):
        for number in range(count):
            task = await begin(store, f"s-{count}-{number}", ctx=LARGE)
            await task.end(State.COMPLETED)
        made = 0
        pruning.set(True)
        assert len(await store.prune(START * 2)) == count
        pruning.set(False)
        statements.append(made)
    assert statements[0] == statements[1]
