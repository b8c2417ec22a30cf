"""`AgentFold`: an agent's own part of its session, and the table of which of its records is legal when.

Rules of this file
------------------
- Everything that affects an agent's inbox, its turn and its policy is folded here, from the session's journal.
- An agent is *between turns* while it waits for an input, and *in a turn* from that input to the next time it waits for
  one. `LEGAL` says which of its records may come in which state of the session; some need a turn as well.
- Items enter a turn, and a turn is stopped, only while the program waits (PAUSED): when it is resumed it must know
  everything that has entered, in the first run and in a replay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from holdfast.agent.machine import decide
from holdfast.agent.machine.calls import HARMLESS
from holdfast.agent.machine.delegated_usage import MAX_SPENDERS, spent_by_model
from holdfast.agent.machine.delegation import answer_of, result_of_session
from holdfast.agent.machine.inbox import INBOX, Inbox, ItemCancellation
from holdfast.agent.machine.mailbox import ConfigureMessage, EnqueueMessage, SpentMessage, StopMessage, WithdrawMessage
from holdfast.agent.machine.messages import TextBlock
from holdfast.agent.machine.policy import RLM, Policy, PolicyState, policy_of
from holdfast.agent.machine.queries import CallQuery, DelegateQuery, InputQuery, ReplyQuery, SummaryQuery
from holdfast.agent.machine.records import (
    BoundRecord,
    CallRecord,
    ConfiguredRecord,
    DequeuedRecord,
    EnqueuedRecord,
    FrameRecord,
    JoinedRecord,
    LeavesRecord,
    SpentRecord,
    StopRecord,
    TurnRecord,
)
from holdfast.agent.machine.turn_input import TurnInput, input_of, task_of
from holdfast.agent.rlm.variables import VariableTable, seeded_table
from holdfast.core.ids import query_id
from holdfast.core.kinds import KindFold
from holdfast.core.labels import title_from
from holdfast.core.needs import ANY_MODEL, Need
from holdfast.core.queries import OWN_TOOLS, Answer, LlmQuery, Query, Usage, Value, is_own
from holdfast.core.records import AnsweredRecord, EndRecord, Entry, KindRecord, Record, type_of
from holdfast.core.state import Session, State
from holdfast.core.values import encode

if TYPE_CHECKING:
    from holdfast.core.decide import Decision, KindMessage, Repeats

MAX_STOPPED_AHEAD = 1_000
"""Turns that were stopped before they began, of which that is remembered: clients that name a turn begin it soon."""

_ALIVE = frozenset({State.RUNNING, State.PAUSED})
_WAITING = frozenset({State.PAUSED})

LEGAL: dict[type[KindRecord], frozenset[State]] = {
    TurnRecord: _ALIVE,
    CallRecord: _ALIVE,
    FrameRecord: _ALIVE,
    LeavesRecord: _ALIVE,
    BoundRecord: _ALIVE,
    EnqueuedRecord: _ALIVE,
    DequeuedRecord: _ALIVE,
    ConfiguredRecord: _ALIVE,
    JoinedRecord: _WAITING,
    StopRecord: _WAITING,
    SpentRecord: _ALIVE,
}
"""In which states of the session each record of an agent may come."""


class AgentFold(KindFold):
    """What an agent was sent, the turn it is in, who asked to stop that turn, and the policy."""

    format = 4

    def __init__(self, session: Session) -> None:
        ctx = session.started.ctx if session.started is not None else None
        opener = ctx.get("parent") if isinstance(ctx, dict) else None
        self.parent = opener if isinstance(opener, str) else None
        self.turns = 0
        self.title = ""
        self.task = task_of(ctx)
        """What it works on, if it is a subagent, which ends with its one turn."""
        self.reports_usage = self.task is not None or self.parent is not None
        """Whether another session counts what this one spends: that of its parent, or of its process."""
        self.spent: dict[str, Usage] = {}
        """What a session that belongs to another one, and those below it, have spent on each model."""
        self.spenders: dict[str, None] = {}
        """The processes whose usage was counted, the latest last."""
        self.policies = PolicyState(policy_of(ctx) or Policy())
        """How its turns are run."""
        self.inbox = Inbox()
        """What was sent to the agent, and waits for a turn."""
        self.turn: str | None = None
        """The turn that the agent is in; None between turns."""
        self.stop: tuple[StopRecord, int] | None = None
        """Who asked to stop that turn, and when."""
        self.input: TurnInput | str | None = None
        """What was answered, or why that is not understood, until the program has asked something else."""
        self.stopped_ahead: dict[str, tuple[StopRecord, int]] = {}
        """The same of turns that have not begun, the earliest first."""
        self.variables = seeded_table(ctx)
        """The variables of an rlm agent."""
        self.is_in_cell = False
        """Whether an rlm agent waits inside a cell."""

    # --- folding ------------------------------------------------------------------------------------

    def check(self, session: Session, record: KindRecord) -> str | None:
        legal = LEGAL.get(type(record))
        if legal is None:
            return super().check(session, record)
        if session.state not in legal:
            return f"'{type_of(record)}' comes while the session is {' or '.join(sorted(legal))}, not {session.state}"
        if isinstance(record, EnqueuedRecord) and record.item.id in self.inbox.accepted:
            return f"it accepts item '{record.item.id}' a second time"
        return None

    def on_record(self, record: KindRecord, at: int, position: int) -> None:
        match record:
            case EnqueuedRecord(item=item):
                self.inbox.add(item, position)
            case JoinedRecord(items=items, turn=turn):
                self.inbox.enter(items, turn)
            case DequeuedRecord(item_id=item_id, reason=reason, by=by):
                self.inbox.cancel(item_id, ItemCancellation(at, reason, by))
            case StopRecord(turn=turn) if turn == self.turn:
                self.stop = (record, at)
            case StopRecord(turn=turn):
                self.stopped_ahead[turn] = (record, at)
                if len(self.stopped_ahead) > MAX_STOPPED_AHEAD:
                    del self.stopped_ahead[next(iter(self.stopped_ahead))]
            case BoundRecord(bindings=bindings):
                self.variables.bind(bindings, position)
            case SpentRecord(process=process, usage=usage):
                self.spenders[process] = None
                if len(self.spenders) > MAX_SPENDERS:
                    del self.spenders[next(iter(self.spenders))]
                if self.reports_usage:
                    self.spent = spent_by_model(self.spent, usage)
            case ConfiguredRecord(change=change):
                self.policies.configure(change, in_turn=self.turn is not None)
            case _:
                pass  # what was said and done is folded by the conversation

    def on_asked(self, query: Query) -> None:
        inbox, self.input = self.inbox, None
        if self.policies.current.mode == RLM:
            is_command = is_own(query) and not isinstance(query, CallQuery)
            self.is_in_cell = not is_command and not isinstance(query, InputQuery | ReplyQuery | SummaryQuery)
        if isinstance(query, ReplyQuery):
            inbox.unseen.clear()  # the model is shown it now
        elif isinstance(query, InputQuery):
            self.turn = self.stop = None
            if self.policies.following is not None:
                self.policies.turn_over()
            if inbox.unseen:
                inbox.turn_over()

    def on_answered(self, query: Query, answer: Answer, usage: Usage | None) -> None:
        if not isinstance(query, InputQuery):
            if usage is not None and self.reports_usage:
                self._spend(answer, usage)
            return
        try:
            self.input = brought = input_of(answer)
        except ValueError as error:
            self.input = str(error)
            return  # the program asks again
        self.turn = brought.turn
        self.turns += 1
        if not self.title:
            self.title = title_from("".join(each.text for each in brought.content if isinstance(each, TextBlock)))
        self.stop = self.stopped_ahead.pop(brought.turn, None)
        if brought.begin is not None:
            self.variables.clear()
            self.policies.current = brought.begin.policy or self.policies.current
        if brought.spec is not None:
            self.policies.begin_turn(brought.spec)
        if brought.items:
            self.inbox.take(brought.items, brought.turn)

    def _spend(self, answer: Answer, usage: Usage) -> None:
        found = usage if usage.by_model is not None else Usage(by_model={self._model_of(answer): usage})
        self.spent = spent_by_model(self.spent, found)

    def _model_of(self, answer: Answer) -> str:
        value = answer.value if isinstance(answer, Value) else None
        named = value.get("model") if isinstance(value, dict) else None
        return named if isinstance(named, str) and named else self.policies.current.model

    def on_ended(self, record: EndRecord, at: int) -> None:
        self.inbox.cancel_all(
            ItemCancellation(at, f"the session was over: {type_of(record)}", getattr(record, "by", None))
        )

    def on_forked(self, at: int) -> None:
        evidence = ItemCancellation(at, "it was sent to the session that this one was forked from")
        for item_id in list(self.inbox.waiting):
            self.inbox.cancel(item_id, evidence)

    # --- checkpoints --------------------------------------------------------------------------------

    def dump(self) -> bytes:
        return encode(
            _FoldedAgent(
                self.inbox,
                self.turn,
                self.stop,
                self.stopped_ahead,
                self.policies,
                self.input,
                self.spent,
                self.variables,
                list(self.spenders),
                self.turns,
                self.title,
            )
        )

    def restore(self, state: bytes) -> bool:
        try:
            folded = _decoder.decode(state)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return False
        self.inbox, self.turn, self.stop = folded.inbox, folded.turn, folded.stop
        self.stopped_ahead, self.policies, self.input = folded.stopped_ahead, folded.policies, folded.input
        self.spent = folded.spent
        self.variables = folded.variables
        self.spenders = dict.fromkeys(folded.spenders)
        self.turns, self.title = folded.turns, folded.title
        return True

    # --- listings and timers ------------------------------------------------------------------------

    @property
    def waiting_for(self) -> str | None:
        return INBOX if self.turn is None and self.inbox.waiting else None

    def next_due(self) -> int | None:
        return self.inbox.next_due() if self.turn is None and self.inbox.waiting else None

    def is_left_to_worker(self, session: Session, now: int) -> bool:
        due = session.next_due()
        return self.turn is None and bool(self.inbox.waiting) and due is not None and due <= now

    # --- what the session is told that this one belongs to ------------------------------------------

    def parent_answer(self, session: Session) -> Answer | None:
        if self.task is None or session.ended is None:
            return None
        return answer_of(result_of_session(session.id, session.ended, wants_value=self.task.output is not None))

    def usage_by_model(self) -> dict[str, Usage]:
        return self.spent

    # --- what it needs of a process -----------------------------------------------------------------

    def query_needs(self, query: Query) -> Sequence[Need] | None:
        match query:
            case LlmQuery():
                return _model_needs(self.policies.current.provider)
            case CallQuery(name=name, served_by="process") if name not in HARMLESS and not name.startswith(OWN_TOOLS):
                return (Need("tool", name),)
            case DelegateQuery(program=name):
                return (Need("agent", name),)
            case _:
                return ()

    def waiting_needs(self) -> Sequence[Need]:
        """Of the turn that the waiting items begin."""
        return _model_needs(self.policies.current.provider) if self.turn is None and self.inbox.waiting else ()

    # --- decisions ----------------------------------------------------------------------------------

    def repeats_of(self, message: KindMessage) -> Repeats | None:
        return decide.repeats_of(self, message) if isinstance(message, EnqueueMessage) else None

    def decide(self, session: Session, message: KindMessage, now: int, recorded: Mapping[str, Entry]) -> Decision:
        match message:
            case EnqueueMessage():
                return decide.decide_enqueue(session, self, message, now, recorded)
            case WithdrawMessage():
                return decide.decide_withdraw(session, self, message)
            case StopMessage():
                return decide.decide_stop(session, self, message)
            case ConfigureMessage():
                return decide.decide_configure(session, self, message)
            case SpentMessage():
                return decide.decide_spent(session, self, message)
            case _:
                return super().decide(session, message, now, recorded)

    def decide_waiting(self, session: Session, now: int) -> list[Record]:
        if self.task is not None and self.turn is None and session.queries_asked == 1 and session.pending:
            return [AnsweredRecord(query_id=query_id(0), answer=self.task.to_answer(), by="parent")]
        return decide.decide_join(session, self, now) if self.inbox.waiting else []

    def decide_expire(self, session: Session, reason: str) -> list[Record]:
        return decide.decide_expire(session, self, reason)


@lru_cache(maxsize=256)
def _model_needs(provider: str) -> Sequence[Need]:
    return (Need("provider", provider) if provider else ANY_MODEL,)


class _FoldedAgent(msgspec.Struct, frozen=True):
    """An agent's own part of its session, as a checkpoint keeps it."""

    inbox: Inbox
    turn: str | None
    stop: tuple[StopRecord, int] | None
    stopped_ahead: dict[str, tuple[StopRecord, int]]
    policies: PolicyState
    input: TurnInput | str | None
    spent: dict[str, Usage]
    variables: VariableTable
    spenders: list[str]
    turns: int
    title: str


_decoder = msgspec.json.Decoder(_FoldedAgent)


def agent_fold(session: Session) -> AgentFold:
    """An agent's own part of its session; for a session of another kind, an empty one."""
    return session.kind_fold if isinstance(session.kind_fold, AgentFold) else AgentFold(session)
