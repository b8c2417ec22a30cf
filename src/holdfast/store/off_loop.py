"""Work that would hold the event loop too long, done in threads of its own."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

THREADS = 2
"""Large values that are worked on at once. More would not be quicker: they take turns at the interpreter."""


async def off_loop(work: Callable[[], T]) -> T:
    """What a function returns or raises that is called in a thread. It must end by itself, and soon."""

    def quietly() -> T:
        with _collector_paused:
            return work()

    return await asyncio.get_running_loop().run_in_executor(_threads(), quietly)


class _CollectorPaused:
    """While it is entered, no garbage is collected: values have no cycles, and to look through all the parts of a large
    one, again and again while it is made, would hold up every thread for nothing. Afterwards the parts count as old."""

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._entered = 0
        self._was_on = False

    def __enter__(self) -> None:
        with self._changing:
            self._entered += 1
            if self._entered == 1:
                self._was_on = gc.isenabled()
                gc.disable()

    def __exit__(self, *_: object) -> None:
        with self._changing:
            self._entered -= 1
            if not self._entered and self._was_on:
                _count_all_as_old()
                gc.enable()


def _count_all_as_old() -> None:
    """Let the next collection of young objects pass over those that are there now. Takes no time, however many."""
    if not gc.get_freeze_count():  # or what the program has frozen would be thawed with them
        gc.freeze()
        gc.unfreeze()


_collector_paused = _CollectorPaused()


_pool: list[ThreadPoolExecutor] = []


def _threads() -> ThreadPoolExecutor:
    """The threads; not those of the event loop, which may all be taken by functions that wait for something."""
    if not _pool:
        _pool.append(ThreadPoolExecutor(THREADS, "holdfast-values"))
    return _pool[0]


os.register_at_fork(after_in_child=_pool.clear)  # threads do not survive a fork
