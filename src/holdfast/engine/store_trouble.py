"""What to do while the store cannot be reached: an error of our own store is never an answer, so it is tried again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from holdfast.store.errors import StoreUnavailableError

P = ParamSpec("P")
T = TypeVar("T")

FIRST_REST_S = 0.05
"""Seconds before the first new try: most trouble is over by then."""

LONGEST_REST_S = 5.0
"""Seconds between two tries at most. The rest doubles until then."""

TRIES = 100
"""Tries before it is given up: about eight minutes. After that, other processes have taken over long since."""


async def insist(call: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call something until the store can be reached, so that what is known only here is not lost meanwhile."""
    rest_s = FIRST_REST_S
    for _ in range(TRIES - 1):
        try:
            return await call(*args, **kwargs)
        except StoreUnavailableError:
            await asyncio.sleep(rest_s)
            rest_s = min(2 * rest_s, LONGEST_REST_S)
    return await call(*args, **kwargs)
