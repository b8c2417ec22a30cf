"""`http_tool`: a tool whose call is one HTTP request, which carries the idempotency key.

A server that honours `Idempotency-Key` acts once on a call, however often the request is sent. So the tool is run again
after a crash (recovery `idempotent`), and after failures that may be temporary.
"""

from __future__ import annotations

import importlib.util
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack
from urllib.parse import urlsplit, urlunsplit

import msgspec

from holdfast.agent.tools.context import ToolContext, ToolError
from holdfast.agent.tools.errors import ToolDefinitionError
from holdfast.agent.tools.schema import Schema
from holdfast.agent.tools.tool import RemoteTool, ToolRetryPolicy, ToolSettings
from holdfast.core.values import Json

if TYPE_CHECKING:
    import httpx2

Method: TypeAlias = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]

HTTP_TIMEOUT_S = 30.0
"""Seconds for one request and its response."""

RESPONSE_BYTES = 1024 * 1024
"""Bytes of a response that are read: as many as are kept of any result."""

ERROR_BODY_CHARS = 500
"""Characters of an error's body that a model is shown."""

RETRIED = frozenset([408, 425, 429, 502, 503, 504])
"""Statuses of requests that may succeed later: too busy, too early, or a gateway got no answer."""

_IN_QUERY = frozenset(["GET", "DELETE"])


def http_tool(
    name: str,
    url: str,
    *,
    method: Method = "POST",
    description: str,
    parameters: Schema | None = None,
    headers: Mapping[str, str] | None = None,
    **settings: Unpack[ToolSettings],
) -> RemoteTool:
    """A tool that sends its arguments to a URL, and returns the response: JSON or text.

    The arguments are the JSON body; for `GET` and `DELETE`, the query string. Redirects are not followed. On a failure
    the model sees the status and the beginning of the body. Headers appear neither in models' input nor in journals.

    The recovery is `idempotent` by default: for a server that ignores the key, use `never`, or `safe` if it only reads.
    """
    if importlib.util.find_spec("httpx2") is None:
        raise ToolDefinitionError(name, "it needs httpx2: pip install 'holdfast[providers]'")
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise ToolDefinitionError(name, f"its URL must be an absolute http or https URL, got {url!r}")
    settings.setdefault("recovery", "idempotent")
    settings.setdefault("timeout_s", HTTP_TIMEOUT_S)
    if settings["recovery"] in ("safe", "idempotent"):
        settings.setdefault("retry", ToolRetryPolicy())
    request = _Request(method, url, dict(headers or {}))
    owner = f"the HTTP tool for {request.shown}"
    return RemoteTool(name, description, parameters or {"type": "object"}, request, owner=owner, **settings)


class _Request:
    """Sends one request for each call."""

    def __init__(self, method: Method, url: str, headers: dict[str, str]) -> None:
        self._method = method
        self._url = url
        self._headers = headers
        self.shown = _without_secrets(url)
        """The URL, for people and models."""

    async def __call__(self, arguments: dict[str, Json], ctx: ToolContext) -> Json:
        import httpx2

        headers = {"Accept": "application/json, text/*;q=0.9", **self._headers, "Idempotency-Key": ctx.key}
        query: dict[str, Any] | None = None
        body: bytes | None = None
        if self._method in _IN_QUERY:
            query = {key: _as_text(value) for key, value in arguments.items() if value is not None}
        else:
            headers["Content-Type"] = "application/json"
            body = msgspec.json.encode(arguments)
        # The runner limits the time of the whole call.
        async with httpx2.AsyncClient(verify=_certificates(), timeout=None) as client:
            try:
                sent = client.build_request(self._method, self._url, params=query, content=body, headers=headers)
                response = await client.send(sent, stream=True)
                try:
                    return await self._read(response)
                finally:
                    await response.aclose()
            except httpx2.TransportError as error:
                message = f"{self._what} failed: {type(error).__name__}: {error}"
                raise ToolError(message, code="network", retryable=True) from error
            except httpx2.DecodingError as error:
                raise ToolError(f"{self._what} answered with a body that cannot be unpacked: {error}") from error

    @property
    def _what(self) -> str:
        return f"{self._method} {self.shown}"

    async def _read(self, response: httpx2.Response) -> Json:
        body, is_whole = bytearray(), True
        async for piece in response.aiter_bytes():
            body += piece
            if len(body) > RESPONSE_BYTES:
                del body[RESPONSE_BYTES:]
                is_whole = False
                break
        if not response.is_success:
            raise self._failed(response, bytes(body))
        if not body:
            return None
        media = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if is_whole and (media.endswith(("/json", "+json")) or not media):
            try:
                return msgspec.json.decode(body)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                if media:
                    raise ToolError(f"{self._what} answered with invalid JSON: {error}") from None
        try:
            text = body.decode(response.charset_encoding or "utf-8", "strict" if is_whole else "ignore")
        except (UnicodeError, LookupError):
            raise ToolError(f"{self._what} answered with {media or 'something'}, which is not text") from None
        return text if is_whole else f"{text}\n[… only the first {RESPONSE_BYTES} bytes of the response were read]"

    def _failed(self, response: httpx2.Response, body: bytes) -> ToolError:
        text = body[: 4 * ERROR_BODY_CHARS].decode(errors="replace").strip()[:ERROR_BODY_CHARS]
        said = f": {text}" if text else ""
        return ToolError(
            f"{self._what} answered {response.status_code} {response.reason_phrase}{said}",
            code=f"http_{response.status_code}",
            retryable=response.status_code in RETRIED,
            retry_after_s=_seconds(response.headers.get("Retry-After")),
        )


def _as_text(value: Json) -> Any:
    """A value in a query: lists are repeated, objects are JSON."""
    if isinstance(value, list):
        return [_as_text(each) for each in value]
    return msgspec.json.encode(value).decode() if isinstance(value, dict) else value


def _seconds(retry_after: str | None) -> float | None:
    """`Retry-After`: seconds, or a date."""
    if not retry_after:
        return None
    if retry_after.strip().isdecimal():
        return float(retry_after)
    try:
        at = parsedate_to_datetime(retry_after)
    except (ValueError, OverflowError):
        return None
    return max(0.0, (at - datetime.now(UTC)).total_seconds()) if at.tzinfo else None


def _without_secrets(url: str) -> str:
    """A URL without what may hold a password or a key."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


@cache
def _certificates() -> ssl.SSLContext:
    """Made once: it takes longer than a request."""
    import httpx2

    return httpx2.create_ssl_context()
