"""Counts over sessions, kept for a moment: every open page of a console asks for the same ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from holdfast.serve.http.limits import COUNT_CACHE_S
from holdfast.store.contract import Store
from holdfast.store.limits import READ_LIMIT
from holdfast.store.overview import SessionTotals, Trait
from holdfast.store.session_rows import SessionFilter

MAX_KEPT = 256
"""Sums that are kept at a time."""


class Counts:
    """The sums that were asked for in the last two seconds."""

    def __init__(self, store: Store, monotonic: Callable[[], float]) -> None:
        self._store = store
        self._monotonic = monotonic
        self._kept: dict[bytes, tuple[float, SessionTotals]] = {}

    async def totals(self, where: SessionFilter, by: Sequence[Trait], limit: int = READ_LIMIT) -> SessionTotals:
        """See `Store.totals`; as they are now, or were two seconds ago."""
        key = msgspec.json.encode([where, list(by), limit])
        now = self._monotonic()
        kept = self._kept.get(key)
        if kept is not None and now - kept[0] < COUNT_CACHE_S:
            return kept[1]
        totals = await self._store.totals(where, by, limit=limit)
        self._kept = {each: value for each, value in self._kept.items() if now - value[0] < COUNT_CACHE_S}
        if len(self._kept) < MAX_KEPT:
            self._kept[key] = (now, totals)
        return totals
