"""`Upkeep`: what a process does for the sessions of its store by itself, because time passes or a process has died.

A dispatcher (`dispatch`) brings it the sessions that have something to do; `retention` ends idle sessions and deletes
old ones, `presence` says that this process is here. Whatever they find they hand to the engine, whose commits decide
which of several processes that found the same does it. Each is a standing task: an error that nobody foresaw is logged,
and it goes on.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from holdfast.core.errors import InvalidValueError
from holdfast.engine.dispatch import Dispatch
from holdfast.engine.engine import Engine
from holdfast.engine.presence import Presence
from holdfast.engine.retention import Retention
from holdfast.engine.store_dispatch import Loop, StoreDispatch, looking
from holdfast.engine.upkeep_scope import UpkeepScope
from holdfast.store.supervisor import StandingTask

AGREE_S = 60.0
"""Seconds between looks at the clock of the store."""


async def _agree_on_time(engine: Engine) -> None:
    """Compare the clocks now and then, until cancelled; at once over if the store has none of its own."""
    while await engine.owner.agree_on_time():  # noqa: ASYNC110 - nothing tells when clocks differ
        await asyncio.sleep(AGREE_S)


class Upkeep:
    """Timers, takeover, expiry and retention. `on` False makes a process that does only what it is asked to.

    Nothing expires by itself: a session waits for people, hosts and tools for as long as it takes, unless whoever asks
    sets a deadline. An operator who wants otherwise sets `idle_ttl_ms`: strategies, and turns of agents, that nobody
    has touched for as long are then ended. Ended sessions are kept, or deleted after `keep_ended_ms`, and sooner, the
    longest ended first, if the store would otherwise take more than `max_bytes`.

    With `only`, this process resumes nothing but that session and its children: a process that was given a model or
    tools for one session must not spend them on whatever else waits in the store.
    """

    def __init__(
        self,
        *,
        on: bool = True,
        only: str | None = None,
        idle_ttl_ms: int | None = None,
        keep_ended_ms: int | None = None,
        max_bytes: int | None = None,
    ) -> None:
        self._on = on
        self._scope = UpkeepScope(only)
        self.dispatch: Dispatch = StoreDispatch(self._scope)
        """What brings this process the sessions that have something to do, and takes them elsewhere."""
        self.retention = Retention(self._scope, idle_ttl_ms, keep_ended_ms, max_bytes)
        self._presence = Presence()
        self._tasks: list[StandingTask] = []

    @property
    def is_alone(self) -> bool:
        """Whether this process looks after one session only."""
        return self._scope.only is not None

    def use(self, dispatch: Dispatch) -> None:
        """Let another dispatcher bring work to this process, and take it elsewhere."""
        if self._scope.only is not None:
            why = f"this process resumes nothing but session '{self._scope.only}', and needs nobody to bring it work"
            raise InvalidValueError("dispatch", why)
        self.dispatch = dispatch

    def start(self, engine: Engine) -> None:
        """Begin, for as long as the engine is open."""
        self.dispatch.attach(engine)
        if self._on:
            self.dispatch.serve(engine)
            loops: dict[str, Loop] = {
                "ending and deleting what is too old": partial(looking, self.retention.run),
                "agreeing on the time with the store": _agree_on_time,
                "reading the limits of the fleet": lambda engine: engine.owner.permits.run(),
            }
            if self._scope.only is None:
                loops["saying that this process is here"] = self._presence.run
            task = engine.owner.supervisor.task
            self._tasks = [task(name, partial(loop, engine)) for name, loop in loops.items()]
            for each in self._tasks:
                each.start()

    async def stop(self) -> None:
        """End what `start` began."""
        ending: list[asyncio.Task[Any]] = [running for task in self._tasks for running in task.cancel()]
        await asyncio.gather(*ending, self.dispatch.stop(), return_exceptions=True)
        self._tasks = []

    def look_soon(self) -> None:
        """Something changed that may let sessions run here which could not before."""
        self._scope.forget_passed_over()
        self.dispatch.look_soon()
