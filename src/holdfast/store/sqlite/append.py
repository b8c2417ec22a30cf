"""Appending to a journal in a SQLite file, as one work of the writer.

Where this process wrote to the session last, it knows the session's row, and the commit nearly always is a quick one:
it is written only if the row still is as it is known (see `sqlite.quick_commits`). If it is not, or more is to be done,
the row is read first, and whoever is refused learns why (`statements.append`).
"""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.store.commits import Commit
from holdfast.store.journal_rows import encode_commit
from holdfast.store.leases import NEW, lease_columns
from holdfast.store.sqlite import statements as sql
from holdfast.store.sqlite.known_rows import KnownRow
from holdfast.store.sqlite.packed_rows import pack_rows
from holdfast.store.sqlite.quick_commits import BEGINNINGS, CHANGES, STEPS, QuickCommit
from holdfast.store.sqlite.schema import StoreConnection


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
        num, receipt = sql.append(connection, commit, self._rows, self._packed)
        if commit.segment is not None:
            pack_rows(connection, num, commit)
        return KnownRow(num, receipt.position, receipt.epoch, commit.hold_ms > 0, commit.summary)

    def quick(self) -> QuickCommit | None:
        """It as a quick commit, or None if it is more than that."""
        commit, known = self._commit, self._known
        if (
            len(self._rows) != 1
            or self._packed
            or commit.takes
            or commit.writes
            or commit.snapshot is not None
            or commit.checkpoint is not None
            or commit.segment is not None
        ):
            return None
        if known is None:
            return self._beginning() if commit.expected == 0 else None
        if commit.expected != known.position:
            return None
        if known.is_held if commit.epoch is None else commit.epoch != known.epoch:
            return None
        (journal,) = self._rows
        summary, before = commit.summary, known.summary
        position, epoch = known.position + len(commit.entries), known.epoch + (commit.epoch is None)
        owner, until = (commit.owner, sql.now_ms() + commit.hold_ms) if commit.hold_ms else (None, None)
        row = KnownRow(known.num, position, epoch, owner is not None, summary)
        at, tokens, cost = summary.updated_at, summary.tokens, summary.cost
        fence = (known.num, known.position, known.epoch, commit.owner if known.is_held else None)
        step = (*fence, position, epoch, until, at, tokens, cost)
        line = (journal.at, journal.later, journal.checksum, journal.body)
        if row.is_held == known.is_held and summary == replace(before, updated_at=at, tokens=tokens, cost=cost):
            return QuickCommit(STEPS, (*step, *line), row)
        change = (
            *(owner, summary.pending, summary.waiting_for, summary.needs, summary.asks, summary.turns),
            *(summary.title, ",".join(summary.labels), summary.failure),
        )
        is_moved = summary.state is not before.state or summary.due_at != before.due_at
        ended_at = at if summary.state.is_terminal else None
        move = (summary.state, summary.due_at, ended_at) if is_moved else (None, None, None)
        return QuickCommit(CHANGES, (*step, *change, *move, *line), row)

    def _beginning(self) -> QuickCommit | None:
        """It as the first of a session; None if it would be refused, or the session is not to go on."""
        commit, (journal,) = self._commit, self._rows
        if commit.epoch is not None or commit.summary.state.is_terminal:
            return None
        position, epoch = len(commit.entries), NEW.epoch + 1
        lease = lease_columns(commit.owner, commit.hold_ms, sql.now_ms())
        beginning = (commit.session_id, position, epoch, *lease, *sql.summary_columns(commit.summary))
        row = KnownRow(0, position, epoch, commit.hold_ms > 0, commit.summary)
        return QuickCommit(BEGINNINGS, (*beginning, journal.at, journal.later, journal.checksum, journal.body), row)
