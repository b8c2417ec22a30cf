"""Several streams as one: browsers open few connections, so one of them carries the events of several sessions."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping

import msgspec

from holdfast.core.errors import InvalidValueError
from holdfast.serve.http.endpoint import StreamEvent

HELD_EVENTS = 64
"""Events that are read ahead of a slow reader, of all streams together."""


async def merged(streams: Mapping[str, AsyncIterator[StreamEvent]]) -> AsyncGenerator[tuple[str, StreamEvent], None]:
    """The events of several streams with the names of those, as they come, until all have ended."""
    coming: asyncio.Queue[tuple[str, StreamEvent | BaseException | None]] = asyncio.Queue(HELD_EVENTS)

    async def read(name: str, events: AsyncIterator[StreamEvent]) -> None:
        try:
            async for event in events:
                await coming.put((name, event))
            await coming.put((name, None))
        except Exception as error:
            await coming.put((name, error))
        finally:
            close = getattr(events, "aclose", None)
            if close is not None:
                with contextlib.suppress(Exception):
                    await close()

    readers = [asyncio.create_task(read(name, events)) for name, events in streams.items()]
    left = len(readers)
    try:
        while left:
            name, event = await coming.get()
            if isinstance(event, BaseException):
                raise event
            if event is None:
                left -= 1
            else:
                yield name, event
    finally:
        for each in readers:
            each.cancel()
        await asyncio.gather(*readers, return_exceptions=True)


def joined_cursor(cursors: Mapping[str, str]) -> str:
    """One cursor for several sessions, by their ids."""
    return base64.urlsafe_b64encode(msgspec.json.encode(dict(cursors))).decode().rstrip("=")


def parse_joined(cursor: str | None) -> dict[str, str]:
    """The cursors by session. Raises `InvalidValueError`."""
    if cursor is None:
        return {}
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        return msgspec.json.decode(raw, type=dict[str, str])
    except (ValueError, msgspec.MsgspecError):
        raise InvalidValueError("after", "it is no cursor of this stream; pass on the id of its last event") from None
