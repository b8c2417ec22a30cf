"""Quick commits: those that add one row to the journal and say no more than how the session is then.

Nearly every commit is one, and any number of them are a single statement. The thread that writes needs Python's lock
before and after each statement, while the event loop wants to have it, too: with several to a commit, it would mostly
wait. With one for all commits it leaves the lock to the loop until everything is on disk
(docs/decisions/045-a-group-is-one-statement.md).

The statement inserts into a view, for which a trigger does what a commit is. Both are temporary: they belong to the
connection, and nobody finds them in the file. There are three, by what is to be done: a session begins, it takes a
step, or more of it changes. Where the row of one session is not as it is known here, nothing at all is written, and
each work has to find out by itself.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import chain
from typing import Any

import msgspec

from holdfast.core.values import encode
from holdfast.store.sqlite.known_rows import KnownRow
from holdfast.store.sqlite.schema import StoreConnection
from holdfast.store.sqlite.statements import COLUMNS

_JOURNAL = ("at", "later", "checksum", "body")
_KNOWN = ("num", "known_position", "known_epoch", "known_owner")
_STEP = ("position", "epoch", "lease_until", "updated_at", "tokens", "cost")
_CHANGE = ("owner", "pending", "waiting_for", "needs", "asks", "turns", "title", "labels", "failure")
_MOVE = ("state", "due_at", "ended_at")
_BEGINNING = tuple(COLUMNS.split(", "))


def _new(columns: Sequence[str]) -> str:
    return ", ".join(f"new.{column}" for column in columns)


def _set(columns: Sequence[str]) -> str:
    return ", ".join(f"{column} = new.{column}" for column in columns)


_LOCK = "CASE WHEN new.lease_until IS NOT NULL THEN own_lock() END"
_IS_KNOWN = "num = new.num AND position = new.known_position AND epoch = new.known_epoch AND owner IS new.known_owner"
_CHECK = "SELECT RAISE(ABORT, 'the row of a session is not as it is known') WHERE changes() <> 1;"
_ADD_ROW = """
    INSERT INTO journal (session, first, last, at, later, checksum, body)
         VALUES (new.num, new.known_position + 1, new.position, new.at, new.later, new.checksum,
                 CAST(new.body AS TEXT));"""


class Shape:
    """Commits that are written by the same trigger."""

    def __init__(self, name: str, columns: Sequence[str], trigger: str) -> None:
        self._name = name
        self._width = len(columns)
        nulls = ", ".join(f"NULL AS {column}" for column in columns)
        self._view = f"CREATE TEMP VIEW IF NOT EXISTS {name} AS SELECT {nulls}"
        self._trigger = (
            f"CREATE TEMP TRIGGER IF NOT EXISTS on_{name} INSTEAD OF INSERT ON {name}"
            f" WHEN new.{columns[0]} IS NOT NULL BEGIN {trigger} END"
        )
        self._insertions: dict[int, str] = {}
        self.single = self._insertion(1)
        """The statement that writes one commit."""

    def insert(self, connection: StoreConnection, rows: Sequence[tuple[Any, ...]]) -> None:
        """Write commits: all of them, or none and `sqlite3.Error`.

        There is a statement for each power of two, the rest of which is filled with rows that are no commits: so few
        have to be kept ready.
        """
        if len(rows) == 1:
            connection.quick.execute(self.single, rows[0])
            return
        size = 1 << (len(rows) - 1).bit_length()
        nothing = (None,) * (self._width * (size - len(rows)))
        connection.quick.execute(self._insertion(size), [*chain.from_iterable(rows), *nothing])

    def prepare(self, connection: sqlite3.Connection) -> None:
        """Make a connection able to write commits of this shape."""
        connection.execute(self._view)
        connection.execute(self._trigger)

    def _insertion(self, size: int) -> str:
        if size not in self._insertions:
            row = f"({', '.join('?' * self._width)})"
            self._insertions[size] = f"INSERT INTO {self._name} VALUES {', '.join([row] * size)}"
        return self._insertions[size]


STEPS = Shape(
    "steps",
    (*_KNOWN, *_STEP, *_JOURNAL),
    f"""
    UPDATE sessions SET {_set(_STEP)} WHERE {_IS_KNOWN};
    {_CHECK}{_ADD_ROW}""",
)
"""The row of the session only says how far it has come, what it has spent, and until when it is held."""

# A column that is set is taken out of its indexes and put into them again, even if it stays as it was: so the state,
# which most of them have, is set only where it changes. It is NULL where it does not.
CHANGES = Shape(
    "changes",
    (*_KNOWN, *_STEP, *_CHANGE, *_MOVE, *_JOURNAL),
    f"""
    UPDATE sessions SET {_set((*_STEP, *_CHANGE))}, lease_lock = {_LOCK} WHERE {_IS_KNOWN};
    {_CHECK}
    UPDATE sessions SET {_set(_MOVE)} WHERE new.state IS NOT NULL AND num = new.num;
    DELETE FROM snapshots WHERE new.ended_at IS NOT NULL AND session = new.num;
    UPDATE mailbox SET body = NULL
     WHERE new.ended_at IS NOT NULL AND session = new.num AND body IS NOT NULL;{_ADD_ROW}""",
)
"""More of the row changes. The session may end."""

BEGINNINGS = Shape(
    "beginnings",
    (*_BEGINNING, *_JOURNAL),
    f"""
    SELECT RAISE(ABORT, 'a session with this id was deleted') WHERE EXISTS (SELECT 1 FROM tombstones WHERE id = new.id);
    INSERT INTO sessions ({", ".join(_BEGINNING)}, lease_lock) VALUES ({_new(_BEGINNING)}, {_LOCK});
    INSERT INTO journal (session, first, last, at, later, checksum, body)
         VALUES (last_insert_rowid(), 1, new.position, new.at, new.later, new.checksum, CAST(new.body AS TEXT));""",
)
"""The session is new, and lives."""

SHAPES = (STEPS, CHANGES, BEGINNINGS)


class QuickCommit(msgspec.Struct, frozen=True, gc=False):
    """A commit that can be written like this."""

    shape: Shape
    values: tuple[Any, ...]
    row: KnownRow
    """The row of the session once it is written; that of a new one has no number before."""


def prepare_quick_commits(connection: StoreConnection) -> None:
    """Make a connection, on which no transaction was begun, able to write quick commits."""
    for shape in SHAPES:
        shape.prepare(connection)
    connection.has_shapes = True


def need_transaction(commits: Sequence[QuickCommit]) -> bool:
    """Whether commits take more than one statement, as new sessions do: their numbers have to be looked up."""
    shapes = {commit.shape for commit in commits}
    return len(shapes) > 1 or BEGINNINGS in shapes


def write_quick_commits(connection: StoreConnection, commits: Sequence[QuickCommit]) -> list[KnownRow]:
    """Write commits, and give the rows of their sessions. With `sqlite3.Error`, the transaction is to be undone."""
    for shape in SHAPES:
        if rows := [commit.values for commit in commits if commit.shape is shape]:
            shape.insert(connection, rows)
    begun = [commit.values[0] for commit in commits if commit.shape is BEGINNINGS]
    if not begun:
        return [commit.row for commit in commits]
    numbered = "SELECT id, num FROM sessions WHERE id IN (SELECT value FROM json_each(?))"
    numbers = dict(connection.execute(numbered, (encode(begun).decode(),)).fetchall())
    return [
        msgspec.structs.replace(commit.row, num=numbers[commit.values[0]]) if commit.shape is BEGINNINGS else commit.row
        for commit in commits
    ]
