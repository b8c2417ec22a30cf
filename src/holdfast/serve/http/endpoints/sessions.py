"""Endpoints about sessions of any kind: start, list, look at, cancel, continue, fork, compare, delete."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from holdfast.core.errors import InvalidValueError
from holdfast.core.events import Event
from holdfast.core.fork_points import ForkPoint
from holdfast.core.needs import HOST
from holdfast.core.summary import summarize
from holdfast.core.values import Json
from holdfast.engine.errors import ResultTimeoutError
from holdfast.programs.kinds import get_language
from holdfast.programs.lookup import find_program
from holdfast.serve.http.door import derived_id
from holdfast.serve.http.endpoint import (
    ApiCall,
    Endpoints,
    JsonReply,
    NoParameters,
    Parameters,
    RequestBody,
    WaitParameters,
    as_json,
    checked_wait,
)
from holdfast.serve.http.filters import FilterParameters, checked_limit
from holdfast.serve.http.limits import PAGE_ROWS, VALUE_BODY_BYTES
from holdfast.serve.http.paths import session_path
from holdfast.serve.http.problems import ApiError
from holdfast.serve.http.program_names import checked_name
from holdfast.store.errors import CorruptSessionError
from holdfast.store.session_rows import SessionRow

endpoints = Endpoints()


class StartBody(RequestBody, frozen=True, kw_only=True):
    """What to start."""

    program: str | None = None
    """The name of a strategy or package that the server has. Files are not taken: a path is code."""
    code: str | None = None
    """Instead of a name: the source of a program, which runs in a sandbox."""
    language: str = "python"
    """What the source is written in: `python` or `lua`."""
    ctx: Json = None
    budget: dict[str, Any] | None = None
    service: str | None = None
    llm: str | None = None
    """Who answers its `llm` queries: `host`, `any`, or the name of a model. If this server has none, that is `host`."""
    title: str = ""
    labels: list[str] = msgspec.field(default_factory=list)
    """What people find it by."""
    id: str | None = None
    """The id of the session. The same id with the same content again gets the same event."""
    wait_s: float = 0.0


class SessionsParameters(FilterParameters, frozen=True, kw_only=True):
    """Which sessions to list."""

    limit: int = PAGE_ROWS
    after: str | None = None


class SessionsPage(msgspec.Struct, frozen=True):
    """Some sessions, and where the next page begins."""

    data: list[SessionRow]
    next: str | None
    damaged: list[str] = msgspec.field(default_factory=list)
    """Sessions that belong here, and whose summary cannot be read."""


class StatusParameters(Parameters, frozen=True, kw_only=True):
    """How much of a session to show."""

    pending: Literal["full", "preview", "meta", "none"] = "full"
    history: bool = False


class LabelBody(RequestBody, frozen=True, kw_only=True):
    """What a session is called from now on; what is left out stays."""

    title: str | None = None
    labels: list[str] | None = None


class CancelBody(RequestBody, frozen=True, kw_only=True):
    """Why a session ends."""

    reason: str | None = None


class ForkBody(RequestBody, frozen=True, kw_only=True):
    """Where to fork, and what comes of it."""

    at: int | None = None
    before: str | None = None
    node: str | None = None
    turn: str | None = None
    id: str | None = None
    wait_s: float = 0.0


@endpoints.add(
    "POST",
    "/sessions",
    "sessions:write",
    body=StartBody,
    reply=dict[str, Any],
    status=201,
    body_bytes=VALUE_BODY_BYTES,
)
async def start_session(call: ApiCall[NoParameters, StartBody]) -> JsonReply:
    """Start a session, and say what it needs."""
    body, wait_s = call.body, checked_wait(call.body.wait_s)
    if (body.program is None) == (body.code is None):
        raise InvalidValueError("body", "name a `program`, or give its `code`")
    if body.code is not None:
        program = get_language(body.language).program(body.code, name="code", file="<request>")
    else:
        assert body.program is not None
        program = find_program(checked_name(body.program))
    session_id = body.id or derived_id("s-", call.principal, "start", call.headers.get("idempotency-key"))
    if session_id is not None:
        call.principal.check_session(session_id)
    elif call.principal.id_prefix:
        why = f"sessions of this token have ids that begin with '{call.principal.id_prefix}': say which"
        raise InvalidValueError("id", why)
    event = await call.door.holdfast.start(
        program,
        ctx=body.ctx,
        budget=body.budget,
        service=body.service,
        llm=body.llm or (None if call.door.runtime.providers else HOST),
        title=body.title,
        labels=body.labels,
        id=session_id,
        wait=wait_s,
    )
    return _event(event, created=True)


@endpoints.add("GET", "/sessions", "sessions:read", query=SessionsParameters, reply=SessionsPage)
async def list_sessions(call: ApiCall[SessionsParameters, None]) -> JsonReply:
    """List sessions, the newest first."""
    limit, where = checked_limit(call.query.limit), call.query.session_filter(call.principal)
    if where is None:
        return JsonReply(SessionsPage([], None))
    page = await call.door.holdfast.sessions(where, after=call.query.after, limit=limit)
    return JsonReply(SessionsPage(page.rows, page.next, page.damaged))


@endpoints.add("GET", "/sessions/{session_id}", "sessions:read", query=StatusParameters, reply=dict[str, Any])
async def show_session(call: ApiCall[StatusParameters, None]) -> JsonReply:
    """Show a session as it is now: its state, its figures, what it waits for, and who owns it."""
    session_id = call.session_id
    row = await call.door.store.session(session_id)
    etag = f'"{row.position}"'
    if call.headers.get("if-none-match") == etag:
        return JsonReply(status=304, headers={"etag": etag})
    pending = None if call.query.pending == "none" else call.query.pending
    shown = await call.door.holdfast.status(session_id, pending=pending, history=call.query.history)
    shown["summary"] = as_json(row.summary)
    return JsonReply(shown, headers={"etag": etag})


@endpoints.add("GET", "/sessions/{session_id}/event", "sessions:read", reply=dict[str, Any])
async def show_event(call: ApiCall[NoParameters, None]) -> JsonReply:
    """Show what a session says to its host now."""
    return _event(await call.door.holdfast.event(call.session_id))


@endpoints.add("GET", "/sessions/{session_id}/result", "sessions:read", query=WaitParameters, reply=dict[str, Any])
async def show_result(call: ApiCall[WaitParameters, None]) -> JsonReply:
    """Show the result of a session, once it has one. Until then, the reply says that it is running."""
    session_id = call.session_id
    try:
        result = await call.door.holdfast.result(session_id, timeout=checked_wait(call.query.wait_s))
    except ResultTimeoutError as error:
        return JsonReply({"session_id": session_id, "status": "running", "why": str(error)}, 202)
    return JsonReply({"session_id": session_id, "status": "completed", "result": result})


@endpoints.add("PATCH", "/sessions/{session_id}", "sessions:write", body=LabelBody, reply=SessionRow)
async def label_session(call: ApiCall[NoParameters, LabelBody]) -> JsonReply:
    """Give a session that has not ended another title, or other labels."""
    await _check_match(call)
    session_id, body = call.session_id, call.body
    await call.door.holdfast.label(session_id, title=body.title, labels=body.labels, by=call.principal.name)
    return JsonReply(await call.door.store.session(session_id))


@endpoints.add("POST", "/sessions/{session_id}/cancel", "sessions:write", body=CancelBody, reply=dict[str, Any])
async def cancel_session(call: ApiCall[NoParameters, CancelBody]) -> JsonReply:
    """End a session, and the children that it waits for."""
    await _check_match(call)
    return _event(await call.door.holdfast.cancel(call.session_id, call.body.reason, by=call.principal.name))


@endpoints.add("POST", "/sessions/{session_id}/resume", "sessions:write", query=WaitParameters, reply=dict[str, Any])
async def resume_session(call: ApiCall[WaitParameters, None]) -> JsonReply:
    """Continue a session here, if what its process has left can be taken over."""
    return _event(await call.door.holdfast.resume(call.session_id, wait=checked_wait(call.query.wait_s)))


@endpoints.add("POST", "/sessions/{session_id}/repair", "admin", reply=SessionRow)
async def repair_session(call: ApiCall[NoParameters, None]) -> JsonReply:
    """Make the summary of a session anew from its journal, if it cannot be read, and show its row."""
    store, session_id = call.door.store, call.session_id
    try:
        return JsonReply(await store.session(session_id))
    except CorruptSessionError:
        await store.repair(session_id, summarize(await store.load(session_id)))
    return JsonReply(await store.session(session_id))


@endpoints.add("DELETE", "/sessions/{session_id}", "sessions:write", status=204)
async def delete_session(call: ApiCall[NoParameters, None]) -> JsonReply:
    """Delete a session with everything that belongs to it. Its id is not used again."""
    await _check_match(call)
    await call.door.holdfast.delete(call.session_id)
    call.door.feed.tell_deleted(call.session_id)
    return JsonReply()


@endpoints.add(
    "POST", "/sessions/{session_id}/forks", "sessions:write", body=ForkBody, reply=dict[str, Any], status=201
)
async def fork_session(call: ApiCall[NoParameters, ForkBody]) -> JsonReply:
    """Make a new session with the beginning of another one, which continues from there."""
    body = call.body
    key = call.headers.get("idempotency-key")
    fork_id = body.id or derived_id("s-", call.principal, f"fork {call.session_id}", key)
    if fork_id is not None:
        call.principal.check_session(fork_id)
    event = await call.door.holdfast.fork(
        call.session_id,
        body.at,
        before=body.before,
        id=fork_id,
        wait=checked_wait(body.wait_s),
        node=body.node,
        turn=body.turn,
    )
    return _event(event, created=True)


@endpoints.add("GET", "/sessions/{session_id}/fork-points", "sessions:read", reply=list[ForkPoint])
async def list_fork_points(call: ApiCall[NoParameters, None]) -> JsonReply:
    """List the places where a session can be forked, the earliest first."""
    return JsonReply(await call.door.holdfast.fork_points(call.session_id))


def _event(event: Event, *, created: bool = False) -> JsonReply:
    headers = {"idempotency-replayed": "true"} if event.replayed else {}
    if created:
        headers["location"] = session_path(event.session_id)
    return JsonReply(event.to_json(), 200 if event.replayed else None, headers)


async def _check_match(call: ApiCall[Any, Any]) -> None:
    """Raise a 412 if the client has seen the session at another position than it is at now."""
    wanted = call.headers.get("if-match")
    if wanted is None:
        return
    position = await call.door.store.position(call.session_id)
    if wanted != f'"{position}"':
        why = f"session '{call.session_id}' is at {position} by now, and not at {wanted}: look at it again"
        raise ApiError(412, "changed_meanwhile", why)
