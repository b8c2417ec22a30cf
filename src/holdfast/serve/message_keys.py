"""Messages in which a key stands twice are refused, out of the way of the event loop where they are long."""

from __future__ import annotations

import asyncio

from holdfast.core.distinct_keys import check_distinct_keys

INLINE_BYTES = 64 * 1024
"""Bytes of a message that are looked at in about a millisecond; more of them in a thread."""


async def check_message_keys(message: bytes, what: str = "message") -> None:
    """Raise `InvalidValueError` if a key stands twice in an object of a message that is JSON."""
    if len(message) <= INLINE_BYTES:
        check_distinct_keys(message, what)
    else:
        await asyncio.to_thread(check_distinct_keys, message, what)
