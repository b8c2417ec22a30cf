"""Export files: a whole session in one file, the same in every store, and nothing from a file that was harmed."""

from __future__ import annotations

import resource
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from zlib import crc32

import msgspec
import pytest

from holdfast.core.errors import (
    InvalidIdError,
    NotAdoptedError,
    SessionDeletedError,
    SessionExistsError,
    SessionNotFoundError,
)
from holdfast.core.queries import HumanQuery, LlmQuery, TimerQuery
from holdfast.core.records import (
    AdoptedRecord,
    Entry,
    Imported,
    LoggedRecord,
    Program,
    ProgressedRecord,
    StartedRecord,
    StatRecord,
)
from holdfast.core.state import Session, State
from holdfast.core.summary import summarize
from holdfast.store import Store
from holdfast.store.commits import Commit
from holdfast.store.errors import CorruptSessionError, ExportFileError
from holdfast.store.export import EXPORT_VERSION, export_lines, export_session, import_session, parse_export
from holdfast.store.limits import READ_LIMIT
from holdfast.store.memory import MemoryStore
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.signatures import KnownKeys, SigningKey, SigningKeyError
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.postgres_server import fresh_database
from holdfast.testing.sessions import ScriptedSession, begin, entries_of, exported_entries, feed, picture

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


async def assert_refused(content: bytes, directory: Path) -> ExportFileError:
    """The file is refused, and the store stays as empty as it was."""
    store = MemoryStore()
    (directory / "harmed").write_bytes(content)
    with pytest.raises(ExportFileError) as caught:
        await import_session(store, directory / "harmed")
    assert (await store.sessions()).rows == []
    assert f"line {caught.value.line}" in str(caught.value)
    return caught.value


async def assert_is_there(store: Store, session_id: str, entries: list[Entry]) -> None:
    """A session was imported: its journal is that of the file, and it does nothing."""
    present = await entries_of(store, session_id)
    started = present[0].record
    assert isinstance(started, StartedRecord)
    assert started.imported is not None
    assert started.imported.position == len(entries)
    assert await exported_entries(store, session_id) == entries
    row = await store.session(session_id)
    assert (row.position, row.owner) == (len(entries), None)
    assert row.summary == summarize(Session.fold(session_id, present))
    assert (row.summary.state, row.summary.due_at) == (State.IMPORTED, None)


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
    assert (await import_session(store, tmp_path / "two")).replayed


async def test_a_session_goes_to_postgresql_and_back_unchanged(store: MemoryStore, server: str, tmp_path: Path) -> None:
    session = await rich(store)
    await export_session(store, "s-1", tmp_path / "one")
    async with PostgresStore(fresh_database(server)) as postgres:
        receipt = await import_session(postgres, tmp_path / "one")
        assert (receipt.session_id, receipt.position, receipt.replayed) == ("s-1", session.position, False)
        await assert_is_there(postgres, "s-1", session.entries)
        assert (await import_session(postgres, tmp_path / "one")).replayed
        await export_session(postgres, "s-1", tmp_path / "two")
    assert (await import_session(store, tmp_path / "two")).replayed


async def test_an_imported_session_goes_on_once_it_is_adopted(
    store: MemoryStore, sqlite: SqliteStore, tmp_path: Path
) -> None:
    await rich(store)
    await export_session(store, "s-1", tmp_path / "file")
    await import_session(sqlite, tmp_path / "file")
    moved = ScriptedSession(sqlite, "s-1", "bob")
    moved.entries = await entries_of(sqlite, "s-1")
    assert await sqlite.due(2**62) == []
    with pytest.raises(NotAdoptedError, match="holdfast adopt s-1"):
        await moved.answer("q-2", None)
    await moved.append(AdoptedRecord(by="somebody"))
    assert len(await sqlite.due(2**62)) == 1
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
    assert parse_export(lines) == ("s-1", session.entries[:2], None)


# --- under which id, and how often ---------------------------------------------------------------


async def test_a_session_can_be_imported_under_another_id(store: MemoryStore, tmp_path: Path) -> None:
    session = await rich(store)
    await export_session(store, "s-1", tmp_path / "file")
    receipt = await import_session(store, tmp_path / "file", "copy")
    assert receipt.session_id == "copy"
    assert await entries_of(store, "s-1") == session.entries
    await assert_is_there(store, "copy", session.entries)


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
    session = await begin(sqlite)
    await session.log(*(["ours"] if theirs == "the same and more" else []), "theirs")
    await sqlite.send("s-1", "m-1", feed(), 1)
    before = await picture(sqlite)
    with pytest.raises(SessionExistsError):
        await import_session(sqlite, tmp_path / "file")
    assert await picture(sqlite) == before


async def test_a_session_that_has_gone_on_since_it_was_imported_is_not_imported_again(
    store: MemoryStore, sqlite: SqliteStore, tmp_path: Path
) -> None:
    await (await begin(store)).log("ours")
    await export_session(store, "s-1", tmp_path / "file")
    await import_session(sqlite, tmp_path / "file")
    session = ScriptedSession(sqlite, "s-1")
    session.entries = await entries_of(sqlite, "s-1")
    await session.append(AdoptedRecord(), LoggedRecord(message="more"))
    before = await picture(sqlite)
    again = await import_session(sqlite, tmp_path / "file")
    assert (again.replayed, again.position, again.state) == (True, 4, "running")
    assert await picture(sqlite) == before


