"""Sessions that are loaded together with others, for going through a store: those that are sound, and not too long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.core.errors import HoldfastError
from holdfast.core.state import Session
from holdfast.store.journal_rows import JournalPart, decode_parts

LOADED_ENTRIES = 5_000
"""Entries of the longest session that is loaded together with others: a longer one would keep a thread for long."""


def fold_sound(session_id: str, parts: Sequence[JournalPart], blobs: Mapping[str, bytes]) -> Session | None:
    """The session of a whole journal whose parts were checked; None if it cannot be decoded and folded."""
    try:
        return Session.fold(session_id, decode_parts(session_id, parts, blobs))
    except HoldfastError:
        return None
