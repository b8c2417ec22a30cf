"""`OpenAIProvider`: models behind an OpenAI-compatible chat-completions endpoint: services, gateways, local servers.

One call is one streamed POST to `{base_url}/chat/completions`. `openai_request` makes its body, and `openai_reply`
reads its reply; here are the connection, its time limits, and its errors.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from hashlib import blake2b
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from holdfast.agent.providers.faults import error_reply_of, fault_of, is_error_reply, read_error_reply, read_retry_after
from holdfast.agent.providers.openai_reply import BadReplyError, ReplyReader, read_json
from holdfast.agent.providers.openai_request import request_body
from holdfast.agent.providers.provider import Fault, ModelRequest, ProviderError, StreamItem
from holdfast.agent.providers.sse import ServerEvent, ServerEventReader, TooLargeError
from holdfast.core.errors import InvalidValueError
from holdfast.core.values import encode

try:
    import httpx2
except ModuleNotFoundError as missing:  # it comes with an extra
    raise ImportError("models over HTTP need the extra 'providers': pip install 'holdfast[providers]'") from missing

CONNECT_TIMEOUT_S = 30.0
"""Seconds to reach a service: enough for a slow network, short against what a call may take."""

CHUNK_TIMEOUT_S = 120.0
"""Seconds without a byte: a model may take that long before its first word, and no live stream is silent longer."""

MAX_BODY_BYTES = 256 * 1024 * 1024
"""Bytes of one response: a chunk is some hundred bytes around one token, and a reply has up to some 100,000 of them."""

MAX_REFUSAL_BYTES = 64 * 1024
"""Bytes of an error's body that are read."""

DRAIN_S = 0.05
"""Seconds to wait for the end of a response after its last event, without which a connection cannot be reused."""

IDLE_CONNECTION_S = 60.0
"""Seconds an unused connection is kept: longer than most tools take between two calls of a turn."""

_DONE = b"[DONE]"
_LOCAL = frozenset(["localhost", "127.0.0.1", "::1"])


