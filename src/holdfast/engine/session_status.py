"""What a session looks like now, read from its store: by the engine, or by somebody who only looks."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core.call_history import CallHistory
from holdfast.core.events import event_of
from holdfast.core.ids import DEFAULT_SERVICE
from holdfast.core.state import Session
from holdfast.core.status import parse_pending_filter, snapshot
from holdfast.engine.checkpoints import SessionReader, folded_session
from holdfast.engine.process_rows import processes
from holdfast.engine.query_paths import pending_below
from holdfast.engine.seals import Sealer
from holdfast.engine.waits import messages_left, wait_for_limits, wait_of
from holdfast.store.contract import Store


class StoreReader:
    """Reads the sessions of a store without an engine, whose import takes longer than that."""

    keeps_all_views = False

    def __init__(self, store: Store) -> None:
        self.store = store
        self.sealer = Sealer()


async def session_status(
    reader: SessionReader,
    session_id: str,
    now: int,
    *,
    pending: object = "full",
    history: bool = False,
    has_limits: bool = True,
) -> dict[str, Any]:
    """Phase, metrics, pending queries and those of its children, who owns it, and why it does not move.

    `has_limits` says whether its calls may wait in line for the limits of a fleet.
    """
    store, wanted = reader.store, parse_pending_filter(pending)
    row = await store.session(session_id)
    calls = CallHistory() if history else None
    if calls is None:
        session = await folded_session(reader, session_id)
    else:
        session = Session(session_id)
        async for entry in store.journal(session_id):
            session.apply(entry)
            calls.apply(entry)
    below = await pending_below(store, session) if wanted is not None else {}
    shown = snapshot(session, now, pending_filter=wanted, history=calls, below=below)
    shown["position"] = session.position
    shown["owner"] = row.owner
    if session.started is not None and session.started.service != DEFAULT_SERVICE:
        shown["service"] = session.started.service
    if has_limits and (in_line := await store.permit_waits([session_id])):
        shown["waits"] = msgspec.to_builtins(wait_for_limits(in_line))
    elif row.owner is None and not session.is_terminal:
        here, mail = await processes(store), await messages_left(store, session_id)
        if (wait := wait_of(session, here, now, mail)) is not None:
            shown["waits"] = msgspec.to_builtins(wait)
    if session.is_terminal:
        shown["outcome"] = event_of(session, now).to_json()
    return shown
