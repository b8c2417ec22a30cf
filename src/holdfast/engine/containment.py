"""Containment: telling errors of code that is not ours from signals to this process and from our own cancelling."""

from __future__ import annotations

import asyncio


def passes_through(error: BaseException) -> bool:
    """Whether an error in the event loop is not a fault of the code that raised it.

    `KeyboardInterrupt` and `SystemExit` may be signals to the process. `CancelledError` is ours if this task is being
    cancelled; otherwise the code has cancelled something of its own, and a panic of a native library is a fault, too.
    """
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is None or task.cancelling() > 0
    return isinstance(error, (KeyboardInterrupt, SystemExit))
