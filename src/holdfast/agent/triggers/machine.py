"""The kind `trigger`: a session that waits for its source, has runs started, and remembers which.

The program is pure, and has no state but what its journal says. It asks up to four things at a time, and continues at
the first answer:

    TriggerQuery   always: answered by whoever changes, runs or removes the trigger
    TimerQuery     until the next time of a schedule
    TickQuery      "what is due now?": an effect that reads the clock, starts the runs, and says what it did
    WaitQuery      until a run is over that another one is queued behind

The times of a calendar depend on tables that change, so no replay computes them: a tick is an effect, and its answer is
recorded. The ids of the runs follow from the trigger and from the time or key that they are for, so a tick that is run
again after a crash starts none twice. A trigger whose source is an event asks only the first: whoever emits the event
starts its runs.

Journals are bounded. A schedule whose journal is full asks a fifth thing instead of its next tick (`HandoverQuery`),
takes no more changes, and ends when a successor has begun that continues with its terms and all that it remembers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.agent.processes.kind import BackgroundInstance, BackgroundKind, numbered, readable_terms
from holdfast.agent.triggers.errors import RevisionConflictError, TriggerMovingError
from holdfast.agent.triggers.terms import OnceSource, TriggerTerms, check_trigger
from holdfast.core.decide import Decision, KindMessage
from holdfast.core.errors import InvalidValueError
from holdfast.core.ids import check_id
from holdfast.core.kinds import KindFold, SessionKind, register
from holdfast.core.needs import Need
from holdfast.core.queries import OWN_TOOLS, Answer, Failure, Query, TimerQuery, ToolQuery, Usage, Value
from holdfast.core.records import AnsweredRecord, Entry, KindRecord, LoggedRecord, Record
from holdfast.core.state import Session, State
from holdfast.core.values import checked, encode
from holdfast.programs.contract import AskStep, Fold, ReturnStep, Step

if TYPE_CHECKING:
    from holdfast.programs.contract import Instance, Note

KIND = "trigger"

TICK_TOOL = f"{OWN_TOOLS}tick"
WAIT_TOOL = f"{OWN_TOOLS}until_over"
HANDOVER_TOOL = f"{OWN_TOOLS}hand_over"
TRIGGER_TOOLS = (TICK_TOOL, WAIT_TOOL, HANDOVER_TOOL)

MAX_RECORDS = 5_000
"""Records in the journal of a schedule, at five a run: a thousand runs are as many as a person looks back at, and are
read in a moment. Then a successor continues. The one before it is kept, so the history has at least a thousand runs."""

RETRY_MS = 60_000
"""Milliseconds after which a tick that failed is tried again: the machine may lack the time zone, and get it."""

MAX_QUEUED = 1_000
"""Runs of one schedule that wait for the one before: more are never caught up with, and are left out."""

MAX_REQUESTS = 1_000
"""Runs that were asked for by hand and have not been started."""


REQUEST = "run:"
"""What the keys of runs begin with that somebody asked for; those of the others are times."""


class TriggerQuery(Query, frozen=True, tag="trigger"):
    """Answered when somebody has changed the trigger, and by nothing else."""

    kind = "trigger"
    is_patient = True

    def check_answer(self, session_id: str, answer: Answer) -> None:
        raise InvalidValueError("answer", f"trigger '{session_id}' takes none: use `triggers`, or `holdfast schedule`")


class TickQuery(ToolQuery, frozen=True, tag="tick"):
    """What is due now, and what was started because of it; answered with a `Tick`."""

    name: str = TICK_TOOL


class WaitQuery(ToolQuery, frozen=True, tag="until_over"):
    """Answered when a process is over."""

    name: str = WAIT_TOOL


class HandoverQuery(ToolQuery, frozen=True, tag="hand_over"):
    """Answered with the successor of the schedule, once that has begun."""

    name: str = HANDOVER_TOOL


class TriggerRun(msgspec.Struct, frozen=True, omit_defaults=True):
    """One time that a trigger was due, or was run by hand, and what was done about it."""

    key: str
    """The time it is for, in unix ms; or `run:` and the key of whoever asked for it."""
    process: str
    did: str = "started"
    """`started`, `skipped` because the run before was not over, `dropped`, or `failed`."""
    why: str = ""


class Tick(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a tick found and did."""

    cursor: int
    next: int | None = None
    runs: list[TriggerRun] = []
    missed: int = 0
    queued: list[str] = []
    """Keys of runs that wait for the one before."""
    last: str | None = None
    """The process of the latest run."""
    requests: list[str] = []
    """The requests that were taken care of."""


