"""`Errands`: what the upkeep does for many sessions, some at a time, so that none waits long for one that is held up.

Somebody may lock a session's row, or its program may compute for long. Whatever takes longer than a moment goes on
beside the others, and is not begun a second time meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

log = logging.getLogger("holdfast.engine")

AT_ONCE = 16
"""Errands that are begun at a time: there may be hundreds, and whoever calls has work to do, too."""

LATE_S = 0.5
"""Seconds after which one that is held up is left to itself, and the next one gets its place."""

MOST = 1_000
"""Errands that may be under way, with those that are held up. Past that, sessions have to wait."""


class Errands:
    """At most one errand for each session. Belongs to one event loop."""

    def __init__(self) -> None:
        self._under_way: dict[str, asyncio.Task[bool]] = {}

    async def run(self, session_ids: Iterable[str], errand: Callable[[str], Awaitable[bool]]) -> set[str]:
        """Do something for each of these sessions; gives those that have to be looked at again.

        The errand has said so with False, it was not begun because one is under way, or it is not over yet.
        """
        places = asyncio.Semaphore(AT_ONCE)

        async def is_done(session_id: str) -> bool:
            async with places:
                if session_id in self._under_way or len(self._under_way) >= MOST:
                    return False
                task = self._begin(session_id, errand)
                await asyncio.wait([task], timeout=LATE_S)
                return task.done() and not task.cancelled() and task.exception() is None and task.result()

        sessions = list(session_ids)
        done = await asyncio.gather(*map(is_done, sessions))
        return {session_id for session_id, is_over in zip(sessions, done, strict=True) if not is_over}

    def cancel(self) -> list[asyncio.Task[bool]]:
        """Let all of them end; gives back those that are still running."""
        ending = list(self._under_way.values())
        for task in ending:
            task.cancel()
        return ending

    def _begin(self, session_id: str, errand: Callable[[str], Awaitable[bool]]) -> asyncio.Task[bool]:
        async def run() -> bool:
            return await errand(session_id)

        task = self._under_way[session_id] = asyncio.create_task(run())
        task.add_done_callback(partial(self._ended, session_id))
        return task

    def _ended(self, session_id: str, task: asyncio.Task[bool]) -> None:
        del self._under_way[session_id]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("session '%s' could not be looked after", session_id, exc_info=error)
