"""Limits that every HTTP server here keeps: connections, time to headers and to bodies, bytes under way, log lines.

uvicorn bounds the size of headers and the time between two requests. It waits for ever for the first headers and for
the rest of a body, keeps all of it, and `limit_concurrency` counts whoever has only connected, so that those who say
nothing shut out those who do. Here, whoever has waited for the longest without saying something makes room: an honest
client has sent its request long before it is the oldest of so many.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

BACKLOG = 64
"""Connections that are accepted in one go, and that wait to be: all in all fewer than the files that may be open."""


@dataclass(frozen=True)
class ConnectionLimits:
    """How much clients may have open, and how long they may take."""

    connections: int = 512
    """Connections at a time: some hundred hosts with a few streams each."""
    headers_s: float = 10.0
    """Seconds from the first byte of a request, or from the connection, to the end of its headers."""
    body_s: float = 20.0
    """Seconds for a body, and one more for each `body_rate` bytes of it that have come."""
    body_rate: int = 64 * 1024
    bytes: int = 192 << 20
    """Bytes of bodies under way over all connections, until they are answered: three of the largest messages."""

    @property
    def most_connections(self) -> int:
        """Connections at a time, with room for the files that the process itself opens."""
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return min(self.connections, max(16, files // 2 - 2 * BACKLOG)) if files > 0 else self.connections


# --- connections and headers -------------------------------------------------------------------------


class ConnectionGuard:
    """All connections of a server, and which of them wait for headers."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._most = limits.most_connections
        self._open: set[GuardedProtocol] = set()
        self._silent: dict[GuardedProtocol, None] = {}
        """Those of which no request is under way, the longest waiting first."""

    @property
    def protocol(self) -> type[GuardedProtocol]:
        """What uvicorn makes for each connection (`http=`)."""
        return type("GuardedProtocol", (GuardedProtocol,), {"guard": self})

    def opened(self, protocol: GuardedProtocol) -> None:
        """A client has connected. If there are too many, one that says nothing has to go."""
        self._open.add(protocol)
        self.silent(protocol)
        if len(self._open) > self._most:
            oldest = next(iter(self._silent))
            self.closed(oldest)
            oldest.transport.abort()

    def silent(self, protocol: GuardedProtocol) -> None:
        """A connection waits for a request."""
        self._silent.pop(protocol, None)
        self._silent[protocol] = None

    def heard(self, protocol: GuardedProtocol) -> None:
        """A connection has a request under way."""
        self._silent.pop(protocol, None)

    def closed(self, protocol: GuardedProtocol) -> None:
        """A connection is gone."""
        self._open.discard(protocol)
        self._silent.pop(protocol, None)


class GuardedProtocol(H11Protocol):
    """uvicorn's connection, which does not wait for ever for headers."""

    guard: ConnectionGuard
    _headers_due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_headers()
        self.guard.opened(self)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._has_request:
            self._headers_came()
            self.guard.heard(self)
        elif not self.transport.is_closing():
            self._expect_headers()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._has_request:
            self.guard.silent(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._headers_came()
        self.guard.closed(self)
        super().connection_lost(exc)

    @property
    def _has_request(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _expect_headers(self) -> None:
        if self._headers_due is None:
            self._headers_due = self.loop.call_later(self.guard.limits.headers_s, self._headers_late)

    def _headers_came(self) -> None:
        if self._headers_due is not None:
            self._headers_due.cancel()
            self._headers_due = None

    def _headers_late(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
            self.transport.close()


# --- bodies ------------------------------------------------------------------------------------------


class BodyError(Exception):
    """A body that is not taken: what to reply instead."""

    def __init__(self, status: int, why: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(why)
        self.status = status
        self.why = why
        self.headers = headers or {}


class _Body:
    """A body that is being read."""

    def __init__(self, now: float) -> None:
        self.began_at = self.heard_at = now
        self.size = 0
        self.wait: asyncio.Timeout | None = None
        self.makes_room = False


class BodyReader:
    """Reads the bodies of requests whole, before they reach the application that takes them whole anyway."""

    def __init__(self, limits: ConnectionLimits, most_bytes: int) -> None:
        """`most_bytes` is the most that one body may have."""
        self._limits = limits
        self._most_bytes = most_bytes
        self._reading: dict[_Body, None] = {}
        self._bytes = 0
        """Of all bodies that are under way."""

    async def serve(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the application once the body is here. Raises `BodyError`, with nothing sent, if it does not come."""
        length = Headers(scope=scope).get("content-length", "")
        if length.isdigit():
            self._check_size(int(length))
        body = _Body(asyncio.get_running_loop().time())
        try:
            pieces = await self._read(body, receive)
            if pieces is None:
                return  # the client is gone
            pieces = [b"".join(pieces)]

            async def replay() -> Message:
                if pieces:
                    return {"type": "http.request", "body": pieces.pop(), "more_body": False}
                return await receive()

            await app(scope, replay, send)
        finally:
            self._bytes -= body.size

    async def _read(self, body: _Body, receive: Receive) -> list[bytes] | None:
        pieces: list[bytes] = []
        self._reading[body] = None
        try:
            while True:
                due = body.began_at + self._limits.body_s + body.size / self._limits.body_rate
                async with asyncio.timeout_at(due) as body.wait:
                    message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                piece: bytes = message.get("body", b"")
                self._add(body, len(piece))
                pieces.append(piece)
                if not message.get("more_body", False):
                    return pieces
        except TimeoutError:
            raise self._refusal(body) from None
        finally:
            del self._reading[body]

    def _add(self, body: _Body, size: int) -> None:
        body.size += size
        self._bytes += size
        body.heard_at = asyncio.get_running_loop().time()
        self._check_size(body.size)
        if self._bytes > self._limits.bytes:
            self._make_room(body)

    def _check_size(self, size: int) -> None:
        if size > self._most_bytes:
            raise BodyError(413, f"the message has {size:,} bytes; the most is {self._most_bytes:,}")

    def _make_room(self, body: _Body) -> None:
        """Give up the body that has said nothing for the longest; if there is no other, this one."""
        others = [each for each in self._reading if each is not body and each.size and not each.makes_room]
        if not others:
            body.makes_room = True
            raise self._refusal(body)
        oldest = min(others, key=lambda each: each.heard_at)
        oldest.makes_room = True
        assert oldest.wait is not None
        oldest.wait.reschedule(asyncio.get_running_loop().time())

    def _refusal(self, body: _Body) -> BodyError:
        if body.makes_room:
            return BodyError(503, "too many large messages are under way; try again", {"retry-after": "2"})
        return BodyError(408, "the rest of the message did not come in time")


# --- log lines ---------------------------------------------------------------------------------------


class LogRate(logging.Filter):
    """Lets so many lines through, and then one of each second: what clients can cause must not fill a disk."""

    def __init__(self, burst: int = 100, per_s: float = 1.0) -> None:
        super().__init__()
        self._burst = burst
        self._per_s = per_s
        self._left = float(burst)
        self._at = time.monotonic()
        self._skipped = 0

    def filter(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        self._left = min(self._burst, self._left + (now - self._at) * self._per_s)
        self._at = now
        if self._left < 1:
            self._skipped += 1
            return False
        self._left -= 1
        if self._skipped:
            record.msg, record.args = f"{record.getMessage()} ({self._skipped} more lines were left out)", ()
            self._skipped = 0
        return True


def server_options(guard: ConnectionGuard) -> dict[str, Any]:
    """How uvicorn is configured to keep these limits."""
    return {"http": guard.protocol, "backlog": BACKLOG, "access_log": False, "log_config": None, "server_header": False}
