"""A step that another thread takes when its turn comes; apart from the contract, which needs no event loop."""

from __future__ import annotations

import asyncio
from typing import TypeVar

T = TypeVar("T")


class StepFuture(asyncio.Future[T]):
    """A step that waits for its turn before it is taken: until then, it does not take long."""

    has_begun = False
