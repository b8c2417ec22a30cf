"""Many sessions read together, for going through a store: those that are sound, and not too long."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, Protocol, runtime_checkable

import msgspec

from holdfast.core.errors import HoldfastError
from holdfast.core.records import Entry, decode_records
from holdfast.core.state import Session
from holdfast.core.summary import summarize
from holdfast.store.codec import DOLLAR
from holdfast.store.journal_rows import JournalPart, are_sound, decode_parts, times_in
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


class Span(msgspec.Struct, frozen=True):
    """Sessions that are next to each other in a listing, by their numbers in the store."""

    newest: int
    oldest: int


@runtime_checkable
class SpannedStore(Protocol):
    """A store whose sessions several processes can check at the same time, each some spans of them."""

    async def spans(self, sessions: int) -> list[Span]:
        """All sessions that there are now, in spans of so many, the newest first; none if they cannot be listed.

        A session that is deleted later is missing from its span, and a new one is in none.
        """
        ...

    async def checked_span(self, span: Span) -> CheckedPage:
        """The sessions of a span, as `Store.checked` gives a page of them."""
        ...


def is_row_of(row: SessionRow, session: Session) -> bool:
    """Whether a row says what the journal of its session says."""
    return session.started is not None and session.position == row.position and summarize(session) == row.summary


def fold_plain(session_id: str, rows: Iterable[tuple[Any, ...]], position: int) -> Session | None:
    """The session of a whole journal up to a position, if all its rows are plain: sound, and without packing or blobs.

    The rows are the columns of `JournalRow`. None if they are not plain: then `check_parts` and `fold_sound` do the
    same for any journal, in twice the time.
    """
    session = Session(session_id)
    apply, reached = session.apply, 0
    try:
        for columns in rows:
            first, last, at, later, _, body, size = columns
            if first != reached + 1 or size is not None or DOLLAR in body or not are_sound(session_id, columns):
                return None
            records = decode_records(body)
            if len(records) != last - reached:
                return None
            for record, written in zip(records, repeat(at) if later is None else times_in(columns), strict=False):
                reached += 1
                apply(Entry(reached, written, record))
    except (HoldfastError, msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return session if reached == position else None


def fold_sound(session_id: str, parts: Sequence[JournalPart], blobs: Mapping[str, bytes]) -> Session | None:
    """The session of a whole journal whose parts were checked; None if it cannot be decoded and folded."""
    try:
        return Session.fold(session_id, decode_parts(session_id, parts, blobs))
    except HoldfastError:
        return None