async def test_what_a_file_says_of_its_own_import_counts_for_nothing(store: MemoryStore, tmp_path: Path) -> None:
    """A session that was adopted elsewhere is exported with that in its journal: here nobody has adopted it."""
    claimed = Imported(1, 1, "00" * 32)
    started = StartedRecord(program=Program("native", "demo"), imported=claimed)
    entries = [Entry(1, 5, started), Entry(2, 5, AdoptedRecord(by="me"))]
    session = Session.fold("s-1", entries)
    assert session.state is State.RUNNING
    commit = Commit(session_id="s-1", expected=0, entries=entries, summary=summarize(session), owner="alice", hold_ms=0)
    await store.append(commit)
    await export_session(store, "s-1", tmp_path / "file")
    other = MemoryStore()
    receipt = await import_session(other, tmp_path / "file")
    assert (receipt.state, receipt.key) == ("imported", None)
    first = (await entries_of(other, "s-1"))[0].record
    assert isinstance(first, StartedRecord)
    assert first.imported is not None
    assert (first.imported.position, first.imported.key) == (2, None)


# --- signatures ----------------------------------------------------------------------------------


async def test_a_signature_is_checked_and_its_key_is_told(store: MemoryStore, tmp_path: Path) -> None:
    await rich(store)
    key = SigningKey.make(tmp_path / "keys" / "signing.pem")
    assert (tmp_path / "keys" / "signing.pem").stat().st_mode & 0o777 == 0o600
    await export_session(store, "s-1", tmp_path / "file", SigningKey.read(tmp_path / "keys" / "signing.pem"))
    other = MemoryStore()
    assert (await import_session(other, tmp_path / "file")).key == key.public
    started = (await entries_of(other, "s-1"))[0].record
    assert isinstance(started, StartedRecord)
    assert started.imported is not None
    assert started.imported.key == key.public


def with_end(lines: list[bytes], **changes: str | None) -> bytes:
    """A file whose last line says something else, with the checksum that belongs to it."""
    end = {**msgspec.json.decode(lines[-1]), **changes}
    text = msgspec.json.encode({key: value for key, value in end.items() if key != "crc" and value is not None})[:-1]
    return b"".join(lines[:-1]) + text + b',"crc":%d}\n' % crc32(text, crc32(b"%d:" % len(lines)))


@pytest.mark.parametrize("wrong", ["another key", "another signature", "no signature", "no key", "nonsense"])
async def test_a_wrong_signature_is_refused(store: MemoryStore, tmp_path: Path, wrong: str) -> None:
    await rich(store)
    key, other = (SigningKey.make(tmp_path / name) for name in ("one", "two"))
    lines = [line async for line in export_lines(store, "s-1", key)]
    assert with_end(lines) == b"".join(lines)
    changes: dict[str, dict[str, str | None]] = {
        "another key": {"key": other.public},
        "another signature": {"signature": other.sign(msgspec.json.decode(lines[-1])["sha256"])},
        "no signature": {"signature": None},
        "no key": {"key": None},
        "nonsense": {"signature": "not hex"},
    }
    error = await assert_refused(with_end(lines, **changes[wrong]), tmp_path)
    assert "signature" in error.why


async def test_the_signature_of_one_file_is_not_that_of_another(store: MemoryStore, tmp_path: Path) -> None:
    await rich(store)
    await rich(store, "s-2")
    key = SigningKey.make(tmp_path / "key")
    signed = msgspec.json.decode([line async for line in export_lines(store, "s-1", key)][-1])
    forged = await lines_of(store, "s-2")
    error = await assert_refused(with_end(forged, key=signed["key"], signature=signed["signature"]), tmp_path)
    assert "signature" in error.why


def test_a_key_is_known_by_the_name_it_was_given_here(tmp_path: Path) -> None:
    keys = KnownKeys(tmp_path / "keys")
    public = SigningKey.make(tmp_path / "one").public
    assert keys.all() == {}
    keys.add("ada", public)
    assert (keys.name_of(public), keys.name_of("00" * 32), keys.name_of(None)) == ("ada", None, None)
    with pytest.raises(SigningKeyError, match="another key is known as 'ada'"):
        keys.add("ada", "00" * 32)
    for name in ("../ada", "a b"):
        with pytest.raises(InvalidIdError):
            keys.add(name, public)
    keys.remove("ada")
    assert keys.all() == {}


def test_what_is_no_key_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("-----BEGIN PRIVATE KEY-----\nnonsense\n-----END PRIVATE KEY-----\n")
    for path, said in ((tmp_path / "file", "holds no private key"), (tmp_path / "none", "holdfast keys --new")):
        with pytest.raises(SigningKeyError, match=said):
            SigningKey.read(path)
    with pytest.raises(SigningKeyError, match="already"):
        SigningKey.make(tmp_path / "file")


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


# --- other versions ------------------------------------------------------------------------------


async def test_a_file_of_version_1_is_imported_as_it_was(store: MemoryStore) -> None:
    receipt = await import_session(store, FIXTURES / "v1.export")
    expected = msgspec.json.decode((FIXTURES / "v1.json").read_bytes())["sessions"]["large"]
    assert (receipt.session_id, receipt.position) == ("large", expected["position"])
    entries = await exported_entries(store, "large")
    assert msgspec.to_builtins(entries) == expected["entries"]
    summary = msgspec.json.decode(msgspec.json.encode(summarize(Session.fold("large", entries))))
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
