"""Runs blocking functions in threads that nobody has to wait for.

The event loop's own pool does not fit: a function that hangs would occupy one of its few threads, and delay the exit.
Here a new thread is started whenever none is idle; idle ones are reused, because starting one takes longer than most
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
"""Seconds after which an idle thread ends."""


class ThreadExitError(BaseException):
    """A function in a thread has tried to exit the process, which only the main thread may do."""


async def in_thread(function: Callable[[], Any]) -> Any:
    """Return or raise what a function does. If this is cancelled, the thread runs on and its outcome is ignored."""
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
            error = ThreadExitError(f"it tried to exit the process ({type(stop).__name__}: {stop})")
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
    """A thread that runs one function after another."""

    def __init__(self) -> None:
        self._functions: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="holdfast-tool", daemon=True).start()

    def give(self, work: Callable[[], None]) -> None:
        self._functions.put(work)

    def _work(self) -> None:
        while True:
            try:
                self._functions.get(timeout=IDLE_S)()
            except queue.Empty:
                with contextlib.suppress(ValueError):  # it was just taken out, to get another function
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
