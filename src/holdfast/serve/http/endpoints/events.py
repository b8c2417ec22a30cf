"""Endpoints about events: what happens in one session, and that something happened in any."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Literal

import msgspec

from holdfast.agent.live_events import ReasoningDeltaEvent, TextDeltaEvent, ToolOutputEvent
from holdfast.agent.observed_events import Observation, ObservedEvent
from holdfast.agent.observer import Observer
from holdfast.core.cursors import read_cursor
from holdfast.core.errors import InvalidValueError
from holdfast.serve.http.endpoint import (
    ApiCall,
    Endpoints,
    JsonReply,
    NoParameters,
    Parameters,
    StreamEvent,
    StreamReply,
    as_json,
    checked_wait,
)
from holdfast.serve.http.filters import checked_limit
from holdfast.serve.http.limits import MAX_PAGE_ROWS, MAX_STREAMS
from holdfast.serve.http.merged_streams import joined_cursor, merged, parse_joined

endpoints = Endpoints()

_DELTAS = (TextDeltaEvent, ReasoningDeltaEvent, ToolOutputEvent)


class EventsParameters(Parameters, frozen=True, kw_only=True):
    """Which events of a session to show."""

    after: str | None = None
    """The cursor to go on from: of an observation, or the id of an event. Without one, from the beginning."""
    view: Literal["conversation", "entries"] = "conversation"
    wait_s: float = 0.0
    limit: int = MAX_PAGE_ROWS


class AllEventsParameters(Parameters, frozen=True, kw_only=True):
    """Whose events to send beside the rows of all sessions."""

    session: list[str] = msgspec.field(default_factory=list)
    """Sessions whose own events follow, too; 20 at most."""
    after: str | None = None
    """The id of the last event of this stream that was seen."""


class ShownEvent(msgspec.Struct, frozen=True):
    """An event, and the cursor after it."""

    cursor: str
    event: dict[str, Any]


class EventsPage(msgspec.Struct, frozen=True):
    """Events, and the cursor after the last of them."""

    data: list[ShownEvent]
    next: str | None
    """Where to go on from; None if nothing has happened yet."""
    ended: bool = False
    """Whether the session has ended, and this is all."""


@endpoints.add(
    "GET", "/sessions/{session_id}/events", "sessions:read", query=EventsParameters, reply=EventsPage, streams=True
)
async def list_events(call: ApiCall[EventsParameters, None]) -> JsonReply | StreamReply:
    """List what happened in a session after a cursor, or follow it as an event stream."""
    session_id, query = call.session_id, call.query
    observer = call.door.runtime.observe(session_id, entries=query.view == "entries")
    cursor = call.headers.get("last-event-id") or query.after
    if cursor is not None:
        read_cursor(cursor, session_id)
    row = await call.door.store.session(session_id)
    if call.wants_stream:
        is_over = row.summary.state.is_terminal
        if is_over and cursor is not None and read_cursor(cursor, session_id).position >= row.position:
            return JsonReply(status=204)  # a client of a stream that has ended would connect again for ever
        return StreamReply(stream_of(observer.subscribe_from(cursor)))
    limit = checked_limit(query.limit)
    shown = await _page(observer, cursor, limit)
    wait_s = checked_wait(query.wait_s)
    if not shown and wait_s and not row.summary.state.is_terminal:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                async with contextlib.aclosing(observer.subscribe_from(cursor)) as coming:
                    async for seen in coming:
                        shown = [_shown(seen)]
                        break
    ended = (await call.door.store.session(session_id)).summary.state.is_terminal and len(shown) < limit
    return JsonReply(EventsPage(shown, shown[-1].cursor if shown else cursor, ended))


@endpoints.add("GET", "/sessions/{session_id}/observation", "sessions:read", reply=Observation)
async def show_observation(call: ApiCall[NoParameters, None]) -> JsonReply:
    """Show a session as it is now, with the cursor to follow it from."""
    return JsonReply(await call.door.runtime.observe(call.session_id).current())


@endpoints.add("GET", "/events", "sessions:read", query=AllEventsParameters, reply=dict[str, Any], streams=True)
async def follow_sessions(call: ApiCall[AllEventsParameters, None]) -> StreamReply:
    """Follow all sessions as an event stream: the row of each one that changes, and how many questions wait."""
    wanted = list(dict.fromkeys(call.query.session))
    if len(wanted) > MAX_STREAMS:
        raise InvalidValueError("session", f"at most {MAX_STREAMS} can be followed by one stream, got {len(wanted)}")
    cursors = parse_joined(call.headers.get("last-event-id") or call.query.after)
    for session_id in wanted:
        call.principal.check_session(session_id)
        await call.door.store.session(session_id)
        if session_id in cursors:
            read_cursor(cursors[session_id], session_id)
    return StreamReply(_all_events(call, wanted, cursors))


async def _all_events(
    call: ApiCall[AllEventsParameters, None], wanted: list[str], cursors: dict[str, str]
) -> AsyncIterator[StreamEvent]:
    """The rows of all sessions, and the events of some of them with their id and a cursor for all of those."""
    streams: dict[str, AsyncIterator[StreamEvent]] = {"": call.door.feed.events(call.principal.id_prefix)}
    for session_id in wanted:
        observer = call.door.runtime.observe(session_id)
        streams[session_id] = stream_of(observer.subscribe_from(cursors.get(session_id)))
    reached = {session_id: cursors[session_id] for session_id in wanted if session_id in cursors}
    async with contextlib.aclosing(merged(streams)) as events:
        async for session_id, event in events:
            if event.id is None or not session_id:
                yield event
                continue
            reached[session_id] = event.id
            data = {**event.data, "session_id": session_id}
            yield StreamEvent(event.type, data, joined_cursor(reached), is_delta=event.is_delta)


async def stream_of(observed: AsyncGenerator[ObservedEvent, None]) -> AsyncIterator[StreamEvent]:
    """What an observer sees, as events of a stream."""
    async with contextlib.aclosing(observed) as coming:
        async for seen in coming:
            data: Any = as_json(seen.event)
            yield StreamEvent(data["type"], data, seen.cursor, is_delta=isinstance(seen.event, _DELTAS))


async def _page(observer: Observer, cursor: str | None, limit: int) -> list[ShownEvent]:
    shown: list[ShownEvent] = []
    async with contextlib.aclosing(observer.resume_from(cursor)) as past:
        async for seen in past:
            shown.append(_shown(seen))
            if len(shown) == limit:
                break
    return shown


def _shown(seen: ObservedEvent) -> ShownEvent:
    data: Any = as_json(seen.event)
    return ShownEvent(seen.cursor, data)
