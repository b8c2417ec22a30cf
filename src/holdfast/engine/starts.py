"""A start that is tried again: it gets what the session says now, or hears how the two starts differ."""

from __future__ import annotations

import msgspec

from holdfast.core.decide import start_difference
from holdfast.core.errors import SessionExistsError
from holdfast.core.events import Event
from holdfast.core.records import StartedRecord
from holdfast.engine.engine import Engine
from holdfast.engine.host_view import until_needed


async def start_again(engine: Engine, session_id: str, started: StartedRecord, wait: float | None) -> Event:
    """What a session says that was started before with the same content. Raises `SessionExistsError` if that was
    another one.

    That is the event of the first start, unless the session has moved since: its first questions may be answered by
    now, and whoever starts it again has to know which ones are open.
    """
    first = (await engine.owner.store.entries(session_id, until=1))[0].record
    assert isinstance(first, StartedRecord)
    if (difference := start_difference(first, started)) is not None:
        raise SessionExistsError(session_id, difference)
    event = await until_needed(engine, session_id, await engine.event(session_id), wait)
    return msgspec.structs.replace(event, replayed=True)
