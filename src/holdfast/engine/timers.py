"""Timers: sessions whose timers fire, whose queries lapse, or whose program kind has something due, are woken.

Times set by this process are known here and met at once. Those set elsewhere are found in the store, whenever another
process has changed something.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator, Sequence

from holdfast.engine.engine import Engine
from holdfast.engine.errands import Errands
from holdfast.engine.upkeep_scope import UpkeepScope
from holdfast.store.patience import pause
from holdfast.store.watch import Watch

LOOK_MS = pause(10_000)
"""Milliseconds between looks for timers that other processes have set, if nothing is heard of them."""

QUIET_MS = 10
"""Milliseconds between two looks, at least."""

AGAIN_MS = 500
"""Milliseconds after which a look follows on one at which the store could not be reached for some session."""

LOOK_SHARE = 4
"""After a look, this many times as long as it took passes before the next."""

LOOK_REST_MS = 1_000
"""Milliseconds that pass after a look at the most: one that took long has waited for the store, not worked."""

FIRST_BATCH = 10
"""Sessions that are asked for first, the next that will be due among them: mostly, hardly any is due already."""

BATCH = 100
"""Sessions that are asked for at a time after that."""

RECENT_MS = 60_000
"""Milliseconds for which a session that is due is looked at whenever anything is. After that it is nobody's here, and
looked at every `UNDRAINED_MS`."""

FAR = 2**62
"""Later than any time (unix ms)."""

MOST_TIMERS = 10_000
"""Due times kept in memory; those past that are found by looking."""

UNDRAINED_MS = 60_000
"""Milliseconds for which a session that waits for a worker is not woken again."""


class Timers:
    """Wakes what is due."""

    def __init__(self, scope: UpkeepScope) -> None:
        self._scope = scope
        self._due: list[int] = []
        self._known: set[int] = set()
        self._left_to_workers: set[str] = set()
        """Sessions in which something is due that only a worker takes up, and there is none here now."""
        self._next_reset = 0
        self._is_unsure = False
        """Whether some session could not be woken at the last look: the store was away, or somebody holds it up."""
        self._changes: Watch | None = None
        self.errands = Errands()

    def add(self, due: int) -> None:
        """Something is due then (unix ms)."""
        if due in self._known or len(self._known) >= MOST_TIMERS:
            return
        self._known.add(due)
        heapq.heappush(self._due, due)
        if self._due[0] == due:
            self._wake()

    def look_again(self) -> None:
        """Look at the store at once, also at sessions that were left to workers."""
        self._left_to_workers.clear()
        self._next_reset = 0
        self._wake()

    def _wake(self) -> None:
        if self._changes is not None:
            self._changes.notify()

    async def run(self, engine: Engine) -> None:
        """Wake what is due, until cancelled."""
        now, monotonic = engine.owner.now, engine.owner.clock.monotonic
        with engine.owner.store.watch_others() as self._changes:
            while True:
                began, at = monotonic(), now()
                await self._look(engine, at)
                while self._due and self._due[0] <= at:
                    self._known.discard(heapq.heappop(self._due))
                ended = monotonic()
                rested_at = ended + min(LOOK_SHARE * (ended - began), LOOK_REST_MS / 1000)
                most = AGAIN_MS if self._is_unsure else LOOK_MS
                patience = min(most, max(1, self._due[0] - now())) if self._due else most
                if await self._changes.changed(timeout=patience / 1000):
                    rest_ms = max(QUIET_MS, 1000 * (rested_at - monotonic()))
                    if self._due:  # what is known to be due is not put off, however long the look before took
                        rest_ms = min(rest_ms, max(1, self._due[0] - now()))
                    await asyncio.sleep(rest_ms / 1000)

    async def _look(self, engine: Engine, now: int) -> None:
        is_full = now >= self._next_reset
        if is_full:
            self._next_reset = now + UNDRAINED_MS
            self._left_to_workers.clear()
        self._is_unsure = False
        async for page in self._pages(engine, -1 if is_full else now - RECENT_MS):
            due = [session_id for session_id, due in page if due <= now and session_id not in self._left_to_workers]
            await self._wake_all(due, engine)
            if later := [due for _, due in page if due > now]:
                self.add(later[0])  # another process may have set it
                return

    async def _wake_all(self, session_ids: Sequence[str], engine: Engine) -> None:
        async def wake(session_id: str) -> bool:
            is_done = await self._scope.attempt(session_id, engine.wake)
            if engine.waits_for_worker(session_id):
                self._left_to_workers.add(session_id)
            return is_done

        self._is_unsure |= bool(await self.errands.run(session_ids, wake))

    @staticmethod
    async def _pages(engine: Engine, after: int) -> AsyncIterator[list[tuple[str, int]]]:
        """Sessions and when they are due, if that is later than a time, the earliest first, a page at a time."""
        store, services = engine.owner.store, engine.owner.offers.services
        given: set[str] = set()
        limit = FIRST_BATCH
        while True:
            page = await store.due(FAR, limit, services=services, after=after)
            yield [each for each in page if each[0] not in given]
            if len(page) < limit:
                return
            given = {session_id for session_id, _ in page}
            limit = BATCH if page[0][1] < page[-1][1] else max(BATCH, 2 * limit)  # all at the same time: ask for more
            after = page[-1][1] - 1
