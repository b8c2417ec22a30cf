"""A journal read a page at a time, so that nobody has to wait for a long one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from holdfast.core.records import Entry
from holdfast.store.errors import CorruptSessionError
from holdfast.store.limits import READ_LIMIT


async def journal_pages(
    read: Callable[[str, int], Awaitable[Sequence[Entry]]], session_id: str, after: int
) -> AsyncIterator[Sequence[Entry]]:
    """All entries after a position, as `read` gives them; `CorruptSessionError` for a session that has none."""
    while True:
        page = await read(session_id, after)
        if not page and not after:
            raise CorruptSessionError(session_id, "its position", "a session has at least one record")
        yield page
        after += len(page)
        if len(page) < READ_LIMIT:
            return
