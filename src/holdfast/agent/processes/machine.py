"""The kind `process`: a session that has one piece of work done, tells whoever waits for it, and ends.

The program is pure, and short:

    Working ──outcome──▶ Telling ──delivered──▶ over        (Telling only if there is somebody to tell)

Whoever the terms name is woken. Work that has a session of its own is settled: what is left of that is ended, and what
it has spent is told to the owner of the process.

What it asks follows from its terms. A tool call, a turn and an emit are effects; a strategy is a child session; an
outside job is a question that anyone answers. Work that is bound to its owner is asked together with a *token*: an
effect that lasts as long as the OS process that runs it, and is never run again. If the token fails, the work is
abandoned. Cancelling and abandoning answer the work with a failure, so every ending takes the same way, and wakes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias, assert_never

import msgspec

from holdfast.agent.processes.kind import BackgroundInstance, BackgroundKind, numbered, readable_terms
from holdfast.agent.processes.terms import (
    EmitWork,
    EventWork,
    OutsideWork,
    ProcessTerms,
    StrategyWork,
    ToolWork,
    TurnWork,
)
from holdfast.core.decide import Decision, KindMessage
from holdfast.core.errors import InvalidValueError
from holdfast.core.kinds import KindFold, SessionKind, register
from holdfast.core.needs import ANY_MODEL, Need
from holdfast.core.queries import OWN_TOOLS, Answer, ChildQuery, Failure, Query, ToolQuery, Value
from holdfast.core.records import AnsweredRecord, Entry, KindRecord, LoggedRecord, type_of
from holdfast.core.state import Session, State
from holdfast.core.values import Json, checked, encode, preview
from holdfast.core.wake import Wake
from holdfast.programs.contract import AskStep, Fold, RaiseStep, ReturnStep, Step

if TYPE_CHECKING:
    from holdfast.programs.contract import Instance

KIND = "process"
"""The name of the kind, and of its programs: listings find processes by it."""

TOKEN_TOOL = f"{OWN_TOOLS}owner_token"
TURN_TOOL = f"{OWN_TOOLS}turn"
EMIT_TOOL = f"{OWN_TOOLS}emit"
WAKE_TOOL = f"{OWN_TOOLS}wake"
DELIVER_TOOL = f"{OWN_TOOLS}deliver"
SETTLE_TOOL = f"{OWN_TOOLS}settle"
PROCESS_TOOLS = (TOKEN_TOOL, TURN_TOOL, EMIT_TOOL, WAKE_TOOL, DELIVER_TOOL, SETTLE_TOOL)
"""The effects of processes, which every runtime has."""

WAKE_CHARS = 4_000
"""Characters of a result that are shown in a wake: about a thousand tokens; the rest is read with `show`."""

MAX_SIGNALS = 1_000
"""Signals that one process keeps: whoever sends more wants a queue."""

EndStatus: TypeAlias = Literal["completed", "failed", "cancelled", "abandoned"]

CODES: dict[str, EndStatus] = {"cancelled": "cancelled", "abandoned": "abandoned"}
"""The statuses that a failure of the work may mean by its code; any other is `failed`."""


# --- what it asks -------------------------------------------------------------------------------------


class WorkQuery(ToolQuery, frozen=True, tag="work"):
    """A call of a tool in the background. The contract of the process decides about its recovery, not the tool."""

    bound: bool = False
    """Whether it is never run again."""


class JobQuery(Query, frozen=True, tag="job"):
    """The outcome of something that is done outside, which anyone may report."""

    about: str = ""
    kind = "job"
    is_patient = True

    def to_json(self) -> dict[str, Json]:
        return {"about": self.about}

    @property
    def text(self) -> str:
        return self.about or "the outcome of an outside job"


# --- what is recorded, and what it may be sent --------------------------------------------------------


class FinishedRecord(KindRecord, frozen=True, tag="finished"):
    """The work is over. What is left is to wake whoever waits for it."""

    status: EndStatus


class DepartedRecord(KindRecord, frozen=True, tag="departed"):
    """The session that the process belongs to has ended; the process goes on without it."""

    reason: str


class SignalledRecord(KindRecord, frozen=True, tag="signalled"):
    """Somebody sent a signal to an outside job; whoever does the job reads it here."""

    name: str
    value: Json = None
    by: str | None = None
    key: str = ""


class EndProcessMessage(KindMessage, frozen=True, tag="end_process"):
    """The wish to end a process: to cancel its work, or to give it up."""

    status: Literal["cancelled", "abandoned"]
    reason: str | None = None
    by: str | None = None


class OwnerEndedMessage(KindMessage, frozen=True, tag="owner_ended"):
    """The session that a process belongs to has ended. The terms say what follows."""

    reason: str


class SignalMessage(KindMessage, frozen=True, tag="signal"):
    """A signal. The same key again is the same signal."""

    name: str
    value: Json = None
    key: str = ""
    by: str | None = None


# --- its own part of the session ----------------------------------------------------------------------


class ProcessFold(KindFold):
    """The terms of a process, how its work ended, whether its owner has departed, and its signals."""

    format = 1

    def __init__(self, session: Session) -> None:
        self.terms = readable_terms(session.started.ctx if session.started is not None else None, ProcessTerms)
        self.parent = self.terms.owner if self.terms is not None else None
        self.finished: EndStatus | None = None
        self.finished_at: int | None = None
        self.departed: str | None = None
        self.signals: list[SignalledRecord] = []

    def check(self, session: Session, record: KindRecord) -> str | None:
        if not isinstance(record, FinishedRecord | DepartedRecord | SignalledRecord):
            return super().check(session, record)
        if self.finished is not None:
            return f"'{type_of(record)}' comes before the work is over, and it is {self.finished}"
        return None

    def on_record(self, record: KindRecord, at: int, position: int) -> None:
        match record:
            case FinishedRecord(status=status):
                self.finished, self.finished_at = status, at
            case DepartedRecord(reason=reason):
                self.departed = reason
            case SignalledRecord():
                self.signals.append(record)
            case _:
                pass

    def dump(self) -> bytes:
        return encode([self.finished, self.finished_at, self.departed, self.signals])

    def restore(self, state: bytes) -> bool:
        try:
            self.finished, self.finished_at, self.departed, self.signals = _folded.decode(state)
        except (msgspec.MsgspecError, ValueError):
            return False
        return True

    def query_needs(self, query: Query) -> Sequence[Need] | None:
        match query:
            case WorkQuery(name=name):
                return (Need("tool", name),)
            case ToolQuery(name=name) if name == TURN_TOOL and self._begins_agent:
                return (Need("tool", name), ANY_MODEL)
            case ToolQuery(name=name) if name in PROCESS_TOOLS:
                return (Need("tool", name),)
            case _:
                return None

    @property
    def _begins_agent(self) -> bool:
        """Whether its work is a turn of a new session under the runtime's own policy."""
        work = self.terms.work if self.terms is not None else None
        return isinstance(work, TurnWork) and work.session is None and "provider" not in work.spec

    def decide(self, session: Session, message: KindMessage, now: int, recorded: Mapping[str, Entry]) -> Decision:
        match message:
            case EndProcessMessage(status=status, reason=reason, by=by):
                checked(message, "process")
                return self._ended(session, Failure(reason or f"somebody {status} it", status), by)
            case OwnerEndedMessage(reason=reason) if self.terms is not None and self.terms.owner_end == "cancel":
                return self._ended(session, Failure(reason, "cancelled"), "owner")
            case OwnerEndedMessage(reason=reason):
                is_news = self.departed is None and self._is_at_work(session)
                return Decision.of(DepartedRecord(reason=reason)) if is_news else Decision([])
            case SignalMessage():
                return self._signalled(session, message)
            case _:
                return super().decide(session, message, now, recorded)

    def _is_at_work(self, session: Session) -> bool:
        return session.state is State.PAUSED and self.finished is None

    def _ended(self, session: Session, failure: Failure, by: str | None) -> Decision:
        """Answer the work with a failure; nothing to do if it is over."""
        if not self._is_at_work(session):
            return Decision([])
        asked = list(session.pending)[-1]  # the work comes after the token
        return Decision.of(AnsweredRecord(query_id=asked, answer=failure, by=by))

    def _signalled(self, session: Session, message: SignalMessage) -> Decision:
        checked(message, "signal")
        same = next((each for each in self.signals if message.key and each.key == message.key), None)
        if same is not None:
            if (same.name, same.value) != (message.name, message.value):
                why = f"another one has its key '{message.key}': {preview(same.value)}"
                raise InvalidValueError("signal", why)
            return Decision([], replayed=[session.position])
        if not self._is_at_work(session):
            raise InvalidValueError("signal", f"process '{session.id}' is over, and takes none")
        if len(self.signals) >= MAX_SIGNALS:
            raise InvalidValueError("signal", f"process '{session.id}' has {MAX_SIGNALS} already")
        return Decision.of(SignalledRecord(name=message.name, value=message.value, by=message.by, key=message.key))


