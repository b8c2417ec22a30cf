"""Event streams (server-sent events): frames, pings, joined pieces of text, and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
from starlette.types import Receive, Send

from holdfast.core.errors import HoldfastError
from holdfast.serve.http.endpoint import StreamEvent
from holdfast.serve.http.limits import AUTHORITY_S, COALESCE_S, PING_S, RETRY_MS
from holdfast.serve.http.problems import bug_problem, problem_of

HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-store",
    "x-accel-buffering": "no",  # a proxy must not collect them
}

_log = logging.getLogger("holdfast.http")


def frame(event: StreamEvent) -> bytes:
    """An event as it goes over the wire. JSON has no line breaks, so its data is one line."""
    head = f"event: {event.type}\n" if event.id is None else f"id: {event.id}\nevent: {event.type}\n"
    return head.encode() + b"data: " + msgspec.json.encode(event.data, enc_hook=str) + b"\n\n"


class EventStream:
    """Sends events to one client, until they end, the client is gone, or the server closes."""

    def __init__(
        self,
        events: AsyncIterator[StreamEvent],
        request_id: str,
        closing: asyncio.Event,
        check_authority: Callable[[], Awaitable[object]],
    ) -> None:
        self._events = events
        self._request_id = request_id
        self._closing = closing
        self._check_authority = check_authority
        self._held: StreamEvent | None = None
        """A piece of text that waits for the next one, to be sent with it."""

    async def run(self, receive: Receive, send: Send) -> None:
        """Send the events as the body of a reply whose head was sent. Whoever reads slowly is not hurried."""

        async def write(data: bytes) -> None:
            await send({"type": "http.response.body", "body": data, "more_body": True})

        ends = [asyncio.create_task(_until_gone(receive)), asyncio.create_task(self._closing.wait())]
        coming: asyncio.Task[StreamEvent | None] = asyncio.create_task(self._next())
        try:
            await write(f"retry: {RETRY_MS}\n\n".encode())
            checked_at = asyncio.get_running_loop().time()
            while True:
                patience = COALESCE_S if self._held is not None else PING_S
                await asyncio.wait({coming, *ends}, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
                if ends[0].done():
                    return
                if coming.done():
                    event = coming.result()
                    if event is None:
                        break
                    for each in self._ready(event):
                        await write(frame(each))
                    coming = asyncio.create_task(self._next())
                elif self._held is not None:
                    await write(frame(self._held))
                    self._held = None
                elif ends[1].done():
                    await write(frame(StreamEvent("bye", {"type": "bye", "why": "the server is shutting down"})))
                    break
                else:
                    await write(b": ping\n\n")
                now = asyncio.get_running_loop().time()
                if now - checked_at > AUTHORITY_S:
                    checked_at = now
                    await self._check_authority()
            if self._held is not None:
                await write(frame(self._held))
        except HoldfastError as error:
            await write(frame(StreamEvent("error", {"type": "error", "problem": problem_of(error, self._request_id)})))
        except Exception:
            _log.exception("request %s: a stream broke", self._request_id)
            await write(frame(StreamEvent("error", {"type": "error", "problem": bug_problem(self._request_id)})))
        finally:
            for task in (coming, *ends):
                task.cancel()
            await asyncio.gather(coming, *ends, return_exceptions=True)
            close: Any = getattr(self._events, "aclose", None)
            if close is not None:
                with contextlib.suppress(Exception):
                    await close()
        with contextlib.suppress(Exception):
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _next(self) -> StreamEvent | None:
        try:
            return await anext(self._events)
        except StopAsyncIteration:
            return None

    def _ready(self, event: StreamEvent) -> list[StreamEvent]:
        """What is to be sent now that this event came: a piece of text is kept back for a moment."""
        held, self._held = self._held, None
        if not event.is_delta:
            return [event] if held is None else [held, event]
        if held is None:
            self._held = event
            return []
        joined = joined_delta(held, event)
        if joined is None:
            self._held = event
            return [held]
        self._held = joined
        return []


def joined_delta(first: StreamEvent, second: StreamEvent) -> StreamEvent | None:
    """Two pieces of one text as one piece, or None if they are of different texts."""
    one, two = first.data, second.data
    if first.type != second.type or _but_text(one) != _but_text(two):
        return None
    return StreamEvent(second.type, {**two, "text": one["text"] + two["text"]}, second.id, is_delta=True)


def _but_text(data: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key not in ("text", "id")}


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
