"""`Upkeep`: what a process does for the sessions of its store by itself, because time passes or a process has died.

The work is in three modules: `timers` wakes sessions that are due, `takeover` resumes what nobody looks after any more,
`retention` ends idle sessions and deletes old ones. Whatever they find they hand to the engine, and the engine's
commits decide which of several processes that found the same does it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from holdfast.core.errors import HoldfastError
from holdfast.core.limits import DEFAULT_IDLE_TTL_MS
from holdfast.engine.retention import Retention
from holdfast.engine.takeover import Takeover
from holdfast.engine.timers import Timers

if TYPE_CHECKING:
    from holdfast.engine.engine import Engine


class Upkeep:
    """Timers, takeover, expiry and retention. `on` False makes a process that does only what it is asked to.

    With `only`, this process resumes nothing but that session and its children: a process that was given a model or
    tools for one session must not spend them on whatever else waits in the store.
    """

    def __init__(
        self,
        *,
        on: bool = True,
        only: str | None = None,
        idle_ttl_ms: int = DEFAULT_IDLE_TTL_MS,
        keep_ended_ms: int | None = None,
    ) -> None:
        self._on = on
        self.only = only
        self._passed_over: set[str] = set()
        """Sessions that this process cannot resume: their program is missing, they are damaged, or not among `only`."""
        self.timers = Timers(self)
        self.takeover = Takeover(self)
        self.retention = Retention(self, idle_ttl_ms, keep_ended_ms)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, engine: Engine) -> None:
        """Begin, for as long as the engine is open."""
        if self._on:
            loops = (self.timers.run, self.takeover.run_orphans, self.takeover.run_lost, self.retention.run)
            self._tasks = [asyncio.create_task(loop(engine)) for loop in loops]

    async def stop(self) -> None:
        """End what `start` began."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    def look_soon(self) -> None:
        """Something changed that may let sessions run here which could not before."""
        self._passed_over.clear()
        self.timers.look_again()
        self.takeover.look_soon()

    def includes(self, session_id: str) -> bool:
        """Whether a session is among those that this process may resume."""
        return self.only is None or session_id == self.only or session_id.startswith(f"{self.only}.")

    @property
    def passed_over(self) -> int:
        """How many sessions are passed over for now."""
        return len(self._passed_over)

    def forget_passed_over(self) -> None:
        """Try all sessions again."""
        self._passed_over.clear()

    async def attempt(self, session_id: str, act: Callable[[str], Awaitable[bool]]) -> None:
        """Do something about a session. One that cannot run here is passed over for a while."""
        if session_id in self._passed_over:
            return
        try:
            runs_here = self.includes(session_id) and await act(session_id)
        except HoldfastError:
            runs_here = False
        if not runs_here:
            self._passed_over.add(session_id)
