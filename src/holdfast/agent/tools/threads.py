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
from concurrent.futures import Executor, Future
from typing import Any

from holdfast.engine.containment import ExitError

IDLE_S = 10.0
"""Seconds after which an idle thread ends."""


async def in_thread(function: Callable[[], Any]) -> Any:
    """Return or raise what a function does. If this is cancelled, the thread runs on and its outcome is ignored."""
    context = contextvars.copy_context()

    def work() -> tuple[Any, BaseException | None]:
        try:
            return context.run(function), None
        except (SystemExit, KeyboardInterrupt) as stop:
            return None, ExitError(stop)
        except BaseException as failed:
            return None, failed

    value, error = await asyncio.get_running_loop().run_in_executor(_threads, work)
    if error is not None:
        raise error
    return value


class _Threads(Executor):
    """As many threads as there are functions that run. These return their errors, and never raise."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        outcome: Future[Any] = Future()

        def work() -> None:
            if outcome.set_running_or_notify_cancel():
                outcome.set_result(function(*args, **kwargs))

        _worker().give(work)
        return outcome


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


_threads = _Threads()
_idle: list[_Worker] = []
os.register_at_fork(after_in_child=_idle.clear)  # threads do not survive a fork
