"""`Supervisor`: keeps the standing tasks of a process at work, whatever ends them.

A standing task does something for as long as its store or engine is open: it listens, renews, wakes, takes over. If it
ends by an error, or because somebody cancels it, that is logged, and it is begun again after a pause that grows. So a
fault that nobody foresaw costs a moment, and not the liveness of the process; and its health can be asked for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

import msgspec

from holdfast.core.errors import HoldfastError

log = logging.getLogger("holdfast.standing")

FIRST_PAUSE_S = 0.1
"""Seconds before a task that has failed is begun again; doubled for each failure in a row."""

LONGEST_PAUSE_S = 2.0
"""Seconds between two failures at most: soon enough for a person, seldom enough for a server in trouble."""

STEADY_S = 10.0
"""Seconds after which a task that was begun again counts as healthy, and its next failure as the first."""

STOP_S = 2.0
"""Seconds between two requests to stop: a library may lose one that comes at the wrong moment."""

Run: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


class TaskTrouble(msgspec.Struct, frozen=True):
    """A standing task that failed lately."""

    name: str
    failures: int
    """In a row."""
    error: str
    """Why it failed last."""


class StandingTask:
    """One task. It is over when it returns; before that, only `stop` ends it."""

    def __init__(self, supervisor: Supervisor, name: str, run: Run) -> None:
        self.name = name
        self._supervisor = supervisor
        self._run = run
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._over = asyncio.Event()
        self._began = 0.0
        self._failures = 0
        self._error = ""

    @property
    def is_started(self) -> bool:
        """Whether it is at work, or about to be again."""
        return self._task is not None or self._timer is not None

    @property
    def is_current(self) -> bool:
        """Whether this is asked by the task itself."""
        return self._task is not None and self._task is asyncio.current_task()

    @property
    def trouble(self) -> TaskTrouble | None:
        """Why it is not healthy; None if it is."""
        if not self._failures or (self._task is not None and self._has_been_steady()):
            return None
        return TaskTrouble(self.name, self._failures, self._error)

    def start(self) -> None:
        """Begin, unless that is done."""
        if not self.is_started:
            self._over.clear()
            self._failures = 0
            self._supervisor.add(self)
            self._begin()

    async def until_over(self) -> None:
        """Wait until it has returned, or was stopped."""
        await self._over.wait()

    def cancel(self) -> list[asyncio.Task[None]]:
        """Let it end, and do not begin it again; gives back what is still running. Not the task that asks for it."""
        task, self._task = self._task, None
        self._end()
        if task is None or task is asyncio.current_task():
            return []
        task.cancel()
        return [task]

    async def stop(self) -> None:
        """Let it end, and wait for that."""
        for task in self.cancel():
            while not task.done():
                await asyncio.wait([task], timeout=STOP_S)
                task.cancel()

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer, self._began = None, loop.time()
        self._task = loop.create_task(self._run_to_end(), name=f"holdfast: {self.name}")
        self._task.add_done_callback(self._ended)

    async def _run_to_end(self) -> None:
        await self._run()
        if self.is_current:  # from this moment on it can be started again
            self._task = None
            self._end()

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._supervisor.remove(self)
        self._over.set()

    def _has_been_steady(self) -> bool:
        return asyncio.get_running_loop().time() - self._began >= STEADY_S

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = asyncio.CancelledError("it was cancelled") if task.cancelled() else task.exception()
        if task is not self._task:
            return  # it was stopped
        self._task = None
        assert error is not None
        self._failures = 1 if self._has_been_steady() else self._failures + 1
        self._error = str(error) if isinstance(error, HoldfastError) else f"{type(error).__name__}: {error}"
        pause_s = min(FIRST_PAUSE_S * 2 ** min(self._failures - 1, 10), LONGEST_PAUSE_S)
        self._log(error, pause_s)
        self._timer = asyncio.get_running_loop().call_later(pause_s, self._begin)
        self._supervisor.tell()

    def _log(self, error: BaseException, pause_s: float) -> None:
        """An error that is not of our own kinds is logged with where it happened, once in a row."""
        is_known = isinstance(error, (HoldfastError, asyncio.CancelledError))
        log.log(
            logging.WARNING if is_known else logging.ERROR,
            "%s has failed (%d in a row), and goes on in %.1f s: %s",
            *(self.name, self._failures, pause_s, self._error),
            exc_info=None if is_known or self._failures > 1 else error,
        )


class Supervisor:
    """The standing tasks of a store or an engine. Belongs to one event loop."""

    def __init__(self) -> None:
        self._started: dict[StandingTask, None] = {}
        self.on_trouble: list[Callable[[], None]] = []
        """Called whenever a task has failed."""

    def task(self, name: str, run: Run) -> StandingTask:
        """A task that is begun with `start`."""
        return StandingTask(self, name, run)

    def add(self, task: StandingTask) -> None:
        """A task was started."""
        self._started[task] = None

    def remove(self, task: StandingTask) -> None:
        """A task is over, or was stopped."""
        self._started.pop(task, None)

    def tell(self) -> None:
        """A task has failed."""
        for call in list(self.on_trouble):
            call()

    @property
    def names(self) -> list[str]:
        """The tasks that are kept at work."""
        return [task.name for task in self._started]

    def troubles(self) -> list[TaskTrouble]:
        """The tasks that have failed lately, and why."""
        return [trouble for task in self._started if (trouble := task.trouble) is not None]

    async def stop(self) -> None:
        """Stop all tasks, the latest first."""
        for task in reversed(list(self._started)):
            await task.stop()
