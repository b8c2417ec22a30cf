"""What is special to the PostgreSQL store. All that holds for every store is in `test_contract.py`."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from holdfast.core.errors import SessionDeletedError, SessionExistsError
from holdfast.core.values import encode
from holdfast.store.codec import blob_id_of, encode_entry
from holdfast.store.commits import CommitReceipt, StateWrite
from holdfast.store.contract import StateItem
from holdfast.store.errors import (
    CorruptSessionError,
    SchemaVersionError,
    StateConflictError,
    StoreUnavailableError,
)
from holdfast.store.postgres import notify as postgres_notify
from holdfast.store.postgres import schema
from holdfast.store.postgres import statements as sql
from holdfast.store.postgres.schema import current_version
from holdfast.store.postgres.store import PostgresStore, redact
from holdfast.store.watch import Watch
from holdfast.testing.laws.blobs import LARGE
from holdfast.testing.patience import HANG_S
from holdfast.testing.sessions import begin, entries_of, feed, line, messages_of
from tests.store.pg_fixtures import database, postgres_url, store
from tests.tables import each_row

__all__ = ["database", "postgres_url", "store"]

NEVER_MS = 3_600_000


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def execute(url: str, statement: str, *arguments: object) -> None:
    async with connected(url) as connection:
        await connection.execute(statement, *arguments)


async def end_connections(url: str) -> None:
    """As an administrator or a restart would; returns once they are ended."""
    statement = "select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = current_database()"
    await execute(url, f"{statement} and pid <> pg_backend_pid()")


async def until_someone_waits(connection: Any) -> None:
    """Until a statement waits for a lock, which `connection` holds."""
    waits = "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    async with asyncio.timeout(HANG_S):
        while await connection.fetchrow(waits) is None:  # noqa: ASYNC110 - the server does not tell
            await asyncio.sleep(0.01)


async def settle(watch: Watch) -> None:
    """Until the listener listens, and all is quiet."""
    assert await watch.changed(10)
    while await watch.changed(0.3):
        pass


# --- values and tables ------------------------------------------------------------------------------


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
    await task.log("two", "three")
    await execute(database, "delete from holdfast.journal where position = $1", position)
    with pytest.raises(CorruptSessionError, match=f"position {position}: the record is missing"):
        await store.read(task.id)


# --- races ------------------------------------------------------------------------------------------


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
    stored = encode_entry(two.id, two.commit(line(LARGE)).entries[0])
    async with connected(database) as connection:
        async with connection.transaction():
            statement = sql.append_statement(False, False, True, "keep")
            arguments = sql.append_arguments(two.commit(line(LARGE)), [stored], [], stored.blobs, None)
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


# --- wake-ups ---------------------------------------------------------------------------------------


@pytest.fixture
def no_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_notify, "NOTIFY_POLL_MS", NEVER_MS)


@pytest.mark.usefixtures("no_polling")
async def test_two_pools_see_each_others_changes_without_polling(store: PostgresStore, database: str) -> None:
    async with PostgresStore(database) as other:
        task = await begin(other)
        with store.watch(task.id) as one, store.watch() as every, store.watch("s-none") as nobody:
            await asyncio.gather(settle(one), settle(every), settle(nobody))
            await task.log("a commit")
            assert await one.changed(1)
            assert await every.changed(1)
            await other.send(task.id, "key", feed(), 1)
            assert await one.changed(1)
            await other.delete(task.id, 1)
            assert await one.changed(1)
            assert not await nobody.changed(0.1)


_WRITER = """
import asyncio, sys
from holdfast.store.postgres.store import PostgresStore
from holdfast.testing.sessions import begin

async def main():
    async with PostgresStore(sys.argv[1]) as store:
        task = await begin(store, "s-afar")
        await asyncio.to_thread(sys.stdin.readline)
        await task.log("from another process")
        await asyncio.to_thread(sys.stdin.readline)

asyncio.run(main())
"""


@pytest.mark.usefixtures("no_polling")
async def test_another_process_wakes_us_without_polling(store: PostgresStore, database: str) -> None:
    pipe = asyncio.subprocess.PIPE
    writer = await asyncio.create_subprocess_exec(sys.executable, "-c", _WRITER, database, stdin=pipe)
    assert writer.stdin is not None
    with store.watch("s-afar") as watch:
        await settle(watch)
        while "s-afar" not in [row.session_id for row in (await store.sessions()).rows]:
            assert await watch.changed(20)
        await asyncio.sleep(0.3)
        await watch.changed(0)
        writer.stdin.write(b"go\n")
        assert await watch.changed(5)
        assert len(await store.read("s-afar")) == 2
    await writer.communicate(b"end\n")
    assert writer.returncode == 0


async def test_a_change_that_nobody_announced_is_found(
    store: PostgresStore, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with PostgresStore(database) as silent:
        monkeypatch.setattr(silent._notifier, "note", lambda session_id: None)
        task, bystander = await begin(silent), await begin(silent, "s-2")
        with store.watch(task.id) as one, store.watch() as every, store.watch(bystander.id) as other:
            await asyncio.gather(settle(one), settle(every), settle(other))
            await task.log("a commit")
            assert await one.changed(3)
            assert await every.changed(3)
            await silent.send(task.id, "key", feed(), 1)
            assert await one.changed(3)
            await silent.delete(task.id, 1)
            assert await one.changed(3)
            assert not await other.changed(0)


async def test_closing_announces_what_was_committed_last(store: PostgresStore, database: str) -> None:
    with store.watch("s-1") as watch:
        await settle(watch)
        async with PostgresStore(database) as brief:
            await begin(brief, "s-1")
        assert await watch.changed(1)


# --- lost connections -------------------------------------------------------------------------------


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


# --- urls -------------------------------------------------------------------------------------------


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


# --- versions ---------------------------------------------------------------------------------------


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
