"""A journal read a page at a time, so that nobody has to wait for a long one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from holdfast.core.records import Entry
from holdfast.store.errors import CorruptSessionError
from holdfast.store.limits import READ_LIMIT


async def journal_pages(
    read: Callable[[str, int, int], Awaitable[Sequence[Entry]]], session_id: str, after: int, until: int | None = None
) -> AsyncIterator[Sequence[Entry]]:
    """All entries after a position, or those up to another, as `read` gives them.

    `CorruptSessionError` for a session that has none.
    """
    while until is None or after < until:
        limit = READ_LIMIT if until is None else min(READ_LIMIT, until - after)
        page = await read(session_id, after, limit)
        if not page and not after:
            raise CorruptSessionError(session_id, "its position", "a session has at least one record")
        yield page
        after += len(page)
        if len(page) < limit:
            return
