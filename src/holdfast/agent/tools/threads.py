"""Functions that block, run in threads of their own: nobody waits for one that was given up.

The event loop's own pool would: a function that hangs would take one of its few threads, and hold up the exit.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import Any


class StoppedInThread(BaseException):
    """A function in a thread has called for the end of the process, which only the main thread can."""


async def in_thread(function: Callable[[], Any], name: str) -> Any:
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

    threading.Thread(target=work, name=name, daemon=True).start()
    value, error = await outcome
    if error is not None:
        raise error
    return value
