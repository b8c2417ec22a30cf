"""A SQLite file with every kind of row, and changes made to the rows of one session behind the store's back."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

import hypothesis.strategies as st

from holdfast.core.queries import HumanQuery, LlmQuery, TimerQuery
from holdfast.core.records import LoggedRecord, StatRecord
from holdfast.store.commits import Checkpoint, Segment, Snapshot
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.sessions import begin, feed
from tests.fuzz.generation import ODD_TEXTS, Draw
from tests.store.sqlite.helpers import LARGE, settle

HURT = "hurt"
HEALTHY = ("first", "last")

_OF_SESSION = "session = (SELECT num FROM sessions WHERE id = 'hurt')"
WHERE = {
    "sessions": "id = 'hurt'",
    "journal": _OF_SESSION,
    "mailbox": _OF_SESSION,
    "snapshots": _OF_SESSION,
    "checkpoints": _OF_SESSION,
    "segments": _OF_SESSION,
    "blob_refs": _OF_SESSION,
    "blobs": f"id IN (SELECT blob FROM blob_refs WHERE {_OF_SESSION})",
    "state": "key = 'hurt'",
}
"""The rows of each table that are the hurt session's alone."""

CACHES = ("snapshots", "checkpoints", "segments")
"""Tables without which nothing is lost."""

ODD_CELLS: tuple[Any, ...] = (
    *(None, -1, 0, 1, 2, 5, 7, 2**63 - 1, -(2**63), 0.5, 1e300, float("inf")),
    *(b"", b"\x00", b"\xff\xfe", b"[]", b"{}", b"null", b"[" * 5_000, b"\x28\xb5\x2f\xfd\x00"),
    *(text for text in ODD_TEXTS if text.isprintable() and "\ud800" not in text and "\udfff" not in text),
    *("[]", "[{}]", "{}", "null", "[0]", '["x"]', "[1e999]", '[{"type": "logged"}]', '[{"$blob": 7}]', '"later"'),
)


@dataclass(frozen=True)
class Change:
    """One change of a cell: of which row and column, counted round, and to what."""

    table: str
    row: int
    column: int
    value: Any
    """The new value; for `bytes` a place in the present one, and what stands there now."""
    action: str
    """`set`, `bytes`, `drop`, or `swap`: the value of another row."""
    other: int


async def sample(path: str) -> None:
    """Three sessions with all kinds of rows; the middle one is to be hurt."""
    async with SqliteStore(path) as store:
        for session_id in (HEALTHY[0], HURT, HEALTHY[1]):
            session = await begin(store, session_id, ctx={"text": f"{session_id} {LARGE}"}, hold_ms=0)
            await session.ask(LlmQuery(prompt="why?", options={"t": 0.1}), HumanQuery(prompt="ok?", timeout_ms=1_000))
            await session.answer("q-0", {"long": f"{session_id} {LARGE}", "odd": {"$blob": "x"}})
            await session.append(LoggedRecord(message="one"), StatRecord(key="n", value=1))
            await session.append(
                LoggedRecord(message="two"),
                checkpoint=Checkpoint(session.position, b"folded"),
                segment=Segment(0, session.position, b"said"),
                snapshot=Snapshot(session.position, b"paused"),
            )
            await session.answer("q-1", "yes")
            await session.ask(TimerQuery(delay_ms=10_000), hold_ms=0)
            for number in (1, 2):
                await store.send(session_id, f"m-{number}", feed(f"{session_id} {number}"), number)
            await store.put_state("notes", session_id, {"text": session_id, "n": [1, None]})
    settle(path)


@st.composite
def changes(draw: Draw, tables: Sequence[str] = tuple(WHERE)) -> tuple[list[Change], bool]:
    """One or two changes, and whether rows of the journal are sealed again after them."""
    found = []
    for _ in range(draw(st.integers(1, 2))):
        table = draw(st.sampled_from([*tables, *[name for name in tables if name == "journal"] * 3]))
        action = draw(st.sampled_from(["set", "set", "set", "bytes", "bytes", "drop", "swap"]))
        value = draw(_BYTES if action == "bytes" else st.sampled_from(ODD_CELLS))
        row, column, other = draw(st.integers(0, 9)), draw(st.integers(0, 15)), draw(st.integers(0, 9))
        found.append(Change(table, row, column, value, action, other))
    return found, draw(st.booleans())


_BYTES = st.tuples(st.integers(0, 2**16), st.sampled_from([b"", b"0", b'"', b"[", b"]", b",", b"{", b"\xff", b"null,"]))
"""Where some bytes of a cell are replaced, and by which."""


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
        f"SELECT id, first, last, at, later, CAST(body AS BLOB) FROM journal WHERE {WHERE['journal']}"
    ).fetchall()
    for number, first, last, at, later, body in rows:
        label = crc32(f"{HURT}/{first!r}/{last!r}/{at!r}/{later!r}/".encode())
        connection.execute("UPDATE journal SET checksum = ? WHERE id = ?", (crc32(body or b"", label), number))


def content(path: Path) -> list[str]:
    """Everything in the file, to be compared."""
    with closing(sqlite3.connect(path)) as connection:
        connection.text_factory = bytes
        tables = [
            name.decode() for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        ]
        return [repr((table, connection.execute(f"SELECT * FROM {table}").fetchall())) for table in tables]
