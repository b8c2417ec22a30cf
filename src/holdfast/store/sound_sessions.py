"""Many sessions read together, for going through a store: those that are sound, and not too long."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from holdfast.core.errors import HoldfastError
from holdfast.core.records import Entry, decode_records
from holdfast.core.state import Session
from holdfast.core.summary import summarize
from holdfast.store.codec import DOLLAR
from holdfast.store.journal_rows import JournalPart, JournalRow, decode_parts, is_sound
from holdfast.store.session_rows import SessionRow

LOADED_ENTRIES = 5_000
"""Entries of the longest session that is loaded together with others: a longer one would keep a thread for long."""


class CheckedPage(msgspec.Struct, frozen=True):
    """Some sessions that were compared with their journals, and the cursor of the next page (None on the last one)."""

    sound: list[Session]
    """Those whose whole journal can be read and folded, and whose row says what it says."""
    held: set[str]
    """Ids of those of them that somebody holds."""
    doubtful: list[str]
    """Ids of the others: something is wrong with them, or they are too long to be read together with others."""
    next: str | None


def is_row_of(row: SessionRow, session: Session) -> bool:
    """Whether a row says what the journal of its session says."""
    return session.started is not None and session.position == row.position and summarize(session) == row.summary


def fold_plain(session_id: str, rows: Iterable[JournalRow], position: int) -> Session | None:
    """The session of a whole journal up to a position, if all its rows are plain: sound, and without packing or blobs.

    None if not: then `check_parts` and `fold_sound` do the same for any journal, in twice the time.
    """
    session = Session(session_id)
    apply, reached = session.apply, 0
    try:
        for row in rows:
            if row.first != reached + 1 or row.size is not None or DOLLAR in row.body or not is_sound(session_id, row):
                return None
            if row.later is None:
                at = row.at
                for record in decode_records(row.body):
                    reached += 1
                    apply(Entry(reached, at, record))
            else:
                for entry in decode_parts(session_id, [JournalPart(row, row.first, row.last, session_id)], {}):
                    reached += 1
                    apply(entry)
            if reached != row.last:
                return None
    except (HoldfastError, msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return session if reached == position else None


def fold_sound(session_id: str, parts: Sequence[JournalPart], blobs: Mapping[str, bytes]) -> Session | None:
    """The session of a whole journal whose parts were checked; None if it cannot be decoded and folded."""
    try:
        return Session.fold(session_id, decode_parts(session_id, parts, blobs))
    except HoldfastError:
        return None
