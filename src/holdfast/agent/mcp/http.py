"""A server reached over HTTP. An HTTP error becomes an MCP error of the request that it belongs to.

The client of `mcp` drops the whole connection when one request fails below MCP, and accepts bodies of any size. Here
each failed request is answered with an error of its own, and bodies are limited.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import httpx2
import msgspec
from mcp.client.auth import OAuthFlowError
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR

from holdfast.agent.mcp.limits import MESSAGE_BYTES, TERM_S
from holdfast.agent.mcp.transport import NOT_RUN
from holdfast.core.values import preview

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

Headers: TypeAlias = Mapping[str, str] | Callable[[], Awaitable[Mapping[str, str]]]
"""Headers, or a function that returns them: called for each request, and once more after a 401."""

_NOT_TAKEN = (httpx2.codes.NOT_FOUND, httpx2.codes.METHOD_NOT_ALLOWED)
"""What servers answer to a POST at a URL that is only read from."""

_DROPPED = frozenset(["content-encoding", "content-length", "transfer-encoding"])


class HeadersError(Exception):
    """The function that returns the headers has failed."""


class _Auth(httpx2.Auth):
    def __init__(self, headers: Headers) -> None:
        self._headers = headers

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        request.headers.update(await self._current_headers())
        response = yield request
        if response.status_code == httpx2.codes.UNAUTHORIZED and callable(self._headers):
            request.headers.update(await self._current_headers())
            yield request

    async def _current_headers(self) -> Mapping[str, str]:
        if not callable(self._headers):
            return self._headers
        try:
            return await self._headers()
        except Exception as error:
            raise HeadersError(f"its headers could not be computed: {type(error).__name__}: {error}") from error


def auth_of(headers: Headers) -> httpx2.Auth:
    """What adds headers to requests."""
    return _Auth(headers)


class _Client(httpx2.AsyncClient):
    """Answers with a JSON-RPC error instead of raising, which would end the connection."""

    is_refused = False
    """Whether the server has refused a first request because it takes none at this URL."""

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        if request.method == "DELETE":  # ends a session; nobody waits long for that
            async with asyncio.timeout(TERM_S):
                return await super().send(request, **options)
        if request.method != "POST":
            return await super().send(request, **options)
        try:
            response = await super().send(request, **options)
            if response.status_code in _NOT_TAKEN and MCP_SESSION_ID not in request.headers:
                self.is_refused = True
            return await _checked(request, response)
        except (HeadersError, OAuthFlowError) as error:
            return _error(request, INTERNAL_ERROR, str(error))
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            return _error(request, NOT_RUN, f"{_public_url(request.url)} cannot be reached: {_error_text(error)}")
        except httpx2.DecodingError as error:
            return _error(request, INTERNAL_ERROR, f"{_public_url(request.url)} cannot be read: {_error_text(error)}")
        except httpx2.TransportError as error:
            return _error(
                request, CONNECTION_CLOSED, f"{_public_url(request.url)} broke the connection: {_error_text(error)}"
            )


async def _checked(request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
    kind = response.headers.get("content-type", "").lower()
    if response.is_redirect or (response.is_success and not kind.startswith("application/json")):
        return response  # streams are limited where they are read
    body = await _body(response)
    if body is None:
        message = f"its answer has more than {MESSAGE_BYTES:,} bytes, the limit: ask for less at a time"
        return _error(request, INTERNAL_ERROR, message)
    if response.status_code == httpx2.codes.NOT_FOUND and MCP_SESSION_ID in request.headers:
        return _error(request, NOT_RUN, "it has forgotten this connection")
    if response.is_error and b'"jsonrpc"' not in body:
        quote = f": {preview(body[:200].decode(errors='replace'))}" if body else ""
        message = (
            f"{_public_url(request.url)} answered with HTTP {response.status_code} {response.reason_phrase}{quote}"
        )
        if response.status_code == httpx2.codes.UNAUTHORIZED:
            message += f"; if it wants a login: holdfast mcp --login {_public_url(request.url)}"
        return _error(request, INTERNAL_ERROR, message)
    headers = [(name, value) for name, value in response.headers.multi_items() if name.lower() not in _DROPPED]
    return httpx2.Response(response.status_code, headers=headers, content=body, request=request)


async def _body(response: httpx2.Response) -> bytes | None:
    """The whole body, or None if it is too large."""
    parts, size = [], 0
    try:
        async for part in response.aiter_bytes():
            size += len(part)
            if size > MESSAGE_BYTES:
                return None
            parts.append(part)
    finally:
        await response.aclose()
    return b"".join(parts)


def _error(request: httpx2.Request, code: int, message: str) -> httpx2.Response:
    """A response that the client of `mcp` takes for the error of its request, whatever the id."""
    body = {"jsonrpc": "2.0", "id": 0, "error": {"code": code, "message": message}}
    content, kind = msgspec.json.encode(body), {"content-type": "application/json"}
    return httpx2.Response(httpx2.codes.BAD_GATEWAY, headers=kind, content=content, request=request)


def _public_url(url: httpx2.URL) -> str:
    """A URL without its parts that may be secret."""
    return str(url.copy_with(userinfo=b"", query=None, fragment=None))


def _error_text(error: Exception) -> str:
    return str(error) or type(error).__name__


class HttpTransport:
    """Requests to one URL."""

    def __init__(self, url: str, auth: httpx2.Auth, connect_s: float) -> None:
        self._url = url
        self._auth = auth
        self._connect_s = connect_s
        self._client: _Client | None = None

    @property
    def is_refused_as_http(self) -> bool:
        """Whether the server takes no requests at its URL."""
        return self._client is not None and self._client.is_refused

    @asynccontextmanager
    async def streams(self) -> AsyncIterator[TransportStreams]:
        # The caller limits how long an answer may take.
        timeout = httpx2.Timeout(self._connect_s, read=None)
        async with (
            _Client(auth=self._auth, timeout=timeout) as self._client,
            streamable_http_client(self._url, http_client=self._client, max_sse_event_size=MESSAGE_BYTES) as streams,
        ):
            yield streams

    async def why(self) -> str:
        return ""

    @property
    def stderr(self) -> list[str]:
        return []

    def kill(self) -> None:
        """Nothing to kill: no process belongs to it."""
