"""Functions that block, run in threads that nobody has to wait for.

The event loop's own pool would not do: a function that hangs would keep one of its few threads, and hold up the exit.
Here there is always one more thread; those that are idle are used again, because to start one takes longer than most
calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import queue
import threading
from collections.abc import Callable
from typing import Any

IDLE_S = 10.0
"""Seconds after which a thread that has nothing to do ends."""


class StoppedInThread(BaseException):
    """A function in a thread has called for the end of the process, which only the main thread can."""


async def in_thread(function: Callable[[], Any]) -> Any:
    """What a function returns or raises. If this is cancelled, the thread is left to itself and its outcome ignored."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
    context = contextvars.copy_context()

    def settle(value: Any, error: BaseException | None) -> None:
        if not outcome.done():
            outcome.set_result((value, error))

    def work() -> None:
        value: Any = None
        error: BaseException | None = None
        try:
            value = context.run(function)
        except (SystemExit, KeyboardInterrupt) as stop:
            error = StoppedInThread(f"it called for the end of the process ({type(stop).__name__}: {stop})")
        except BaseException as failed:
            error = failed
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, value, error)

    _worker().give(work)
    value, error = await outcome
    if error is not None:
        raise error
    return value


class _Worker:
    """A thread that does one thing after another."""

    def __init__(self) -> None:
        self._given: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="holdfast-tool", daemon=True).start()

    def give(self, work: Callable[[], None]) -> None:
        self._given.put(work)

    def _work(self) -> None:
        while True:
            try:
                self._given.get(timeout=IDLE_S)()
            except queue.Empty:
                with contextlib.suppress(ValueError):  # it has just been taken, to be given something
                    _idle.remove(self)
                    return
            else:
                _idle.append(self)


def _worker() -> _Worker:
    try:
        return _idle.pop()
    except IndexError:
        return _Worker()


_idle: list[_Worker] = []
os.register_at_fork(after_in_child=_idle.clear)  # threads do not survive a fork
