"""Array types that the driver need not ask about: they are what the server says, and we ask for no other."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import asyncpg
import pytest

from holdfast.agent.runtime import Runtime
from holdfast.store.postgres.known_types import ARRAYS
from holdfast.store.postgres.pooler import connect_with
from holdfast.store.postgres.store import PostgresStore
from holdfast.testing.provider import ScriptedProvider


async def test_they_are_what_the_server_says(database: str) -> None:
    connection = await asyncpg.connect(database)
    named = await connection.fetch(
        "select oid::int, typname::text, typelem::int from pg_type where oid = any($1::int[])", list(ARRAYS)
    )
    await connection.close()
    assert {row[0]: (row[1], row[2]) for row in named} == ARRAYS


async def test_values_of_them_come_through(database: str) -> None:
    connection = await connect_with(database, {})
    for kind, value in [("bool", True), ("bytea", b"x"), ("int2", 1), ("int4", 2), ("int8", 2**40), ("float8", 1.5)]:
        assert await connection.fetchval(f"select $1::{kind}[]", [value, None]) == [value, None]
    assert await connection.fetchval("select array(select row(1, 'a'))") == [(1, "a")]
    await connection.close()


async def test_other_types_are_asked_for(database: str) -> None:
    connection = await connect_with(database, {})
    assert await connection.fetchval("select $1::varchar[]", ["a"]) == ["a"]
    await connection.execute("create type pair as (a int, b text)")
    assert tuple(await connection.fetchval("select row(1, 'x')::pair")) == (1, "x")
    await connection.close()


async def test_no_connection_of_a_store_asks(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    ask = asyncpg.Connection._introspect_types

    async def asking(self: Any, typeoids: Collection[int], seconds: float | None) -> Any:
        asked.extend(typeoids)
        return await ask(self, typeoids, seconds)

    monkeypatch.setattr(asyncpg.Connection, "_introspect_types", asking)
    for _ in range(2):
        provider = ScriptedProvider(["yes"], loop=True)
        async with Runtime(database, provider=provider, model="m") as runtime, runtime.work(2):
            session = await runtime.session("chat").open()
            await session.turn("hello").run()
            await session.enqueue("more")
        async with PostgresStore(database) as store:
            assert [row.session_id for row in await store.all_sessions()] == ["chat"]
    assert asked == []
