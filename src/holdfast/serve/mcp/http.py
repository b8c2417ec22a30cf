"""The server over streamable HTTP: who may connect, how much they may send, and how it ends.

Loopback needs no token: the Host and Origin of every request are checked, so that no web page reaches it by a name of
its own (DNS rebinding). Any other address needs a token as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import signal
import socket
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import mcp_types as types
import msgspec
import uvicorn
from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.core.errors import HoldfastError
from holdfast.serve.mcp.limits import GRACE_S, IDLE_S, MAX_MESSAGE_BYTES, MIN_TOKEN_CHARS
from holdfast.serve.mcp.reconnect import ReconnectApp
from holdfast.serve.mcp.server import McpServer

PATH = "/mcp"


@dataclass(eq=False)
class HttpError(HoldfastError):
    """Settings that the server cannot be started with."""

    why: str
    kind = "http"

    def __str__(self) -> str:
        return self.why


@dataclass(frozen=True)
class HttpSettings:
    """Where to listen, and whom to let in."""

    host: str = "127.0.0.1"
    port: int = 8421
    token: str | None = None
    names: tuple[str, ...] = ()
    """Further names that clients may call this machine by: those of a proxy in front of it."""

    def __post_init__(self) -> None:
        if self.token is None:
            if not _is_loopback(self.host):
                raise HttpError(
                    f"{self.host} can be reached from other machines, so a token is needed: set HOLDFAST_MCP_TOKEN"
                    " (`openssl rand -hex 32` makes one), or listen on 127.0.0.1"
                )
        elif len(self.token) < MIN_TOKEN_CHARS or not self.token.isascii() or not self.token.isprintable():
            raise HttpError(
                f"the token has to be at least {MIN_TOKEN_CHARS} characters of printable ASCII;"
                " `openssl rand -hex 32` makes one"
            )
        elif " " in self.token:
            raise HttpError("the token holds a space, which no Authorization header can carry")

    def is_own_name(self, name: str) -> bool:
        """Whether this is a name that clients call this server by."""
        if name in (self.host.lower(), *self.names) or _is_loopback(name):
            return True
        # No name server can be made to say that a number means this machine: a number was meant by whoever typed it.
        return not _is_loopback(self.host) and _is_number(name)


async def serve_http(server: McpServer, http: HttpSettings, ready: Callable[[str], None]) -> None:
    """Serve until a signal asks to end. `ready` is called with the URL once requests are accepted."""
    app = server.server.streamable_http_app(
        streamable_http_path=PATH,
        max_request_body_size=MAX_MESSAGE_BYTES,
        session_idle_timeout=IDLE_S,
        # Checked by the gate, for every address and with errors that say what to do.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    gate = _RequestGate(ReconnectApp(app, server.server, PATH), http)
    config = uvicorn.Config(
        gate,
        lifespan="on",
        ws="none",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=int(GRACE_S) + 2,
    )
    listening = _listen(http)
    url = f"http://{f'[{http.host}]' if ':' in http.host else http.host}:{listening.getsockname()[1]}{PATH}"
    served = _Uvicorn(config, lambda: ready(url))
    with _ended_by_signals(served, gate):
        await served.serve([listening])


class _Uvicorn(uvicorn.Server):
    """Says when it is ready, and leaves signals alone: uvicorn would raise them again at its end, before the sessions
    are let go."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.contextmanager
def _ended_by_signals(served: uvicorn.Server, gate: _RequestGate) -> Iterator[None]:
    loop = asyncio.get_running_loop()

    def end() -> None:
        served.force_exit = served.should_exit  # asked twice: at once
        served.should_exit = True
        gate.close()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, end)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.remove_signal_handler(number)


