"""`StoreDispatch`: the dispatcher that needs nothing but the store. Every process hears what others have committed.

The store tells every process of every commit, so that is the nudge; what a notification cannot tell, each process looks
for: `timers` wakes sessions that are due, `takeover` resumes what nobody looks after any more, `patrol` looks after
parents and children that have missed each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeAlias

from holdfast.engine.dispatch import Dispatch
from holdfast.engine.engine import Engine
from holdfast.engine.patrol import Patrol
from holdfast.engine.takeover import Takeover
from holdfast.engine.timers import Timers
from holdfast.engine.upkeep_scope import UpkeepScope
from holdfast.store.patience import pause
from holdfast.store.supervisor import StandingTask

FIRST_LOOK_S = pause(0.1)
"""Seconds before a process looks for what others have left: it opened the store for something, and does that first."""

Loop: TypeAlias = Callable[[Engine], Coroutine[Any, Any, None]]


async def looking(loop: Loop, engine: Engine) -> None:
    """Run a loop that looks for what others have left, after the first moments of a process."""
    await asyncio.sleep(FIRST_LOOK_S)
    await loop(engine)


class StoreDispatch(Dispatch):
    """Hears of work from the store, and looks for it there."""

    def __init__(self, scope: UpkeepScope) -> None:
        self._timers = Timers(scope)
        self._takeover = Takeover(scope)
        self._patrol = Patrol(scope, self._takeover.errands, self._takeover.attend)
        self._tasks: list[StandingTask] = []

    def attach(self, engine: Engine) -> None:
        engine.owner.on_due = self.nudge_at

    def nudge(self, session_id: str, position: int | None = None) -> None:
        """Nothing is left to do: the store has told everybody of the commit or the message."""

    def nudge_at(self, session_id: str, due: int) -> None:
        self._timers.add(due)

    def serve(self, engine: Engine) -> None:
        loops: dict[str, Loop] = {
            "waking what is due": self._timers.run,
            "resuming orphans": partial(looking, self._takeover.run_orphans),
            "releasing leases and looking after children": partial(looking, self._patrol.run),
            "resuming sessions of dead owners": partial(looking, self._takeover.run_lost),
        }
        self._tasks = [engine.owner.supervisor.task(name, partial(loop, engine)) for name, loop in loops.items()]
        for each in self._tasks:
            each.start()

    async def stop(self) -> None:
        ending: list[asyncio.Task[Any]] = [running for task in self._tasks for running in task.cancel()]
        ending += [*self._timers.errands.cancel(), *self._takeover.errands.cancel()]
        await asyncio.gather(*ending, return_exceptions=True)
        self._tasks = []

    def look_soon(self) -> None:
        self._timers.look_again()
        self._takeover.look_soon()
