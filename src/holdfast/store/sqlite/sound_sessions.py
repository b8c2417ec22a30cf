"""Many sessions read and folded at once, for going through a store: one statement for all of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import groupby, islice
from operator import itemgetter

from holdfast.core.errors import HoldfastError
from holdfast.core.state import Session
from holdfast.store.journal_rows import JournalPart, JournalRow, blobs_of, check_parts
from holdfast.store.sound_sessions import fold_sound
from holdfast.store.sqlite import statements as sql

_TOGETHER = 500
"""Sessions of one statement: as many parameters as every version of SQLite takes."""

_SESSION_ID, _POSITION, _SHARES, _ROW = 0, 1, 2, 3

JOURNALS = (
    "SELECT s.id, s.position, EXISTS (SELECT 1 FROM shares WHERE session = s.num), "
    f"{sql.ROW_COLUMNS} FROM sessions s JOIN journal j ON j.session = s.num"
    " WHERE s.id IN ({ids}) AND s.position <= ? ORDER BY s.num, j.first"
)


def load_sound(connection: sqlite3.Connection, session_ids: Sequence[str], longest: int) -> list[Session]:
    """See `Store.load_sound`."""
    found: list[Session | None] = []
    waiting = iter(session_ids)
    while some := list(islice(waiting, _TOGETHER)):
        try:
            found += _together(connection, some, longest)
        except sqlite3.DatabaseError:  # one of them lies where the file is damaged
            found += [_alone(connection, session_id, longest) for session_id in some]
    return [session for session in found if session is not None]


def _together(connection: sqlite3.Connection, session_ids: Sequence[str], longest: int) -> list[Session | None]:
    marks = ", ".join("?" * len(session_ids))
    rows = connection.execute(JOURNALS.format(ids=marks), (*session_ids, longest))
    found: list[Session | None] = []
    for session_id, lines in groupby(rows, key=itemgetter(_SESSION_ID)):
        own = list(lines)
        position, is_sharing = own[0][_POSITION], own[0][_SHARES]
        if is_sharing or type(position) is not int:  # part of its journal belongs to another session, or it is damaged
            found.append(_alone(connection, session_id, longest))
        else:
            parts = [JournalPart(JournalRow(*row[_ROW:]), 1, position, session_id) for row in own]
            found.append(_folded(connection, session_id, parts, position))
    return found


def _alone(connection: sqlite3.Connection, session_id: str, longest: int) -> Session | None:
    try:
        num, head = sql.find(connection, session_id)
        if head.position > longest:
            return None
        parts = sql.read_journal(connection, session_id, num, 0, head.position)
    except (HoldfastError, sqlite3.DatabaseError):
        return None
    return _folded(connection, session_id, parts, head.position)


def _folded(
    connection: sqlite3.Connection, session_id: str, parts: Sequence[JournalPart], position: int
) -> Session | None:
    try:
        sound = check_parts(session_id, parts, 0, position)
        blobs = sql.read_blobs(connection, blobs_of(sound))
    except (HoldfastError, sqlite3.DatabaseError):
        return None
    return fold_sound(session_id, sound, blobs)
