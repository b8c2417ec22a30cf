"""Packing of old rows: once a segment covers them, the small rows of a journal are put together and deflated."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator

import msgspec

from holdfast.store.commits import Commit
from holdfast.store.journal_rows import JournalRow, are_sound, packed_row
from holdfast.store.limits import ROW_RECORDS, SMALL_ROW_BYTES
from holdfast.store.sqlite import statements as sql

MOST_ROWS = 1_024
"""Rows that are packed with one segment: several times those between two, and some milliseconds."""

_IS_SMALL = f"j.size IS NULL AND length(CAST(j.body AS BLOB)) <= {SMALL_ROW_BYTES} AND NOT instr(j.body, '\"$')"
"""Whether a row holds less of what somebody said than of what is the same in every row, and no reference to a blob."""

_Stored = tuple[int, JournalRow]
"""A row with its number."""


def pack_rows(connection: sqlite3.Connection, num: int, commit: Commit) -> None:
    """Pack the rows that the segment of a commit covers and that were there before it.

    The rows of the commit itself stay: watchers follow the highest number, and it may not be used again.
    """
    assert commit.segment is not None
    session_id = commit.session_id
    found = connection.execute(
        f"SELECT j.id, {sql.ROW_COLUMNS} FROM journal j WHERE j.session = ?1"
        f" AND j.first BETWEEN {sql.ROW_WITH.format(session='?1', position='?2')} AND ?3"
        f" AND {_IS_SMALL} ORDER BY j.first LIMIT ?4",
        (num, commit.segment.after, min(commit.expected, commit.segment.position), MOST_ROWS),
    ).fetchall()
    rows = [(number, JournalRow(*columns)) for number, *columns in found]
    for run in _runs(session_id, rows):
        number, first = run[0]
        try:
            packed = packed_row(session_id, [row for _, row in run])
        except (msgspec.MsgspecError, ValueError):
            continue  # reading them will say what is wrong
        connection.execute(
            "DELETE FROM journal WHERE session = ? AND first > ? AND first <= ?", (num, first.first, packed.last)
        )
        connection.execute(
            "UPDATE journal SET last = ?, later = ?, checksum = ?, size = ?, body = ? WHERE id = ?",
            (packed.last, packed.later, packed.checksum, packed.size, packed.body, number),
        )


def _runs(session_id: str, rows: Iterable[_Stored]) -> Iterator[list[_Stored]]:
    """Rows that can be packed into one, each time two or more. What is damaged is none of them, and stays as it is."""
    run: list[_Stored] = []
    for number, row in rows:
        is_fit = are_sound(session_id, msgspec.structs.astuple(row))
        if not is_fit or (run and (row.first != run[-1][1].last + 1 or row.last >= run[0][1].first + ROW_RECORDS)):
            if len(run) > 1:
                yield run
            run = []
        if is_fit:
            run.append((number, row))
    if len(run) > 1:
        yield run
