"""The SQLite file: its pragmas, its tables, and how an older one is brought up to date."""

from __future__ import annotations

import os
import sqlite3
import time
from functools import cached_property

from holdfast.store.errors import SchemaVersionError, StoreReplacedError, StoreUnavailableError
from holdfast.store.limits import BUSY_TIMEOUT_MS

APPLICATION_ID = 0x48667374
"""`Hfst` in ASCII: tells our files from those of other programs."""

UNRELEASED_ID = 0x486F6C64
"""What files have that were written before the first release."""

UNRELEASED = (
    "this file was written by a Holdfast from before the first release (0.2.0), and its layout is not read any more;"
    " move it away, or choose another path"
)

PAGE_BYTES = 1024
"""Small pages: a commit of one pause rewrites a few kilobytes instead of twenty, and 2 KB records fill them well.
See docs/decisions/002-small-pages.md."""

CHECKPOINT_PAGES = 4 * 1024
"""Pages in the write-ahead log after which it is copied back (4 MB). From then on the log is overwritten in place, and
that syncs faster than a file that grows; so a larger log would make commits slower, not faster."""

RETRY_MS = 20
"""Milliseconds between tries to prepare a file that another process is preparing."""

CACHE_KIB = 16 * 1024
"""KiB of page cache for each connection."""

