"""Versions of the SQLite file: what was released stays readable, and what is newer or unknown is left alone."""

from __future__ import annotations

import json
import random
import runpy
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import SessionDeletedError
from holdfast.core.state import State
from holdfast.core.summary import summarize
from holdfast.store.errors import SchemaVersionError, StoreUnavailableError
from holdfast.store.sqlite import schema
from holdfast.store.sqlite.schema import APPLICATION_ID, PAGE_BYTES, UNRELEASED_ID, current_version
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.laws.forks import fork_of
from holdfast.testing.laws.snapshots import pause
from holdfast.testing.sessions import ScriptedSession, all_rows, begin, entries_of, ids_of
from tests.store.sqlite.helpers import edit, refused_to_open, settle

FIXTURES = Path(__file__).parents[2] / "fixtures"
RELEASED = range(1, current_version() + 1)
"""Versions of the schema: each has fixtures, which stay as they are once it is released."""


@pytest.fixture
def next_version(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes this Holdfast a later one, whose schema has one script more."""
    return lambda script: monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, script))


def noise_after_the_header(path: str) -> None:
    content = bytearray(Path(path).read_bytes())
    content[PAGE_BYTES:] = random.Random(1).randbytes(len(content) - PAGE_BYTES)
    Path(path).write_bytes(content)


def tables_of_another_shape(path: str) -> None:
    edit(path, "DROP VIEW journal_lines", "DROP TABLE sessions", "DROP TABLE journal", "CREATE TABLE sessions (x)")


def tables_that_this_sqlite_cannot_read(path: str) -> None:
    unreadable = "UPDATE sqlite_master SET sql = 'CREATE TABLE state (a FUTURE SYNTAX ((' WHERE name = 'state'"
    edit(path, "PRAGMA writable_schema = ON", unreadable)


@pytest.mark.parametrize(
    "garble", [noise_after_the_header, tables_of_another_shape, tables_that_this_sqlite_cannot_read]
)
async def test_a_newer_version_is_refused_before_anything_is_read(path: str, garble: Callable[[str], None]) -> None:
    async with SqliteStore(path) as store:
        await begin(store)
    edit(path, f"PRAGMA user_version = {current_version() + 1}")
    garble(path)
    before = Path(path).read_bytes()
    await refused_to_open(path, SchemaVersionError)
    assert Path(path).read_bytes() == before


@pytest.mark.parametrize("version", [0, -1])
async def test_a_version_that_was_never_written_is_refused(path: str, version: int) -> None:
    edit(path, f"PRAGMA application_id = {APPLICATION_ID}", f"PRAGMA user_version = {version}")
    assert "No Holdfast has written that" in await refused_to_open(path, SchemaVersionError)


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_a_file_from_before_the_first_release_is_refused_with_what_to_do(path: str, version: int) -> None:
    edit(
        path,
        f"PRAGMA application_id = {UNRELEASED_ID}",
        f"PRAGMA user_version = {version}",
        "CREATE TABLE sessions (id)",
    )
    before = Path(path).read_bytes()
    message = await refused_to_open(path, StoreUnavailableError)
    assert "before the first release" in message
    assert "choose another path" in message
    assert Path(path).read_bytes() == before


def copy_of(version: int, tmp_path: Path) -> str:
    return shutil.copy(str(FIXTURES / f"v{version}.sqlite"), str(tmp_path / f"v{version}.sqlite"))


async def assert_holds_the_fixture(version: int, store: SqliteStore) -> None:
    expected = json.loads((FIXTURES / f"v{version}.json").read_text("utf-8"))
    found = await runpy.run_path(str(FIXTURES / f"make_v{version}.py"))["content"](store)
    assert list(found["sessions"]) == list(expected["sessions"])
    assert without_new_keys(expected, found) == expected
    with pytest.raises(SessionDeletedError):
        await store.load("deleted")


def without_new_keys(expected: Any, found: Any) -> Any:
    """What was found, without the keys that a later version has added."""
    if isinstance(expected, dict) and isinstance(found, dict):
        return {key: without_new_keys(value, found[key]) for key, value in expected.items() if key in found}
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        return [without_new_keys(old, new) for old, new in zip(expected, found, strict=True)]
    return found


@pytest.mark.parametrize("version", RELEASED)
async def test_a_file_of_every_version_opens_and_folds_to_what_it_held(tmp_path: Path, version: int) -> None:
    async with SqliteStore(copy_of(version, tmp_path)) as store:
        await assert_holds_the_fixture(version, store)


def tables_in(path: str) -> list[Any]:
    with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as connection:
        return connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name").fetchall()


@pytest.mark.parametrize("version", RELEASED)
async def test_the_released_scripts_still_make_the_same_tables(
    path: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[: version - 1])
    async with SqliteStore(path):
        pass
    settle(path)
    assert tables_in(path) == tables_in(str(FIXTURES / f"v{version}.sqlite"))


@pytest.mark.parametrize("version", RELEASED)
async def test_an_old_file_has_the_tables_of_a_new_one_once_it_was_opened(
    tmp_path: Path, path: str, version: int
) -> None:
    old = copy_of(version, tmp_path)
    for each in (old, path):
        async with SqliteStore(each):
            pass
        settle(each)
    assert tables_in(old) == tables_in(path)


@pytest.mark.parametrize("version", RELEASED)
async def test_a_session_of_every_version_goes_on(tmp_path: Path, version: int) -> None:
    async with SqliteStore(copy_of(version, tmp_path)) as store:
        session = ScriptedSession(store, "rich", "bob")
        session.entries = await entries_of(store, "rich")
        await session.answer("q-4", "from the child")
        kept = await pause(session)
        assert await store.snapshot("rich") == kept
        await session.complete("done")
        assert (await store.session("rich")).summary == summarize(await store.load("rich"))
        assert (await store.load("rich")).state is State.COMPLETED


@pytest.mark.parametrize("version", RELEASED)
async def test_every_session_of_every_version_can_be_forked(tmp_path: Path, version: int) -> None:
    async with SqliteStore(copy_of(version, tmp_path)) as store:
        for row in await all_rows(store):
            source = ScriptedSession(store, row.session_id)
            source.entries = await entries_of(store, row.session_id)
            fork = await fork_of(source, f"{row.session_id}-copy", row.position)
            await store.delete(source.id, 1)
            assert await entries_of(store, fork.id) == fork.entries


NEXT = "ALTER TABLE sessions ADD COLUMN note TEXT;\nCREATE TABLE extra (\n    id TEXT\n);\n"


async def test_a_migration_brings_an_old_file_forward_with_all_it_held(
    tmp_path: Path, next_version: Callable[[str], None]
) -> None:
    path = copy_of(1, tmp_path)
    next_version(NEXT)
    async with SqliteStore(path) as store:
        await assert_holds_the_fixture(1, store)
        await begin(store, "new")
    edit(path, "UPDATE sessions SET note = 'the new column'", "INSERT INTO extra VALUES ('the new table')")
    async with SqliteStore(path) as store:
        assert "new" in await ids_of(store)


async def test_a_new_file_has_the_tables_of_one_that_was_migrated(
    tmp_path: Path, path: str, next_version: Callable[[str], None]
) -> None:
    migrated = copy_of(1, tmp_path)
    next_version(NEXT)
    for each in (migrated, path):
        async with SqliteStore(each):
            pass
        settle(each)
    assert tables_in(migrated) == tables_in(path)


async def test_an_older_holdfast_refuses_a_file_that_was_migrated(tmp_path: Path) -> None:
    path = copy_of(1, tmp_path)
    with pytest.MonkeyPatch.context() as later:
        later.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, NEXT))
        async with SqliteStore(path):
            pass
    message = await refused_to_open(path, SchemaVersionError)
    assert f"has schema version {current_version() + 1}" in message
    assert f"reads up to {current_version()}" in message


async def test_a_migration_that_fails_changes_nothing(tmp_path: Path) -> None:
    path = copy_of(1, tmp_path)
    with pytest.MonkeyPatch.context() as later:
        later.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, NEXT + "DROP TABLE missing;\n"))
        await refused_to_open(path, StoreUnavailableError)
    async with SqliteStore(path) as store:
        await assert_holds_the_fixture(1, store)


async def test_the_last_statement_of_a_migration_counts_without_a_semicolon(
    tmp_path: Path, next_version: Callable[[str], None]
) -> None:
    path = copy_of(1, tmp_path)
    next_version("CREATE TABLE extra (id TEXT)")
    async with SqliteStore(path):
        pass
    edit(path, "INSERT INTO extra VALUES ('x')")


def test_the_journal_can_be_read_with_the_sqlite3_shell() -> None:
    query = "SELECT session_id, position, time, type, body FROM journal_lines WHERE session_id = 'running'"
    shell = ["sqlite3", "-readonly", f"file:{FIXTURES / 'v1.sqlite'}?immutable=1", query]
    lines = subprocess.run(shell, capture_output=True, check=True, text=True).stdout.splitlines()
    assert lines == [
        'running|1|1970-01-01 00:16:40.000|started|{"program":{"kind":"native","name":"task"}}',
        'running|2|1970-01-01 00:16:40.010|logged|{"message":"a line"}',
    ]