def _listen(http: HttpSettings) -> socket.socket:
    try:
        found = socket.getaddrinfo(http.host or None, http.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
        except OSError:
            listening.close()
            raise
    except OSError as error:
        raise HttpError(
            f"cannot listen on {http.host} port {http.port}: {error.strerror}; --port chooses another"
        ) from None
    return listening


def _is_loopback(name: str) -> bool:
    if name.lower() in ("localhost", "localhost."):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def _is_number(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


# --- the gate --------------------------------------------------------------------------------------


class RefusalError(Exception):
    """A request that is not let in."""

    def __init__(self, status: int, why: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(why)
        self.status = status
        self.headers = headers or {}


class _RequestGate:
    """What every request goes through first, and what ends those that are under way when the server ends."""

    def __init__(self, app: ASGIApp, http: HttpSettings) -> None:
        self._app = app
        self._http = http
        self._closing = asyncio.Event()

    def close(self) -> None:
        """End streams that wait for news at once, and calls after a while."""
        self._closing.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            self._check(Headers(scope=scope))
        except RefusalError as refusal:
            await _refuse(send, refusal)
            return
        await self._until_closed(scope, receive, send)

    def _check(self, headers: Headers) -> None:
        host = _name_in(f"//{headers.get('host', '')}")
        if host is None or not self._http.is_own_name(host):
            raise RefusalError(
                421,
                f"this server is not called '{headers.get('host', '')}'; `--allow-host` adds a name that it may have",
            )
        origin = headers.get("origin")
        if origin is not None:
            page = _name_in(origin)
            # Not every number is fine here: a page may be anywhere.
            is_own = page is not None and (page == host or _is_loopback(page) or page in self._http.names)
            if not is_own:
                raise RefusalError(403, f"requests from pages of '{origin}' are not taken; `--allow-host` adds a name")
        if self._http.token is not None:
            self._check_token(headers.get("authorization", ""))
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length) > MAX_MESSAGE_BYTES:
            raise RefusalError(
                413,
                f"the message has {int(length):,} bytes; the most is {MAX_MESSAGE_BYTES:,}",
            )

    def _check_token(self, given: str) -> None:
        scheme, _, token = given.partition(" ")
        assert self._http.token is not None
        # Compared in a time that does not tell how much of it is right.
        if scheme.lower() == "bearer" and hmac.compare_digest(token.strip().encode(), self._http.token.encode()):
            return
        why = "the token is wrong" if given else "a token is needed: send `Authorization: Bearer TOKEN`"
        challenge = 'Bearer realm="holdfast"' + (', error="invalid_token"' if given else "")
        raise RefusalError(401, why, {"www-authenticate": challenge})

    async def _until_closed(self, scope: Scope, receive: Receive, send: Send) -> None:
        reply = _Reply(send)
        serving = asyncio.ensure_future(self._app(scope, receive, reply))
        closing = asyncio.ensure_future(self._close_of(scope["method"]))
        try:
            await asyncio.wait({serving, closing}, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
                return
        finally:
            for task in (serving, closing):
                task.cancel()
            await asyncio.gather(serving, closing, return_exceptions=True)
        await reply.cut_short()

    async def _close_of(self, method: str) -> None:
        await self._closing.wait()
        if method == "POST":
            await asyncio.sleep(GRACE_S)


def _name_in(url: str) -> str | None:
    """The name of the machine in an address."""
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


class _Reply:
    """A reply on its way, which can be ended in an orderly manner wherever it is."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._began = False
        self._ended = False

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        self._began = True
        self._ended = message["type"] == "http.response.body" and not message.get("more_body", False)
        await self._send(message)

    async def cut_short(self) -> None:
        if not self._began:
            why = "the server is shutting down; nothing is lost: when it is back, ask again or continue by session id"
            await _refuse(self._send, RefusalError(503, why, {"retry-after": "2"}))
        elif not self._ended:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})


async def _refuse(send: Send, refusal: RefusalError) -> None:
    error = {"code": types.INVALID_REQUEST, "message": str(refusal)}
    body = msgspec.json.encode({"jsonrpc": "2.0", "id": None, "error": error})
    given = {
        "content-type": "application/json",
        "content-length": str(len(body)),
        "connection": "close",
        **refusal.headers,
    }
    headers = [(name.encode(), value.encode("latin-1", "replace")) for name, value in given.items()]
    start: Message = {"type": "http.response.start", "status": refusal.status, "headers": headers}
    await send(start)
    await send({"type": "http.response.body", "body": body})
