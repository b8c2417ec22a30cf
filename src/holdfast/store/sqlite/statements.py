"""What the SQLite store does inside one transaction: statements, and rows turned into what the contract speaks of."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from types import NoneType
from typing import Any, TypeAlias

import msgspec

from holdfast.core.errors import SessionDeletedError, SessionExistsError, SessionNotFoundError
from holdfast.core.state import State
from holdfast.core.summary import Summary
from holdfast.store.checkpoints import open_rows, seal_checkpoint, seal_segment
from holdfast.store.codec import decode_snapshot, encode_value, pack_blob, unpack_blob
from holdfast.store.commits import Checkpoint, Commit, CommitReceipt, Lease, Segment, Snapshot, StateWrite
from holdfast.store.contract import SessionFilter, SessionRow
from holdfast.store.errors import CorruptSessionError, MessageTakenError
from holdfast.store.journal_rows import JournalPart, JournalRow, in_order
from holdfast.store.leases import NEW, LeaseState, commit_epoch, lease_columns, write_versions
from holdfast.store.sqlite.schema import StoreConnection

COLUMNS = (
    "id, position, epoch, owner, lease_until,"
    " state, program_kind, program, parent, service, created_at, updated_at, pending, waiting_for, due_at"
)
_GONE = "holder_gone(CAST(lease_lock AS INTEGER))"  # text that is not UTF-8 would not reach the function
_OWNER = f"CASE WHEN lease_lock IS NULL OR NOT {_GONE} THEN owner END"
ROW = COLUMNS.replace("owner", _OWNER)
_VALUES = ", ".join("?" * len(COLUMNS.split(",")))
_LOCK = "CASE WHEN ? > 0 THEN own_lock() END"


Packed: TypeAlias = dict[str, tuple[int, str, bytes]]
"""Blobs by id: size, packing, and the packed bytes."""


CHANGE_ROW = (
    f"UPDATE sessions SET position = ?, epoch = ?, owner = ?, lease_until = ?, lease_lock = {_LOCK},"
    " state = ?, updated_at = ?, pending = ?, waiting_for = ?, due_at = ?"
)


def append(
    connection: StoreConnection, commit: Commit, rows: Iterable[JournalRow], packed: Packed
) -> tuple[int, CommitReceipt]:
    """Append a commit, or raise the reason why it is refused; gives the number of the session as well."""
    session_id, summary, now = commit.session_id, commit.summary, now_ms()
    if commit.expected == 0:
        num, head = 0, vacant(connection, session_id)
    else:
        num, head = find(connection, session_id)
    epoch = commit_epoch(commit, head, now)
    for number in commit.takes:
        waiting = "SELECT 1 FROM mailbox WHERE number = ? AND session = ? AND body IS NOT NULL"
        if connection.execute(waiting, (number, num)).fetchone() is None:
            raise MessageTakenError(session_id, number)

    versions = write_versions(commit.writes, lambda write: state_version(connection, write))

    position = commit.expected + len(commit.entries)
    owner, until = lease_columns(commit.owner, commit.hold_ms, now)
    if num:
        connection.execute(
            f"{CHANGE_ROW} WHERE num = ?",
            (
                *(position, epoch, owner, until, commit.hold_ms),
                *(summary.state, summary.updated_at, summary.pending, summary.waiting_for, summary.due_at, num),
            ),
        )
    else:
        cursor = connection.execute(
            f"INSERT INTO sessions ({COLUMNS}, lease_lock) VALUES ({_VALUES}, {_LOCK})",
            (session_id, position, epoch, owner, until, *msgspec.structs.astuple(summary), commit.hold_ms),
        )
        num = cursor.lastrowid or 0
    for row in rows:
        insert_row(connection.quick, num, row)
    for number in commit.takes:
        connection.execute("UPDATE mailbox SET body = NULL WHERE number = ?", (number,))
    for write, version in zip(commit.writes, versions, strict=True):
        write_state(connection, write, version)
    keep_blobs(connection, num, packed)
    if summary.state.is_terminal:
        connection.execute("DELETE FROM snapshots WHERE session = ?", (num,))
        connection.execute("UPDATE mailbox SET body = NULL WHERE session = ? AND body IS NOT NULL", (num,))
    elif commit.snapshot is not None:
        write_snapshot(connection, num, commit.snapshot)
    write_checkpoint(connection, num, commit)
    return num, CommitReceipt(session_id, position, epoch)


def find(connection: sqlite3.Connection, session_id: str) -> tuple[int, LeaseState]:
    row = connection.execute(
        f"SELECT num, position, epoch, {_OWNER}, lease_until FROM sessions WHERE id = ?", (session_id,)
    ).fetchone()
    if row is None:
        raise missing(connection, session_id)
    num, position, epoch, owner, until = row
    if type(position) is not int or type(epoch) is not int or not isinstance(until, int | None):
        raise CorruptSessionError(session_id, "its summary", "its position or its lease is not a number")
    return num, LeaseState(position, epoch, owner, until)


def has_ended(connection: sqlite3.Connection, num: int) -> bool:
    """Whether a session has ended, and so takes what is sent to it at once."""
    (state,) = connection.execute("SELECT state FROM sessions WHERE num = ?", (num,)).fetchone()
    return any(state == ended for ended in State if ended.is_terminal)


def find_number(connection: sqlite3.Connection, session_id: str) -> int:
    """The number of a session, however damaged the rest of its row is."""
    row = connection.execute("SELECT num FROM sessions WHERE id = ?", (session_id,)).fetchone()
    if row is None:
        raise missing(connection, session_id)
    number: int = row[0]
    return number


def missing(connection: sqlite3.Connection, session_id: str) -> SessionNotFoundError:
    row = connection.execute("SELECT deleted_at FROM tombstones WHERE id = ?", (session_id,)).fetchone()
    return SessionDeletedError(session_id, row[0]) if row else SessionNotFoundError(session_id)


def vacant(connection: sqlite3.Connection, session_id: str) -> LeaseState:
    if connection.execute("SELECT 1 FROM sessions WHERE id = ?", (session_id,)).fetchone():
        raise SessionExistsError(session_id)
    gone = missing(connection, session_id)
    if isinstance(gone, SessionDeletedError):
        raise gone
    return NEW


def write_summary(connection: sqlite3.Connection, num: int, summary: Summary) -> None:
    connection.execute(
        "UPDATE sessions SET state = ?, program_kind = ?, program = ?, parent = ?, service = ?,"
        " created_at = ?, updated_at = ?, pending = ?, waiting_for = ?, due_at = ? WHERE num = ?",
        (*msgspec.structs.astuple(summary), num),
    )


def release(connection: sqlite3.Connection, lease: Lease) -> None:
    connection.execute(
        "UPDATE sessions SET owner = NULL, lease_until = NULL, lease_lock = NULL WHERE id = ? AND epoch = ?",
        (lease.session_id, lease.epoch),
    )


def lost(connection: sqlite3.Connection, limit: int) -> list[Lease]:
    rows = connection.execute(
        "SELECT id, owner, epoch, lease_until FROM sessions"
        f" WHERE lease_lock IS NOT NULL AND lease_until > ? AND {_GONE} ORDER BY num LIMIT ?",
        (now_ms(), limit),
    )
    return [Lease(*row) for row in rows]


def insert_row(cursor: sqlite3.Cursor, num: int, row: JournalRow) -> None:
    """Add a row to the journal of a session. Usually all its records have the same time, and a NULL is not passed on:
    that would take as long as the six other values."""
    body = row.body.decode()
    if row.later is None:
        cursor.execute(
            "INSERT INTO journal (session, first, last, at, checksum, body) VALUES (?, ?, ?, ?, ?, ?)",
            (num, row.first, row.last, row.at, row.checksum, body),
        )
    else:
        cursor.execute(
            "INSERT INTO journal (session, first, last, at, later, checksum, body) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (num, row.first, row.last, row.at, row.later, row.checksum, body),
        )


# Bodies come as bytes: text that is not text must not stop the others.
ROW_COLUMNS = "j.first, j.last, j.at, j.later, j.checksum, CAST(j.body AS BLOB), j.size"
# The row with a position is the last one that begins there or before.
ROW_WITH = "coalesce((SELECT max(first) FROM journal WHERE session = {session} AND first <= {position}), 0)"
# Parameters: the number of the session, the first position, and the last.
_OWN = (
    f"SELECT {ROW_COLUMNS} FROM journal j"
    f" WHERE j.session = ?1 AND j.first BETWEEN {ROW_WITH.format(session='?1', position='?2')} AND ?3"
    " ORDER BY j.first"
)
_SHARED = (
    f"SELECT {ROW_COLUMNS}, max(s.first, ?2), min(s.last, ?3), s.source_id FROM shares s CROSS JOIN journal j"
    " ON j.session = s.source AND j.first BETWEEN"
    f" {ROW_WITH.format(session='s.source', position='max(s.first, ?2)')} AND min(s.last, ?3)"
    " WHERE s.session = ?1 AND s.first <= ?3 AND s.last >= ?2"
)


def read_journal(
    connection: sqlite3.Connection, session_id: str, num: int, after: int, limit: int
) -> list[JournalPart]:
    """The parts of a journal after a position, in order."""
    first, last = after + 1, after + limit
    own = connection.execute(_OWN, (num, first, last))
    parts = [JournalPart(JournalRow(*row), first, last, session_id) for row in own]
    shared = connection.execute(_SHARED, (num, first, last)).fetchall()
    if shared:
        parts = in_order([*parts, *(JournalPart(JournalRow(*row[:7]), *row[7:]) for row in shared)])
    return parts


def read_blobs(connection: sqlite3.Connection, blob_ids: Iterable[str]) -> Mapping[str, bytes]:
    """The content of those blobs that are there and unharmed."""
    return {blob_id: data for blob_id in blob_ids if (data := _read_blob(connection, blob_id)) is not None}


def write_snapshot(connection: sqlite3.Connection, num: int, snapshot: Snapshot) -> None:
    connection.execute(
        "INSERT INTO snapshots (session, position, data) VALUES (?, ?, ?)"
        " ON CONFLICT (session) DO UPDATE SET position = excluded.position, data = excluded.data",
        (num, snapshot.position, snapshot.data),
    )


def read_snapshot(connection: sqlite3.Connection, num: int, reach: int) -> Snapshot | None:
    """The snapshot of a session whose journal ends at `reach`."""
    try:
        row = connection.execute("SELECT position, data FROM snapshots WHERE session = ?", (num,)).fetchone()
    except sqlite3.OperationalError:  # the file is away or locked, and the snapshot may be sound
        raise
    except sqlite3.DatabaseError:  # its pages are damaged
        return None
    return decode_snapshot(reach, *row) if row else None


def write_checkpoint(connection: sqlite3.Connection, num: int, commit: Commit) -> None:
    """Keep the checkpoint and the segment of a commit, if it has any."""
    if commit.checkpoint is not None:
        _, *row = seal_checkpoint(commit.session_id, commit.checkpoint)
        connection.execute(
            "INSERT INTO checkpoints (session, position, checksum, state) VALUES (?, ?, ?, ?) ON CONFLICT (session)"
            " DO UPDATE SET position = excluded.position, checksum = excluded.checksum, state = excluded.state",
            (num, *row),
        )
    if commit.segment is not None:
        connection.execute("DELETE FROM segments WHERE session = ? AND position > ?", (num, commit.segment.after))
        connection.execute(
            "INSERT INTO segments (session, after, position, checksum, data) VALUES (?, ?, ?, ?, ?)",
            (num, *seal_segment(commit.session_id, commit.segment)),
        )


def read_checkpoint(
    connection: sqlite3.Connection, session_id: str, num: int, reach: int
) -> tuple[Checkpoint, list[Segment]] | None:
    """The checkpoint and the segments of a session whose journal ends at `reach`."""
    try:
        row = connection.execute(
            "SELECT 0, position, checksum, state FROM checkpoints WHERE session = ?", (num,)
        ).fetchone()
        segments = connection.execute(
            "SELECT after, position, checksum, data FROM segments WHERE session = ? ORDER BY position", (num,)
        ).fetchall()
    except sqlite3.OperationalError:  # the file is away or locked
        raise
    except sqlite3.DatabaseError:  # its pages are damaged
        return None
    return open_rows(session_id, reach, row, segments)


def state_version(connection: sqlite3.Connection, write: StateWrite) -> int:
    found = connection.execute(
        "SELECT version FROM state WHERE namespace = ? AND key = ?", (write.namespace, write.key)
    ).fetchone()
    return int(found[0]) if found else 0


def write_state(connection: sqlite3.Connection, write: StateWrite, version: int) -> None:
    if write.delete:
        connection.execute("DELETE FROM state WHERE namespace = ? AND key = ?", (write.namespace, write.key))
        return
    connection.execute(
        "INSERT INTO state (namespace, key, version, value) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (namespace, key) DO UPDATE SET version = excluded.version, value = excluded.value",
        (write.namespace, write.key, version, encode_value(write.value)),
    )


def keep_blobs(connection: sqlite3.Connection, num: int, packed: Packed) -> None:
    for blob_id, (size, packing, data) in packed.items():
        connection.execute(
            "INSERT INTO blobs (id, packing, size, data) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (blob_id, packing, size, data),
        )
        connection.execute("INSERT INTO blob_refs (session, blob) VALUES (?, ?) ON CONFLICT DO NOTHING", (num, blob_id))


def pack_blobs(blobs: Mapping[str, bytes]) -> Packed:
    """Blobs as they are stored."""
    return {blob_id: (len(data), *pack_blob(data)) for blob_id, data in blobs.items()}


def _read_blob(connection: sqlite3.Connection, blob_id: str) -> bytes | None:
    row = connection.execute("SELECT packing, size, data FROM blobs WHERE id = ?", (blob_id,)).fetchone()
    return unpack_blob(blob_id, *row) if row else None


def drop_unkept(connection: sqlite3.Connection, blob_ids: Iterable[str]) -> None:
    for blob_id in blob_ids:
        connection.execute(
            "DELETE FROM blobs WHERE id = ? AND NOT EXISTS (SELECT 1 FROM blob_refs WHERE blob = blobs.id)", (blob_id,)
        )


Seen = tuple[int, int, int]
"""How far the change feed was read: last journal entry, last message, last tombstone."""


def changes_until(connection: sqlite3.Connection) -> Seen:
    journal, graves = (
        connection.execute(f"SELECT coalesce(max(rowid), 0) FROM {table}").fetchone()[0]
        for table in ("journal", "tombstones")
    )
    mail = connection.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'mailbox'").fetchone()[0]
    return journal, mail, graves


def changes_since(connection: sqlite3.Connection, seen: Seen) -> tuple[Seen, list[str]]:
    changed = connection.execute(
        "SELECT id FROM sessions WHERE num IN (SELECT session FROM journal WHERE id > ?"
        " UNION SELECT session FROM mailbox WHERE number > ?)"
        " UNION SELECT id FROM tombstones WHERE rowid > ?",
        seen,
    ).fetchall()
    return changes_until(connection), [session_id for (session_id,) in changed]


# --- rows ------------------------------------------------------------------------------------------


_TEXT, _NUMBER = frozenset[type]((str,)), frozenset[type]((int,))
_TEXT_IF_ANY, _NUMBER_IF_ANY = _TEXT | {NoneType}, _NUMBER | {NoneType}
_TYPES = {
    "id": _TEXT,
    "position": _NUMBER,
    "epoch": _NUMBER,
    "owner": _TEXT_IF_ANY,
    "lease_until": _NUMBER_IF_ANY,
    "state": _TEXT,
    "program_kind": _TEXT,
    "program": _TEXT,
    "parent": _TEXT_IF_ANY,
    "service": _TEXT,
    "created_at": _NUMBER,
    "updated_at": _NUMBER,
    "pending": _NUMBER,
    "waiting_for": _TEXT,
    "due_at": _NUMBER_IF_ANY,
}
"""What the columns of a row hold, in their order: SQLite itself keeps anything in any of them."""


def row_of(row: tuple[Any, ...], now: int) -> SessionRow:
    """A session from its row; `CorruptSessionError` if something else was written there."""
    session_id, position, epoch, owner, until, state, *rest = row
    for (column, types), value in zip(_TYPES.items(), row, strict=True):
        if type(value) not in types:
            raise CorruptSessionError(session_id, "its summary", f"its {column} is a value of the wrong type")
    try:
        summary = Summary(state=State(state), **dict(zip(Summary.__struct_fields__[1:], rest, strict=True)))
    except ValueError as error:
        raise CorruptSessionError(session_id, "its summary", str(error)) from None
    if LeaseState(position, epoch, owner, until).holder(now) is None:
        owner = until = None
    return SessionRow(
        session_id=session_id, summary=summary, position=position, epoch=epoch, owner=owner, lease_until=until
    )


def conditions(where: SessionFilter, before: int | None) -> tuple[str, list[Any]]:
    parts: list[tuple[str, list[Any]]] = [("1", [])]
    if where.states:
        parts.append((among("state", where.states), list(where.states)))
    if where.children:
        parts.append(("parent IS NOT NULL", []))
    if where.services:
        parts.append((among("service", where.services), list(where.services)))
    if where.has_mail:
        parts.append(("num IN (SELECT session FROM mailbox WHERE body IS NOT NULL)", []))
    if where.waiting_for is not None and "," in where.waiting_for:
        parts.append(("0", []))
    for condition, value in (
        ("program = ?", where.program),
        ("parent = ?", where.parent),
        ("updated_at < ?", where.updated_before),
        ("updated_at > ?", where.updated_after),
        ("instr(',' || waiting_for || ',', ',' || ? || ',') > 0", where.waiting_for),
        ("num < ?", before),
    ):
        if value is not None:
            parts.append((condition, [value]))
    if where.id_prefix is not None:
        parts.append(("substr(id, 1, ?) = ?", [len(where.id_prefix), where.id_prefix]))
    return " AND ".join(text for text, _ in parts), [value for _, values in parts for value in values]


def due(connection: sqlite3.Connection, now: int, limit: int, services: Sequence[str]) -> list[tuple[str, int]]:
    served = f" AND {among('service', services)}" if services else ""
    return connection.execute(
        f"SELECT id, due_at FROM sessions WHERE due_at <= ?{served} ORDER BY due_at, num LIMIT ?",
        (now, *services, limit),
    ).fetchall()


def among(column: str, values: Sequence[object]) -> str:
    """The condition that a column has one of as many values."""
    return f"{column} IN ({','.join('?' * len(values))})"


def now_ms() -> int:
    return time.time_ns() // 1_000_000