class OpenAIProvider:
    """A service with an OpenAI-compatible chat-completions endpoint.

    Arguments of a tool call that are not a JSON object arrive as `{"_raw": text}`, so that the tool layer can tell the
    model; see `arguments`. Replies of servers that cannot stream are accepted, too. A stream that ends without `[DONE]`
    is a `bad_stream`, never a short answer.

    Connections are kept and reused. `aclose` closes them; the provider can still be used, with new ones.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        *,
        id: str = "openai",
        headers: Mapping[str, str] | None = None,
        reasoning_field: str | None = None,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        chunk_timeout_s: float = CHUNK_TIMEOUT_S,
    ) -> None:
        """`reasoning_field` is the field in which the service wants its earlier reasoning back, such as
        `reasoning_content`.

        Most services do not accept it, so by default it is not sent.
        """
        self.id = id
        self.base_url = base_url.rstrip("/")
        address = urlsplit(self.base_url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise InvalidValueError("base_url", f"'{base_url}' is not an http or https URL")
        self._host = address.hostname
        self._key = (api_key or "").strip()
        if not self._key.isascii() or not self._key.isprintable():
            raise InvalidValueError("api_key", "it contains characters that are not allowed in an HTTP header")
        self._headers = {**({"Authorization": f"Bearer {self._key}"} if self._key else {}), **(headers or {})}
        self._reasoning_field = reasoning_field
        # OpenAI's newer models refuse the name that all other services use.
        self._max_tokens_name = "max_completion_tokens" if self._host == "api.openai.com" else "max_tokens"
        self._timeout = httpx2.Timeout(chunk_timeout_s, connect=connect_timeout_s, pool=connect_timeout_s)
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx2.AsyncClient] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"OpenAIProvider({self.base_url!r}, id={self.id!r})"

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem, None]:
        """Call the model once; see `Provider.stream`."""
        body = request_body(request, max_tokens=self._max_tokens_name, reasoning=self._reasoning_field)
        answered = False
        try:
            async with self._client().stream(
                "POST", f"{self.base_url}/chat/completions", content=encode(body), headers=self._headers_of(request)
            ) as response:
                answered = True
                await self._check_status(response)
                async with contextlib.aclosing(self._read(response)) as items:
                    async for item in items:
                        yield item
        except httpx2.TimeoutException as error:
            what = "no connection" if isinstance(error, httpx2.ConnectTimeout) else "nothing came"
            raise self._error(f"{what} within the time limit ({_error_text(error)})", "timeout") from error
        except (httpx2.UnsupportedProtocol, httpx2.InvalidURL, httpx2.LocalProtocolError) as error:
            raise self._error(f"the request cannot be sent: {_error_text(error)}", "invalid_request") from error
        except (httpx2.TransportError, httpx2.DecodingError, httpx2.StreamError) as error:
            if answered:
                raise self._error(f"the answer broke off: {_error_text(error)}", "bad_stream") from error
            raise self._error(f"cannot be reached: {_error_text(error)}", "network") from error

    # --- sending -----------------------------------------------------------------------------------

    def _client(self) -> httpx2.AsyncClient:
        """Connections belong to an event loop, so each has its own."""
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            client = self._clients[loop] = httpx2.AsyncClient(
                timeout=self._timeout,
                limits=httpx2.Limits(keepalive_expiry=IDLE_CONNECTION_S),
                trust_env=self._host not in _LOCAL,  # no proxy leads to this machine
            )
        return client

    def _headers_of(self, request: ModelRequest) -> dict[str, str]:
        fixed = {
            "Content-Type": "application/json",
            "Accept": "text/event-stream, application/json",
            "Accept-Encoding": "identity",  # compression would delay the stream
        }
        if request.key:
            key = request.key
            is_plain = key.isascii() and key.isprintable()
            fixed["Idempotency-Key"] = key if is_plain else blake2b(key.encode(), digest_size=16).hexdigest()
        return {**fixed, **self._headers}

    # --- reading -----------------------------------------------------------------------------------

    async def _check_status(self, response: httpx2.Response) -> None:
        status = response.status_code
        if status < 300:
            return
        if status < 400:
            where = response.headers.get("location", "elsewhere")
            raise self._error(f"redirects to {where}; set that as the base_url", "invalid_request", status)
        read = bytearray()
        with contextlib.suppress(httpx2.HTTPError, httpx2.StreamError):
            async for piece in response.aiter_bytes():
                read += piece
                if len(read) > MAX_REFUSAL_BYTES:
                    break
        error = read_error_reply(bytes(read[:MAX_REFUSAL_BYTES]))
        raise ProviderError(
            self._message(f"answered {status} {response.reason_phrase}: {error.message}"),
            fault=fault_of(status, error),
            status=status,
            retry_after_s=read_retry_after(response.headers, time.time()),
        )

    async def _read(self, response: httpx2.Response) -> AsyncGenerator[StreamItem, None]:
        if "html" in response.headers.get("content-type", ""):
            raise self._error("answered with a web page; check the base_url", "invalid_request")
        reader = ReplyReader()
        try:
            async with contextlib.aclosing(_events(response)) as events:
                async for event in events:
                    chunk = read_json(event.data)
                    if event.name == b"error" or is_error_reply(chunk):
                        error = error_reply_of(chunk)
                        raise self._error(error.message, fault_of(None, error), error.status)
                    for delta in reader.take(chunk):
                        yield delta
            reply = reader.reply()
        except (BadReplyError, TooLargeError) as bad:
            raise self._error(f"sent an invalid answer: {bad}", "bad_stream") from bad
        yield reply

    # --- errors ------------------------------------------------------------------------------------

    def _error(self, what: str, fault: Fault, status: int | None = None) -> ProviderError:
        return ProviderError(self._message(what), fault=fault, status=status)

    def _message(self, what: str) -> str:
        message = f"{self.id} ({self.base_url}): {what}"
        return message.replace(self._key, "…") if self._key else message


async def _events(response: httpx2.Response) -> AsyncGenerator[ServerEvent, None]:
    """The events of a response up to the last; a plain JSON response is one event. Raises `BadReplyError`."""
    parser, size = ServerEventReader(), 0
    begun, plain = False, bytearray()
    async with contextlib.aclosing(response.aiter_bytes()) as pieces:
        async for piece in pieces:
            size += len(piece)
            if size > MAX_BODY_BYTES:
                raise BadReplyError(f"a response of more than {MAX_BODY_BYTES} bytes")
            # Recognized by its first byte: the content type of a response is not reliable.
            rest = piece if begun else piece.lstrip()
            is_plain = bool(plain) or (not begun and rest[:1] in (b"{", b"["))
            begun = begun or bool(rest)
            if is_plain:
                plain += rest
                continue
            for event in parser.feed(rest):
                if event.data.strip() == _DONE:
                    await _drain(pieces)
                    return
                yield event
    if plain:
        yield ServerEvent(bytes(plain))
        return
    last = parser.close()
    if last is None or last.data.strip() != _DONE:
        raise BadReplyError("the stream ended without [DONE], so it may be incomplete")


async def _drain(pieces: AsyncIterator[bytes]) -> None:
    with contextlib.suppress(TimeoutError, httpx2.HTTPError, httpx2.StreamError):
        async with asyncio.timeout(DRAIN_S):
            async for _ in pieces:
                pass


def _error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
