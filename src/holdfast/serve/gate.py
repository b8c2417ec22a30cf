"""What every request goes through first, and what ends those that are under way when the server ends.

The Host and Origin of every request are checked, so that no web page reaches a server on this machine by a name of its
own (DNS rebinding).
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.core.errors import InvalidValueError
from holdfast.serve.connections import BodyError, BodyReader, ConnectionLimits
from holdfast.serve.listener import GRACE_S, HttpSettings, is_loopback
from holdfast.serve.message_keys import check_message_keys


class RefusalError(Exception):
    """A request that is not let in."""

    def __init__(self, status: int, why: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(why)
        self.status = status
        self.headers = headers or {}


Refuse: TypeAlias = Callable[[Send, RefusalError], Awaitable[None]]
"""Tells a client that its request is refused, in the way of the protocol that it speaks."""


@dataclass(frozen=True)
class GateRules:
    """Whom a gate lets in, how much they may send, and how it refuses."""

    http: HttpSettings
    max_bytes: int
    refuse: Refuse
    needs_token: bool = True
    """Whether the token of the settings is asked for here, and not behind the gate."""
    checks_keys: bool = True
    """Whether a message in which a key stands twice is refused here, and not behind the gate."""
    same_port: bool = False
    """Whether pages of other ports of this machine are refused, too."""
    ends_streams: bool = True
    """Whether streams are ended by the gate as soon as it closes, and not by themselves after a last word."""


class RequestGate:
    """An application behind checks that every request has to pass."""

    def __init__(self, app: ASGIApp, rules: GateRules) -> None:
        self._app = app
        self._rules = rules
        self._bodies = BodyReader(ConnectionLimits(), rules.max_bytes)
        self._closing = asyncio.Event()

    def close(self) -> None:
        """End streams that wait for news at once, unless they do so themselves, and calls after a while."""
        self._closing.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            self._check(Headers(scope=scope))
            await self._bodies.serve(self._checked, scope, receive, send)
        except RefusalError as refusal:
            await self._rules.refuse(send, refusal)
        except BodyError as error:
            await self._rules.refuse(send, RefusalError(error.status, error.why, error.headers))

    def _check(self, headers: Headers) -> None:
        rules, http = self._rules, self._rules.http
        given = headers.get("host", "")
        host = _name_in(f"//{given}")
        if host is None or not http.is_own_name(host):
            raise RefusalError(421, f"this server is not called '{given}'; `--allow-host` adds a name that it may have")
        origin = headers.get("origin")
        if origin is not None and not self._is_own_page(origin, host, given):
            raise RefusalError(403, f"requests from pages of '{origin}' are not taken; `--allow-host` adds a name")
        if rules.same_port:
            _check_site(headers)
        if rules.needs_token and http.token is not None:
            _check_token(headers.get("authorization", ""), http.token)

    def _is_own_page(self, origin: str, host: str, authority: str) -> bool:
        page, http = _name_in(origin), self._rules.http
        if page is None:
            return False
        if self._rules.same_port and page not in http.names:
            return urlsplit(origin).netloc == authority
        # Not every number is fine here: a page may be anywhere.
        return page == host or is_loopback(page) or page in http.names

    async def _checked(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request whose body comes in one piece."""
        if self._rules.checks_keys:
            whole = await receive()
            try:
                await check_message_keys(whole.get("body", b""))
            except InvalidValueError as error:
                raise RefusalError(400, str(error)) from None
            receive = _first(whole, receive)
        await self._until_closed(scope, receive, send)

    async def _until_closed(self, scope: Scope, receive: Receive, send: Send) -> None:
        reply = _Reply(send, self._rules.refuse)
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
        if method != "GET" or not self._rules.ends_streams:
            await asyncio.sleep(GRACE_S)


def _check_site(headers: Headers) -> None:
    """Refuse what a browser sends for a page elsewhere, although it names no page, and what a page sent unencrypted to
    a server that is encrypted. Links may lead here from anywhere: to follow one changes nothing."""
    origin = headers.get("origin")
    site, mode = headers.get("sec-fetch-site", "none"), headers.get("sec-fetch-mode", "")
    if origin is None and site not in ("same-origin", "none") and mode != "navigate":
        raise RefusalError(403, "requests from pages of other sites are not taken")
    if origin is not None and origin.startswith("http:") and headers.get("x-forwarded-proto") == "https":
        raise RefusalError(403, f"requests from unencrypted pages like '{origin}' are not taken")


def _first(message: Message, receive: Receive) -> Receive:
    """Gives a message that was taken already, and then what follows."""
    waiting = [message]

    async def next_message() -> Message:
        return waiting.pop() if waiting else await receive()

    return next_message


def _check_token(given: str, wanted: str) -> None:
    scheme, _, token = given.partition(" ")
    # Compared in a time that does not tell how much of it is right.
    if scheme.lower() == "bearer" and hmac.compare_digest(token.strip().encode(), wanted.encode()):
        return
    why = "the token is wrong" if given else "a token is needed: send `Authorization: Bearer TOKEN`"
    why += "; the server said in which file it is when it started"
    challenge = 'Bearer realm="holdfast"' + (', error="invalid_token"' if given else "")
    raise RefusalError(401, why, {"www-authenticate": challenge})


def _name_in(url: str) -> str | None:
    """The name of the machine in an address."""
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


class _Reply:
    """A reply on its way, which can be ended in an orderly manner wherever it is."""

    def __init__(self, send: Send, refuse: Refuse) -> None:
        self._send = send
        self._refuse = refuse
        self._began = False
        self._ended = False

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        self._began = True
        self._ended = message["type"] == "http.response.body" and not message.get("more_body", False)
        await self._send(message)

    async def cut_short(self) -> None:
        if not self._began:
            why = "the server is shutting down; nothing is lost: when it is back, ask again or continue by session id"
            await self._refuse(self._send, RefusalError(503, why, {"retry-after": "2"}))
        elif not self._ended:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})


async def send_refusal(send: Send, refusal: RefusalError, body: bytes, media_type: str) -> None:
    """Send a refusal with a body, and end the connection."""
    given = {
        "content-type": media_type,
        "content-length": str(len(body)),
        "connection": "close",
        **refusal.headers,
    }
    headers = [(name.encode(), value.encode("latin-1", "replace")) for name, value in given.items()]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
