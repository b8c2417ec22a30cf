"""Appending to a journal in a SQLite file, as one work of the writer.

Where this process wrote to the session last, it knows the session's row, and one fenced statement both checks and
changes it: the row is changed only if it still is as it is known. If it is not, or more is to be done than to add
records and to change the lease, the row is read first, and whoever is refused learns why (`statements.append`).
"""

from __future__ import annotations

import msgspec

from holdfast.core.summary import Summary
from holdfast.store.commits import Commit
from holdfast.store.journal_rows import encode_commit
from holdfast.store.sqlite import statements as sql
from holdfast.store.sqlite.packed_rows import pack_rows
from holdfast.store.sqlite.schema import StoreConnection

KNOWN_ROWS = 4_096
"""Sessions whose rows are remembered: more than are hot in one process, and a megabyte at most."""


class KnownRow(msgspec.Struct, frozen=True, gc=False):
    """The row of a session, as this process wrote it last."""

    num: int
    position: int
    epoch: int
    is_held: bool
    summary: Summary


class KnownRows(dict[str, KnownRow]):
    """The rows that this process knows, by session: the latest `KNOWN_ROWS` of sessions that have not ended.

    Whoever writes to a session takes its row out, which may change meanwhile, and puts back what is known then.
    """

    def put(self, session_id: str, row: KnownRow) -> None:
        if row.summary.state.is_terminal:
            return
        if len(self) >= KNOWN_ROWS:
            del self[next(iter(self))]
        self[session_id] = row


class SqliteAppend:
    """One commit to be written."""

    __slots__ = ("_commit", "_known", "_packed", "_rows")

    def __init__(self, commit: Commit, known: KnownRow | None) -> None:
        self._commit = commit
        stored = encode_commit(commit)
        self._rows = stored.rows
        self._packed = sql.pack_blobs(stored.blobs) if stored.blobs else {}
        self._known = known

    def __call__(self, connection: StoreConnection) -> KnownRow:
        """Write it, and give the row as it is then; or raise the reason why it is refused."""
        commit = self._commit
        if self._known is not None:
            written = self._write_fenced(connection, self._known)
            if written is not None:
                return written
        num, receipt = sql.append(connection, commit, self._rows, self._packed)
        if commit.segment is not None:
            pack_rows(connection, num, commit)
        return KnownRow(num, receipt.position, receipt.epoch, commit.hold_ms > 0, commit.summary)

    def _write_fenced(self, connection: StoreConnection, known: KnownRow) -> KnownRow | None:
        """Write it if it adds records and changes the lease at most, and the row is as it is known.

        None, with nothing done, if not.
        """
        commit = self._commit
        summary, before, hold_ms = commit.summary, known.summary, commit.hold_ms
        fits = commit.expected == known.position and (
            not known.is_held if commit.epoch is None else commit.epoch == known.epoch
        )
        if (
            not fits
            or commit.takes
            or commit.writes
            or self._packed
            or commit.snapshot is not None
            or commit.checkpoint is not None
            or commit.segment is not None
            or summary.state.is_terminal
            or summary.title != before.title
            or summary.labels != before.labels
        ):
            return None
        position = known.position + len(commit.entries)
        epoch = known.epoch + 1 if commit.epoch is None else known.epoch
        run = connection.quick.execute
        fence = (known.num, known.position, known.epoch)
        is_step = summary.state is before.state and summary.due_at == before.due_at
        spent = (summary.updated_at, summary.tokens, summary.cost)
        if is_step and known.is_held == (hold_ms > 0) and _is_alike(summary, before):
            if hold_ms:
                changed = run(_KEEP, (position, sql.now_ms() + hold_ms, *spent, *fence, commit.owner))
            else:
                changed = run(_ADVANCE, (position, epoch, *spent, *fence))
        else:
            values = sql.step_values(position, epoch, commit)
            free = "" if commit.epoch is not None else _IS_FREE
            if is_step:
                changed = run(f"{_STEP}{free}", (*values, *fence))
            else:
                changed = run(f"{_CHANGE}{free}", (*values, summary.state, summary.due_at, *fence))
        if changed.rowcount != 1:
            return None
        for row in self._rows:
            sql.insert_row(connection.quick, known.num, row)
        return KnownRow(known.num, position, epoch, hold_ms > 0, summary)


def _is_alike(summary: Summary, known: Summary) -> bool:
    """Whether a step need not tell the row of a summary, but for the time of its last entry and what was spent."""
    return (
        summary.pending == known.pending
        and summary.waiting_for == known.waiting_for
        and summary.needs == known.needs
        and summary.asks == known.asks
        and summary.turns == known.turns
    )


_FENCE = "WHERE num = ? AND position = ? AND epoch = ?"
_IS_FREE = " AND owner IS NULL"
_ADVANCE = f"UPDATE sessions SET position = ?, epoch = ?, updated_at = ?, tokens = ?, cost = ? {_FENCE}{_IS_FREE}"
_KEEP = (
    f"UPDATE sessions SET position = ?, lease_until = ?, updated_at = ?, tokens = ?, cost = ? {_FENCE} AND owner = ?"
)
_STEP = f"{sql.STEP_ROW} {_FENCE}"
_CHANGE = f"{sql.CHANGE_ROW} {_FENCE}"
