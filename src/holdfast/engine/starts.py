"""A start that is tried again: it gets what the first one said, or hears how the two differ."""

from __future__ import annotations

import msgspec

from holdfast.core.decide import start_difference
from holdfast.core.errors import SessionExistsError
from holdfast.core.events import Event, PausedEvent, RunningEvent, reply_after
from holdfast.core.queries import ChildQuery
from holdfast.core.records import StartedRecord
from holdfast.core.state import Session
from holdfast.engine.engine import Engine
from holdfast.engine.host_view import until_needed


async def start_again(engine: Engine, session_id: str, started: StartedRecord, wait: float | None) -> Event:
    """What the session said when it was started before with the same content. Raises `SessionExistsError` if that was
    another one."""
    entries = [entry async for entry in engine.owner.store.journal(session_id)]
    first = entries[0].record
    assert isinstance(first, StartedRecord)
    if (difference := start_difference(first, started)) is not None:
        raise SessionExistsError(session_id, difference)
    event = reply_after(session_id, entries, 1)
    if isinstance(event, PausedEvent):
        session = Session.fold(session_id, entries)
        offered = [query for query in event.queries if not engine.owner.drives(session, query)]
        asks_child = any(isinstance(query, ChildQuery) for query in event.queries)
        if offered and not asks_child:
            return msgspec.structs.replace(event, queries=offered)
    elif not isinstance(event, RunningEvent):
        return event  # it ended without a question
    # The first pause was not for a host: what it came to is waited for once more.
    event = await until_needed(engine, session_id, await engine.event(session_id), wait)
    return msgspec.structs.replace(event, replayed=True)
