"""Waiting in tests: deadlines only end what hangs, so they are all long; `HOLDFAST_PATIENCE` multiplies them."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from holdfast.store.patience import patience

__all__ = ["HANG_S", "patience", "soon", "until", "until_so"]

T = TypeVar("T")

HANG_S = patience(60.0)
"""Seconds after which something hangs: far longer than anything takes on a machine with twice the work it can do."""

_LOOK_EVERY_S = 0.005


async def soon(work: Awaitable[T]) -> T:
    """The outcome of something that must not hang."""
    return await asyncio.wait_for(work, HANG_S)


async def until(condition: Callable[[], Any]) -> Any:
    """Look again and again until something, which may be awaitable, is true, and return what it is."""
    async with asyncio.timeout(HANG_S):
        while True:
            found = condition()
            value = await found if inspect.isawaitable(found) else found
            if value:
                return value
            await asyncio.sleep(_LOOK_EVERY_S)


def until_so(condition: Callable[[], T]) -> T:
    """As `until`, without an event loop."""
    deadline = time.monotonic() + HANG_S
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(_LOOK_EVERY_S)
    return found