class ChangedRecord(KindRecord, frozen=True, tag="trigger_changed"):
    """Somebody changed the trigger."""

    terms: TriggerTerms
    by: str | None = None


class RequestedRecord(KindRecord, frozen=True, tag="run_requested"):
    """Somebody asked for a run now."""

    key: str
    by: str | None = None


class RemovedRecord(KindRecord, frozen=True, tag="trigger_removed"):
    """Somebody removed the trigger. What it has started goes on."""

    by: str | None = None


class ChangeTriggerMessage(KindMessage, frozen=True, tag="change_trigger"):
    """New terms for a trigger. With a `revision`, only if that is the present one."""

    terms: TriggerTerms
    revision: int | None = None
    by: str | None = None


class RunTriggerMessage(KindMessage, frozen=True, tag="run_trigger"):
    """A request for a run now. The same key again is the same request."""

    key: str
    by: str | None = None


class RemoveTriggerMessage(KindMessage, frozen=True, tag="remove_trigger"):
    """The wish to remove a trigger. With a `revision`, only if that is the present one."""

    revision: int | None = None
    by: str | None = None


class Inheritance(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What the successor of a schedule begins with, beside the terms."""

    first: str
    """The first session of the schedule. The ids of all runs follow from it."""
    before: str
    """The session that it continues."""
    position: int
    """How many records all sessions before it have; revisions count on from there."""
    revision: int
    cursor: int
    queued: list[str] = []
    last: str | None = None
    requests: list[str] = []
    requested: list[str] = []


INHERITANCE = "inheritance"
"""The key in the `ctx` of a successor."""


class _Folded(msgspec.Struct):
    """What a trigger remembers, as a checkpoint keeps it."""

    terms: TriggerTerms | None
    revision: int = 1
    cursor: int = 0
    next: int | None = None
    queued: list[str] = []
    last: str | None = None
    requests: list[str] = []
    requested: list[str] = []
    """The keys of the latest requests, whatever became of them."""
    is_removed: bool = False
    wants_tick: bool = False
    is_moving: bool = False
    """Whether its successor is being started, or has been."""
    successor: str | None = None
    failed: str = ""
    """Why the latest tick failed, if it did."""


class TriggerFold(KindFold):
    """The terms of a trigger, up to when it has run, what is queued, and what was asked for by hand."""

    format = 2

    def __init__(self, session: Session) -> None:
        ctx = session.started.ctx if session.started is not None else None
        terms = readable_terms(ctx, TriggerTerms)
        self.parent = terms.session if terms is not None else None
        self.state = _Folded(terms, wants_tick=terms is not None and terms.is_clock)
        self.inherited = readable_terms(ctx.get(INHERITANCE), Inheritance) if isinstance(ctx, dict) else None
        """What it began with, if it continues another one."""
        if (before := self.inherited) is not None:
            state = self.state
            state.revision, state.cursor, state.last = before.revision, before.cursor, before.last
            state.queued, state.requests = [*before.queued], [*before.requests]
            state.requested = [*before.requested]

    def first_session(self, session_id: str) -> str:
        """The first session of the schedule, from which the ids of its runs follow."""
        return self.inherited.first if self.inherited is not None else session_id

    def inheritance(self, session: Session) -> Inheritance:
        """What the successor of this one begins with."""
        state = self.state
        return Inheritance(
            first=self.first_session(session.id),
            before=session.id,
            position=self._revision_at(session.position),
            revision=state.revision,
            cursor=state.cursor or session.metrics.started_at,
            queued=state.queued,
            last=state.last,
            requests=state.requests,
            requested=state.requested,
        )

    def _revision_at(self, position: int) -> int:
        return position + (self.inherited.position if self.inherited is not None else 0)

    @property
    def terms(self) -> TriggerTerms | None:
        return self.state.terms

    def check(self, session: Session, record: KindRecord) -> str | None:
        if isinstance(record, ChangedRecord | RequestedRecord | RemovedRecord):
            return None
        return super().check(session, record)

    def on_record(self, record: KindRecord, at: int, position: int) -> None:
        state = self.state
        match record:
            case ChangedRecord(terms=terms):
                before = state.terms
                if before is not None and (terms.source != before.source or (terms.enabled and not before.enabled)):
                    state.cursor = max(state.cursor, at)  # what lies before was not missed
                state.terms, state.revision, state.wants_tick = terms, self._revision_at(position), terms.is_clock
            case RequestedRecord(key=key):
                state.requests.append(f"{REQUEST}{key}")
                state.requested = [*state.requested, key][-MAX_REQUESTS:]
                state.wants_tick = True
            case RemovedRecord():
                state.is_removed = True
            case _:
                pass

    def on_asked(self, query: Query) -> None:
        if isinstance(query, TickQuery):
            self.state.wants_tick = False
        elif isinstance(query, HandoverQuery):
            self.state.is_moving, self.state.wants_tick = True, False

    def on_answered(self, query: Query, answer: Answer, usage: Usage | None) -> None:
        state = self.state
        if isinstance(query, TimerQuery | WaitQuery):
            state.wants_tick = True
        elif isinstance(query, HandoverQuery):
            if isinstance(answer, Value):
                state.successor = answer.value
            else:
                state.is_moving, state.failed, state.next = False, answer.message, None
        elif isinstance(query, TickQuery):
            try:
                tick = _tick_of(answer)
            except ValueError as error:
                state.failed, state.next = str(error), None
                return
            state.failed, state.cursor, state.next = "", max(state.cursor, tick.cursor), tick.next
            state.queued, state.last = tick.queued, tick.last
            state.requests = [key for key in state.requests if key not in tick.requests]
            state.wants_tick = state.wants_tick or bool(state.requests)

    def on_forked(self, at: int) -> None:
        """A fork has the terms of its source, and none of its runs to make up for."""
        self.state.requests, self.state.queued, self.state.cursor = [], [], max(self.state.cursor, at)

    def dump(self) -> bytes:
        return encode(self.state)

    def restore(self, state: bytes) -> bool:
        try:
            self.state = _folded.decode(state)
        except (msgspec.MsgspecError, ValueError):
            return False
        return True

    def query_needs(self, query: Query) -> Sequence[Need] | None:
        return (Need("tool", query.name),) if isinstance(query, TickQuery | WaitQuery | HandoverQuery) else None

    def decide(self, session: Session, message: KindMessage, now: int, recorded: Mapping[str, Entry]) -> Decision:
        if self.state.is_moving:
            raise TriggerMovingError(session.id)
        match message:
            case ChangeTriggerMessage(terms=terms, by=by):
                self._check_revision(session, message.revision)
                found = check_trigger(terms)
                if self.terms is None or found.name != self.terms.name or found.program != self.terms.program:
                    raise InvalidValueError("trigger", "its name, and the type of its events, cannot be changed")
                return Decision([]) if found == self.terms else self._told(session, ChangedRecord(terms=found, by=by))
            case RunTriggerMessage(key=key, by=by):
                check_id(key, "key of a run")
                checked(message, "trigger")
                self._check_lives(session)
                if key in self.state.requested:
                    return Decision([], replayed=[session.position])
                if len(self.state.requests) >= MAX_REQUESTS:
                    raise InvalidValueError("trigger", f"{MAX_REQUESTS} runs that were asked for have not been started")
                return self._told(session, RequestedRecord(key=key, by=by))
            case RemoveTriggerMessage(revision=revision, by=by):
                if session.is_terminal:
                    return Decision([])
                self._check_revision(session, revision)
                return self._told(session, RemovedRecord(by=by))
            case _:
                return super().decide(session, message, now, recorded)

    def _told(self, session: Session, record: Record) -> Decision:
        """Record something, and let the program see it."""
        asked = [each for each, pending in session.pending.items() if isinstance(pending.query, TriggerQuery)]
        told = [AnsweredRecord(query_id=each, answer=Value(value=None), by="trigger") for each in asked]
        return Decision.of(record, *told)

    def _check_lives(self, session: Session) -> None:
        if session.state is not State.PAUSED:
            raise InvalidValueError("trigger", f"'{session.id}' is {session.state}; register it again")

    def _check_revision(self, session: Session, revision: int | None) -> None:
        self._check_lives(session)
        if revision is not None and revision != self.state.revision:
            raise RevisionConflictError(session.id, revision, self.state.revision)


_folded = msgspec.json.Decoder(_Folded)


def _tick_of(answer: Answer) -> Tick:
    """What a tick came to; `ValueError` if it failed."""
    if isinstance(answer, Failure):
        raise ValueError(answer.message)
    return msgspec.convert(answer.value, Tick)


def trigger_fold(session: Session) -> TriggerFold:
    """A trigger's own part of its session; of a session of another kind, an empty one."""
    return session.kind_fold if isinstance(session.kind_fold, TriggerFold) else TriggerFold(session)


class TriggerKind(BackgroundKind):
    """Triggers."""

    kind = KIND

    def create(self, fold: Fold) -> Instance:
        return TriggerInstance(fold)

    def dump_instance(self, instance: Instance) -> bytes | None:
        return b"{}"  # it remembers nothing: all is in the fold

    def restore_instance(self, fold: Fold, state: bytes) -> Instance | None:
        return TriggerInstance(fold)


class TriggerInstance(BackgroundInstance):
    """One trigger."""

    def __init__(self, fold: Fold) -> None:
        super().__init__(fold, trigger_fold(fold.session).terms)

    def resume(self, at: int, answers: Sequence[tuple[str, Answer]]) -> Step:
        session = self.fold.session
        state = trigger_fold(session).state
        if state.is_removed:
            return ReturnStep(result={"removed": True})
        if state.successor is not None:
            return ReturnStep(result={"continued_by": state.successor})
        pending: dict[type[Any], str] = {type(each.query): asked for asked, each in session.pending.items()}
        queries: list[Query] = [] if TriggerQuery in pending else [TriggerQuery()]
        withdrawn: list[str] = []
        notes: list[Note] = []
        if TickQuery in pending or HandoverQuery in pending:
            pass  # its answer says what comes next
        elif state.wants_tick:
            withdrawn = [pending[kind] for kind in (TimerQuery, WaitQuery) if kind in pending]
            queries.append(HandoverQuery() if session.position >= MAX_RECORDS and _is_clock(state) else TickQuery())
        else:
            if state.failed:
                notes = [LoggedRecord(message=f"nothing was started: {state.failed}", level="error", source="holdfast")]
            elif _is_over(state):
                return ReturnStep(result={"runs": state.last})
            queries += self._waits(at, state, pending)
        return AskStep(queries=numbered(session, queries), wake="first", withdrawn=withdrawn, notes=notes)

    def refuse(self, at: int, failure: Failure) -> Step:
        return ReturnStep(result={"refused": failure.message})

    def _waits(self, at: int, state: _Folded, pending: Mapping[type[Any], str]) -> list[Query]:
        """What it waits for until the next tick."""
        waits: list[Query] = []
        until = at + RETRY_MS if state.failed else state.next
        if until is not None and TimerQuery not in pending:
            waits.append(TimerQuery(delay_ms=max(0, until - at)))
        if state.queued and state.last is not None and not state.failed and WaitQuery not in pending:
            waits.append(WaitQuery(arguments={"process": state.last}))
        return waits


def _is_clock(state: _Folded) -> bool:
    return state.terms is not None and state.terms.is_clock


def _is_over(state: _Folded) -> bool:
    """Whether a trigger has nothing left to do: it was for one time, and that has passed."""
    return (
        state.terms is not None
        and isinstance(state.terms.source, OnceSource)
        and (state.next is None and not state.queued and state.terms.enabled)
    )


register(
    SessionKind(
        name=KIND,
        fold=TriggerFold,
        records=(ChangedRecord, RequestedRecord, RemovedRecord),
        queries=(TriggerQuery, TickQuery, WaitQuery, HandoverQuery),
        messages=(ChangeTriggerMessage, RunTriggerMessage, RemoveTriggerMessage),
    )
)
