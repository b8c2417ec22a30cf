"""Many sessions read and folded at once, for going through a store: one statement for all of them.

Going through it checks every session, so each microsecond counts: rows are compared as they lie in the file, and a text
is decoded by SQLite's driver itself.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from operator import itemgetter
from typing import Any

import msgspec

from holdfast.core.errors import HoldfastError
from holdfast.core.limits import MAX_INTEGER, MIN_INTEGER
from holdfast.core.state import Session
from holdfast.core.summary import summarize
from holdfast.store.filters import cursor_of
from holdfast.store.journal_rows import JournalPart, JournalRow, blobs_of, check_parts
from holdfast.store.leases import LeaseState
from holdfast.store.sound_sessions import LOADED_ENTRIES, CheckedPage, Span, fold_plain, fold_sound
from holdfast.store.sqlite import statements as sql

_TOGETHER = 500
"""Sessions of one statement: as many parameters as every version of SQLite takes."""

_LINES_AT_ONCE = 256
"""Rows of journals that are in memory at a time: each may be large."""

_SESSION_ID, _POSITION, _SHARES, _ROW = 0, 1, 2, 3
_OWNER, _LEASE_END, _NUM = 3, 5, -1

JOURNALS = (
    "SELECT s.id, s.position, EXISTS (SELECT 1 FROM shares WHERE session = s.num), "
    f"{sql.ROW_COLUMNS} FROM sessions s JOIN journal j ON j.session = s.num"
    " WHERE s.id IN ({ids}) AND s.position <= ? ORDER BY s.num, j.first"
)


ROWS = f"SELECT {sql.ROW}, num FROM sessions WHERE num BETWEEN ? AND ? ORDER BY num DESC"
NUMBERS = "SELECT num FROM sessions WHERE num < ? ORDER BY num DESC LIMIT ?"
IDS = "SELECT num, id FROM sessions WHERE num BETWEEN ? AND ? ORDER BY num DESC"
NEWEST = (
    "SELECT num FROM (SELECT num, row_number() OVER (ORDER BY num DESC) AS place FROM sessions)"
    " WHERE (place - 1) % ? = 0 ORDER BY num DESC"
)
"""The newest session of each span."""
FORKS = "SELECT DISTINCT session FROM shares WHERE session BETWEEN ? AND ?"
OWN_JOURNALS = (
    f"SELECT s.num, {sql.ROW_COLUMNS} FROM sessions s CROSS JOIN journal j ON j.session = s.num"
    " WHERE s.num BETWEEN ? AND ? AND s.position <= ? ORDER BY s.num, j.first"
)


def spans_of(connection: sqlite3.Connection, sessions: int) -> list[Span]:
    """See `SpannedStore.spans`."""
    try:
        newest = [num for (num,) in connection.execute(NEWEST, (sessions,))]
    except sqlite3.DatabaseError:  # a page is damaged
        return []
    oldest = [num + 1 for num in newest[1:]]
    return [Span(*each) for each in zip(newest, [*oldest, MIN_INTEGER], strict=True)] if newest else []


def checked_page(connection: sqlite3.Connection, before: int | None, limit: int) -> CheckedPage:
    """See `Store.checked`."""
    found = connection.execute(NUMBERS, (MAX_INTEGER if before is None else before, limit + 1))
    numbers = [num for (num,) in found]
    after = cursor_of(numbers[limit - 1]) if len(numbers) > limit > 0 else None
    if not (numbers := numbers[:limit]):
        return CheckedPage([], set(), [], after)
    page = checked_span(connection, Span(numbers[0], numbers[-1]))
    return msgspec.structs.replace(page, next=after)


def checked_span(connection: sqlite3.Connection, span: Span) -> CheckedPage:
    """See `SpannedStore.checked_span`. Where part of it cannot be read, its sessions are looked at one by one."""
    text_factory, connection.text_factory = connection.text_factory, str  # strict, and done in C
    try:
        return _check_rows(connection, span)
    except sqlite3.DatabaseError:  # a page is damaged, or a text is none
        connection.text_factory = text_factory
        found = connection.execute(IDS, (span.oldest, span.newest)).fetchall()
        if len(found) < 2:
            return CheckedPage([], set(), [session_id for _, session_id in found], None)
        pages = [checked_span(connection, Span(num, num)) for num, _ in found]
        return CheckedPage(
            [session for page in pages for session in page.sound],
            {session_id for page in pages for session_id in page.held},
            [session_id for page in pages for session_id in page.doubtful],
            None,
        )
    finally:
        connection.text_factory = text_factory


def _own_lines(connection: sqlite3.Connection, reach: tuple[int, int]) -> Iterator[tuple[Any, ...]]:
    """The journals of sessions, some rows at a time: to go to SQLite and back for each takes a sixth of the check."""
    found = connection.execute(OWN_JOURNALS, (*reach, LOADED_ENTRIES))
    while lines := found.fetchmany(_LINES_AT_ONCE):
        yield from lines


def _check_rows(connection: sqlite3.Connection, span: Span) -> CheckedPage:
    """All of them are folded first, and compared then: to change from one to the other for each takes longer."""
    page = CheckedPage([], set(), [], None)
    reach = span.oldest, span.newest
    listed = {row[_NUM]: row for row in connection.execute(ROWS, reach)}
    forks = {num for (num,) in connection.execute(FORKS, reach)}
    now = sql.judged_now_ms()
    folded: list[tuple[int, Session]] = []
    for num, lines in groupby(_own_lines(connection, reach), key=itemgetter(0)):
        session_id, position, epoch, owner, until = listed[num][:_LEASE_END]
        if type(position) is not int or type(epoch) is not int:
            continue
        if (owner is not None and type(owner) is not str) or (until is not None and type(until) is not int):
            continue
        if num in forks:
            session = _alone(connection, session_id, LOADED_ENTRIES)
        else:
            own = [line[1:] for line in lines]
            session = fold_plain(session_id, own, position)
            if session is None:
                parts = [JournalPart(JournalRow(*each), 1, position, session_id) for each in own]
                session = _folded(connection, session_id, parts, position)
        if session is not None and session.started is not None:
            folded.append((num, session))
    for num, session in reversed(folded):  # the newest first, as they are listed
        row = listed[num]
        if sql.summary_columns(summarize(session)) == row[_LEASE_END:_NUM]:
            del listed[num]
            page.sound.append(session)
            if row[_OWNER] is not None and LeaseState(*row[_POSITION:_LEASE_END]).holder(now) is not None:
                page.held.add(session.id)
    page.doubtful.extend(row[_SESSION_ID] for row in listed.values())
    return page


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
