"""The reply that an answer got when it was recorded, found again from what has happened since.

A journal may be long, and whoever sends an answer again mostly does so soon. So what a session is now and the records
after the answer are looked at first; where they do not tell, the whole journal does (`events.reply_after`).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.core.events import AcceptedEvent, Event, RunningEvent, event_of, paused_event
from holdfast.core.ids import query_number
from holdfast.core.pending_queries import PendingQuery
from holdfast.core.records import AnsweredRecord, CompletedRecord, Entry, FailedRecord, PausedRecord
from holdfast.core.state import PAUSED, RUNNING, Session

_OUTCOMES = (PausedRecord, CompletedRecord, FailedRecord)


def reply_since(session: Session, later: Sequence[Entry]) -> Event | None:
    """The reply to an answer, from the session as it is now and all entries `later` than the answer.

    None if that does not tell: other answers came before the program did anything, or somebody else ended the session.
    """
    outcome: Entry | None = None
    is_crowded = False
    for entry in later:
        if isinstance(entry.record, _OUTCOMES):
            outcome = entry
            break
        is_crowded = is_crowded or isinstance(entry.record, AnsweredRecord)
    if outcome is None:
        if session.state is PAUSED:  # it has not gone on since: the answer left queries open
            return AcceptedEvent(session_id=session.id, remaining=_pending_before(session, later), replayed=True)
        is_running = session.state is RUNNING and not is_crowded
        return RunningEvent(session_id=session.id, replayed=True) if is_running else None
    if is_crowded:
        return None
    record = outcome.record
    if not isinstance(record, PausedRecord):
        return _replayed(event_of(session, outcome.at))
    before = session.is_terminal or set(_pending_before(session, later)) - set(record.withdrawn)
    if before or not record.queries:
        return None  # it waited for others as well, of which the journal has to tell
    return _replayed(paused_event(session.id, [PendingQuery(query, outcome.at) for query in record.queries]))


def _pending_before(session: Session, later: Sequence[Entry]) -> list[str]:
    """The queries that waited before these entries, in the order in which they were asked. Not of an ended session."""
    waited = set(session.pending)
    asked = session.queries_asked
    for entry in later:
        record = entry.record
        if isinstance(record, AnsweredRecord):
            waited.add(record.query_id)
        elif isinstance(record, PausedRecord):
            asked -= len(record.queries)
            waited.update(record.withdrawn)
    numbered = sorted((number, each) for each in waited if (number := query_number(each)) is not None)
    return [each for number, each in numbered if number < asked]


def _replayed(event: Event) -> Event:
    return msgspec.structs.replace(event, replayed=True)
