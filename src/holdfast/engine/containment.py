"""Containment: telling errors of code that is not ours from signals to this process and from our own cancelling."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable
from types import CodeType
from typing import TypeVar

T = TypeVar("T")


class ExitError(BaseException):
    """Code that runs here has tried to exit the process, which is not for it to do."""

    def __init__(self, stop: BaseException) -> None:
        super().__init__(f"it tried to exit the process ({type(stop).__name__}: {stop})")


async def without_exit(work: Callable[[], Awaitable[T]]) -> T:
    """What some work returns or raises; in a task of its own, an attempt to exit would end the event loop.

    The work is made here: a task that is cancelled before its first step would leave it behind, never awaited.
    """
    try:
        return await work()
    except (SystemExit, KeyboardInterrupt) as stop:
        if passes_through(stop):
            raise
        raise ExitError(stop) from None


def passes_through(error: BaseException) -> bool:
    """Whether an error in the event loop is not a fault of the code that raised it.

    `CancelledError` is ours if this task is being cancelled; otherwise the code has cancelled something of its own.
    `KeyboardInterrupt` and `SystemExit` are a signal to the process if a handler of signals raised them. A tool that
    calls `sys.exit()` has failed, as one that panics in a native library: neither ends the process.
    """
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is None or task.cancelling() > 0
    return isinstance(error, (KeyboardInterrupt, SystemExit)) and _is_signal(error)


def _is_signal(error: BaseException) -> bool:
    """Whether an exception came out of a handler of signals, which may run in the middle of any code."""
    if threading.current_thread() is not threading.main_thread():
        return False
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    if isinstance(error, KeyboardInterrupt) and handlers[0] is signal.default_int_handler:
        return True  # it leaves no trace of itself
    code = {found for handler in handlers if (found := _code_of(handler)) is not None}
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in code:
            return True
        trace = trace.tb_next
    return False


def _code_of(handler: object) -> CodeType | None:
    """The code of a handler: a function, a method, or one with arguments bound, as that of `asyncio.run`."""
    function = getattr(handler, "func", handler)
    found = getattr(getattr(function, "__func__", function), "__code__", None)
    return found if isinstance(found, CodeType) else None
