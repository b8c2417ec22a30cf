"""Export files: a whole session in one file, the same in every store, and nothing from a file that was harmed."""

from __future__ import annotations

import random
import resource
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.errors import InvalidIdError, SessionDeletedError, SessionExistsError, SessionNotFoundError
from holdfast.core.queries import HumanQuery, LlmQuery, TimerQuery
from holdfast.core.records import Entry, LoggedRecord, ProgressedRecord, StatRecord
from holdfast.core.state import Session
from holdfast.core.summary import summarize
from holdfast.store import Store
from holdfast.store.errors import CorruptSessionError, ExportFileError, SchemaVersionError
from holdfast.store.export import EXPORT_VERSION, export_lines, export_session, import_session, parse_export
from holdfast.store.limits import READ_LIMIT
from holdfast.store.memory import MemoryStore
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.postgres_server import fresh_database
from holdfast.testing.sessions import ScriptedSession, begin, entries_of, feed, picture
from tests.examples import examples

FIXTURES = Path(__file__).parent.parent / "fixtures"
LARGE = [f"line {number} of a value too large for its record" for number in range(400)]
LOOKALIKE = {"$blob": "f" * 64, "bytes": 1, "in": [{"$literal": {"$blob": None}}]}


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
async def sqlite(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with SqliteStore(str(tmp_path / "store.db")) as opened:
        yield opened


async def rich(store: Store, session_id: str = "s-1") -> ScriptedSession:
    """A session with all that is hard to carry: large values twice, lookalikes of references, odd text and numbers."""
    session = await begin(store, session_id, ctx={"text": "žluť 🐎 \u2028 \x00", "same": LARGE, "big": 2**63 - 1})
    await session.ask(LlmQuery(prompt="why?", options={"t": 0.1}), HumanQuery(prompt="ok?", timeout_ms=1_000))
    await session.answer("q-0", {"same": LARGE, "odd": LOOKALIKE})
    await session.answer("q-1", ["x" * 9_000, -1.5e-300, None, True])
    await session.append(StatRecord(key="score", value=LOOKALIKE), ProgressedRecord(step=1, total=2))
    await session.ask(TimerQuery(delay_ms=10_000))
    return session


async def lines_of(store: Store, session_id: str = "s-1") -> list[bytes]:
    return [line async for line in export_lines(store, session_id)]


async def assert_is_there(store: Store, session_id: str, entries: list[Entry]) -> None:
    assert await entries_of(store, session_id) == entries
    row = await store.session(session_id)
    assert (row.position, row.owner) == (len(entries), None)
    assert row.summary == summarize(Session.fold(session_id, entries))


# --- round trips ---------------------------------------------------------------------------------


async def test_a_session_goes_from_store_to_store_and_back_unchanged(
    store: MemoryStore, sqlite: SqliteStore, tmp_path: Path
) -> None:
    session = await rich(store)
    await export_session(store, "s-1", tmp_path / "one")
    await import_session(sqlite, tmp_path / "one")
    await assert_is_there(sqlite, "s-1", session.entries)
    await export_session(sqlite, "s-1", tmp_path / "two")
    again = MemoryStore()
    await import_session(again, tmp_path / "two")
    await assert_is_there(again, "s-1", session.entries)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


async def test_a_session_goes_to_postgresql_and_back_unchanged(store: MemoryStore, server: str, tmp_path: Path) -> None:
    session = await rich(store)
    await export_session(store, "s-1", tmp_path / "one")
    async with PostgresStore(fresh_database(server)) as postgres:
        receipt = await import_session(postgres, tmp_path / "one")
        assert (receipt.session_id, receipt.position, receipt.replayed) == ("s-1", session.position, False)
        await assert_is_there(postgres, "s-1", session.entries)
        assert (await import_session(postgres, tmp_path / "one")).replayed
        await export_session(postgres, "s-1", tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


async def test_an_imported_session_goes_on(store: MemoryStore, sqlite: SqliteStore, tmp_path: Path) -> None:
    session = await rich(store)
    await export_session(store, "s-1", tmp_path / "file")
    await import_session(sqlite, tmp_path / "file")
    moved = ScriptedSession(sqlite, "s-1", "bob")
    moved.entries = session.entries
    await moved.answer("q-2", None)
    await moved.complete("done")
    await assert_ended(sqlite)
    assert await sqlite.due(2**62) == []


async def assert_ended(store: Store) -> None:
    assert (await store.session("s-1")).summary == summarize(await store.load("s-1"))
    assert (await store.load("s-1")).is_terminal


async def test_a_journal_of_several_pages_is_carried_whole(
    store: MemoryStore, sqlite: SqliteStore, tmp_path: Path
) -> None:
    session = await begin(store)
    await session.log(*(f"line {number}" for number in range(2 * READ_LIMIT + 10)))
    await export_session(store, "s-1", tmp_path / "file")
    receipt = await import_session(sqlite, tmp_path / "file")
    assert receipt.position == session.position
    await assert_is_there(sqlite, "s-1", session.entries)


async def test_the_file_has_one_readable_line_for_each_record(store: MemoryStore, tmp_path: Path) -> None:
    session = await begin(store)
    await session.log("first", "žluťoučký")
    size = await export_session(store, "s-1", tmp_path / "file")
    text = (tmp_path / "file").read_bytes()
    header, *records, end = [msgspec.json.decode(line) for line in text.splitlines()]
    assert size == len(text)
    assert (header["holdfast"], header["version"], header["session_id"]) == ("session", EXPORT_VERSION, "s-1")
    assert [line["record"]["type"] for line in records] == ["started", "logged", "logged"]
    assert "žluťoučký" in text.decode()
    assert end["holdfast"] == "end"


async def test_a_large_value_is_in_the_file_once_however_often_it_was_said(store: MemoryStore, tmp_path: Path) -> None:
    session = await begin(store, ctx={"same": LARGE})
    for _ in range(5):
        await session.append(StatRecord(key="same", value=LARGE))
    lines = await lines_of(store)
    blobs = [line["id"] for line in map(msgspec.json.decode, lines) if line["holdfast"] == "blob"]
    assert len(blobs) == 1
    assert sum(map(len, lines)) < len(msgspec.json.encode(LARGE))


async def test_an_import_keeps_a_large_value_once(store: MemoryStore, sqlite: SqliteStore, tmp_path: Path) -> None:
    session = await begin(store, ctx={"same": LARGE})
    await session.append(StatRecord(key="same", value=LARGE))
    await export_session(store, "s-1", tmp_path / "file")
    await import_session(sqlite, tmp_path / "file")
    await import_session(sqlite, tmp_path / "file", "copy")
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        assert connection.execute("SELECT count(*) FROM blobs").fetchone() == (1,)
    await sqlite.delete("s-1", 1)
    await assert_is_there(sqlite, "copy", session.entries)


async def test_records_appended_while_a_file_is_written_are_left_out(store: MemoryStore) -> None:
    session = await begin(store)
    await session.log("before")
    lines = []
    async for line in export_lines(store, "s-1"):
        lines.append(line)
        if len(lines) == 1:
            await session.log("meanwhile")
    session_id, entries = parse_export(lines)
    assert (session_id, entries) == ("s-1", session.entries[:2])


# --- under which id, and how often ---------------------------------------------------------------


async def test_a_session_can_be_imported_under_another_id(store: MemoryStore, tmp_path: Path) -> None:
    session = await rich(store)
    await export_session(store, "s-1", tmp_path / "file")
    receipt = await import_session(store, tmp_path / "file", "copy")
    assert receipt.session_id == "copy"
    for session_id in ("s-1", "copy"):
        assert await entries_of(store, session_id) == session.entries


async def test_an_id_that_breaks_the_grammar_is_refused(store: MemoryStore, tmp_path: Path) -> None:
    await rich(store)
    await export_session(store, "s-1", tmp_path / "file")
    for bad in ("", "../s-1", "a b"):
        with pytest.raises(InvalidIdError):
            await import_session(store, tmp_path / "file", bad)


async def test_importing_again_changes_nothing_and_says_so(
    store: MemoryStore, sqlite: SqliteStore, tmp_path: Path
) -> None:
    await rich(store)
    await export_session(store, "s-1", tmp_path / "file")
    first = await import_session(sqlite, tmp_path / "file")
    before = await picture(sqlite)
    again = await import_session(sqlite, tmp_path / "file")
    assert (first.replayed, again.replayed) == (False, True)
    assert (again.session_id, again.position) == (first.session_id, first.position)
    assert await picture(sqlite) == before


@pytest.mark.parametrize("theirs", ["another", "the same and more"])
async def test_another_journal_under_the_same_id_is_left_as_it_is(
    store: MemoryStore, sqlite: SqliteStore, tmp_path: Path, theirs: str
) -> None:
    await (await begin(store)).log("ours")
    await export_session(store, "s-1", tmp_path / "file")
    if theirs == "another":
        session = await begin(sqlite)
    else:
        await import_session(sqlite, tmp_path / "file")
        session = ScriptedSession(sqlite, "s-1")
        session.entries = await entries_of(sqlite, "s-1")
    await session.log("theirs")
    await sqlite.send("s-1", "m-1", feed(), 1)
    before = await picture(sqlite)
    with pytest.raises(SessionExistsError):
        await import_session(sqlite, tmp_path / "file")
    assert await picture(sqlite) == before


async def test_an_import_does_not_take_a_session_from_its_owner(store: MemoryStore, tmp_path: Path) -> None:
    session = await begin(store)
    await export_session(store, "s-1", tmp_path / "file")
    assert (await import_session(store, tmp_path / "file")).replayed
    row = await store.session("s-1")
    assert (row.owner, row.epoch) == (session.owner, session.epoch)
    await session.log("still mine")


async def test_a_deleted_session_is_not_imported_again(store: MemoryStore, tmp_path: Path) -> None:
    await rich(store)
    await export_session(store, "s-1", tmp_path / "file")
    await store.delete("s-1", 1)
    with pytest.raises(SessionDeletedError):
        await import_session(store, tmp_path / "file")


# --- files that were harmed ----------------------------------------------------------------------


async def assert_refused(content: bytes, directory: Path) -> ExportFileError:
    """The file is refused, and the store stays as empty as it was."""
    store = MemoryStore()
    (directory / "harmed").write_bytes(content)
    with pytest.raises(ExportFileError) as caught:
        await import_session(store, directory / "harmed")
    assert (await store.sessions()).rows == []
    assert f"line {caught.value.line}" in str(caught.value)
    return caught.value


async def test_a_file_cut_off_after_any_line_is_refused_at_the_line_that_is_missing(
    store: MemoryStore, tmp_path: Path
) -> None:
    await rich(store)
    lines = await lines_of(store)
    for kept in range(len(lines)):
        error = await assert_refused(b"".join(lines[:kept]), tmp_path)
        assert error.line == kept + 1


async def test_a_file_cut_off_anywhere_is_refused_at_the_line_of_the_cut(store: MemoryStore, tmp_path: Path) -> None:
    await rich(store)
    whole = b"".join(await lines_of(store))
    chance = random.Random(30)
    for cut in {len(whole) - 1, *(chance.randrange(len(whole)) for _ in range(100))}:
        error = await assert_refused(whole[:cut], tmp_path)
        assert error.line == whole[:cut].count(b"\n") + 1


async def test_a_file_with_any_one_byte_changed_is_refused_at_its_line(store: MemoryStore, tmp_path: Path) -> None:
    await rich(store)
    whole = b"".join(await lines_of(store))
    chance = random.Random(31)
    every_line = [index for index, byte in enumerate(whole) if byte == 0x0A]
    for place in [*every_line, *(chance.randrange(len(whole)) for _ in range(250))]:
        harmed = bytearray(whole)
        harmed[place] ^= chance.randrange(1, 256)
        error = await assert_refused(bytes(harmed), tmp_path)
        assert error.line == whole[:place].count(b"\n") + 1


async def test_a_file_with_any_one_byte_missing_or_doubled_is_refused(store: MemoryStore, tmp_path: Path) -> None:
    await rich(store)
    whole = b"".join(await lines_of(store))
    chance = random.Random(32)
    for place in [0, len(whole) - 1, *(chance.randrange(len(whole)) for _ in range(60))]:
        await assert_refused(whole[:place] + whole[place + 1 :], tmp_path)
        await assert_refused(whole[:place] + whole[place : place + 1] + whole[place:], tmp_path)


async def test_lines_that_changed_places_are_refused(store: MemoryStore, tmp_path: Path) -> None:
    await rich(store)
    lines = await lines_of(store)
    for first in range(len(lines) - 1):
        swapped = [*lines[:first], lines[first + 1], lines[first], *lines[first + 2 :]]
        error = await assert_refused(b"".join(swapped), tmp_path)
        assert error.line == first + 1


async def test_lines_that_are_missing_or_doubled_are_refused(store: MemoryStore, tmp_path: Path) -> None:
    await rich(store)
    lines = await lines_of(store)
    for place in range(len(lines)):
        await assert_refused(b"".join(lines[:place] + lines[place + 1 :]), tmp_path)
        await assert_refused(b"".join(lines[: place + 1] + lines[place:]), tmp_path)


@pytest.mark.parametrize("more", [b"\n", b" ", b"{}\n", b"\0"])
async def test_anything_after_the_end_is_refused(store: MemoryStore, tmp_path: Path, more: bytes) -> None:
    await rich(store)
    lines = await lines_of(store)
    error = await assert_refused(b"".join(lines) + more, tmp_path)
    assert error.line == len(lines) + 1


async def test_two_files_in_one_are_refused(store: MemoryStore, tmp_path: Path) -> None:
    await rich(store)
    lines = await lines_of(store)
    error = await assert_refused(b"".join(lines * 2), tmp_path)
    assert error.line == len(lines) + 1


async def test_line_ends_of_another_system_are_refused(store: MemoryStore, tmp_path: Path) -> None:
    await rich(store)
    whole = b"".join(await lines_of(store))
    assert (await assert_refused(whole.replace(b"\n", b"\r\n"), tmp_path)).line == 1


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"{}\n", b"[]", b"notes\n" * 3, b"SQLite format 3\0" * 9, b"\xff" * 99]
)
async def test_a_file_that_is_no_export_is_refused_at_its_first_line(tmp_path: Path, content: bytes) -> None:
    error = await assert_refused(content, tmp_path)
    assert error.line == 1
    assert "not an export" in error.why


