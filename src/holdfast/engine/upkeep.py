"""`Upkeep`: what a process does for the sessions of its store by itself, because time passes or a process has died.

The work is in five modules: `timers` wakes sessions that are due, `takeover` resumes what nobody looks after any more,
`patrol` looks after parents and children that have missed each other, `retention` ends idle sessions and deletes old
ones, `presence` says that this process is here. Whatever they find they
hand to the engine, and the engine's commits decide which of several processes that found the same does it. Each is a
standing task: an error that nobody foresaw is logged, and it goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeAlias

from holdfast.engine.engine import Engine
from holdfast.engine.patrol import Patrol
from holdfast.engine.presence import Presence
from holdfast.engine.retention import Retention
from holdfast.engine.takeover import Takeover
from holdfast.engine.timers import Timers
from holdfast.engine.upkeep_scope import UpkeepScope
from holdfast.store.patience import pause
from holdfast.store.supervisor import StandingTask

FIRST_LOOK_S = pause(0.1)
"""Seconds before a process looks for what others have left: it opened the store for something, and does that first."""

AGREE_S = 60.0
"""Seconds between looks at the clock of the store."""


Loop: TypeAlias = Callable[[Engine], Coroutine[Any, Any, None]]


async def _looking(loop: Loop, engine: Engine) -> None:
    await asyncio.sleep(FIRST_LOOK_S)
    await loop(engine)


async def _agree_on_time(engine: Engine) -> None:
    """Compare the clocks now and then, until cancelled; at once over if the store has none of its own."""
    while await engine.owner.agree_on_time():  # noqa: ASYNC110 - nothing tells when clocks differ
        await asyncio.sleep(AGREE_S)


class Upkeep:
    """Timers, takeover, expiry and retention. `on` False makes a process that does only what it is asked to.

    Nothing expires by itself: a session waits for people, hosts and tools for as long as it takes, unless whoever asks
    sets a deadline. An operator who wants otherwise sets `idle_ttl_ms`: strategies, and turns of agents, that nobody
    has touched for as long are then ended. Ended sessions are kept, or deleted after `keep_ended_ms`.

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
    ) -> None:
        self._on = on
        self._scope = UpkeepScope(only)
        self._timers = Timers(self._scope)
        self._takeover = Takeover(self._scope)
        self._patrol = Patrol(self._scope, self._takeover.errands, self._takeover.attend)
        self.retention = Retention(self._scope, idle_ttl_ms, keep_ended_ms)
        self._presence = Presence()
        self._tasks: list[StandingTask] = []

    def start(self, engine: Engine) -> None:
        """Begin, for as long as the engine is open."""
        engine.owner.on_due = self._timers.add
        if self._on:
            loops: dict[str, Loop] = {
                "waking what is due": self._timers.run,
                "resuming orphans": partial(_looking, self._takeover.run_orphans),
                "releasing leases and looking after children": partial(_looking, self._patrol.run),
                "resuming sessions of dead owners": partial(_looking, self._takeover.run_lost),
                "ending and deleting what is too old": partial(_looking, self.retention.run),
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
        ending += [*self._timers.errands.cancel(), *self._takeover.errands.cancel()]
        await asyncio.gather(*ending, return_exceptions=True)
        self._tasks = []

    def look_soon(self) -> None:
        """Something changed that may let sessions run here which could not before."""
        self._scope.forget_passed_over()
        self._timers.look_again()
        self._takeover.look_soon()
