"""Endpoints about turns of agents: begin or join one, follow it, stop it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from holdfast.agent.cancellation import CancelReceipt
from holdfast.agent.machine.messages import ContentBlock
from holdfast.agent.observed_events import AskedEvent, CallAskedEvent, TurnEndedEvent
from holdfast.agent.results import TurnResult
from holdfast.agent.session import AgentSession
from holdfast.agent.turn_builder import TurnBuilder
from holdfast.core.values import Json
from holdfast.serve.http.door import derived_id
from holdfast.serve.http.endpoint import (
    ApiCall,
    Endpoints,
    JsonReply,
    NoParameters,
    RequestBody,
    StreamEvent,
    StreamReply,
    WaitParameters,
    as_json,
    checked_wait,
)
from holdfast.serve.http.endpoints.agents import opened
from holdfast.serve.http.limits import VALUE_BODY_BYTES
from holdfast.serve.http.paths import session_path

endpoints = Endpoints()


class TurnBody(RequestBody, frozen=True, kw_only=True):
    """The input of a turn, and what the turn is to give back."""

    input: str | list[ContentBlock]
    id: str | None = None
    """The id of the turn. The same id with the same input joins it, or gets its result."""
    output: dict[str, Json] | None = None
    """A JSON schema of the value that the turn gives back."""
    prompt: str | None = None
    """Added to the system text for this turn."""
    plugin_inputs: dict[str, Any] = msgspec.field(default_factory=dict)
    wait_s: float = 0.0


class TurnReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """A turn that was begun, and its result if it is over."""

    session_id: str
    turn: str
    status: str
    """`running`, or `done`."""
    cursor: str
    """From before the turn: whoever follows the session from here misses nothing of it."""
    events_url: str
    replayed: bool = False
    result: TurnResult | None = None


class CommandBody(RequestBody, frozen=True, kw_only=True):
    """The arguments of a command."""

    arguments: dict[str, Json] = msgspec.field(default_factory=dict)
    id: str | None = None
    wait_s: float = 0.0


class StopBody(RequestBody, frozen=True, kw_only=True):
    """Why a turn is stopped."""

    reason: str | None = None


@endpoints.add(
    "POST",
    "/sessions/{session_id}/turns",
    "agents:run",
    body=TurnBody,
    reply=TurnReport,
    status=202,
    body_bytes=VALUE_BODY_BYTES,
    streams=True,
)
async def begin_turn(call: ApiCall[NoParameters, TurnBody]) -> JsonReply | StreamReply:
    """Begin a turn, or join it. It goes on when the client leaves; as a stream, its events follow."""
    body = call.body
    session = await opened(call)
    builder = session.turn(body.input)
    if body.output is not None:
        builder = builder.output(body.output)
    if body.prompt is not None:
        builder = builder.prompt(body.prompt)
    for plugin, value in body.plugin_inputs.items():
        builder = builder.plugin_input(plugin, value)
    return await _begun(call, session, builder, body.id, body.wait_s)


@endpoints.add(
    "POST", "/sessions/{session_id}/commands/{command}", "agents:run", body=CommandBody, reply=TurnReport, status=202
)
async def run_command(call: ApiCall[NoParameters, CommandBody]) -> JsonReply | StreamReply:
    """Run a command of an agent's session, between its turns."""
    session = await opened(call)
    builder = session.command(call.path["command"], **call.body.arguments)
    return await _begun(call, session, builder, call.body.id, call.body.wait_s)


@endpoints.add("GET", "/sessions/{session_id}/turns/{turn}", "sessions:read", query=WaitParameters, reply=TurnReport)
async def show_turn(call: ApiCall[WaitParameters, None]) -> JsonReply:
    """Show a turn, and its result once it is over."""
    session = await opened(call)
    cursor = (await session.observe().current()).cursor
    return JsonReply(await _report(session, call.path["turn"], cursor, checked_wait(call.query.wait_s)))


@endpoints.add("POST", "/sessions/{session_id}/turns/{turn}/cancel", "agents:run", body=StopBody, reply=CancelReceipt)
async def stop_turn(call: ApiCall[NoParameters, StopBody]) -> JsonReply:
    """Stop a turn by its id, or with `current` whichever is running; the reply says which one it was."""
    session = await opened(call)
    turn = None if call.path["turn"] == "current" else call.path["turn"]
    return JsonReply(await session.cancel(turn, reason=call.body.reason, by=call.principal.name))


async def _begun(
    call: ApiCall[Any, Any], session: AgentSession, builder: TurnBuilder, turn_id: str | None, wait_s: float
) -> JsonReply | StreamReply:
    wait = checked_wait(wait_s)
    key = call.headers.get("idempotency-key")
    if (named := turn_id or derived_id("t-", call.principal, f"turn {session.session_id}", key)) is not None:
        builder = builder.id(named)
    cursor = (await session.observe().current()).cursor
    receipt = await builder.begin()
    if call.wants_stream:
        return StreamReply(_followed(session, receipt.turn, None if receipt.replayed else cursor))
    report = await _report(session, receipt.turn, cursor, wait)
    headers = {"location": f"{session_path(session.session_id)}/turns/{receipt.turn}"}
    if receipt.replayed:
        report = msgspec.structs.replace(report, replayed=True)
        headers["idempotency-replayed"] = "true"
    return JsonReply(report, 200 if report.status == "done" else None, headers)


async def _report(session: AgentSession, turn_id: str, cursor: str, wait_s: float) -> TurnReport:
    result: TurnResult | None = None
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(wait_s):
            result = await session.turn_result(turn_id)
    events_url = f"{session_path(session.session_id)}/events?after={cursor}"
    status = "running" if result is None else "done"
    return TurnReport(session.session_id, turn_id, status, cursor, events_url, False, result)


async def _followed(session: AgentSession, turn_id: str, cursor: str | None) -> AsyncIterator[StreamEvent]:
    """The events of a session until a turn has ended or waits for somebody outside: no client holds a connection open
    for a person."""
    from holdfast.serve.http.endpoints.events import stream_of

    async with contextlib.aclosing(session.observe().subscribe_from(cursor)) as observed:

        async def until_over() -> AsyncIterator[Any]:
            async for seen in observed:
                yield seen
                event = seen.event
                if isinstance(event, TurnEndedEvent) and event.turn == turn_id:
                    return
                if isinstance(event, AskedEvent | CallAskedEvent) and await _waits(session):
                    return

        async for event in stream_of(until_over()):  # type: ignore[arg-type]
            yield event
    queries = (await session.observe().current()).waiting
    if queries:
        shown = [as_json(each) for each in queries]
        yield StreamEvent("waiting", {"type": "waiting", "turn": turn_id, "queries": shown})


async def _waits(session: AgentSession) -> bool:
    """Whether the session goes on only when somebody outside answers."""
    event = await session.mount.event(session.session_id)
    return event.status == "needs_response"