PIECES = st.lists(st.sampled_from([b'{"holdfast":"end"', b',"crc":0}', b"\n"])).map(b"".join)


@given(content=st.binary(max_size=300) | PIECES)
@settings(max_examples=examples(50), deadline=None)
def test_no_content_makes_the_reader_fail_in_another_way(content: bytes) -> None:
    with pytest.raises(ExportFileError):
        parse_export(content.splitlines(keepends=True))


def sealed(*lines: dict[str, Any]) -> bytes:
    """Lines with the checksums that belong to them: what someone makes who knows the format."""
    content = b""
    for number, line in enumerate(lines, 1):
        text = msgspec.json.encode(line)[:-1]
        content += text + b',"crc":%d}\n' % crc32(text, crc32(b"%d:" % number))
    return content


HEADER = {"holdfast": "session", "version": EXPORT_VERSION, "session_id": "s-1", "records": 1}
RECORD = {"holdfast": "record", "position": 1, "at": 1, "checksum": 1, "record": {"type": "logged", "message": "x"}}


@pytest.mark.parametrize(
    "lines",
    [
        [HEADER, HEADER],
        [HEADER, RECORD],
        [HEADER, {**RECORD, "position": 2}],
        [HEADER, {"holdfast": "unknown"}],
        [HEADER, {"holdfast": "blob", "id": "x", "packing": "zstd", "bytes": 1, "data": "AAAA"}],
        [HEADER, {"holdfast": "blob", "id": "x", "packing": "zstd", "bytes": 2**62, "data": "AAAA"}],
        [HEADER, {"holdfast": "blob", "id": "x", "packing": "zstd", "bytes": -1, "data": "AAAA"}],
        [HEADER, {"holdfast": "blob", "id": "x", "packing": "raw", "bytes": 1, "data": "not base64!"}],
        [HEADER, {"holdfast": "end", "lines": 1, "sha256": "0"}],
        [{**HEADER, "records": "many"}],
        [RECORD],
    ],
)
async def test_a_forged_file_is_refused_at_the_line_that_gives_it_away(
    tmp_path: Path, lines: list[dict[str, Any]]
) -> None:
    assert (await assert_refused(sealed(*lines), tmp_path)).line == len(lines)