SCHEMA = """
CREATE TABLE sessions (
    num          INTEGER PRIMARY KEY AUTOINCREMENT,
    id           TEXT NOT NULL UNIQUE,
    state        TEXT NOT NULL,
    position     INTEGER NOT NULL,
    epoch        INTEGER NOT NULL,
    owner        TEXT,
    lease_until  INTEGER,
    pending      INTEGER NOT NULL,
    waiting_for  TEXT NOT NULL,
    due_at       INTEGER,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    program_kind TEXT NOT NULL,
    program      TEXT NOT NULL,
    parent       TEXT,
    service      TEXT NOT NULL,
    lease_lock   INTEGER, -- held while the holder lives; NULL where none is
    needs        TEXT NOT NULL,
    asks         INTEGER NOT NULL,
    turns        INTEGER NOT NULL,
    tokens       INTEGER NOT NULL,
    cost         REAL NOT NULL,
    title        TEXT NOT NULL,
    labels       TEXT NOT NULL, -- joined by commas
    forked_from  TEXT,
    failure      TEXT NOT NULL,
    ended_at     INTEGER  -- NULL while it lives
);
CREATE INDEX sessions_by_state ON sessions (state, num);
CREATE INDEX sessions_by_parent ON sessions (parent) WHERE parent IS NOT NULL;
CREATE INDEX sessions_by_source ON sessions (forked_from) WHERE forked_from IS NOT NULL;
CREATE INDEX sessions_asking ON sessions (num) WHERE asks > 0;
CREATE INDEX sessions_by_service ON sessions (service, state, num);
-- What upkeep looks for (see `sqlite.upkeep`):
CREATE INDEX sessions_due ON sessions (service, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX sessions_held ON sessions (lease_lock) WHERE lease_lock IS NOT NULL;
CREATE INDEX sessions_leased ON sessions (lease_until) WHERE lease_until IS NOT NULL;
CREATE INDEX sessions_open ON sessions (service, needs, num) WHERE owner IS NULL AND needs <> '';
CREATE INDEX sessions_children ON sessions (service, num) WHERE parent IS NOT NULL AND state IN ('running', 'paused');
CREATE INDEX sessions_programs ON sessions (service, program, num)
    WHERE parent IS NOT NULL AND state IN ('running', 'paused');
CREATE INDEX sessions_ended ON sessions (service, ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE journal (  -- a row for each commit, or for many old ones
    id       INTEGER PRIMARY KEY,
    session  INTEGER NOT NULL,
    first    INTEGER NOT NULL,
    last     INTEGER NOT NULL,
    at       INTEGER NOT NULL,  -- of its first record
    later    TEXT,              -- milliseconds from each to the next; NULL where all have the same time
    checksum INTEGER NOT NULL,
    size     INTEGER,           -- bytes of the JSON where the body is packed
    body     TEXT NOT NULL      -- a JSON array of records
);
CREATE UNIQUE INDEX journal_by_position ON journal (session, first);

CREATE TABLE mailbox (
    number  INTEGER PRIMARY KEY AUTOINCREMENT,
    session INTEGER NOT NULL,
    key     TEXT NOT NULL,
    at      INTEGER NOT NULL,
    digest  TEXT NOT NULL,
    body    TEXT
);
CREATE UNIQUE INDEX mailbox_by_key ON mailbox (session, key);
CREATE INDEX mailbox_waiting ON mailbox (session, number) WHERE body IS NOT NULL;

CREATE TABLE tombstones (
    id         TEXT PRIMARY KEY,
    deleted_at INTEGER NOT NULL
);

CREATE TABLE blobs (
    id      TEXT PRIMARY KEY,
    packing TEXT NOT NULL,
    size    INTEGER NOT NULL,
    data    BLOB NOT NULL
);
CREATE TABLE blob_refs (
    session INTEGER NOT NULL,
    blob    TEXT NOT NULL,
    PRIMARY KEY (session, blob)
) WITHOUT ROWID;
CREATE INDEX blob_refs_by_blob ON blob_refs (blob);

CREATE TABLE state (
    namespace TEXT NOT NULL,
    key       TEXT NOT NULL,
    version   INTEGER NOT NULL,
    value     TEXT NOT NULL,
    PRIMARY KEY (namespace, key)
);

CREATE TABLE snapshots (
    session  INTEGER PRIMARY KEY,
    position INTEGER NOT NULL,
    data     BLOB NOT NULL
);

CREATE TABLE checkpoints (
    session  INTEGER PRIMARY KEY,
    position INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    state    BLOB NOT NULL
);
CREATE TABLE segments (
    session  INTEGER NOT NULL,
    after    INTEGER NOT NULL,
    position INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    data     BLOB NOT NULL
);
CREATE UNIQUE INDEX segments_by_position ON segments (session, position);

CREATE TABLE shares (
    session   INTEGER NOT NULL,
    first     INTEGER NOT NULL,
    last      INTEGER NOT NULL,
    source    INTEGER NOT NULL,
    source_id TEXT NOT NULL,
    PRIMARY KEY (session, first)
) WITHOUT ROWID;
CREATE INDEX shares_by_source ON shares (source);

CREATE TABLE permits (
    number  INTEGER PRIMARY KEY,
    counter TEXT NOT NULL,
    ticket  TEXT NOT NULL,
    owner   TEXT NOT NULL,
    until   INTEGER NOT NULL,
    held    INTEGER NOT NULL  -- whether it is given back; one of a rate stays until its time is over
);
CREATE INDEX permits_by_counter ON permits (counter, until);
CREATE INDEX permits_by_end ON permits (until);
CREATE INDEX permits_by_ticket ON permits (ticket) WHERE held;
CREATE INDEX permits_by_owner ON permits (owner) WHERE held;

CREATE TABLE permit_waits (
    ticket     TEXT PRIMARY KEY,
    session_id TEXT NOT NULL,
    owner      TEXT NOT NULL,
    counter    TEXT NOT NULL,  -- the one in whose line it stands
    rank       INTEGER NOT NULL,
    since      INTEGER NOT NULL,
    until      INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX permit_waits_by_counter ON permit_waits (counter, rank, ticket);
CREATE INDEX permit_waits_by_owner ON permit_waits (owner);
CREATE INDEX permit_waits_by_session ON permit_waits (session_id);

CREATE VIEW journal_lines AS
SELECT sessions.id AS session_id,
       journal.first + line.key AS position,
       strftime('%Y-%m-%d %H:%M:%f',
                (journal.at + (SELECT coalesce(sum(value), 0) FROM json_each(journal.later) WHERE key <= line.key))
                / 1000.0, 'unixepoch') AS time,
       json_extract(line.value, '$.type') AS type,
       json_remove(line.value, '$.type') AS body
  FROM sessions
  JOIN (SELECT num AS session, 0 AS first, 9223372036854775807 AS last, num AS source FROM sessions
         UNION ALL SELECT session, first, last, source FROM shares) AS parts ON parts.session = sessions.num
  JOIN journal ON journal.session = parts.source AND journal.first <= parts.last AND journal.last >= parts.first
  JOIN json_each(CASE WHEN size IS NULL THEN body ELSE CAST(sqlar_uncompress(body, size) AS TEXT) END) AS line
    ON journal.first + line.key BETWEEN parts.first AND parts.last
 ORDER BY sessions.num, position;
"""

LIVING = "state IN ('running', 'paused')"
ENDED = "ended_at IS NOT NULL"
"""Conditions of indexes, in the words that SQLite recognises."""

MIGRATIONS: tuple[str, ...] = ()
"""`SCHEMA` is version 1; the script at index n brings a file from version n + 1 to n + 2. Once released, neither the
schema nor a script is changed: a new version is a new script."""


def current_version() -> int:
    """The version of the files that this Holdfast writes."""
    return 1 + len(MIGRATIONS)


