"""Changes to the rows of a SQLite file."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

from holdfast.store.journal_rows import row_checksum
from tests.fuzz.stored.damage import HURT, WHERE, Change


def apply(path: Path, made: list[Change], is_sealed: bool) -> None:
    """Make the changes, as far as the tables allow."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for change in made:
            with suppress(sqlite3.Error):  # what a constraint of the table refuses
                _apply(connection, change)
        if is_sealed:
            _seal(connection)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _apply(connection: sqlite3.Connection, change: Change) -> None:
    table = change.table
    keys = _keys(connection, table)
    rows = connection.execute(f"SELECT {keys} FROM {table} WHERE {WHERE[table]} ORDER BY {keys}").fetchall()
    if not rows:
        return
    names = [name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")]
    column = names[change.column % len(names)]
    this, other = rows[change.row % len(rows)], rows[change.other % len(rows)]
    match_this = " AND ".join(f"{key} IS ?" for key in keys.split(", "))
    read = f"SELECT {column} FROM {table} WHERE {match_this}"
    write = f"UPDATE {table} SET {column} = ? WHERE {match_this}"
    present = connection.execute(read, this).fetchone()[0]
    match change.action:
        case "drop":
            connection.execute(f"DELETE FROM {table} WHERE {match_this}", this)
        case "swap":
            connection.execute(write, (connection.execute(read, other).fetchone()[0], *this))
        case "bytes":
            at, piece = change.value
            data = present if isinstance(present, bytes) else str(present).encode()
            at %= len(data) + 1
            data = data[:at] + piece + data[at + 1 :]
            cast = "?" if isinstance(present, bytes) else "CAST(? AS TEXT)"
            connection.execute(f"UPDATE {table} SET {column} = {cast} WHERE {match_this}", (data, *this))
        case _:
            connection.execute(write, (change.value, *this))


def _keys(connection: sqlite3.Connection, table: str) -> str:
    named = [(place, name) for _, name, _, _, _, place in connection.execute(f"PRAGMA table_info({table})") if place]
    return ", ".join(name for _, name in sorted(named)) or "rowid"


def _seal(connection: sqlite3.Connection) -> None:
    """Give the rows of the journal the checksums of what now stands there."""
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")
    rows = connection.execute(
        f"SELECT id, first, last, at, later, size, CAST(body AS BLOB) FROM journal WHERE {WHERE['journal']}"
    ).fetchall()
    for number, first, last, at, later, size, body in rows:
        label = f"{HURT}/{first!r}/{last!r}/{at!r}/{later}/{size}/"
        connection.execute("UPDATE journal SET checksum = ? WHERE id = ?", (row_checksum(label, body or b""), number))


def content(path: Path) -> list[str]:
    """Everything in the file, to be compared."""
    with closing(sqlite3.connect(path)) as connection:
        connection.text_factory = bytes
        tables = [
            name.decode() for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        ]
        return [repr((table, connection.execute(f"SELECT * FROM {table}").fetchall())) for table in tables]