_folded = msgspec.json.Decoder(tuple[EndStatus | None, int | None, str | None, list[SignalledRecord]])


def process_fold(session: Session) -> ProcessFold:
    """A process's own part of its session; of a session of another kind, an empty one."""
    return session.kind_fold if isinstance(session.kind_fold, ProcessFold) else ProcessFold(session)


# --- the program --------------------------------------------------------------------------------------


class ProcessKind(BackgroundKind):
    """Processes."""

    kind = KIND

    def create(self, fold: Fold) -> Instance:
        return ProcessInstance(fold)


class ProcessInstance(BackgroundInstance):
    """One process."""

    def __init__(self, fold: Fold) -> None:
        terms = process_fold(fold.session).terms
        super().__init__(fold, terms)
        assert terms is not None
        self._terms: ProcessTerms = terms
        self._asked: list[str] = []
        """Queries that it waits for; the work is the last."""
        self._outcome: Answer | None = None
        """What came of the work, once that is known."""

    def resume(self, at: int, answers: Sequence[tuple[str, Answer]]) -> Step:
        if not self._asked:
            return self._begin()
        if self._outcome is None:
            return self._on_work(dict(answers))
        return self._end(dict(answers))

    def refuse(self, at: int, failure: Failure) -> Step:
        """The budget does not allow what it asks."""
        self._outcome = failure
        return self._over([])

    def _begin(self) -> Step:
        is_bound = self._terms.recovery == "owner_bound" and not isinstance(self._terms.work, ToolWork)
        queries: list[Query] = [ToolQuery(name=TOKEN_TOOL)] if is_bound else []
        return self._ask([*queries, self._work()], wake="first" if is_bound else "all")

    def _work(self) -> Query:
        work = self._terms.work
        match work:
            case ToolWork(tool=tool, arguments=arguments):
                return WorkQuery(name=tool, arguments=arguments, bound=self._terms.recovery == "owner_bound")
            case StrategyWork(program=program, ctx=ctx):
                is_native = program.get("kind") == "native"  # then it waits for an OS process that has it
                kind: Literal["native", "any"] = "native" if is_native else "any"
                return ChildQuery(program=work.title, ctx=ctx, program_kind=kind, found=program)
            case TurnWork():
                return ToolQuery(name=TURN_TOOL, arguments=_arguments(work))
            case OutsideWork(about=about):
                return JobQuery(about=about)
            case EmitWork():
                return ToolQuery(name=EMIT_TOOL, arguments=_arguments(work))
            case EventWork():
                return ToolQuery(name=DELIVER_TOOL, arguments=_arguments(work))
            case _:
                assert_never(work)

    def _on_work(self, answers: Mapping[str, Answer]) -> Step:
        done = next(asked for asked in reversed(self._asked) if asked in answers)
        self._outcome = answers[done]
        if isinstance(self._outcome, Failure) and self._outcome.code == "unknown_outcome":
            self._outcome = Failure(self._outcome.message, "abandoned")
        left = [asked for asked in self._asked if asked not in answers]
        return self._over(left)

    def _over(self, left: list[str]) -> Step:
        assert self._outcome is not None
        finished = FinishedRecord(status=status_of(self._outcome))
        told: list[Query] = []
        if self._terms.has_own_session and (self._terms.owner is not None or isinstance(self._outcome, Failure)):
            told.append(ToolQuery(name=SETTLE_TOOL))
        if self._terms.wake is not None:
            wake = {"session": self._terms.wake, "item": f"wake-{self.fold.session.id}", "text": self._wake_text()}
            told.append(ToolQuery(name=WAKE_TOOL, arguments=wake))
        return self._ask(told, notes=[finished], withdrawn=left) if told else self._last_step([finished])

    def _end(self, answers: Mapping[str, Answer]) -> Step:
        notes = []
        for asked, answer in answers.items():
            if isinstance(answer, Failure):
                is_wake = self._terms.wake is not None and asked == self._asked[-1]
                what = f"session '{self._terms.wake}' was not woken" if is_wake else "its usage was not counted"
                notes.append(LoggedRecord(message=f"{what}: {answer.message}", level="error", source="holdfast"))
        return self._last_step(notes)

    def _last_step(self, notes: Sequence[KindRecord | LoggedRecord]) -> Step:
        if isinstance(self._outcome, Value):
            return ReturnStep(result=self._outcome.value, notes=list(notes))
        assert self._outcome is not None
        return RaiseStep(error=self._outcome.message, kind=self._outcome.code, notes=list(notes))

    def _ask(
        self,
        queries: Sequence[Query],
        *,
        wake: Wake = "all",
        notes: Sequence[KindRecord] = (),
        withdrawn: Sequence[str] = (),
    ) -> Step:
        asked = numbered(self.fold.session, queries)
        self._asked = [query.id for query in asked]
        return AskStep(queries=asked, wake=wake, notes=list(notes), withdrawn=list(withdrawn))

    def _wake_text(self) -> str:
        assert self._outcome is not None
        status = status_of(self._outcome)
        name = f"Process {self.fold.session.id} ({self._terms.title}) {status}"
        if isinstance(self._outcome, Failure):
            return f"{name}: {self._outcome.message[:WAKE_CHARS]}"
        value = self._outcome.value
        text = value if isinstance(value, str) else encode(value).decode()
        cut = f"… ({len(text)} characters in all)" if len(text) > WAKE_CHARS else ""
        return f"{name}: {text[:WAKE_CHARS]}{cut}"


def status_of(outcome: Answer) -> EndStatus:
    """The status that an outcome of the work means."""
    return "completed" if isinstance(outcome, Value) else CODES.get(outcome.code, "failed")


def _arguments(work: TurnWork | EmitWork | EventWork) -> dict[str, Json]:
    arguments: dict[str, Json] = msgspec.to_builtins(work)
    del arguments["kind"]
    return arguments


register(
    SessionKind(
        name=KIND,
        fold=ProcessFold,
        records=(FinishedRecord, DepartedRecord, SignalledRecord),
        queries=(WorkQuery, JobQuery),
        messages=(EndProcessMessage, OwnerEndedMessage, SignalMessage),
        ends_with_parent=False,  # its terms say what becomes of it
    )
)
