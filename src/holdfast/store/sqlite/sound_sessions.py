"""Many sessions read and folded at once, for going through a store: one statement for all of them.

Going through it checks every session, so each microsecond counts: rows are compared as they lie in the file, and a text
is decoded by SQLite's driver itself.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import groupby, islice
from operator import itemgetter
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.limits import MAX_INTEGER
from holdfast.core.state import Session
from holdfast.core.summary import summarize
from holdfast.store.filters import cursor_of
from holdfast.store.journal_rows import JournalPart, JournalRow, blobs_of, check_parts
from holdfast.store.leases import LeaseState
from holdfast.store.sound_sessions import LOADED_ENTRIES, CheckedPage, fold_plain, fold_sound
from holdfast.store.sqlite import statements as sql

_TOGETHER = 500
"""Sessions of one statement: as many parameters as every version of SQLite takes."""

_SESSION_ID, _POSITION, _SHARES, _ROW = 0, 1, 2, 3
_LEASE_END, _NUM = 5, -1

JOURNALS = (
    "SELECT s.id, s.position, EXISTS (SELECT 1 FROM shares WHERE session = s.num), "
    f"{sql.ROW_COLUMNS} FROM sessions s JOIN journal j ON j.session = s.num"
    " WHERE s.id IN ({ids}) AND s.position <= ? ORDER BY s.num, j.first"
)


ROWS = f"SELECT {sql.ROW}, num FROM sessions WHERE num < ? ORDER BY num DESC LIMIT ?"
FORKS = "SELECT DISTINCT session FROM shares WHERE session BETWEEN ? AND ?"
OWN_JOURNALS = (
    f"SELECT s.num, {sql.ROW_COLUMNS} FROM sessions s CROSS JOIN journal j ON j.session = s.num"
    " WHERE s.num BETWEEN ? AND ? AND s.position <= ? ORDER BY s.num, j.first"
)


def checked_page(connection: sqlite3.Connection, before: int | None, limit: int) -> CheckedPage | None:
    """See `Store.checked`; None if part of what has to be read cannot be."""
    text_factory, connection.text_factory = connection.text_factory, str  # strict, and done in C
    try:
        rows = connection.execute(ROWS, (MAX_INTEGER if before is None else before, limit + 1)).fetchall()
        page = CheckedPage([], set(), [], cursor_of(rows[limit - 1][_NUM]) if len(rows) > limit > 0 else None)
        if rows := rows[:limit]:
            _check_rows(connection, rows, page)
        return page
    except sqlite3.DatabaseError:  # a page is damaged, or a text is none
        return None
    finally:
        connection.text_factory = text_factory


def _check_rows(connection: sqlite3.Connection, rows: Sequence[tuple[Any, ...]], page: CheckedPage) -> None:
    listed = {row[_NUM]: row for row in rows}
    reach = min(listed), max(listed)
    forks = {num for (num,) in connection.execute(FORKS, reach)}
    now = sql.judged_now_ms()
    sound: set[int] = set()
    for num, lines in groupby(connection.execute(OWN_JOURNALS, (*reach, LOADED_ENTRIES)), key=itemgetter(0)):
        row = listed[num]
        session_id, position, epoch, owner, until = row[:_LEASE_END]
        if type(position) is not int or type(epoch) is not int:
            continue
        if not isinstance(owner, str | None) or not isinstance(until, int | None):
            continue
        if num in forks:
            session = _alone(connection, session_id, LOADED_ENTRIES)
        else:
            own = [JournalRow(*line[1:]) for line in lines]
            session = fold_plain(session_id, own, position)
            if session is None:
                parts = [JournalPart(each, 1, position, session_id) for each in own]
                session = _folded(connection, session_id, parts, position)
        if session is None or session.started is None:
            continue
        if sql.summary_columns(summarize(session)) == row[_LEASE_END:_NUM]:
            page.sound.append(session)
            sound.add(num)
            if owner is not None and LeaseState(position, epoch, owner, until).holder(now) is not None:
                page.held.add(session_id)
    page.sound.reverse()  # the newest first, as they are listed
    page.doubtful.extend(row[_SESSION_ID] for num, row in listed.items() if num not in sound)


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
