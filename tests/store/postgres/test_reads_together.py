"""Reads of many sessions at the same time: few statements, each with what is stored when it was asked for or later."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

import asyncpg
import pytest

from holdfast.core.decide import WakeMessage
from holdfast.core.errors import SessionNotFoundError
from holdfast.store.limits import READ_LIMIT
from holdfast.store.postgres.reads_together import ReadsTogether
from holdfast.store.postgres.store import PostgresStore
from holdfast.testing.patience import soon
from holdfast.testing.sessions import begin


class Shelf:
    """Values by key, read only when it is let."""

    def __init__(self) -> None:
        self.values = {"a": 1, "b": 2}
        self.asked: list[list[str]] = []
        self.may_read = asyncio.Event()

    async def read(self, keys: Collection[str]) -> Mapping[str, int]:
        self.asked.append(sorted(keys))
        found = {key: self.values[key] for key in keys if key in self.values}
        await self.may_read.wait()
        if "broken" in keys:
            raise OSError("gone")
        return found


async def test_what_is_wanted_during_a_read_is_read_after_it() -> None:
    shelf = Shelf()
    reads = ReadsTogether(shelf.read)
    first = asyncio.create_task(reads.get("a"))
    await asyncio.sleep(0.01)
    shelf.values["a"] = 7
    later = [asyncio.create_task(reads.get(key)) for key in ("a", "b", "a", "nothing")]
    await asyncio.sleep(0.01)
    shelf.may_read.set()
    assert await soon(asyncio.gather(first, *later)) == [1, 7, 2, 7, None]
    assert shelf.asked == [["a"], ["a", "b", "nothing"]]


async def test_one_that_is_given_up_and_one_that_fails_harm_no_later_one() -> None:
    shelf = Shelf()
    reads = ReadsTogether(shelf.read)
    given_up, other = asyncio.create_task(reads.get("a")), asyncio.create_task(reads.get("b"))
    await asyncio.sleep(0.01)
    given_up.cancel()
    shelf.may_read.set()
    assert await soon(other) == 2
    with pytest.raises(OSError, match="gone"):
        await reads.get("broken")
    assert await soon(reads.get("a")) == 1


async def test_many_sessions_take_few_statements(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    made = 0
    run = asyncpg.Connection._do_execute

    async def counted(connection: Any, query: str, *arguments: Any, **named: Any) -> Any:
        nonlocal made
        made += "any($1::text[])" in query
        return await run(connection, query, *arguments, **named)

    for number in range(20):
        await begin(store, f"s-{number}")
    monkeypatch.setattr(asyncpg.Connection, "_do_execute", counted)
    positions = await asyncio.gather(*(store.position(f"s-{number}") for number in range(20)))
    mail = await asyncio.gather(*(store.mailbox(f"s-{number}") for number in range(20)))
    assert (set(positions), mail) == ({1}, [[]] * 20)
    assert made <= 4
    with pytest.raises(SessionNotFoundError):
        await store.mailbox("nobody")


async def test_a_mailbox_is_read_as_far_as_is_asked_for(store: PostgresStore) -> None:
    task = await begin(store)
    most = READ_LIMIT + 2
    await asyncio.gather(*(store.send(task.id, f"key-{number}", WakeMessage(), number) for number in range(most)))
    assert [len(await store.mailbox(task.id, limit=limit)) for limit in (0, 1, most)] == [0, 1, most]
    assert len(await store.mailbox(task.id)) == READ_LIMIT
