"""What happens in all sessions, looked for once for all streams of a server: rows that change, and questions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

import msgspec

from holdfast.serve.http.endpoint import StreamEvent
from holdfast.store.contract import Store
from holdfast.store.session_rows import SessionFilter, SessionRow
from holdfast.strategies.evaluation.programs import AWAITS_ORDERS

QUIET_S = 0.25
"""Seconds between two looks: what changes in between is told once."""

MANY_ROWS = 200
"""Sessions told of after one look; if more have changed, clients are told to load their lists anew."""

HELD_LOOKS = 20
"""Looks that a slow reader may be behind by; then it is told to load its list anew."""


class _Look:
    """What one look at the store has found."""

    def __init__(self, rows: list[SessionRow] | None, deleted: list[str]) -> None:
        self.rows = rows
        """None if there were too many."""
        self.deleted = deleted


class SessionFeed:
    """Looks at a store when it has changed, while anybody listens, and tells all who do."""

    def __init__(self, store: Store, now: Callable[[], int]) -> None:
        self._store = store
        self._now = now
        self._listeners: set[asyncio.Queue[_Look]] = set()
        self._looking: asyncio.Task[None] | None = None

    def tell_deleted(self, session_id: str) -> None:
        """A session was deleted through this server."""
        self._tell(_Look([], [session_id]))

    async def events(self, prefix: str) -> AsyncGenerator[StreamEvent, None]:
        """What happens from now on, to sessions whose ids begin with a prefix."""
        looks: asyncio.Queue[_Look] = asyncio.Queue(HELD_LOOKS)
        self._listeners.add(looks)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        asks = await self._asks(prefix)
        yield _questions(asks)
        try:
            while True:
                look = await looks.get()
                if look.rows is None or looks.full():
                    yield StreamEvent("many", {"type": "many"})
                else:
                    for row in look.rows:
                        if row.session_id.startswith(prefix):
                            yield StreamEvent("session", {"type": "session", **msgspec.to_builtins(row)})
                for session_id in look.deleted:
                    if session_id.startswith(prefix):
                        yield StreamEvent("deleted", {"type": "deleted", "session_id": session_id})
                now = await self._asks(prefix)
                if now != asks:
                    asks = now
                    yield _questions(asks)
        finally:
            self._listeners.discard(looks)
            if not self._listeners and self._looking is not None:
                self._looking.cancel()
                self._looking = None

    def _tell(self, look: _Look) -> None:
        for looks in self._listeners:
            if not looks.full():  # a full one is told to load anew when it is read
                looks.put_nowait(look)

    async def _asks(self, prefix: str) -> int:
        where = SessionFilter(asking=True, id_prefix=prefix or None, without_labels=[AWAITS_ORDERS])
        totals = await self._store.totals(where, by=())
        return totals.rows[0].asks if totals.rows else 0

    async def _look(self) -> None:
        """Look at what has changed, the latest first, and tell each row once."""
        since = self._now()
        known: dict[str, tuple[int, int]] = {}
        with self._store.watch() as changes:
            while True:
                await changes.changed()
                page = await self._store.sessions(SessionFilter(updated_after=since - 1), limit=MANY_ROWS + 1)
                marks = {row.session_id: (row.position, row.epoch) for row in page.rows}
                rows = [row for row in page.rows if known.get(row.session_id) != marks[row.session_id]]
                self._tell(_Look(None if len(rows) > MANY_ROWS else rows, []))
                since = max([since, *(row.summary.updated_at for row in page.rows)])
                known = marks
                await asyncio.sleep(QUIET_S)


def _questions(asks: int) -> StreamEvent:
    return StreamEvent("questions", {"type": "questions", "asks": asks})
