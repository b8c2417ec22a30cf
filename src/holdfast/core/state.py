"""The session: its states, the one table of what may happen in each, and the fold of a journal into a session.

Rules of this file
------------------
- Everything that affects a session's state lives here. Nothing outside this file changes it.
- The table says which record is legal in which state, and which state follows. What is not in it is illegal, and
  raises `TransitionError` with the states that would have been legal and the one that was found.
- `Session.apply` is the only way to change a session. It checks first and changes then, so a refused record changes
  nothing.
- A session is a fold of its journal and of nothing else: no clock, no process, no memory of how it came about.
  Folding the same entries gives the same session, in any process, at any time.

The theory
----------
A session is RUNNING while its program can make progress by itself, and PAUSED while it waits for answers. It runs from
its start, and ends in one of four ways: COMPLETED, FAILED, CANCELLED or EXPIRED. After that nothing happens to it.

A session that came from a file is IMPORTED from the last record of the file on, unless it has ended: it does nothing,
whoever serves it, until somebody adopts it, and then it is again what it was. Its start says up to where it was
imported, so that follows from the journal too.

There are two kinds of transition. One is triggered by a record, and stands in `TRANSITIONS`. The other is triggered by
the session itself: a PAUSED session whose pause is over *wakes*, that is, becomes RUNNING at once and without a record
of its own, because it follows from what is recorded. A pause waits for every query that is pending: those it asked, and
those left over from pauses that ended before. It is over

    wake "all"              when no query is pending,
    wake "all_or_failure"   then, or when there is a failure that the program has not been given,
    wake "first"            when there is an answer that the program has not been given.

An answer is given to the program when the session wakes. One that arrives while the program runs (its query was left
over from a pause that ended at its first answer) is kept, and given at the next waking. So which answers a program gets
at which of its wakings follows from the journal alone, and a replay gives it the same ones.

A query is *pending* until it is answered or withdrawn, or the session ends. Query ids are never used again. What was
answered is in the journal, and a session remembers no more of it than where the latest answers are.

A program kind may bring records of its own (`core.kinds`). One row of the table stands for all of them: they are legal
while the session lives, they leave its state as it is, and the kind's own fold may refuse them for reasons of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from holdfast.core.budget import Budget, Price, child_shares, price_for
from holdfast.core.errors import JournalError, NotAdoptedError, TransitionError
from holdfast.core.folded import FoldedSession
from holdfast.core.ids import query_id, query_number
from holdfast.core.kinds import KindFold, find_kind
from holdfast.core.labels import relabelled, title_of_ctx
from holdfast.core.limits import RECENT_ANSWERS
from holdfast.core.metrics import Metrics
from holdfast.core.needs import ANY
from holdfast.core.pending_queries import PendingQueries, PendingQuery
from holdfast.core.queries import ChildQuery, Failure, LlmQuery, is_own
from holdfast.core.records import (
    AdoptedRecord,
    AnsweredRecord,
    AssignedRecord,
    AttemptedRecord,
    CancelledRecord,
    CompletedRecord,
    EndRecord,
    Entry,
    ExpiredRecord,
    FailedRecord,
    InterruptedRecord,
    KindRecord,
    LabelledRecord,
    LoggedRecord,
    PatchedRecord,
    PausedRecord,
    ProgressedRecord,
    Record,
    RefusedRecord,
    StartedRecord,
    StatRecord,
    type_of,
)
from holdfast.core.wake import Wake, pause_is_over


class State(StrEnum):
    """Where a session is in its life."""

    ABSENT = "absent"  # no record yet
    RUNNING = "running"
    PAUSED = "paused"
    IMPORTED = "imported"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"

    is_terminal: bool
    """Whether nothing can happen in this state any more."""


RUNNING, PAUSED, IMPORTED = State.RUNNING, State.PAUSED, State.IMPORTED
"""Those that are asked for at every step, with names of their own: finding a member in its enum takes long."""

_WHILE_ALIVE: dict[type[Any], State | None] = {  # None: the state stays as it is
    AttemptedRecord: None,
    InterruptedRecord: None,
    AnsweredRecord: None,
    AssignedRecord: None,
    LabelledRecord: None,
    AdoptedRecord: None,  # of an earlier import, in a file that was imported once more
    LoggedRecord: None,
    ProgressedRecord: None,
    StatRecord: None,
    KindRecord: None,  # stands for every record that the session's program kind brings
    CancelledRecord: State.CANCELLED,
}

TRANSITIONS: dict[State, dict[type[Any], State | None]] = {
    State.ABSENT: {StartedRecord: State.RUNNING},
    State.RUNNING: {
        PausedRecord: State.PAUSED,
        RefusedRecord: None,
        PatchedRecord: None,
        CompletedRecord: State.COMPLETED,
        FailedRecord: State.FAILED,
        **_WHILE_ALIVE,
    },
    State.PAUSED: {
        ExpiredRecord: State.EXPIRED,
        **_WHILE_ALIVE,
    },
    State.IMPORTED: {
        AdoptedRecord: State.RUNNING,  # or PAUSED, if it was
        CancelledRecord: State.CANCELLED,
    },
    State.COMPLETED: {},
    State.FAILED: {},
    State.CANCELLED: {},
    State.EXPIRED: {},
}

ENDED = tuple(state for state in State if not TRANSITIONS[state])
for _state in State:
    _state.is_terminal = _state in ENDED


class Session:
    """A session, folded from its journal."""

    def __init__(self, session_id: str) -> None:
        self.id = session_id
        self.state = State.ABSENT
        self._rules = _RULES[State.ABSENT]
        self.position = 0
        self.started: StartedRecord | None = None
        self._seam = 0
        """The next position at which something ends that is not this session's own: see `_pass_seam`."""
        self._prices: dict[str, Price] = {}
        self.ended: EndRecord | None = None
        self.llm = ANY  # who answers its `llm` queries
        self.title, self.labels = "", tuple[str, ...]()
        self.pending = PendingQueries()
        self.settled: dict[str, int] = {}
        """The positions of the latest answers, by query."""
        self.undelivered: list[str] = []
        """Answered queries whose answers the program has not been given, in the order of their answers."""
        self.failure_undelivered = False
        self.wakings = 0
        """How often a pause has ended and the program continued."""
        self.is_outward = False
        """Whether the last pause was not for the runtime itself alone; only those are counted as pauses."""
        self.queries_asked = 0
        self.asked_last = 0
        """How many queries the last pause asked; 0 if it went on waiting for earlier ones."""
        self.wake: Wake = "all"
        self.metrics = Metrics()
        self.kind_fold = KindFold()
        """What the program kind keeps of the session beside all this."""

    @classmethod
    def fold(cls, session_id: str, entries: Iterable[Entry]) -> Session:
        """The session that a journal tells of."""
        session = cls(session_id)
        for entry in entries:
            session.apply(entry)
        return session

    @property
    def is_terminal(self) -> bool:
        return not self._rules

    @property
    def adopted_state(self) -> State | None:
        """The state that it has once it is adopted, or None if it is not imported."""
        rule = self._rules.get(AdoptedRecord)
        return rule.following if rule is not None else None

    @property
    def program_kind(self) -> str:
        """The kind of its program; empty before it has started."""
        return self.started.program.kind if self.started is not None else ""

    def has_asked(self, asked: str) -> bool:
        """Whether there was ever a query with this id. If it is not pending, it was answered or withdrawn."""
        number = query_number(asked)
        return number is not None and number < self.queries_asked

    def next_due(self) -> int | None:
        """When the clock has to look at the session next, or None if never: a timer, a timeout, its kind's own part."""
        own, due_times = self.kind_fold.next_due(), self.pending.due_times
        if not due_times:
            return own
        earliest = min(due_times.values())
        return earliest if own is None else min(own, earliest)

    # --- checkpoints ---------------------------------------------------------------------------

    @classmethod
    def restore(cls, session_id: str, folded: FoldedSession) -> Session | None:
        """The session of a checkpoint; None if another version of its program kind has folded it."""
        session = cls(session_id)
        if folded.state not in TRANSITIONS:
            return None
        session.state = State(folded.state)
        session.position, session._rules = folded.position, _RULES[session.state]
        if session.state is IMPORTED:
            session._rules = _RULES_UNTIL_ADOPTED[State(folded.adopted_state)]
        session.started, session.ended, session.settled = folded.started, folded.ended, folded.settled
        session._find_kind()
        if session.kind_fold.format != folded.kind_format or not session.kind_fold.restore(bytes(folded.kind)):
            return None
        for each in folded.pending:
            session.pending.add(PendingQuery(*msgspec.structs.astuple(each)))
        session.undelivered = [asked for asked, _ in folded.undelivered]
        session.failure_undelivered = folded.failure_undelivered
        session.title, session.labels = folded.title, folded.labels
        session.wakings, session.is_outward = folded.wakings, folded.is_outward
        session.queries_asked, session.asked_last = folded.queries_asked, folded.asked_last
        session.wake, session.metrics, session.llm = folded.wake, folded.metrics.copied(), folded.llm
        return session

    # --- folding -------------------------------------------------------------------------------

    def check(self, record: Record) -> None:
        """Raise unless `record` may come next. Changes nothing."""
        rule = self._rules.get(type(record)) or self._rule_of_kind(record)
        if rule.reason_against is not None and (why := rule.reason_against(self, record)) is not None:
            raise JournalError(self.id, self.position + 1, why)

    def _rule_of_kind(self, record: Record) -> _Rule:
        """The rule for a record that has no row of its own; raises if there is none in this state."""
        rule = self._rules.get(_row_of(record))
        if rule is None:
            refusal = NotAdoptedError if self.state is IMPORTED else TransitionError
            raise refusal(self.id, type_of(record), _legal_states(_row_of(record)), self.state)
        return rule

    def _against_pause(self, record: PausedRecord) -> str | None:
        for number, query in enumerate(record.queries, self.queries_asked):
            if query.id != query_id(number):
                return f"it asks {query.id or 'a query without id'}, expected {query_id(number)}"
        for gone in record.withdrawn:
            if gone not in self.pending:
                return f"it withdraws {gone}, which is not pending"
        if not record.queries and len(self.pending) == len(set(record.withdrawn)) and not self.undelivered:
            return "it waits for nothing"
        return None

    def _against_not_pending(self, record: AnsweredRecord | AttemptedRecord | InterruptedRecord) -> str | None:
        asked = record.query_id
        return None if asked in self.pending else f"it speaks of {asked}, which is not pending"

    def _against_kind_record(self, record: KindRecord) -> str | None:
        return self.kind_fold.check(self, record)

    def apply(self, entry: Entry) -> bool:
        """Fold one more entry into the session, or raise and change nothing. True if it ends a pause."""
        record, position, at = entry.record, entry.position, entry.at
        if position != self.position + 1:
            raise JournalError(self.id, position, f"expected position {self.position + 1}, got {position}")
        following, reason_against, fold = self._rules.get(type(record)) or self._rule_of_kind(record)
        if reason_against is not None and (why := reason_against(self, record)) is not None:
            raise JournalError(self.id, position, why)
        fold(self, record, at, position)
        if following is not None:
            self.state, self._rules = following, _RULES[following]
        undelivered = self.undelivered
        is_over = (
            self.state is PAUSED
            and len(undelivered) > 0  # it continues with an answer, and with the last in any case
            and (not self.pending or pause_is_over(self.wake, self.pending, undelivered, self.failure_undelivered))
        )
        if is_over:  # the program continues, and is given the answers
            self.state, self._rules = RUNNING, _RULES[RUNNING]
            self.failure_undelivered = False
            self.wakings += 1
            self.metrics.rounds += self.is_outward
            undelivered.clear()
        self.metrics.tick(at, self.state is PAUSED)
        self.position = position
        if position == self._seam:
            self._pass_seam(at)
        return is_over

    def _find_kind(self) -> None:
        """Follow what the start says: where a fork parts from its source, and what the program kind keeps."""
        if self.started is None:
            return
        self._seam = self._next_seam(self.position)
        self._prices = self.started.prices
        if (kind := find_kind(self.started.program.kind)) is not None:
            self.kind_fold = kind.fold(self)

    def _next_seam(self, after: int) -> int:
        """The next position with which what a fork shares, or what was in a file, ends; 0 if there is none."""
        assert self.started is not None
        fork, imported = self.started.forked_from, self.started.imported
        if fork is None and imported is None:  # as nearly always
            return 0
        seams = [each.position for each in (fork, imported) if each is not None]
        return min((seam for seam in seams if seam > after), default=0)

    def _pass_seam(self, at: int) -> None:
        """From here on a fork goes its own way: what its source had begun is not the fork's. An import stands still."""
        assert self.started is not None
        fork, imported = self.started.forked_from, self.started.imported
        if fork is not None and fork.position == self.position:
            for pending in self.pending.values():
                pending.attempts = pending.deaths = 0
            self.kind_fold.on_forked(at)
        if imported is not None and imported.position == self.position and not self.is_terminal:
            self.state, self._rules = IMPORTED, _RULES_UNTIL_ADOPTED[self.state]
        self._seam = self._next_seam(self.position)

    # --- what each record does -----------------------------------------------------------------

    def _on_started(self, record: StartedRecord, at: int, position: int) -> None:
        self.started, self.llm = record, record.llm
        self.title, self.labels = record.title or title_of_ctx(record.ctx), tuple(record.labels)
        self.metrics.start(at)
        self._find_kind()

    def _on_paused(self, record: PausedRecord, at: int, position: int) -> None:
        pending, metrics, queries, begun = self.pending, self.metrics, record.queries, int(record.attempted)
        children: dict[str, Budget | None] = {}
        for gone in record.withdrawn:
            if pending.remove(gone) is not None:
                metrics.withdraw(gone)
        for query in queries:
            pending.add(PendingQuery(query, at, begun, begun))
            if isinstance(query, LlmQuery):
                metrics.ask(query, self._prices, at)
            elif isinstance(query, ChildQuery):
                children[query.id] = query.budget
            self.kind_fold.on_asked(query)
        if children:
            self._set_aside(children, record.wake)
        self.asked_last = len(queries)
        self.queries_asked += len(queries)
        self.wake = record.wake
        self.is_outward = not pending
        for query in pending.groups.values():
            if query.kind != "tool" or not is_own(query):
                self.is_outward = True
                break
        metrics.pauses += self.is_outward

    def _set_aside(self, children: Mapping[str, Budget | None], wake: Wake) -> None:
        """Reserve what children may spend that were just asked for."""
        if self.started is None or self.started.budget is None:
            return
        goes_on = wake != "all" and any(query.kind != "child" for query in self.pending.groups.values())
        self.metrics.set_aside(child_shares(self.started.budget, self.metrics, children, parent_goes_on=goes_on))

    def _on_refused(self, record: RefusedRecord, at: int, position: int) -> None:
        self.metrics.refused += record.queries

    def _on_attempted(self, record: AttemptedRecord, at: int, position: int) -> None:
        pending = self.pending[record.query_id]
        pending.attempts += 1
        pending.deaths += 1

    def _on_interrupted(self, record: InterruptedRecord, at: int, position: int) -> None:
        pending = self.pending[record.query_id]
        pending.deaths = 0 if record.was_begun else max(0, pending.deaths - 1)

    def _on_answered(self, record: AnsweredRecord, at: int, position: int) -> None:
        asked, answer, settled = record.query_id, record.answer, self.settled
        query = self.pending[asked].query
        if isinstance(query, LlmQuery):  # first, because measuring an answer is all that could raise
            price = price_for(query, self._prices) if self._prices else None
            self.metrics.answer(query, answer, record.usage, price)
        elif isinstance(query, ChildQuery):
            self.metrics.answer_child(asked, record.usage)
        self.pending.remove(asked)
        settled[asked] = position
        if len(settled) > RECENT_ANSWERS:
            del settled[next(iter(settled))]
        self.undelivered.append(asked)
        if type(answer) is Failure:
            self.failure_undelivered = True
            self.metrics.failures += 1
        self.kind_fold.on_answered(query, answer, record.usage)

    def _on_assigned(self, record: AssignedRecord, at: int, position: int) -> None:
        self.llm = record.llm

    def _on_labelled(self, record: LabelledRecord, at: int, position: int) -> None:
        self.title, self.labels = relabelled(self, record.title, record.labels)

    def _on_logged(self, record: LoggedRecord, at: int, position: int) -> None:
        self.metrics.log(record, at)

    def _on_progressed(self, record: ProgressedRecord, at: int, position: int) -> None:
        self.metrics.progress = record

    def _on_stat(self, record: StatRecord, at: int, position: int) -> None:
        self.metrics.custom[record.key] = record.value

    def _on_noted(self, record: PatchedRecord | AdoptedRecord, at: int, position: int) -> None:
        """Nothing follows from it but the state, or what the program does in a replay."""

    def _on_kind_record(self, record: KindRecord, at: int, position: int) -> None:
        self.kind_fold.on_record(record, at, position)
        if (spent := record.background_usage) is not None:
            self.metrics.spend_in_background(spent)

    def _on_ended(self, record: EndRecord, at: int, position: int) -> None:
        self.ended = record
        self.metrics.ended_at = max(at, self.metrics.last_activity_at)
        for left_over in self.pending:
            self.metrics.withdraw(left_over)
        self.pending.remove_all()
        self.kind_fold.on_ended(record, at)


