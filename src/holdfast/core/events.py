"""Events: what `start` and `feed` give back, and their JSON on the wire.

The shapes are those that algocline's clients read; keys beyond them are only added, and flags that are false stay away.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, TypeAlias, assert_never

import msgspec

from holdfast.core.pending_queries import PendingQuery
from holdfast.core.queries import Query
from holdfast.core.records import (
    CancelledRecord,
    CompletedRecord,
    Entry,
    ExpiredRecord,
    FailedRecord,
)
from holdfast.core.state import IMPORTED, PAUSED, RUNNING, Session
from holdfast.core.values import Json


class _Event(msgspec.Struct, frozen=True, kw_only=True):
    session_id: str
    queries: list[Query] = []
    result: Json = None
    error: str | None = None
    stats: dict[str, Any] = {}
    replayed: bool = False
    status: ClassVar[str]

    def to_json(self) -> dict[str, Any]:
        """The event as it goes over the wire."""
        shown = {"status": self.status, "session_id": self.session_id, **self._details()}
        if self.replayed:
            shown["replayed"] = True
        return shown

    def _details(self) -> dict[str, Any]:
        return {}


class RunningEvent(_Event, frozen=True):
    """The session continues by itself; there is nothing for a host to answer yet."""

    waits_for: list[str] = []
    """The kinds of query it waits for meanwhile: `timer`, `child`, or what a driver answers."""
    why: str = ""
    """Why it does not go on here, if it does not."""
    status = "running"

    def _details(self) -> dict[str, Any]:
        return {key: value for key, value in (("waits_for", self.waits_for), ("why", self.why)) if value}


class SentEvent(RunningEvent, frozen=True):
    """A message is in the session's mailbox, and its owner has not taken it yet. It may still be refused.

    Sending it again tells what became of it.
    """

    program: str = ""
    """The program that the session needs to continue, if the message waits because the sender does not run it."""
    service: str = ""
    """The service that the session belongs to, if the sender does not serve it."""

    def _details(self) -> dict[str, Any]:
        names = (("program", self.program), ("service", self.service))
        return {**super()._details(), "sent": True, **{key: name for key, name in names if name}}


class ImportedEvent(_Event, frozen=True):
    """The session was imported from a file, and does nothing until somebody adopts it."""

    status = "imported"

    def _details(self) -> dict[str, Any]:
        return {"why": f"it was imported from a file: `holdfast adopt {self.session_id}` lets it run"}


class AcceptedEvent(_Event, frozen=True):
    """The answers were taken; the pause lasts until the remaining ones are in."""

    remaining: list[str]
    status = "accepted"

    def _details(self) -> dict[str, Any]:
        return {"remaining": len(self.remaining), "remaining_ids": self.remaining}


class PausedEvent(_Event, frozen=True):
    """The program asks."""

    queries: list[Query]
    due_at: dict[str, int] = {}
    """When a query lapses (unix ms), for those that do."""
    status = "needs_response"

    def _details(self) -> dict[str, Any]:
        match self.queries:
            case [only]:
                return {"query_id": only.id, **self._shown(only)}
            case several:
                return {"queries": [{"id": query.id, **self._shown(query)} for query in several]}

    def _shown(self, query: Query) -> dict[str, Any]:
        shown = query_json(query)
        if query.id in self.due_at:
            shown["due_at"] = self.due_at[query.id]
        return shown


class _EndedEvent(_Event, frozen=True, kw_only=True):
    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "stats": self.stats}


class CompletedEvent(_EndedEvent, frozen=True):
    """The program returned."""

    status = "completed"

    def _details(self) -> dict[str, Any]:
        return {"result": self.result}


class FailedEvent(_EndedEvent, frozen=True):
    """The program raised, or broke one of its limits."""

    error: str
    error_kind: str = "error"
    status = "error"

    def _details(self) -> dict[str, Any]:
        return {"error": self.error, "error_kind": self.error_kind}


class CancelledEvent(_EndedEvent, frozen=True):
    """Someone ended the session."""

    reason: str | None = None
    by: str | None = None
    status = "cancelled"

    def _details(self) -> dict[str, Any]:
        return {key: value for key, value in (("reason", self.reason), ("by", self.by)) if value is not None}


class ExpiredEvent(_EndedEvent, frozen=True):
    """Nobody answered for so long that the session was ended."""

    reason: str
    status = "expired"

    def _details(self) -> dict[str, Any]:
        return {"reason": self.reason}


Event: TypeAlias = (
    RunningEvent
    | ImportedEvent
    | AcceptedEvent
    | PausedEvent
    | CompletedEvent
    | FailedEvent
    | CancelledEvent
    | ExpiredEvent
)


def query_json(query: Query) -> dict[str, Any]:
    """A query's fields on the wire, without its id. A question to a model is the usual one, and needs no kind."""
    return query.to_json() if query.kind == "llm" else {"kind": query.kind, **query.to_json()}


def event_of(session: Session, now: int) -> Event:
    """What a session says to its host at `now`."""
    if session.state is PAUSED:
        return paused_event(session.id, session.pending.values())
    ended = session.ended
    if ended is None:
        if session.state is IMPORTED:
            return ImportedEvent(session_id=session.id)
        return RunningEvent(session_id=session.id)
    budget = session.started.budget if session.started else None
    stats = session.metrics.to_json(now, budget)
    match ended:
        case CompletedRecord(result=result):
            return CompletedEvent(session_id=session.id, result=result, stats=stats)
        case FailedRecord(error=error, kind=kind):
            return FailedEvent(session_id=session.id, error=error, error_kind=kind, stats=stats)
        case CancelledRecord(reason=reason, by=by):
            return CancelledEvent(session_id=session.id, reason=reason, by=by, stats=stats)
        case ExpiredRecord(reason=reason):
            return ExpiredEvent(session_id=session.id, reason=reason, stats=stats)
        case _:
            assert_never(ended)


def paused_event(session_id: str, pending: Iterable[PendingQuery]) -> PausedEvent:
    """The event that offers these queries."""
    queries: list[Query] = []
    due_at: dict[str, int] = {}
    for each in pending:
        queries.append(each.query)
        if each.due_at is not None:
            due_at[each.query.id] = each.due_at
    return PausedEvent(session_id=session_id, queries=queries, due_at=due_at)


def accepted_event(session: Session) -> AcceptedEvent:
    """The reply to an answer that leaves the pause as it is."""
    return AcceptedEvent(session_id=session.id, remaining=list(session.pending))


def reply_of(session: Session, now: int) -> Event:
    """The reply to an answer that woke the program: what it asks next.

    A program that still waits for other answers has asked nothing new; the reply is the same as if it had slept.
    """
    return accepted_event(session) if waits_on(session) else event_of(session, now)


def waits_on(session: Session) -> bool:
    """Whether the program waits for earlier queries, and asked nothing new."""
    return session.state is PAUSED and not session.asked_last


def reply_after(session_id: str, entries: Sequence[Entry], position: int) -> Event:
    """The reply that a feed got when its answer was recorded at `position`, found again in the journal.

    If the answer left queries open, that was "accepted" with what remained. Otherwise it was the next thing the program
    did, or, if it has done nothing since, that it runs.
    """
    session = Session(session_id)
    now = 0
    for entry in entries:
        if entry.position > position and session.state is not RUNNING:
            break
        session.apply(entry)
        now = entry.at
        if entry.position == position and session.state is PAUSED:
            return msgspec.structs.replace(accepted_event(session), replayed=True)
    return msgspec.structs.replace(reply_of(session, now), replayed=True)
