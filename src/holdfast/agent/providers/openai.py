"""Models behind an endpoint that speaks the chat-completions form of OpenAI: services, gateways, local servers.

One call is one POST to `{base_url}/chat/completions`, streamed. Its body and its reply are made and read in
`openai_request` and `openai_reply`; here are the connection, its time limits, and what can go wrong with it.
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
"""Seconds without a byte: a model may think so long before its first word, and no living stream is silent longer."""

MAX_BODY_BYTES = 256 * 1024 * 1024
"""Bytes of one response: a chunk is some hundred bytes around one token, and a reply has up to some 100,000 of them."""

MAX_REFUSAL_BYTES = 64 * 1024
"""Bytes of an error's body that are read."""

DRAIN_S = 0.05
"""Seconds to wait for the end of a response after its last event: a connection is used again only if that has come."""

IDLE_CONNECTION_S = 60.0
"""Seconds an unused connection is kept: longer than most tools take between two calls of a turn."""

_DONE = b"[DONE]"
_LOCAL = frozenset(["localhost", "127.0.0.1", "::1"])


class OpenAIProvider:
    """A service that speaks the chat-completions form of OpenAI.

    Arguments of a tool call that are no JSON object arrive as `{"_raw": text}`, so that the tool layer can tell the
    model; see `arguments`. A reply that is not streamed, from servers that cannot, is taken as well. A stream that ends
    without `[DONE]` is a `bad_stream`, never a short answer.

    Connections are kept and used again. `aclose` gives them up; the provider can be used on, with new ones.
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
        """`reasoning_field` is where the service wants its earlier reasoning back, such as `reasoning_content`.

        Most services do not take it, so by default it is not sent.
        """
        self.id = id
        self.base_url = base_url.rstrip("/")
        address = urlsplit(self.base_url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise InvalidValueError("base_url", f"'{base_url}' is no http or https URL")
        self._host = address.hostname
        self._key = (api_key or "").strip()
        if not self._key.isascii() or not self._key.isprintable():
            raise InvalidValueError("api_key", "it holds characters that no HTTP header can")
        self._headers = {**({"Authorization": f"Bearer {self._key}"} if self._key else {}), **(headers or {})}
        self._reasoning_field = reasoning_field
        # Their newer models refuse the name that all others know.
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
            raise self._error(f"{what} within the time limit ({_told(error)})", "timeout") from error
        except (httpx2.UnsupportedProtocol, httpx2.InvalidURL, httpx2.LocalProtocolError) as error:
            raise self._error(f"the request cannot be sent: {_told(error)}", "invalid_request") from error
        except (httpx2.TransportError, httpx2.DecodingError, httpx2.StreamError) as error:
            if answered:
                raise self._error(f"the answer broke off: {_told(error)}", "bad_stream") from error
            raise self._error(f"cannot be reached: {_told(error)}", "network") from error

    # --- sending -----------------------------------------------------------------------------------

    def _client(self) -> httpx2.AsyncClient:
        """Connections belong to an event loop, so each has its own."""
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            client = self._clients[loop] = httpx2.AsyncClient(
                timeout=self._timeout,
                limits=httpx2.Limits(keepalive_expiry=IDLE_CONNECTION_S),
                trust_env=self._host not in _LOCAL,  # a proxy does not lead to this machine
            )
        return client

    def _headers_of(self, request: ModelRequest) -> dict[str, str]:
        fixed = {
            "Content-Type": "application/json",
            "Accept": "text/event-stream, application/json",
            "Accept-Encoding": "identity",  # what is compressed on the way is held back on the way
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
            raise self._error(f"points to {where}; set that as the base_url", "invalid_request", status)
        read = bytearray()
        with contextlib.suppress(httpx2.HTTPError, httpx2.StreamError):
            async for piece in response.aiter_bytes():
                read += piece
                if len(read) > MAX_REFUSAL_BYTES:
                    break
        refusal = read_error_reply(bytes(read[:MAX_REFUSAL_BYTES]))
        raise ProviderError(
            self._words(f"answered {status} {response.reason_phrase}: {refusal.message}"),
            fault=fault_of(status, refusal),
            status=status,
            retry_after_s=read_retry_after(response.headers, time.time()),
        )

    async def _read(self, response: httpx2.Response) -> AsyncGenerator[StreamItem, None]:
        if "html" in response.headers.get("content-type", ""):
            raise self._error("answered with a web page; is the base_url right?", "invalid_request")
        reader = ReplyReader()
        try:
            async with contextlib.aclosing(_events(response)) as events:
                async for event in events:
                    chunk = read_json(event.data)
                    if event.name == b"error" or is_error_reply(chunk):
                        refusal = error_reply_of(chunk)
                        raise self._error(refusal.message, fault_of(None, refusal), refusal.status)
                    for delta in reader.take(chunk):
                        yield delta
            reply = reader.reply()
        except (BadReplyError, TooLargeError) as error:
            raise self._error(f"answered with what cannot be used: {error}", "bad_stream") from error
        yield reply

    # --- telling -----------------------------------------------------------------------------------

    def _error(self, what: str, fault: Fault, status: int | None = None) -> ProviderError:
        return ProviderError(self._words(what), fault=fault, status=status)

    def _words(self, what: str) -> str:
        told = f"{self.id} ({self.base_url}): {what}"
        return told.replace(self._key, "…") if self._key else told


async def _events(response: httpx2.Response) -> AsyncGenerator[ServerEvent, None]:
    """The events of a response up to its last; one that is plain JSON is one event. Raises `BadReplyError`."""
    parser, size = ServerEventReader(), 0
    begun, plain = False, bytearray()
    async with contextlib.aclosing(response.aiter_bytes()) as pieces:
        async for piece in pieces:
            size += len(piece)
            if size > MAX_BODY_BYTES:
                raise BadReplyError(f"a response of more than {MAX_BODY_BYTES} bytes")
            # Told by its first byte: servers that do not stream, and those that do, name either content type.
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
        raise BadReplyError("the stream ended without [DONE], so it may not be whole")


async def _drain(pieces: AsyncIterator[bytes]) -> None:
    with contextlib.suppress(TimeoutError, httpx2.HTTPError, httpx2.StreamError):
        async with asyncio.timeout(DRAIN_S):
            async for _ in pieces:
                pass


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
