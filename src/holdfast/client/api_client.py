"""Requests to a server: tokens, retries, errors, and event streams that go on where they were cut."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.client.wire import RemoteError, error_of
from holdfast.core.errors import HoldfastError, InvalidValueError
from holdfast.store.errors import StoreUnavailableError

if TYPE_CHECKING:
    import httpx2

PREFIX = "/api/v1"

TRIES = 5
"""Times that a request is sent before its failure is told: over about ten seconds."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.3, 5.0
"""Seconds between two tries: at first, and at most."""

SILENCE_S = 45.0
"""Seconds after which a stream without a sign of life is opened anew: a server sends one each 15."""

REQUEST_S = 45.0
"""Seconds that a reply may take: the longest that a server lets a request wait, and half as much again."""

PREVIEW_BYTES = 200
"""Bytes of a reply that makes no sense that are shown."""

_AGAIN = frozenset({429, 502, 503, 504})
"""Statuses after which the same request may succeed."""


class ApiClient:
    """A connection to a server."""

    def __init__(self, url: str, token: str | None, *, tries: int = TRIES) -> None:
        try:
            import httpx2
        except ImportError:
            raise HoldfastError("the client needs the package `httpx2`: pip install 'holdfast[client]'") from None
        self.url = url.rstrip("/")
        self._tries = tries
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        self._client = httpx2.AsyncClient(base_url=self.url, headers=headers, timeout=REQUEST_S)

    async def close(self) -> None:
        await self._client.aclose()

    async def get(self, path: str, params: Mapping[str, Any] | None = None) -> Any:
        return await self.request("GET", path, params=params)

    async def post(self, path: str, body: Any = None, **options: Any) -> Any:
        return await self.request("POST", path, body={} if body is None else body, **options)

    async def upload(self, path: str, content: bytes, media_type: str, params: Mapping[str, Any] | None = None) -> Any:
        """The reply to a file that is sent, as JSON."""
        return _checked(await self._reply("POST", path, params, content, media_type))

    async def download(self, path: str, params: Mapping[str, Any] | None = None) -> bytes:
        """The bytes of a file."""
        reply = await self._reply("GET", path, params, None, None)
        if reply.status_code >= 400:
            _checked(reply)
        return reply.content

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
    ) -> Any:
        """The reply to a request, as JSON. Raises the error that the server tells of."""
        content, media_type = (None, None) if body is None else (msgspec.json.encode(body), "application/json")
        return _checked(await self._reply(method, path, params, content, media_type))

    async def _reply(
        self, method: str, path: str, params: Mapping[str, Any] | None, content: bytes | None, media_type: str | None
    ) -> httpx2.Response:
        """The reply to a request, whatever it says.

        A request that got no reply is sent again. It has a key of its own, so that the server does what it asks once.
        """
        import httpx2

        headers = {} if method == "GET" else {"idempotency-key": secrets.token_hex(16)}
        if media_type is not None:
            headers["content-type"] = media_type
        given = {name: value for name, value in (params or {}).items() if value is not None}
        for number in range(1, self._tries + 1):
            try:
                reply = await self._client.request(
                    method, PREFIX + path, params=given, content=content, headers=headers
                )
            except httpx2.TransportError as error:
                if number == self._tries:
                    raise StoreUnavailableError(self.url, f"the server does not answer: {error}") from None
                await asyncio.sleep(_pause_s(number))
                continue
            except httpx2.InvalidURL as error:
                raise InvalidValueError("server", str(error)) from None
            if reply.status_code in _AGAIN and number < self._tries:
                await asyncio.sleep(_wanted_pause_s(reply, number))
                continue
            return reply
        raise AssertionError("a request ends in its last try")

    async def stream(
        self,
        method: str,
        path: str,
        *,
        after: str | None = None,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
    ) -> AsyncGenerator[tuple[str | None, dict[str, Any]], None]:
        """The events of a stream with their cursors, until it ends. A connection that breaks is made anew.

        After a break, a stream that a POST has begun is not begun again: it ends, and whoever reads it knows the
        cursor to go on from.
        """
        import httpx2

        from holdfast.agent.providers.sse import ServerEventReader

        failures = 0
        timeout = httpx2.Timeout(REQUEST_S, read=SILENCE_S)
        while True:
            headers = {"accept": "text/event-stream"}
            if after is not None:
                headers["last-event-id"] = after
            try:
                async with self._client.stream(
                    method, PREFIX + path, params=dict(params or {}), json=body, headers=headers, timeout=timeout
                ) as reply:
                    if reply.status_code == 204:
                        return
                    if reply.status_code != 200:
                        await reply.aread()
                        if reply.status_code in _AGAIN and failures < self._tries:
                            failures += 1
                            await asyncio.sleep(_wanted_pause_s(reply, failures))
                            continue
                        _checked(reply)
                        return
                    reader = ServerEventReader()
                    async for piece in reply.aiter_bytes():
                        for event in reader.feed(piece):
                            failures = 0
                            data = _event_data(event.data)
                            if data.get("type") == "error":
                                raise _told_error(data.get("problem"), 500)
                            if data.get("type") == "bye":
                                raise httpx2.ReadError("the server is shutting down")
                            after = event.id or after
                            yield event.id, data
                return
            except httpx2.TransportError as error:
                failures += 1
                if method != "GET" or failures >= self._tries:
                    raise StoreUnavailableError(self.url, f"the stream broke: {error}") from None
                await asyncio.sleep(_pause_s(failures))


def _checked(reply: httpx2.Response) -> Any:
    """What a reply says. Raises the error that it tells of."""
    if reply.status_code < 400:
        return _json(reply.content, reply.status_code) if reply.content else None
    try:
        problem = msgspec.json.decode(reply.content)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        problem = {"detail": f"the server answered {reply.status_code}: {_preview(reply.content)}"}
    raise _told_error(problem, reply.status_code)


def _told_error(problem: Any, status: int) -> HoldfastError:
    """The error that a problem document tells of, whatever a server has sent in place of one."""
    given = problem if isinstance(problem, dict) else {}
    told = given.get("status")
    return error_of(given, told if isinstance(told, int) else status)


def _event_data(data: bytes) -> dict[str, Any]:
    event = _json(data, 200)
    if not isinstance(event, dict):
        raise _unreadable(data, 200)
    return event


def _json(content: bytes, status: int) -> Any:
    try:
        return msgspec.json.decode(content)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise _unreadable(content, status) from None


def _unreadable(content: bytes, status: int) -> RemoteError:
    why = f"that is no reply of a Holdfast server: {_preview(content)}; is the address right?"
    return RemoteError("unreadable_reply", why, status, {})


def _preview(content: bytes) -> str:
    return content[:PREVIEW_BYTES].decode("utf-8", "replace")


def _pause_s(number: int) -> float:
    longest: float = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (number - 1))
    return longest * random.uniform(0.5, 1.0)


def _wanted_pause_s(reply: httpx2.Response, number: int) -> float:
    wanted = reply.headers.get("retry-after", "")
    return min(LONGEST_PAUSE_S, float(wanted)) if wanted.isdecimal() else _pause_s(number)
