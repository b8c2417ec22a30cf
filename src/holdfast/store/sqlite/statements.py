"""What the SQLite store does inside one transaction: statements, and rows turned into what the contract speaks of."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from types import NoneType
from typing import Any, TypeAlias

import msgspec

from holdfast.core.errors import SessionDeletedError, SessionExistsError, SessionNotFoundError
from holdfast.core.labels import lower_ascii
from holdfast.core.state import State
from holdfast.core.summary import Summary
from holdfast.store.checkpoints import open_rows, seal_checkpoint, seal_segment
from holdfast.store.codec import decode_snapshot, encode_value, pack_blob, unpack_blob
from holdfast.store.commits import Checkpoint, Commit, CommitReceipt, Lease, Segment, Snapshot, StateWrite
from holdfast.store.environment import SystemClock
from holdfast.store.errors import CorruptSessionError, MessageTakenError
from holdfast.store.filters import is_of_living_children, prefix_end
from holdfast.store.journal_rows import JournalPart, JournalRow, in_order
from holdfast.store.leases import NEW, LeaseState, commit_epoch, lease_columns, write_versions
from holdfast.store.session_rows import SessionFilter, SessionRow
from holdfast.store.sqlite.schema import LIVING, StoreConnection

COLUMNS = (
    "id, position, epoch, owner, lease_until,"
    " state, program_kind, program, parent, service, created_at, updated_at, pending, waiting_for, due_at, needs,"
    " asks, turns, tokens, cost, title, labels, forked_from, failure"
)
_GONE = "holder_gone(CAST(lease_lock AS INTEGER))"  # text that is not UTF-8 would not reach the function
_OWNER = f"CASE WHEN lease_lock IS NULL OR NOT {_GONE} THEN owner END"
ROW = COLUMNS.replace("owner", _OWNER)
HOLDER = f"CASE WHEN lease_until IS NOT NULL THEN {_OWNER} END"
_VALUES = ", ".join("?" * len(COLUMNS.split(",")))
_LOCK = "CASE WHEN ? > 0 THEN own_lock() END"


Packed: TypeAlias = dict[str, tuple[int, str, bytes]]
"""Blobs by id: size, packing, and the packed bytes."""


def append(
    connection: StoreConnection, commit: Commit, rows: Iterable[JournalRow], packed: Packed
) -> tuple[int, CommitReceipt]:
    """Append a commit, or raise the reason why it is refused; gives the number of the session as well."""
    session_id, summary = commit.session_id, commit.summary
    if commit.expected == 0:
        num, head = 0, vacant(connection, session_id)
    else:
        num, head = find(connection, session_id)
    epoch = commit_epoch(commit, head, judged_now_ms())
    for number in commit.takes:
        waiting = "SELECT 1 FROM mailbox WHERE number = ? AND session = ? AND body IS NOT NULL"
        if connection.execute(waiting, (number, num)).fetchone() is None:
            raise MessageTakenError(session_id, number)

    versions = write_versions(commit.writes, lambda write: state_version(connection, write))

    position = commit.expected + len(commit.entries)
    owner, until = lease_columns(commit.owner, commit.hold_ms, now_ms())
    if num:
        connection.execute(
            f"UPDATE sessions SET position = ?, epoch = ?, owner = ?, lease_until = ?, lease_lock = {_LOCK},"
            " updated_at = ?, pending = ?, waiting_for = ?, needs = ?, asks = ?, turns = ?, tokens = ?, cost = ?,"
            " state = ?, due_at = ?, title = ?, labels = ?, failure = ? WHERE num = ?",
            (
                *(position, epoch, owner, until, commit.hold_ms, summary.updated_at, summary.pending),
                *(summary.waiting_for, summary.needs, summary.asks, summary.turns, summary.tokens, summary.cost),
                *(summary.state, summary.due_at, summary.title, ",".join(summary.labels), summary.failure, num),
            ),
        )
    else:
        cursor = connection.execute(
            f"INSERT INTO sessions ({COLUMNS}, lease_lock) VALUES ({_VALUES}, {_LOCK})",
            (session_id, position, epoch, owner, until, *summary_columns(summary), commit.hold_ms),
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
        connection.execute("UPDATE sessions SET ended_at = updated_at WHERE num = ?", (num,))
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


_LABELS = Summary.__struct_fields__.index("labels")


def summary_columns(summary: Summary) -> tuple[Any, ...]:
    """The fields of a summary, as they are stored."""
    fields = msgspec.structs.astuple(summary)
    return (*fields[:_LABELS], ",".join(fields[_LABELS]), *fields[_LABELS + 1 :])


def write_summary(connection: sqlite3.Connection, num: int, summary: Summary) -> None:
    connection.execute(
        "UPDATE sessions SET state = ?, program_kind = ?, program = ?, parent = ?, service = ?,"
        " created_at = ?, updated_at = ?, pending = ?, waiting_for = ?, due_at = ?, needs = ?, asks = ?, turns = ?,"
        " tokens = ?, cost = ?, title = ?, labels = ?, forked_from = ?, failure = ?, ended_at = ? WHERE num = ?",
        (*summary_columns(summary), summary.updated_at if summary.state.is_terminal else None, num),
    )


def release(connection: sqlite3.Connection, lease: Lease) -> None:
    connection.execute(
        "UPDATE sessions SET owner = NULL, lease_until = NULL, lease_lock = NULL WHERE id = ? AND epoch = ?",
        (lease.session_id, lease.epoch),
    )


def insert_row(cursor: sqlite3.Cursor, num: int, row: JournalRow) -> None:
    """Add a row to the journal of a session. Usually all its records have the same time, and a NULL is not passed on:
    that would take as long as the six other values."""
    if row.later is None:
        cursor.execute(
            "INSERT INTO journal (session, first, last, at, checksum, body) VALUES (?, ?, ?, ?, ?, CAST(? AS TEXT))",
            (num, row.first, row.last, row.at, row.checksum, row.body),
        )
    else:
        cursor.execute(
            "INSERT INTO journal (session, first, last, at, later, checksum, body)"
            " VALUES (?, ?, ?, ?, ?, ?, CAST(? AS TEXT))",
            (num, row.first, row.last, row.at, row.later, row.checksum, row.body),
        )


# Bodies come as bytes: text that is not text must not stop the others.
ROW_COLUMNS = "j.first, j.last, j.at, j.later, j.checksum, CAST(j.body AS BLOB), j.size"
# The row with a position is the last one that begins there or before.
ROW_WITH = "coalesce((SELECT max(first) FROM journal WHERE session = {session} AND first <= {position}), 0)"
# Parameters: the number of the session, the first position, and the last.
_ROWS = (
    f"SELECT {ROW_COLUMNS} FROM journal j"
    f" WHERE j.session = ?1 AND j.first BETWEEN {ROW_WITH.format(session='?1', position='?2')} AND ?3"
    " ORDER BY j.first"
)
_SHARES = (
    "SELECT source, max(first, ?2), min(last, ?3), source_id FROM shares WHERE session = ?1"
    " AND first <= ?3 AND last >= ?2"
)


def read_journal(
    connection: sqlite3.Connection, session_id: str, num: int, after: int, limit: int
) -> list[JournalPart]:
    """The parts of a journal after a position, in order."""
    positions = (after + 1, after + limit)
    parts = _parts(connection, num, *positions, session_id)
    shares = connection.execute(_SHARES, (num, *positions)).fetchall()
    if shares:
        parts = in_order([*parts, *(part for share in shares for part in _parts(connection, *share))])
    return parts


def _parts(connection: sqlite3.Connection, num: int, first: int, last: int, writer: str) -> list[JournalPart]:
    """The rows that a session has written between two positions."""
    rows = connection.execute(_ROWS, (num, first, last))
    return [JournalPart(JournalRow(*row), first, last, writer) for row in rows]


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


CHANGES = (
    "SELECT id FROM sessions WHERE num IN (SELECT session FROM journal WHERE id > ?"
    " UNION SELECT session FROM mailbox WHERE number > ?)"
    " UNION SELECT id FROM tombstones WHERE rowid > ?"
)


def changes_since(connection: sqlite3.Connection, seen: Seen) -> tuple[Seen, list[str]]:
    changed = connection.execute(CHANGES, seen).fetchall()
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
    "needs": _TEXT,
    "asks": _NUMBER,
    "turns": _NUMBER,
    "tokens": _NUMBER,
    "cost": frozenset[type]((float,)),
    "title": _TEXT,
    "labels": _TEXT,
    "forked_from": _TEXT_IF_ANY,
    "failure": _TEXT,
}
"""What the columns of a row hold, in their order: SQLite itself keeps anything in any of them."""


def row_of(row: tuple[Any, ...], now: int) -> SessionRow:
    """A session from its row; `CorruptSessionError` if something else was written there."""
    session_id, position, epoch, owner, until, state, *rest = row
    for (column, types), value in zip(_TYPES.items(), row, strict=True):
        if type(value) not in types:
            raise CorruptSessionError(session_id, "its summary", f"its {column} is a value of the wrong type")
    fields = dict(zip(Summary.__struct_fields__[1:], rest, strict=True))
    fields["labels"] = tuple(fields["labels"].split(",")) if fields["labels"] else ()
    try:
        summary = Summary(state=State(state), **fields)
    except ValueError as error:
        raise CorruptSessionError(session_id, "its summary", str(error)) from None
    if LeaseState(position, epoch, owner, until).holder(now) is None:
        owner = until = None
    return SessionRow(
        session_id=session_id, summary=summary, position=position, epoch=epoch, owner=owner, lease_until=until
    )


def listed_table(where: SessionFilter) -> str:
    """Where a listing looks: for the children that live, in an index that has no others."""
    if not is_of_living_children(where):
        return "sessions"
    return f"sessions INDEXED BY {'sessions_children' if where.program is None else 'sessions_programs'}"


_STATES = [state for state in State if state is not State.ABSENT]


def _is_narrow(where: SessionFilter) -> bool:
    """Whether a filter names few sessions, which are found by another index than that of services and states."""
    narrow = (where.parent, where.forked_from, where.id_prefix)
    return where.has_mail or where.asking or any(each is not None for each in narrow)


def conditions(where: SessionFilter, before: int | None) -> tuple[str, list[Any]]:
    """A filter as a condition with its parameters."""
    parts: list[tuple[str, list[Any]]] = [("1", [])]
    if is_of_living_children(where):
        parts.append((LIVING, []))
    elif where.states:
        parts.append((among("state", where.states), list(where.states)))
    elif where.services and not _is_narrow(where):  # so that an index gives those of each in their order
        parts.append((among("state", _STATES), list(_STATES)))
    if where.children is not None:
        parts.append(("parent IS NOT NULL" if where.children else "parent IS NULL", []))
    if where.services:
        parts.append((among("service", where.services), list(where.services)))
    if where.has_mail:
        parts.append(("num IN (SELECT session FROM mailbox WHERE body IS NOT NULL)", []))
    if where.waiting_for is not None and "," in where.waiting_for:
        parts.append(("0", []))
    if where.asking:
        parts.append(("asks > 0", []))
    if where.text:
        sought = lower_ascii(where.text)
        held = " OR ".join(f"instr(lower({each}), ?) > 0" for each in ("id", "title", "program", "labels"))
        parts.append((f"({held})", [sought] * 4))
    for label in where.labels:
        has_label = "instr(',' || labels || ',', ?) > 0"
        parts.append(("0", []) if "," in label or not label else (has_label, [f",{label},"]))
    unwanted = [each for each in where.without_labels if each and "," not in each]  # others no session has
    parts += [("instr(',' || labels || ',', ?) = 0", [f",{label},"]) for label in unwanted]
    for condition, value in (
        ("program = ?", where.program),
        ("forked_from = ?", where.forked_from),
        ("parent = ?", where.parent),
        ("updated_at < ?", where.updated_before),
        ("updated_at > ?", where.updated_after),
        ("instr(',' || waiting_for || ',', ',' || ? || ',') > 0", where.waiting_for),
        ("num < ?", before),
    ):
        if value is not None:
            parts.append((condition, [value]))
    if where.id_prefix:
        parts.append(("id >= ?", [where.id_prefix]))
        if (end := prefix_end(where.id_prefix)) is not None:
            parts.append(("id < ?", [end]))
    return " AND ".join(text for text, _ in parts), [value for _, values in parts for value in values]


def among(column: str, values: Sequence[object]) -> str:
    """The condition that a column has one of as many values."""
    return f"{column} IN ({','.join('?' * len(values))})"


_clock = SystemClock()


def now_ms() -> int:
    """The time of this process, by which its own leases end."""
    return _clock.now()


def judged_now_ms() -> int:
    """The time by which the leases of others are judged."""
    return _clock.cautious_now()
