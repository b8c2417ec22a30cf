"""Endpoints as data: what each takes, gives and needs. Routes and the OpenAPI document are made from the same list."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

import msgspec

from holdfast.core.errors import InvalidValueError
from holdfast.core.values import Json
from holdfast.serve.http.limits import BODY_BYTES, MAX_WAIT_S

if TYPE_CHECKING:
    from holdfast.serve.http.door import Door
    from holdfast.serve.http.tokens import Principal

TokenScope: TypeAlias = Literal[
    "sessions:read", "sessions:write", "answers:write", "agents:run", "strategies:read", "admin", "any", "none"
]
"""What a token must allow: `any` for what every token may do, `none` for what needs none."""

HttpMethod: TypeAlias = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]

QueryT = TypeVar("QueryT", bound=msgspec.Struct)
BodyT = TypeVar("BodyT")


class Parameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of what comes in the query of a URL. A list field may be repeated; unknown names are refused."""


class RequestBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of request bodies. Unknown fields are refused: a typing error must not pass for a default."""


@dataclass(frozen=True)
class ApiCall(Generic[QueryT, BodyT]):
    """A request that was checked: who sends it, and what it says."""

    door: Door
    principal: Principal
    path: Mapping[str, str]
    query: QueryT
    body: BodyT
    headers: Mapping[str, str]
    request_id: str
    address: str = ""
    """Where the request comes from."""
    is_encrypted: bool = False
    """Whether it came over HTTPS."""
    root: str = ""
    """Below which path the API is mounted."""

    @property
    def session_id(self) -> str:
        """The session that the path names. Raises what a token that may not see it is told: that there is none."""
        session_id = self.path["session_id"]
        self.principal.check_session(session_id)
        return session_id

    @property
    def base_url(self) -> str:
        """Where this server is, as the client calls it."""
        scheme = "https" if self.is_encrypted else "http"
        return f"{scheme}://{self.headers.get('host', 'localhost')}{self.root}"

    @property
    def wants_stream(self) -> bool:
        """Whether the client asks for an event stream."""
        return "text/event-stream" in self.headers.get("accept", "")


class StreamEvent(msgspec.Struct, frozen=True):
    """One event of a stream, encoded when it is sent."""

    type: str
    data: Any
    id: str | None = None
    """Where the client goes on from, if its connection breaks after this event."""
    is_delta: bool = False
    """Whether it is a piece of a text that may be joined with the next one."""


@dataclass
class JsonReply:
    """What an endpoint answers with."""

    value: Any = None
    status: int | None = None
    """None for the endpoint's usual one."""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class StreamReply:
    """An endpoint's answer as a stream of events."""

    events: AsyncIterator[StreamEvent]
    holder: str | None = None
    """Who may have only so many of them, if that is not whoever has the token of the request."""


@dataclass
class BytesReply:
    """An answer that is no JSON, or is JSON already, in pieces."""

    pieces: AsyncIterator[bytes]
    media_type: str
    headers: dict[str, str] = field(default_factory=dict)


async def in_one_piece(content: bytes) -> AsyncIterator[bytes]:
    """The pieces of an answer that is here as a whole."""
    yield content


EndpointHandler: TypeAlias = Callable[[Any], Awaitable[JsonReply | StreamReply | BytesReply]]


@dataclass(frozen=True)
class Endpoint:
    """One method of one path."""

    method: HttpMethod
    path: str
    scope: TokenScope
    handler: EndpointHandler
    summary: str
    """The first line of the handler's docstring."""
    query: type[Parameters]
    body: Any
    """The type of the body, `bytes` for a file, or None if it takes none."""
    reply: Any
    """The type of what it answers with, or None if that is empty."""
    status: int
    body_bytes: int
    streams: bool
    media_type: str
    """Of the reply, where that is not JSON (`bytes`)."""
    body_type: str
    """The media type of the body."""


class NoParameters(Parameters, frozen=True, kw_only=True):
    """A query that is empty."""


class WaitParameters(Parameters, frozen=True, kw_only=True):
    """How long a request may take."""

    wait_s: float = 0.0
    """Seconds to wait for what is asked for, 30 at most."""


class Endpoints:
    """A list of endpoints that grows by decoration, one module after the other."""

    def __init__(self) -> None:
        self.all: list[Endpoint] = []

    def add(
        self,
        method: HttpMethod,
        path: str,
        scope: TokenScope,
        *,
        query: type[Parameters] = NoParameters,
        body: Any = None,
        reply: Any = None,
        status: int = 200,
        body_bytes: int = BODY_BYTES,
        streams: bool = False,
        media_type: str = "application/json",
        body_type: str = "application/json",
    ) -> Callable[[EndpointHandler], EndpointHandler]:
        """Let a function handle a method of a path."""

        def added(handler: EndpointHandler) -> EndpointHandler:
            summary = (handler.__doc__ or "").strip().partition("\n")[0]
            if not summary:
                raise ValueError(f"{method} {path} has no docstring, and so no line in the API's document")
            self.all.append(
                Endpoint(
                    method=method,
                    path=path,
                    scope=scope,
                    handler=handler,
                    summary=summary,
                    query=query,
                    body=body,
                    reply=reply,
                    status=status,
                    body_bytes=body_bytes,
                    streams=streams,
                    media_type=media_type,
                    body_type=body_type,
                )
            )
            return handler

        return added


def parameters(kind: type[QueryT], given: Mapping[str, list[str]]) -> QueryT:
    """The query of a URL as a struct. Raises `InvalidValueError`."""
    fields = {each.name: each for each in msgspec.structs.fields(kind)}
    values: dict[str, Any] = {}
    for name, texts in given.items():
        if name not in fields:
            known = ", ".join(fields) or "none"
            raise InvalidValueError("query", f"there is no parameter '{name}' here; there are: {known}")
        is_list = "list" in str(fields[name].type)
        if not is_list and len(texts) > 1:
            raise InvalidValueError("query", f"'{name}' is given {len(texts)} times")
        values[name] = texts if is_list else texts[0]
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidValueError("query", str(error)) from None


def checked_wait(wait_s: float) -> float:
    """How long a request waits. Raises `InvalidValueError` if that is longer than it may."""
    if not 0 <= wait_s <= MAX_WAIT_S:
        raise InvalidValueError(
            "wait_s", f"it is 0 to {MAX_WAIT_S:g} seconds, got {wait_s:g}; ask again to wait longer"
        )
    return wait_s


def as_json(value: Any) -> Json:
    """A value of ours as plain JSON."""
    made: Json = msgspec.to_builtins(value)
    return made
