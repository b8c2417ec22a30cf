"""Timers: sessions whose timers fire, whose queries lapse, or whose program kind has something due, are woken.

Times set by this process are known here and met at once; those set elsewhere are found by looking at the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq

from holdfast.core.errors import HoldfastError
from holdfast.engine.engine import Engine
from holdfast.engine.upkeep_scope import UpkeepScope

LOOK_MS = 1_000
"""Milliseconds between looks for timers that other processes have set."""

BATCH = 100
"""Due sessions woken in one look: the rest is found by the next."""

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
        self._woken = asyncio.Event()

    def add(self, due: int) -> None:
        """Something is due then (unix ms)."""
        if due in self._known or len(self._known) >= MOST_TIMERS:
            return
        self._known.add(due)
        heapq.heappush(self._due, due)
        if self._due[0] == due:
            self._woken.set()

    def look_again(self) -> None:
        """Look at the store at once, also at sessions that were left to workers."""
        self._left_to_workers.clear()
        self._woken.set()

    async def run(self, engine: Engine) -> None:
        """Wake what is due, until cancelled."""
        while True:
            now = engine.owner.now()
            try:
                await self._look(engine, now)
            except HoldfastError as error:
                engine.owner.report("(all)", error)
            while self._due and self._due[0] <= now:
                self._known.discard(heapq.heappop(self._due))
            patience = min(LOOK_MS, max(1, self._due[0] - engine.owner.now())) if self._due else LOOK_MS
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience / 1000):
                    await self._woken.wait()
            self._woken.clear()

    async def _look(self, engine: Engine, now: int) -> None:
        if now >= self._next_reset:
            self._next_reset = now + UNDRAINED_MS
            self._left_to_workers.clear()
        limit = BATCH + self._scope.passed_over + len(self._left_to_workers)
        for session_id, _ in await engine.owner.store.due(now, limit, services=engine.owner.offers.services):
            if session_id not in self._left_to_workers:
                await self._scope.attempt(session_id, engine.wake)
                if engine.waits_for_worker(session_id):
                    self._left_to_workers.add(session_id)
