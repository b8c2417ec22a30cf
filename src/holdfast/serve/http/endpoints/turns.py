"""Endpoints about turns of agents: begin or join one, follow it, stop it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from itertools import islice
from typing import Any

import msgspec

from holdfast.agent.cancellation import CancelReceipt
from holdfast.agent.machine.messages import AgentMessage, ContentBlock, plain_text
from holdfast.agent.machine.policy import Spec
from holdfast.agent.machine.turn import outcome_word
from holdfast.agent.machine.turn_state import TurnState
from holdfast.agent.observed_events import AskedEvent, CallAskedEvent, TurnEndedEvent
from holdfast.agent.results import TokenUsage, TurnResult, report_of
from holdfast.agent.session import AgentSession
from holdfast.agent.session_builder import AgentState
from holdfast.agent.turn_builder import TurnBuilder
from holdfast.core.limits import PROMPT_PREVIEW_CHARS
from holdfast.core.values import Json
from holdfast.serve.http.door import derived_id
from holdfast.serve.http.endpoint import (
    ApiCall,
    Endpoints,
    JsonReply,
    NoParameters,
    Parameters,
    RequestBody,
    StreamEvent,
    StreamReply,
    WaitParameters,
    as_json,
    checked_wait,
)
from holdfast.serve.http.endpoints.agents import opened
from holdfast.serve.http.filters import checked_limit
from holdfast.serve.http.limits import PAGE_ROWS, VALUE_BODY_BYTES
from holdfast.serve.http.paths import session_path

endpoints = Endpoints()


class NewConversationBody(RequestBody, frozen=True, kw_only=True):
    """A conversation that begins anew: from nothing, or from these messages."""

    messages: list[AgentMessage] = msgspec.field(default_factory=list)
    spec: Spec = Spec()
    """How its turns are run; what it leaves out is as this server has it."""


class TurnBody(RequestBody, frozen=True, kw_only=True):
    """The input of a turn, and what the turn is to give back."""

    input: str | list[ContentBlock]
    """A text, or texts and pictures: `{"type": "image", "image": {"media_type", "data": BASE64}}`."""
    begin: NewConversationBody | None = None
    """The conversation starts over with this turn."""
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


class TurnsParameters(Parameters, frozen=True, kw_only=True):
    """Which turns to list: the last ones, or those before another."""

    before: int | None = None
    """The position of a turn; those before it are listed."""
    limit: int = PAGE_ROWS


class TurnRow(msgspec.Struct, frozen=True, kw_only=True):
    """A turn in a list: when it was, how it ended, and what it used."""

    turn: str
    position: int
    """Of its input."""
    at: int
    ended_at: int | None
    outcome: str | None
    """How it ended: `message`, `value`, `tool_value`, `command`, `frame_switch`, or why it was stopped; None if it has
    not."""
    text: str
    """The beginning of its input, or the name of the command."""
    tool_calls: int
    usage: TokenUsage


class TurnsPage(msgspec.Struct, frozen=True):
    """Turns, the latest first, and before which position the next page begins."""

    data: list[TurnRow]
    next: int | None


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
    session = await opened(call) if body.begin is None else await _starting_over(call, body.begin)
    builder = session.turn(body.input)
    if body.output is not None:
        builder = builder.output(body.output)
    if body.prompt is not None:
        builder = builder.prompt(body.prompt)
    for plugin, value in body.plugin_inputs.items():
        builder = builder.plugin_input(plugin, value)
    return await begun(call, session, builder, body.id, body.wait_s)


@endpoints.add(
    "POST", "/sessions/{session_id}/commands/{command}", "agents:run", body=CommandBody, reply=TurnReport, status=202
)
async def run_command(call: ApiCall[NoParameters, CommandBody]) -> JsonReply | StreamReply:
    """Run a command of an agent's session, between its turns."""
    session = await opened(call)
    builder = session.command(call.path["command"], **call.body.arguments)
    return await begun(call, session, builder, call.body.id, call.body.wait_s)


@endpoints.add("GET", "/sessions/{session_id}/turns", "sessions:read", query=TurnsParameters, reply=TurnsPage)
async def list_turns(call: ApiCall[TurnsParameters, None]) -> JsonReply:
    """List the turns of an agent's session with what each has used, the latest first."""
    session, before = await opened(call), call.query.before
    limit = checked_limit(call.query.limit)
    found = (await session.conversation(fresh=True)).turns.backwards()
    wanted = [*islice((each for each in found if before is None or each.position < before), limit + 1)]
    rows = [_row(each) for each in wanted[:limit]]
    return JsonReply(TurnsPage(rows, rows[-1].position if len(wanted) > limit else None))


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


async def begun(
    call: ApiCall[Any, Any], session: AgentSession, builder: TurnBuilder, turn_id: str | None, wait_s: float
) -> JsonReply | StreamReply:
    """Begin a turn, and reply with its report or its events."""
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


async def _starting_over(call: ApiCall[Any, Any], begin: NewConversationBody) -> AgentSession:
    """The session that the path names, so that its next turn begins a new conversation."""
    session_id = call.session_id
    await call.door.store.session(session_id)
    builder = call.door.runtime.session(session_id).spec(begin.spec)
    return await builder.open_with_state(AgentState(session_id=session_id, messages=begin.messages))


async def _report(session: AgentSession, turn_id: str, cursor: str, wait_s: float) -> TurnReport:
    result: TurnResult | None = None
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(wait_s):
            result = await session.turn_result(turn_id)
    events_url = f"{session_path(session.session_id)}/events?after={cursor}"
    status = "running" if result is None else "done"
    return TurnReport(session.session_id, turn_id, status, cursor, events_url, False, result)


def _row(turn: TurnState) -> TurnRow:
    ended = turn.ended
    text = turn.command.name if turn.command is not None else plain_text(turn.content) or ""
    return TurnRow(
        turn=turn.id,
        position=turn.position,
        at=turn.at,
        ended_at=None if ended is None else turn.ended_at,
        outcome=None if ended is None else outcome_word(ended),
        text=text[:PROMPT_PREVIEW_CHARS],
        tool_calls=len(turn.calls),
        usage=report_of([turn]).total,
    )


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