async def test_a_journal_that_is_whole_and_makes_no_sense_is_refused(store: MemoryStore, tmp_path: Path) -> None:
    session = await begin(store)
    unstarted = session.commit(LoggedRecord(message="x"))
    wrong = [Entry(1, 1, unstarted.entries[0].record)]
    nonsense = MemoryStore()
    await nonsense.append(msgspec.structs.replace(unstarted, expected=0, entries=wrong, epoch=None))
    error = await assert_refused(b"".join(await lines_of(nonsense)), tmp_path)
    assert "does not hold together" in error.why


# --- versions ------------------------------------------------------------------------------------


async def test_a_file_of_a_newer_version_is_refused_before_anything_is_read(store: MemoryStore, tmp_path: Path) -> None:
    newer = {**HEADER, "version": EXPORT_VERSION + 1, "session_id": ["of", "another", "shape"], "more": True}
    (tmp_path / "newer").write_bytes(sealed(newer, {"holdfast": "unknown"}))
    with pytest.raises(SchemaVersionError) as caught:
        await import_session(store, tmp_path / "newer")
    assert (caught.value.found, caught.value.supported) == (EXPORT_VERSION + 1, EXPORT_VERSION)
    assert (await store.sessions()).rows == []


async def test_a_file_of_version_1_is_imported_as_it_was(store: MemoryStore) -> None:
    receipt = await import_session(store, FIXTURES / "v1.export")
    expected = msgspec.json.decode((FIXTURES / "v1.json").read_bytes())["sessions"]["large"]
    assert (receipt.session_id, receipt.position) == ("large", expected["position"])
    assert msgspec.to_builtins(await entries_of(store, "large")) == expected["entries"]
    summary = msgspec.to_builtins((await store.session("large")).summary)
    assert {key: summary[key] for key in expected["summary"]} == expected["summary"]


