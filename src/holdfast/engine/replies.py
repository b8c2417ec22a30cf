"""Messages and replies: which query an answer is for, what a session says now, and a reply given once more."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import assert_never

import msgspec

from holdfast.core.decide import (
    AdoptMessage,
    AssignMessage,
    CancelMessage,
    Decision,
    FeedMessage,
    KindMessage,
    Message,
    Repeats,
    WakeMessage,
    decide,
    repeats_of,
)
from holdfast.core.events import (
    AcceptedEvent,
    Event,
    PausedEvent,
    RunningEvent,
    event_of,
    paused_event,
    reply_after,
    waits_on,
)
from holdfast.core.labels import LabelMessage
from holdfast.core.large import LARGE_CHARS, is_large
from holdfast.core.needs import explain_missing, missing_needs
from holdfast.core.past_reply import reply_since
from holdfast.core.queries import Query, Value
from holdfast.core.records import Entry, PausedRecord
from holdfast.core.state import IMPORTED, PAUSED, Session
from holdfast.engine.errors import ProgramElsewhereError
from holdfast.engine.owner import Owner
from holdfast.store.contract import Store
from holdfast.store.off_loop import off_loop


def addressed(message: Message, pending: Collection[str], offered: Callable[[], list[str]]) -> Message:
    """The message, with the id of the only query that its answers without an id can be for, if there is one.

    That is the only one that is pending, or the only one that is `offered`: that drivers leave to others.
    """
    if not isinstance(message, FeedMessage) or all(given.query_id is not None for given in message.answers):
        return message
    candidates = list(pending) if len(pending) < 2 else offered()
    if len(candidates) != 1:
        return message
    answers = [
        given if given.query_id is not None else msgspec.structs.replace(given, query_id=candidates[0])
        for given in message.answers
    ]
    return msgspec.structs.replace(message, answers=answers)


async def decided(owner: Owner, session: Session, message: Message, now: int) -> Decision:
    """What a message does to a session. What it may repeat is looked up in the journal."""
    repeats = repeats_of(session, message)
    recorded = await _recorded(owner.store, session.id, repeats) if repeats else {}
    if _has_large_value(message):  # nobody changes the session meanwhile: it is locked
        return await off_loop(lambda: decide(session, message, now, recorded))
    return decide(session, message, now, recorded)


def _has_large_value(message: Message) -> bool:
    """Whether to decide about a message would hold the event loop for long."""
    if type(message) is not FeedMessage:
        return is_large(message)
    for given in message.answers:
        answer = given.answer
        if type(answer) is Value:
            value = answer.value
            if len(value) > LARGE_CHARS if type(value) is str else is_large(value):
                return True
    return False


async def _recorded(store: Store, session_id: str, repeats: Repeats) -> dict[str, Entry]:
    """The entries that a message may repeat, by the ids it names: read where they are, or searched for."""
    found: list[Entry] = []
    for position in repeats.positions.values():
        if position is None:
            return repeats.among(await store.entries(session_id))
        found += await store.read(session_id, position - 1, 1)
    return repeats.among(found)


LATER_RECORDS = 500
"""Records after an answer in which the reply to it is looked for, before the whole journal is read."""


async def repeated(owner: Owner, session: Session, position: int) -> Event:
    """The reply to the answer at a position, without the queries that are answered here by themselves."""
    if session.position - position <= LATER_RECORDS:
        later = await owner.store.read(session.id, position, LATER_RECORDS)
        found = reply_since(session, later)
        if isinstance(found, AcceptedEvent) and not session.pending.keys() >= set(found.remaining):
            found = None  # what was asked there is in the journal only
        if found is not None:
            return _for_host(owner, session, found, {asked: each.query for asked, each in session.pending.items()})
    entries = [entry async for entry in owner.store.journal(session.id)]
    pauses = [entry.record for entry in entries if isinstance(entry.record, PausedRecord)]
    asked = {query.id: query for paused in pauses for query in paused.queries}
    return _for_host(owner, session, reply_after(session.id, entries, position), asked)


def _for_host(owner: Owner, session: Session, event: Event, asked: Mapping[str, Query]) -> Event:
    """An event without the queries that are answered here by themselves; `asked` has those that it names."""
    drives = partial(owner.drives, session)
    if isinstance(event, AcceptedEvent):
        remaining = [each for each in event.remaining if not drives(asked[each])]
        return msgspec.structs.replace(event, remaining=remaining)
    if isinstance(event, PausedEvent):
        return msgspec.structs.replace(event, queries=[query for query in event.queries if not drives(query)])
    return event


def event_now(owner: Owner, session: Session, offered: Callable[[], list[str]]) -> Event:
    """What a session says to a host; `offered` gives the queries that nothing here will answer by itself."""
    if session.state is PAUSED and (open_ones := offered()):
        return paused_event(session.id, map(session.pending.__getitem__, open_ones))
    if session.ended is None and session.state is not IMPORTED:
        return _running_event(owner, session)
    return event_of(session, owner.now())


def _running_event(owner: Owner, session: Session) -> RunningEvent:
    """The event of a session that needs no host now, with what it waits for if it is not served here."""
    waits: list[str] = sorted({p.query.kind for p in session.pending.values()})
    needs = missing_needs(session, owner.offers)
    why = f"it {explain_missing(needs)}" if needs else ""
    return RunningEvent(session_id=session.id, waits_for=waits, why=why)


def elsewhere(owner: Owner, session: Session) -> ProgramElsewhereError:
    """What is raised for answers that let a program continue which this process may not run, or does not have."""
    assert session.started is not None
    program, service = session.started.program.name, session.started.service
    if owner.serves(session):
        why = f"program '{program}' is not registered in this process; a process that serves it takes the answer"
        return ProgramElsewhereError(program, why)
    why = f"it belongs to service '{service}', which this process does not serve; one that serves it takes the answer"
    is_here = not any(need.kind == "program" for need in missing_needs(session, owner.offers))
    return ProgramElsewhereError("" if is_here else program, why, service=service)


def reply_now(owner: Owner, session: Session, offered: Callable[[], list[str]], *, still_waits: bool) -> Event:
    """The reply to answers; `still_waits` if the program waits for more than those answers."""
    if (still_waits or waits_on(session)) and (remaining := offered()):
        return AcceptedEvent(session_id=session.id, remaining=remaining)
    return event_now(owner, session, offered)


def reason_of(message: Message, still_waits: bool) -> str:
    """What a commit is for, as its seams are named."""
    match message:
        case FeedMessage():
            return "partial feed" if still_waits else "feed"
        case CancelMessage():
            return "cancel"
        case AssignMessage():
            return "assign"
        case LabelMessage():
            return "label"
        case AdoptMessage():
            return "adopt"
        case WakeMessage():
            return "timer"
        case KindMessage():
            return message.tag
        case _:
            assert_never(message)
