"""A server that has only the transport before streamable HTTP: it is read from one stream, and written to beside it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import httpx2
from mcp.client.sse import sse_client

from holdfast.agent.mcp.limits import SSE_READ_S

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams


class SseTransport:
    """One stream to read, and requests to the address that it names. The client of `mcp` limits a message to 1 MiB."""

    is_refused_as_http = False

    def __init__(self, url: str, auth: httpx2.Auth, connect_s: float) -> None:
        self._url = url
        self._auth = auth
        self._connect_s = connect_s

    @asynccontextmanager
    async def streams(self) -> AsyncIterator[TransportStreams]:
        async with sse_client(
            self._url, timeout=self._connect_s, sse_read_timeout=SSE_READ_S, auth=self._auth
        ) as streams:
            yield streams

    async def why(self) -> str:
        return ""

    @property
    def stderr(self) -> list[str]:
        return []

    def kill(self) -> None:
        """Nothing to kill: no process belongs to it."""
