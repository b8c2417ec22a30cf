"""Versions of the PostgreSQL schema: older ones are migrated, newer and unknown ones are refused."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.store.errors import SchemaVersionError, StoreUnavailableError
from holdfast.store.postgres import schema
from holdfast.store.postgres.schema import current_version
from holdfast.store.postgres.store import PostgresStore
from holdfast.testing.postgres_server import fresh_database
from holdfast.testing.sessions import begin, entries_of
from tests.store.postgres.helpers import connected, execute


@pytest.fixture
def database(postgres_url: str) -> str:
    """One that has no tables yet."""
    return fresh_database(postgres_url, empty=True)


async def version(url: str) -> str:
    async with connected(url) as connection:
        return str(await connection.fetchval("select value from holdfast.meta where key = 'version'"))


async def test_a_newer_schema_is_refused(database: str) -> None:
    async with PostgresStore(database):
        pass
    await execute(database, "update holdfast.meta set value = '99' where key = 'version'")
    await execute(database, "alter table holdfast.sessions rename to what_a_newer_one_has")
    with pytest.raises(SchemaVersionError) as refusal:
        await PostgresStore(database).open()
    assert (refusal.value.found, refusal.value.supported) == (99, current_version())
    assert await version(database) == "99"


@pytest.mark.parametrize("version", ["0", "-1", "", "one"])
async def test_a_version_that_was_never_written_is_refused(database: str, version: str) -> None:
    async with PostgresStore(database):
        pass
    await execute(database, "update holdfast.meta set value = $1", version)
    with pytest.raises(SchemaVersionError if version == "0" else StoreUnavailableError):
        await PostgresStore(database).open()


async def test_a_schema_from_before_the_first_release_is_refused_with_what_to_do(database: str) -> None:
    await execute(database, "create schema holdfast")
    await execute(database, "create table holdfast.meta (key text primary key, value text not null)")
    await execute(database, "insert into holdfast.meta values ('schema_version', '1')")
    with pytest.raises(StoreUnavailableError, match=r"before the first release.*drop that schema"):
        await PostgresStore(database).open()


async def test_an_older_schema_is_migrated_with_all_it_holds(database: str) -> None:
    async with PostgresStore(database) as old:
        task = await begin(old)
    with pytest.MonkeyPatch.context() as later:
        script = "alter table holdfast.sessions add column note text default 'new'"
        later.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, script))
        async with PostgresStore(database) as store:
            assert await entries_of(store, task.id) == task.entries
            async with connected(database) as connection:
                assert await connection.fetchval("select note from holdfast.sessions") == "new"
    assert await version(database) == str(current_version() + 1)
    with pytest.raises(SchemaVersionError):
        await PostgresStore(database).open()


async def test_a_migration_that_fails_leaves_everything_as_it_was(database: str) -> None:
    async with PostgresStore(database) as store:
        task = await begin(store)
    with pytest.MonkeyPatch.context() as later:
        script = "create table holdfast.half (x int); select 1 / 0"
        later.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, script))
        with pytest.raises(StoreUnavailableError, match="division by zero"):
            await PostgresStore(database).open()
    async with PostgresStore(database) as store:
        assert await entries_of(store, task.id) == task.entries
    async with connected(database) as connection:
        assert await connection.fetchval("select to_regclass('holdfast.half')") is None


async def test_many_who_open_an_empty_database_at_once_all_get_in(database: str) -> None:
    stores = [PostgresStore(database) for _ in range(8)]
    await asyncio.gather(*(store.open() for store in stores))
    await begin(stores[0])
    assert [(await store.session("s-1")).position for store in stores] == [1] * 8
    await asyncio.gather(*(store.close() for store in stores))
