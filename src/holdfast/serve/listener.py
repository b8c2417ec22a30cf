"""Serving an application over HTTP: where to listen, whom to let in, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Protocol

import uvicorn
from starlette.types import Receive, Scope, Send

from holdfast.core.errors import HoldfastError
from holdfast.serve.connections import ConnectionGuard, ConnectionLimits, server_options

GRACE_S = 3.0
"""Seconds that requests under way have when the server is asked to end. After that they end without an answer."""

MIN_TOKEN_CHARS = 16
"""Characters of a token: fewer can be guessed."""


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
            if not is_loopback(self.host):
                raise HttpError(
                    f"{self.host} can be reached from other machines, so a token is needed: set HOLDFAST_MCP_TOKEN"
                    " (`openssl rand -hex 32` makes one), or listen on 127.0.0.1"
                )
        else:
            check_token(self.token)

    def is_own_name(self, name: str) -> bool:
        """Whether this is a name that clients call this server by."""
        if name in (self.host.lower(), *self.names) or is_loopback(name):
            return True
        # No name server can be made to say that a number means this machine: a number was meant by whoever typed it.
        return not is_loopback(self.host) and _is_number(name)

    def url(self, port: int) -> str:
        """Where the server is, on the port that it got."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{port}"


def check_token(token: str) -> None:
    """Raise unless this can be a token."""
    if len(token) < MIN_TOKEN_CHARS or not token.isascii() or not token.isprintable():
        raise HttpError(
            f"the token has to be at least {MIN_TOKEN_CHARS} characters of printable ASCII;"
            " `openssl rand -hex 32` makes one"
        )
    if " " in token:
        raise HttpError("the token holds a space, which no Authorization header can carry")


class Closable(Protocol):
    """An ASGI application that ends what is under way in it when it is asked to."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    def close(self) -> None: ...


async def serve(app: Closable, http: HttpSettings, ready: Callable[[str], None], *, lifespan: bool = False) -> None:
    """Serve an application until a signal asks to end. `ready` is called with the URL once requests are taken."""
    config = uvicorn.Config(
        app,
        lifespan="on" if lifespan else "off",
        ws="none",
        timeout_graceful_shutdown=int(GRACE_S) + 2,
        **server_options(ConnectionGuard(ConnectionLimits())),
    )
    listening = _listen(http)
    url = http.url(listening.getsockname()[1])
    served = _Uvicorn(config, lambda: ready(url))
    with _ended_by_signals(served, app):
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
def _ended_by_signals(served: uvicorn.Server, app: Closable) -> Iterator[None]:
    loop = asyncio.get_running_loop()

    def end() -> None:
        served.force_exit = served.should_exit  # asked twice: at once
        served.should_exit = True
        app.close()

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


def is_loopback(name: str) -> bool:
    """Whether a name or number means this machine, and nobody else can reach it by that."""
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
