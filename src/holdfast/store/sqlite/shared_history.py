"""What the SQLite store does about journals that several sessions read: forks, and what a deletion leaves of one."""

from __future__ import annotations

import sqlite3

from holdfast.store.commits import Commit, CommitReceipt
from holdfast.store.journal_rows import JournalRow, cut_row, encode_commit, is_sound
from holdfast.store.shared_history import check_reach, kept_references, shares_in, shares_of
from holdfast.store.sqlite import statements as sql
from holdfast.store.sqlite.schema import StoreConnection


class NewFork:
    """A fork to be made: the session it comes from, where, and the commit that creates it."""

    def __init__(self, source: str, at: int, commit: Commit) -> None:
        self.source, self.at, self.commit = source, at, commit
        self.stored = encode_commit(commit)
        self.packed = sql.pack_blobs(self.stored.blobs)

    def make(self, connection: StoreConnection) -> CommitReceipt:
        source, head = sql.find(connection, self.source)
        check_reach(self.source, self.at, head.position)
        own = connection.execute(
            "SELECT first, last, source, source_id FROM shares WHERE session = ? ORDER BY first", (source,)
        )
        shares = shares_of(source, self.source, shares_in(self.source, own), self.at)
        num, receipt = sql.append(connection, self.commit, self.stored.rows, self.packed)
        connection.execute("UPDATE sessions SET position = ? WHERE num = ?", (self.at, num))
        connection.executemany(
            "INSERT INTO shares (session, first, last, source, source_id) VALUES (?, ?, ?, ?, ?)",
            [(num, each.first, each.last, each.source, each.source_id) for each in shares],
        )
        return CommitReceipt(receipt.session_id, self.at, receipt.epoch)


def delete_session(connection: sqlite3.Connection, session_id: str, num: int, at: int) -> None:
    """Remove everything of a session but its id, and the records that forks share; and with a fork, what it was the
    last to share of sessions that are gone."""
    ended = connection.execute(
        "SELECT DISTINCT source, source_id FROM shares WHERE session = ? AND source NOT IN (SELECT num FROM sessions)",
        (num,),
    ).fetchall()
    for table in ("mailbox", "snapshots", "checkpoints", "segments", "shares"):
        connection.execute(f"DELETE FROM {table} WHERE session = ?", (num,))
    connection.execute("DELETE FROM sessions WHERE num = ?", (num,))
    connection.execute("INSERT INTO tombstones (id, deleted_at) VALUES (?, ?)", (session_id, at))
    blobs = [blob for gone in ((num, session_id), *ended) for blob in _drop_unshared(connection, *gone)]
    sql.drop_unkept(connection, blobs)


def _drop_unshared(connection: sqlite3.Connection, num: int, session_id: str) -> set[str]:
    """Remove the records of a session that is gone which no fork shares; gives the blobs that it keeps no longer.

    The last row of the journal is not removed but emptied: watchers follow the highest row, and its number must not be
    given to another one. (The mailbox and the sessions have numbers that are never used again by themselves.)
    """
    first, last = connection.execute(
        "SELECT coalesce(min(first), 1), coalesce(max(last), 0) FROM shares WHERE source = ?", (num,)
    ).fetchone()
    unshared, place = "session = ? AND NOT (last >= ? AND first <= ?)", (num, first, last)
    emptied = connection.execute(
        "UPDATE journal SET session = 0, first = id, last = id, size = NULL, body = ''"
        f" WHERE {unshared} AND id = (SELECT max(id) FROM journal)",
        place,
    ).rowcount
    deleted = connection.execute(f"DELETE FROM journal WHERE {unshared}", place).rowcount
    cut = _cut_rows(connection, num, session_id, first, last) if last else 0
    if last and not emptied + deleted + cut:
        return set()
    blobs = {blob for (blob,) in connection.execute("SELECT blob FROM blob_refs WHERE session = ?", (num,))}
    if blobs and last:
        left = connection.execute(
            "SELECT CAST(body AS BLOB) FROM journal WHERE session = ? AND size IS NULL AND instr(body, '\"$')", (num,)
        )
        blobs -= kept_references(body for (body,) in left)
    connection.executemany("DELETE FROM blob_refs WHERE session = ? AND blob = ?", [(num, blob) for blob in blobs])
    return blobs


def _cut_rows(connection: sqlite3.Connection, num: int, session_id: str, first: int, last: int) -> int:
    """Leave of rows that are shared in part only what is shared; gives their number. Those that are damaged stay."""
    found = connection.execute(
        f"SELECT id, {sql.ROW_COLUMNS} FROM journal j WHERE j.session = ?1"
        " AND (j.first < ?2 AND j.last >= ?2 OR j.first <= ?3 AND j.last > ?3)",
        (num, first, last),
    ).fetchall()
    rows = [(number, row) for number, *values in found if is_sound(session_id, row := JournalRow(*values))]
    count = 0
    for number, row in rows:
        if (left := cut_row(session_id, row, first, last)) is not None:
            connection.execute(
                "UPDATE journal SET first = ?, last = ?, at = ?, later = ?, checksum = ?, size = NULL, body = ?"
                " WHERE id = ?",
                (left.first, left.last, left.at, left.later, left.checksum, left.body.decode(), number),
            )
            count += 1
    return count