class StoreConnection(sqlite3.Connection):
    """A connection with a cursor at hand for statements that give no rows: making one costs as much as they do."""

    has_shapes = False
    """Whether it can write quick commits (see `sqlite.quick_commits`)."""

    @cached_property
    def quick(self) -> sqlite3.Cursor:
        """The cursor. What a statement gave by it is gone with the next one."""
        return self.cursor()


def connect(path: str, url: str, busy_timeout_ms: int = BUSY_TIMEOUT_MS) -> StoreConnection:
    """A connection, to be set up with `configure` once the file is known to be ours.

    A file that this process may not write is opened to be read.
    """
    try:
        connection = sqlite3.connect(
            path if can_write(path) else _readable(path),
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
            factory=StoreConnection,
            uri=not can_write(path),
        )
        connection.execute(f"PRAGMA busy_timeout = {busy_timeout_ms}")
    except sqlite3.Error as error:
        raise StoreUnavailableError(url, str(error)) from None
    return connection


def can_write(path: str) -> bool:
    """Whether a file may be written, or is yet to be made. SQLite also has to make a log in the same directory."""
    return not os.path.exists(path) or (os.access(path, os.W_OK) and os.access(os.path.dirname(path), os.W_OK))


def _readable(path: str) -> str:
    """The URI of a file that can only be read. If it has no log, nobody is writing to it, and none has to be made."""
    from urllib.parse import quote  # hardly any process may only read

    return f"file:{quote(path)}?mode=ro{'' if os.path.exists(f'{path}-wal') else '&immutable=1'}"


def never_waiting(connection: StoreConnection) -> StoreConnection:
    """The connection, which from now on fails at once where another process has a lock."""
    connection.execute("PRAGMA busy_timeout = 0")
    return connection


def configure(connection: sqlite3.Connection, url: str) -> None:
    """Our settings. They make SQLite read the tables, so the version is checked before."""
    try:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the message about a damaged schema may be no text
        raise StoreUnavailableError(url, str(error)) from None


def is_current(connection: sqlite3.Connection, url: str) -> bool:
    """Whether nothing has to be done to a file before it is used; raises if this Holdfast must not touch it."""
    try:
        return _find_version(connection, url) == current_version()
    except sqlite3.Error:
        return False


def prepare(connection: sqlite3.Connection, url: str) -> None:
    """Check whose file this is and of which version, then create or migrate it; concurrent openers wait."""
    deadline = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            return _create_or_migrate(connection, url)
        except sqlite3.OperationalError as error:
            # The change to WAL does not wait for others by itself.
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise StoreUnavailableError(url, str(error)) from None
            time.sleep(RETRY_MS / 1000)
        except sqlite3.Error as error:
            raise StoreUnavailableError(url, str(error)) from None


def _create_or_migrate(connection: sqlite3.Connection, url: str) -> None:
    found = _find_version(connection, url)
    if found == current_version():
        return
    if found == 0:
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # so that deletions can give back their space
        connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("BEGIN IMMEDIATE")
    try:
        for script in (SCHEMA, *MIGRATIONS)[_find_version(connection, url) :]:
            for statement in _statements(script):
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {current_version()}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _find_version(connection: sqlite3.Connection, url: str) -> int:
    """The version of a file, 0 for an empty one; raises for a file that this Holdfast must not touch."""
    alone = not connection.in_transaction
    if alone:
        connection.execute("BEGIN")
    try:
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        application = int(connection.execute("PRAGMA application_id").fetchone()[0])
        if application == APPLICATION_ID:
            if not 1 <= version <= current_version():
                raise SchemaVersionError(url, version, current_version())
            return version
        if application == UNRELEASED_ID:
            raise StoreUnavailableError(url, UNRELEASED)
        if version or application or connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise StoreUnavailableError(url, "this SQLite file belongs to another program; choose another path")
        return 0
    finally:
        if alone:
            connection.execute("ROLLBACK")


def check_version(connection: sqlite3.Connection, url: str) -> None:
    """Raise if a file that was current when it was opened is so no more: a newer Holdfast has migrated it."""
    if _find_version(connection, url) != current_version():
        raise StoreReplacedError(url, "an empty file was put in its place")


def _statements(script: str) -> list[str]:
    """The statements of a script one by one: `executescript` would commit the transaction they belong to."""
    found: list[str] = []
    text = ""
    for line in script.splitlines(keepends=True):
        text += line
        if sqlite3.complete_statement(text):
            found.append(text)
            text = ""
    return [*found, text] if text.strip() else found