# --- exports that fail ---------------------------------------------------------------------------


async def damaged(tmp_path: Path) -> SqliteStore:
    """A store with a session that can be read up to its third record."""
    path = str(tmp_path / "damaged.db")
    async with SqliteStore(path) as store:
        session = await begin(store)
        await session.log("one")
        await session.log("two")
        await session.log("three")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE journal SET body = '' WHERE 3 BETWEEN first AND last")
        connection.commit()
    return SqliteStore(path)


async def test_an_export_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    directory = tmp_path / "files"
    directory.mkdir()
    (directory / "file").write_text("the old one")
    async with await damaged(tmp_path) as store:
        with pytest.raises(CorruptSessionError):
            await export_session(store, "s-1", directory / "file")
        with pytest.raises(SessionNotFoundError):
            await export_session(store, "missing", directory / "file")
        with pytest.raises(SessionNotFoundError):
            await export_session(store, "missing", directory / "new")
    assert [path.name for path in directory.iterdir()] == ["file"]
    assert (directory / "file").read_text() == "the old one"


async def test_an_export_replaces_the_old_file_only_when_it_is_complete(store: MemoryStore, tmp_path: Path) -> None:
    await rich(store)
    (tmp_path / "file").write_text("the old one")
    await export_session(store, "s-1", tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (await import_session(store, tmp_path / "file")).replayed


@contextmanager
def full_disk(limit: int) -> Iterator[None]:
    """No file of this process grows past `limit` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_an_export_whose_disk_is_full_leaves_the_old_file(store: MemoryStore, tmp_path: Path) -> None:
    session = await begin(store)
    await session.log(*(f"line {number} {'text ' * 100}" for number in range(200)))
    (tmp_path / "file").write_text("the old one")
    with full_disk(20_000), pytest.raises(OSError, match="File too large"):
        await export_session(store, "s-1", tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "the old one"