_FOLD: dict[type[Any], Callable[[Session, Any, int, int], None]] = {
    StartedRecord: Session._on_started,
    PausedRecord: Session._on_paused,
    RefusedRecord: Session._on_refused,
    AttemptedRecord: Session._on_attempted,
    InterruptedRecord: Session._on_interrupted,
    AnsweredRecord: Session._on_answered,
    AssignedRecord: Session._on_assigned,
    LabelledRecord: Session._on_labelled,
    AdoptedRecord: Session._on_noted,
    LoggedRecord: Session._on_logged,
    ProgressedRecord: Session._on_progressed,
    StatRecord: Session._on_stat,
    PatchedRecord: Session._on_noted,
    KindRecord: Session._on_kind_record,
    CompletedRecord: Session._on_ended,
    FailedRecord: Session._on_ended,
    CancelledRecord: Session._on_ended,
    ExpiredRecord: Session._on_ended,
}

_REASON_AGAINST: dict[type[Any], Callable[[Session, Any], str | None]] = {
    PausedRecord: Session._against_pause,
    AnsweredRecord: Session._against_not_pending,
    AttemptedRecord: Session._against_not_pending,
    InterruptedRecord: Session._against_not_pending,
    KindRecord: Session._against_kind_record,
}
"""Why a record that is legal in a state may still not come next, or None if it may."""


class _Rule(NamedTuple):
    """What happens when a record comes in a state: a row of `TRANSITIONS`, with the functions that belong to it."""

    following: State | None
    reason_against: Callable[[Session, Any], str | None] | None
    fold: Callable[[Session, Any, int, int], None]


_RULES: dict[State, dict[type[Any], _Rule]] = {
    state: {row: _Rule(following, _REASON_AGAINST.get(row), _FOLD[row]) for row, following in rows.items()}
    for state, rows in TRANSITIONS.items()
}

_RULES_UNTIL_ADOPTED: dict[State, dict[type[Any], _Rule]] = {
    before: {**_RULES[IMPORTED], AdoptedRecord: _RULES[IMPORTED][AdoptedRecord]._replace(following=before)}
    for before in (RUNNING, PAUSED)
}
"""The rules of an IMPORTED session, by the state that it was in before and has again once it is adopted."""


def _row_of(record: Record) -> type[Any]:
    """The row of the table that speaks of a record."""
    return type(record) if type(record) in _FOLD else KindRecord


def _legal_states(record: type[Any]) -> str:
    return " or ".join(state for state in State if record in TRANSITIONS[state])
