"""A session's journal as a host reads it: a page at a time, bounded in entries and in bytes."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core.records import Entry
from holdfast.engine.holdfast import Holdfast
from holdfast.serve.mcp.tools import Object

PAGE_ENTRIES = 100
"""Entries on a page, unless it is said otherwise."""

MAX_PAGE_ENTRIES = 1_000

MAX_PAGE_BYTES = 256 * 1024
"""Bytes of JSON after which a page ends: a large part of what a model can read at once. It has one entry at least."""

_AT_ONCE = 20
"""Entries read from the store at once: each may be as large as a value can be."""


async def journal_page(
    holdfast: Holdfast, session_id: str, after: int = 0, limit: int = PAGE_ENTRIES, *, sources: bool = True
) -> Object:
    """The entries after a position; `next` is the position to continue from, or null at the end.

    Without `sources`, the code of the program is left out of the first entry: it may be most of the journal.
    """
    reach = await holdfast.store.position(session_id)
    entries: list[Object] = []
    size, at = 0, after
    while len(entries) < limit and size < MAX_PAGE_BYTES:
        read = await holdfast.store.read(session_id, at, min(_AT_ONCE, limit - len(entries)))
        for entry in read:
            if size >= MAX_PAGE_BYTES:
                break
            shown = _shown(entry, sources)
            size += len(msgspec.json.encode(shown))
            entries.append(shown)
            at = entry.position
        if not read:
            break
    return {"session_id": session_id, "entries": entries, "next": at if at < reach else None}


def _shown(entry: Entry, sources: bool) -> Object:
    shown: dict[str, Any] = msgspec.to_builtins(entry)
    if not sources and "program" in shown["record"]:
        shown["record"]["program"].pop("source", None)
    return shown
