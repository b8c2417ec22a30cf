"""Rows of PostgreSQL that were changed, cut or swapped: the session they are of is named, and no other is harmed."""

from __future__ import annotations

import asyncio

from holdfast.store.postgres.store import PostgresStore
from tests.fuzz.fuzzer import Fuzzer
from tests.fuzz.stored.damage import HEALTHY, Change, changes, check_reads, check_writes, sample, seen
from tests.fuzz.stored.postgres_damage import apply, content, keep, set_right
from tests.store.pg_fixtures import database, postgres_url
from tests.store.postgres.helpers import connected

__all__ = ["database", "postgres_url"]

KNOWN = [([Change("journal", 0, 1, -1, "set", 0)], True)]
"""Damage that once was no `CorruptSessionError`, or kept a session from being deleted."""


def test_changed_rows_are_named_and_harm_no_other_session(fuzzer: Fuzzer, database: str) -> None:
    with asyncio.Runner() as runner:
        store = PostgresStore(database)
        beside = connected(database)
        runner.run(store.open())
        connection = runner.run(beside.__aenter__())

        async def check(made: list[Change], is_sealed: bool) -> None:
            await set_right(connection)
            await apply(connection, made, is_sealed)
            before = await content(connection)
            await check_reads(store, healthy)
            assert await content(connection) == before, "reading has changed the database"
            await check_writes(store, healthy)

        async def made() -> dict[str, dict[str, object]]:
            await sample(store)
            await keep(connection)
            return {session_id: await seen(store, session_id) for session_id in HEALTHY}

        try:
            healthy = runner.run(made())
            fuzzer.run(lambda damage: runner.run(check(*damage)), changes(), examples=30, known=KNOWN)
        finally:
            runner.run(beside.__aexit__(None, None, None))
            runner.run(store.close())
