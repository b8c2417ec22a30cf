"""What readers get of a process: its handle in listings, and the report of everything about it."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from holdfast.agent.processes.machine import SignalledRecord, process_fold
from holdfast.agent.processes.terms import OutsideWork, ProcessTerms, RecoveryContract
from holdfast.core.records import CancelledRecord, CompletedRecord
from holdfast.core.state import Session
from holdfast.core.values import Json

ProcessStatus: TypeAlias = Literal[
    "running", "waiting", "caller_departed", "completed", "failed", "cancelled", "abandoned"
]
"""How a process is:

- `running`; `waiting` for somebody outside; `caller_departed`: running, and the session it belongs to has ended;
- `completed`, `failed`, `cancelled`; `abandoned`: nobody works on it any more, and nobody knows what came of it.
"""

LIVE: tuple[ProcessStatus, ...] = ("running", "waiting", "caller_departed")


class ProcessHandle(msgspec.Struct, frozen=True, kw_only=True):
    """A process as listings show it."""

    id: str
    title: str
    work: str
    """The kind of its work: `tool`, `strategy`, `turn`, `outside` or `emit`."""
    status: ProcessStatus
    recovery: RecoveryContract
    owner: str | None = None
    wake: str | None = None
    service: str = ""
    started_at: int = 0
    ended_at: int | None = None
    """When its work was over (unix ms)."""

    @property
    def is_over(self) -> bool:
        return self.status not in LIVE


class ProcessScope(msgspec.Struct, frozen=True, kw_only=True):
    """Whose processes are meant."""

    session_id: str
    service: str


class ProcessReport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about a process."""

    handle: ProcessHandle
    terms: ProcessTerms
    result: Json = None
    """What its work came to, if it is completed."""
    error: str | None = None
    """Why its work has no result, if it is over without one."""
    departed: str | None = None
    """Why the session that it belongs to is not there any more."""
    signals: list[SignalledRecord] = []
    works_in: str | None = None
    """The session that does the work: that of a strategy, or of an agent."""
    attempts: int = 0
    """How often its work was begun, if that is an effect."""
    is_woken: bool = False
    """Whether whoever waits for it has been told, or nobody does."""

    @property
    def id(self) -> str:
        return self.handle.id

    @property
    def status(self) -> ProcessStatus:
        return self.handle.status

    def to_json(self) -> dict[str, Any]:
        """As the command line prints it."""
        shown: dict[str, Any] = msgspec.to_builtins(self)
        return {**shown.pop("handle"), **shown}


def works_in(session: Session) -> str | None:
    """The session that does the work of a process; None if that is the process itself, or somebody outside."""
    terms = process_fold(session).terms
    return terms.works_in(session.id) if terms is not None else None


def handle_of(session: Session, *, waits: bool = False) -> ProcessHandle:
    """The handle of a process; `waits` if the session that does its work waits for somebody outside."""
    fold = process_fold(session)
    terms, started = fold.terms, session.started
    assert terms is not None
    assert started is not None
    return ProcessHandle(
        id=session.id,
        title=terms.title,
        work=str(type(terms.work).__struct_config__.tag),
        status=_status(session, waits=waits),
        recovery=terms.recovery,
        owner=terms.owner,
        wake=terms.wake,
        service=started.service,
        started_at=session.metrics.started_at,
        ended_at=fold.finished_at or (session.metrics.last_activity_at if session.is_terminal else None),
    )


def report_of(session: Session, *, waits: bool = False) -> ProcessReport:
    """The report of a process."""
    fold, ended = process_fold(session), session.ended
    assert fold.terms is not None
    error = getattr(ended, "error", None) or getattr(ended, "reason", None)
    return ProcessReport(
        handle=handle_of(session, waits=waits),
        terms=fold.terms,
        result=ended.result if isinstance(ended, CompletedRecord) else None,
        error=None if isinstance(ended, CompletedRecord) or ended is None else error or "no reason was given",
        departed=fold.departed,
        signals=list(fold.signals),
        works_in=works_in(session),
        attempts=sum(each.attempts for each in session.pending.values()) if fold.finished is None else 0,
        is_woken=session.is_terminal,
    )


def _status(session: Session, *, waits: bool) -> ProcessStatus:
    fold = process_fold(session)
    if fold.finished is not None:
        return fold.finished
    if session.is_terminal:
        return "cancelled" if isinstance(session.ended, CancelledRecord) else "failed"
    if fold.departed is not None:
        return "caller_departed"
    is_outside = fold.terms is not None and isinstance(fold.terms.work, OutsideWork)
    return "waiting" if waits or is_outside else "running"
