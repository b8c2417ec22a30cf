"""The ASGI application: finds the endpoint of a request, checks who sends it and what it says, and replies."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property
from typing import Any
from urllib.parse import parse_qs

import msgspec
from starlette.datastructures import Headers
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from holdfast.core.errors import HoldfastError, InvalidValueError
from holdfast.core.limits import ERROR_PREVIEW_CHARS
from holdfast.serve.http.door import Door
from holdfast.serve.http.endpoint import ApiCall, BytesReply, Endpoint, JsonReply, StreamReply, parameters
from holdfast.serve.http.event_stream import HEADERS as STREAM_HEADERS
from holdfast.serve.http.event_stream import EventStream
from holdfast.serve.http.logins import authorization_in
from holdfast.serve.http.logs import name_session, request_context
from holdfast.serve.http.openapi import openapi_document
from holdfast.serve.http.paths import OUTSIDE, PREFIX
from holdfast.serve.http.problems import MEDIA_TYPE, ApiError, bug_problem, problem_of, status_of
from holdfast.serve.http.tokens import NOBODY
from holdfast.serve.message_keys import check_message_keys

_log = logging.getLogger("holdfast.http")


class ApiApp:
    """The HTTP API on a door. Mount it below any ASGI application, or serve it alone."""

    def __init__(self, door: Door, endpoints: Iterable[Endpoint]) -> None:
        self.door = door
        self._endpoints = list(endpoints)
        by_path: dict[str, dict[str, Endpoint]] = defaultdict(dict)
        for each in self._endpoints:
            by_path[each.path][each.method] = each
        self._routes = [(Route(path, _nothing), methods) for path, methods in by_path.items()]

    @cached_property
    def document(self) -> dict[str, Any]:
        """The OpenAPI document of the endpoints."""
        return openapi_document(self._endpoints)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"the HTTP API does not speak {scope['type']}")
        request = _Request(self.door, scope, receive, send)
        began = time.perf_counter()
        with request_context(request.id):
            await self._answer(request, scope)
            request.told(began)

    async def _answer(self, request: _Request, scope: Scope) -> None:
        try:
            await self._serve(request)
        except HoldfastError as error:
            if (
                request.status
            ):  # a part of the reply is on its way: the connection is cut, so that nobody takes it for all
                raise
            await request.refuse(error)
        except asyncio.CancelledError:
            raise
        except Exception:
            if request.status:
                raise
            _log.exception("request %s failed: %s %s", request.id, scope["method"], scope["path"])
            await request.send_json(bug_problem(request.id), 500, {"content-type": MEDIA_TYPE})

    async def _serve(self, request: _Request) -> None:
        route_path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
        if route_path == f"{PREFIX}/openapi.json":
            await request.send_json(self.document, 200, {})
            return
        endpoint, path = self._find(request.scope, route_path)
        request.route = endpoint.path
        if "session_id" in path:
            name_session(path["session_id"])
        if self.door.closing.is_set():
            why = "the server is shutting down; nothing is lost: ask again in a moment"
            raise ApiError(503, "shutting_down", why, {"retry-after": "2"})
        headers = request.headers
        principal = NOBODY
        if endpoint.scope != "none":
            principal = await self.door.principal(authorization_in(headers))
            principal.check_scope(endpoint.scope)
        if endpoint.method != "GET":
            self.door.rates.check_write(principal.token_id)
        query = parameters(endpoint.query, parse_qs(request.scope["query_string"].decode("latin-1")))
        body = await request.body(endpoint)
        call = ApiCall(
            door=self.door,
            principal=principal,
            path=path,
            query=query,
            body=body,
            headers=headers,
            request_id=request.id,
            address=request.address,
            is_encrypted=request.is_encrypted,
            root=request.scope.get("root_path", ""),
        )
        reply = await endpoint.handler(call)
        match reply:
            case JsonReply():
                await request.send_reply(endpoint, reply)
            case BytesReply():
                await request.send_pieces(reply)
            case StreamReply():
                await request.send_stream(reply, reply.holder or principal.token_id)

    def _find(self, scope: Scope, route_path: str) -> tuple[Endpoint, dict[str, str]]:
        """The endpoint of a path, and what stands in the places of its names."""
        allowed: set[str] = set()
        inner = route_path.removeprefix(PREFIX)
        is_inside = inner != route_path or inner in OUTSIDE
        for route, methods in self._routes if is_inside else ():
            match, found = route.matches({**scope, "path": inner, "root_path": "", "method": "GET"})
            if match is Match.NONE:
                continue
            method = "GET" if scope["method"] == "HEAD" else scope["method"]
            if method in methods:
                return methods[method], {key: str(value) for key, value in found["path_params"].items()}
            allowed |= set(methods)
        if allowed:
            names = ", ".join(sorted(allowed))
            raise ApiError(405, "method_not_allowed", f"{_shown(scope['path'])} takes {names}", {"allow": names})
        raise ApiError(404, "unknown_path", f"there is nothing at {_shown(scope['path'])}; see {PREFIX}/openapi.json")


def _shown(path: str) -> str:
    """A path as a problem quotes it."""
    return path if len(path) <= ERROR_PREVIEW_CHARS else f"{path[:ERROR_PREVIEW_CHARS]}…"


async def _nothing(*_: Any) -> None:
    """Never called: the routes only match."""


class _Request:
    """One request, and the ways to reply to it."""

    def __init__(self, door: Door, scope: Scope, receive: Receive, send: Send) -> None:
        self.door = door
        self.scope = scope
        self.headers = Headers(scope=scope)
        self.id = "r-" + secrets.token_hex(8)
        self.route = "unknown"
        self.status = 0
        self.is_stream = False
        self._receive = receive
        self._send = send

    @property
    def address(self) -> str:
        """Where it comes from: the other end of its connection."""
        client = self.scope.get("client")
        return str(client[0]) if client else ""

    @property
    def is_encrypted(self) -> bool:
        """Whether it came over HTTPS, to this server or to the proxy in front of it."""
        return "https" in (self.scope.get("scheme"), self.headers.get("x-forwarded-proto"))

    def told(self, began: float) -> None:
        """It was answered: count it, and write it into the log."""
        took_s = time.perf_counter() - began
        method, metrics = self.scope["method"], self.door.metrics
        metrics.requests[method, self.route, str(self.status)] += 1
        if not self.is_stream:
            metrics.request_s.observe(took_s)
        if _log.isEnabledFor(logging.INFO):
            took = {"method": method, "route": self.route, "status": self.status, "ms": round(took_s * 1000, 2)}
            _log.info("%s %s gave %s", method, self.route, self.status, extra={"fields": took})

    async def body(self, endpoint: Endpoint) -> Any:
        """The body as the endpoint's type. Raises 413, 415 and `InvalidValueError`."""
        if endpoint.body is None:
            return None
        kind = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        raw = await self._raw(endpoint.body_bytes)
        if kind != endpoint.body_type and (raw or kind):
            raise ApiError(415, "unsupported_media_type", f"send `Content-Type: {endpoint.body_type}`, not '{kind}'")
        if endpoint.body is bytes:
            return raw
        await check_message_keys(raw, "body")
        try:
            return msgspec.json.decode(raw or b"{}", type=endpoint.body)
        except msgspec.ValidationError as error:
            raise InvalidValueError("body", str(error)) from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidValueError("body", f"it is no JSON: {error}") from None
        except RecursionError:
            raise InvalidValueError("body", "it is nested too deeply") from None

    async def _raw(self, most: int) -> bytes:
        length = self.headers.get("content-length", "")
        pieces: list[bytes] = []
        size = int(length) if length.isdigit() else 0
        is_more, received = size <= most, 0
        while is_more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ApiError(400, "incomplete", "the connection ended before the body did")
            pieces.append(message.get("body", b""))
            received += len(pieces[-1])
            is_more = message.get("more_body", False) and received <= most
        if max(size, received) > most:
            raise ApiError(413, "too_large", f"the body has more than {most:,} bytes", {"connection": "close"})
        return b"".join(pieces)

    async def refuse(self, error: HoldfastError) -> None:
        headers = {"content-type": MEDIA_TYPE, **(error.headers if isinstance(error, ApiError) else {})}
        await self.send_json(problem_of(error, self.id), status_of(error), headers)

    async def send_reply(self, endpoint: Endpoint, reply: JsonReply) -> None:
        status = reply.status or endpoint.status
        if status in (204, 304):
            await self._start(status, reply.headers)
            await self._send({"type": "http.response.body", "body": b""})
            return
        await self.send_json(reply.value, status, reply.headers)

    async def send_json(self, value: Any, status: int, headers: dict[str, str]) -> None:
        body = msgspec.json.encode(value, enc_hook=str)
        given = {"content-type": "application/json", "cache-control": "no-store", **headers}
        await self._start(status, {**given, "content-length": str(len(body))})
        await self._send({"type": "http.response.body", "body": b"" if self.scope["method"] == "HEAD" else body})

    async def send_pieces(self, reply: BytesReply) -> None:
        first = await anext(reply.pieces, b"")  # before the head: what cannot be read at all is refused properly
        await self._start(200, {"content-type": reply.media_type, "cache-control": "no-store", **reply.headers})
        await self._send({"type": "http.response.body", "body": first, "more_body": True})
        async for piece in reply.pieces:
            await self._send({"type": "http.response.body", "body": piece, "more_body": True})
        await self._send({"type": "http.response.body", "body": b""})

    async def send_stream(self, reply: StreamReply, holder: str) -> None:
        door = self.door
        door.rates.open_stream(holder)
        self.is_stream = True
        door.metrics.streams += 1
        try:
            await self._start(200, STREAM_HEADERS)
            authorization = authorization_in(self.headers)

            async def check_authority() -> None:
                if reply.holder is None:
                    await door.principal(authorization)

            stream = EventStream(reply.events, self.id, door.closing, check_authority)
            await stream.run(self._receive, self._send)
        finally:
            door.metrics.streams -= 1
            door.rates.close_stream(holder)

    async def _start(self, status: int, headers: dict[str, str]) -> None:
        self.status = status
        all_headers = {"request-id": self.id, "x-content-type-options": "nosniff", **headers}
        encoded = [(name.encode(), value.encode("latin-1", "replace")) for name, value in all_headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": encoded})
