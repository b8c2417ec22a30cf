"""A few threads that do what an event loop must not wait for. Leaner than an executor: a step is some hundred
microseconds long, and an executor's own bookkeeping would be a good part of that."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import threading
import time
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeAlias, TypeVar

from holdfast.programs.errors import InstanceLostError
from holdfast.programs.step_future import StepFuture

T = TypeVar("T")
R = TypeVar("R")

_Work: TypeAlias = Callable[[], None]

CLOSING_S = 0.5
"""Seconds to wait for what is under way when the threads are closed. It cannot be interrupted, only left alone."""


class Threads:
    """Threads that take work in turn, started when there is some."""

    def __init__(self, most: int, name: str, *, after: Callable[[], None], at_end: Callable[[], None]) -> None:
        self._most = most
        self._name = name
        self._after = after
        """Called in the thread after a result was handed over, if no work waits."""
        self._at_end = at_end
        """Called in each thread before it ends."""
        self._queue: SimpleQueue[_Work | None] = SimpleQueue()
        self._running: list[threading.Thread] = []
        self._is_closed = False
        _open.add(self)

    def submit(self, work: Callable[..., T], *args: Any, then: Callable[[T], R]) -> asyncio.Future[R]:
        """Do something in a thread, and then something with the result in the event loop, whose result it is."""
        if self._is_closed:
            raise InstanceLostError("the workers were closed")
        loop = asyncio.get_running_loop()
        future: StepFuture[R] = StepFuture(loop=loop)

        def settle(result: T | None, error: BaseException | None) -> None:
            if future.done():
                return  # nobody waits any more
            try:
                if error is not None:
                    raise error
                future.set_result(then(result))  # type: ignore[arg-type]
            except BaseException as failure:
                future.set_exception(failure)

        def run() -> None:
            future.has_begun = True
            try:
                done: tuple[T | None, BaseException | None] = (work(*args), None)
            except BaseException as error:
                done = (None, error)
            with contextlib.suppress(RuntimeError):  # the loop may have been closed meanwhile
                loop.call_soon_threadsafe(settle, *done)
            if self._queue.empty():
                self._after()

        if len(self._running) < self._most:
            thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._running.append(thread)
            thread.start()
        self._queue.put(run)
        return future

    def _work(self) -> None:
        while (work := self._queue.get()) is not None:
            work()
            work = None  # a result must not be kept until the next one
        self._at_end()

    def close(self) -> None:
        """Let what is under way come to an end, if that is soon, and do nothing else."""
        self._is_closed = True
        while not self._queue.empty():
            self._queue.get_nowait()
        for _ in self._running:
            self._queue.put(None)
        until = time.monotonic() + CLOSING_S
        for thread in self._running:
            thread.join(max(0.0, until - time.monotonic()))
        self._running = []


_open: weakref.WeakSet[Threads] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for threads in list(_open):
        threads.close()
