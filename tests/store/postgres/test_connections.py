"""Connections to PostgreSQL: what is lost is opened again, and a password is never shown."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.store.errors import StoreUnavailableError
from holdfast.store.postgres.store import PostgresStore, redact
from holdfast.testing.sessions import begin, entries_of, line
from tests.store.postgres.helpers import connected, end_connections, settle, until_someone_waits
from tests.tables import each_row

# --- lost connections ----------------------------------------------------------------------------


async def test_a_store_goes_on_after_all_its_connections_were_ended(store: PostgresStore, database: str) -> None:
    task = await begin(store)
    await asyncio.gather(*(store.session(task.id) for _ in range(10)))
    for number in range(3):
        await end_connections(database)
        assert await entries_of(store, task.id) == task.entries
        await task.log(f"after loss {number}")


@pytest.mark.usefixtures("no_polling")
async def test_watches_wake_again_after_the_listener_was_cut_off(store: PostgresStore, database: str) -> None:
    async with PostgresStore(database) as other:
        task = await begin(other)
        with store.watch(task.id) as watch:
            await settle(watch)
            await end_connections(database)
            await task.log("while nobody listens")
            await settle(watch)
            await task.log("now")
            assert await watch.changed(1)


async def test_a_write_that_loses_its_connection_says_so_and_writes_nothing(
    store: PostgresStore, database: str
) -> None:
    task = await begin(store)
    async with connected(database) as connection, connection.transaction():
        await connection.execute("select from holdfast.sessions for update")
        writing = asyncio.create_task(store.append(task.commit(line("lost"))))
        await until_someone_waits(connection)
        await connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where wait_event_type = 'Lock'"
        )
        with pytest.raises(StoreUnavailableError):
            await writing
    assert await entries_of(store, task.id) == task.entries
    await task.log("and goes on")


async def test_a_read_that_loses_its_connection_is_done_again(store: PostgresStore, database: str) -> None:
    task = await begin(store)
    async with connected(database) as connection:
        async with connection.transaction():
            await connection.execute("lock table holdfast.journal in access exclusive mode")
            reading = asyncio.create_task(store.read(task.id))
            await until_someone_waits(connection)
            await connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where wait_event_type = 'Lock'"
            )
            await asyncio.sleep(0.1)
        assert await reading == task.entries


async def test_a_store_that_is_not_open_says_so(database: str) -> None:
    closed = PostgresStore(database)
    with pytest.raises(StoreUnavailableError, match="it is not open"):
        await closed.session("s-1")
    await closed.close()
    async with closed:
        task = await begin(closed)
    with pytest.raises(StoreUnavailableError, match="it is not open"):
        await task.log("too late")
    async with closed:
        await task.log("open again")


# --- urls ----------------------------------------------------------------------------------------


@each_row(
    "url",
    [
        "postgresql://ann:s3cret@localhost:1/db",
        "postgresql://ann:s3cret/@:?#s3cret@localhost:1/db",
        "postgresql://localhost:1/db?user=ann&password=s3cret&sslmode=disable",
        "postgresql://ann:s3cret@localhost:nonsense/db",
        "postgresql://ann:s3cret@localhost:1/db?sslmode=s3cret-nonsense&sslpassword=s3cret",
        "postgres://:s3cret@%2Fnowhere/db",
    ],
)
async def test_a_password_is_never_shown(url: str) -> None:
    with pytest.raises(StoreUnavailableError) as refusal:
        await PostgresStore(url).open()
    shown = f"{refusal.value} {refusal.value.to_json()}"
    assert "s3cret" not in shown.replace("s3cret-nonsense", "")
    assert "***" in shown


def test_a_url_without_a_password_is_shown_as_it_is() -> None:
    for url in ("postgresql://ann@localhost/db", "postgresql:///db?host=/tmp/x", "postgresql://localhost:5432/db"):
        assert redact(url) == url
