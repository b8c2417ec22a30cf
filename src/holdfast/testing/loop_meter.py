"""`LoopMeter`: how long single callbacks hold an event loop, in CPU time, which other programs do not change."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class LoopMeter:
    """The longest that one callback of any event loop of this process took while the meter ran."""

    def __init__(self) -> None:
        self.longest_ms = 0.0
        """CPU milliseconds of the callback's own thread."""
        self.what = ""
        """Which callback that was."""

    @classmethod
    @contextmanager
    def running(cls) -> Iterator[LoopMeter]:
        """Measure while the context is open."""
        meter, run = cls(), asyncio.Handle._run

        def measured(handle: asyncio.Handle) -> None:
            work = handle._callback  # type: ignore[attr-defined]
            began = time.thread_time()
            try:
                run(handle)
            finally:
                took_ms = 1000 * (time.thread_time() - began)
                if took_ms > meter.longest_ms:
                    meter.longest_ms, meter.what = took_ms, _name(work)

        setattr(asyncio.Handle, "_run", measured)  # noqa: B010 - mypy knows only the method
        try:
            yield meter
        finally:
            setattr(asyncio.Handle, "_run", run)  # noqa: B010


def _name(work: Any) -> str:
    """What a callback does; of a task, its coroutine."""
    task = getattr(work, "__self__", None)
    return str(task.get_coro()) if isinstance(task, asyncio.Task) else getattr(work, "__qualname__", str(type(work)))
