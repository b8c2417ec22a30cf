"""Decisions: what a message, a program or the clock does to a session, as the records to append.

Every function here is pure. It validates everything first, raises if anything is wrong, and otherwise gives back
records that `Session.apply` will accept. Nothing has changed until those are committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, assert_never, get_args

import msgspec

from holdfast.agent.machine.approval import check_decision
from holdfast.agent.machine.inbox import INBOX, MAX_WAITING, Item, claim, item_fingerprint
from holdfast.core.budget import Budget, Price, check_limits, reserve
from holdfast.core.errors import (
    AnswerConflictError,
    EmptyFeedError,
    InboxFullError,
    InvalidDecisionError,
    InvalidValueError,
    ItemConflictError,
    NoInboxError,
    NoPendingQueryError,
    QueryIdRequiredError,
    StaleQueryError,
    TransitionError,
    UnknownQueryError,
)
from holdfast.core.ids import check_id, query_id
from holdfast.core.limits import MAX_QUERIES_PER_PAUSE
from holdfast.core.queries import (
    Answer,
    ChildQuery,
    Failure,
    HumanQuery,
    InputQuery,
    Query,
    TimerQuery,
    Usage,
    Value,
    check_answer,
    check_query,
    check_usage,
)
from holdfast.core.records import (
    AnsweredRecord,
    CancelledRecord,
    CompletedRecord,
    DequeuedRecord,
    EnqueuedRecord,
    ExpiredRecord,
    FailedRecord,
    JoinedRecord,
    Parent,
    PausedRecord,
    Program,
    Record,
    StartedRecord,
    StopRecord,
    Wake,
)
from holdfast.core.state import Session, State, answer_fingerprint
from holdfast.core.values import Json, check_value, checked, preview, repaired

# --- messages: what others may send to a session --------------------------------------------------


class Given(msgspec.Struct, frozen=True, omit_defaults=True):
    """One answer as it arrives; `query_id` may be left out while exactly one query is pending."""

    answer: Answer
    query_id: str | None = None
    usage: Usage | None = None


class FeedMessage(msgspec.Struct, frozen=True, omit_defaults=True, tag="feed", tag_field="type"):
    """Answers, taken all together or not at all."""

    answers: list[Given]
    by: str | None = None


class CancelMessage(msgspec.Struct, frozen=True, omit_defaults=True, tag="cancel", tag_field="type"):
    """The wish to end a session."""

    reason: str | None = None
    by: str | None = None


class EnqueueMessage(msgspec.Struct, frozen=True, omit_defaults=True, tag="enqueue", tag_field="type"):
    """Something for an agent, to be worked when its turn comes."""

    item: Item
    by: str | None = None


class WithdrawMessage(msgspec.Struct, frozen=True, omit_defaults=True, tag="withdraw", tag_field="type"):
    """The wish that an item is not worked. It counts as long as no turn has taken it."""

    item_id: str
    reason: str | None = None
    by: str | None = None


class StopMessage(msgspec.Struct, frozen=True, omit_defaults=True, tag="stop", tag_field="type"):
    """The wish that a turn of an agent ends. One that is over is not concerned, nor is the one after it."""

    turn: str
    reason: str | None = None
    by: str | None = None


class WakeMessage(msgspec.Struct, frozen=True, tag="wake", tag_field="type"):
    """A nudge: look at what is due."""


Message: TypeAlias = FeedMessage | CancelMessage | EnqueueMessage | WithdrawMessage | StopMessage | WakeMessage


class Decision(msgspec.Struct, frozen=True):
    """What a message leads to: records to append, and the positions of records that had done its work before."""

    records: list[Record]
    replayed: list[int] = []

    @property
    def is_replay(self) -> bool:
        """The message had been taken before; appending nothing and repeating the reply is right."""
        return not self.records and bool(self.replayed)


def decide(session: Session, message: Message, now: int) -> Decision:
    """What a message does to a session at `now`, or the reason why it is refused."""
    match message:
        case FeedMessage():
            return decide_feed(session, message)
        case CancelMessage():
            return decide_cancel(session, message)
        case EnqueueMessage():
            return decide_enqueue(session, message, now)
        case WithdrawMessage():
            return decide_withdraw(session, message)
        case StopMessage():
            return decide_stop(session, message)
        case WakeMessage():
            return Decision(records=[*decide_due(session, now), *decide_join(session, now)])
        case _:
            assert_never(message)


# --- answers --------------------------------------------------------------------------------------


def decide_feed(session: Session, feed: FeedMessage) -> Decision:
    """Accept answers: every one is checked before any is taken.

    An answer equal to the recorded one is a replay and changes nothing; a different one is a conflict. Usage is not
    part of that comparison: it describes the answer and is kept from the first time.
    """
    if not feed.answers:
        raise EmptyFeedError(session.id)
    records: list[Record] = []
    replayed: list[int] = []
    taken: dict[str, Given] = {}
    for given in feed.answers:
        asked = given.query_id if given.query_id is not None else _sole_pending(session)
        if asked in taken:
            check_answer(given.answer)
            if answer_fingerprint(taken[asked].answer) != answer_fingerprint(given.answer):
                raise _conflict(session, asked, preview(_shown(taken[asked].answer)), given.answer)
            continue
        taken[asked] = given
        if asked in session.pending:
            answered = AnsweredRecord(query_id=asked, answer=given.answer, usage=given.usage, by=feed.by)
            check_usage(given.usage)
            _check_decision(session, asked, given.answer)
            records.append(checked(answered, "answer"))
        elif asked in session.settled:
            check_answer(given.answer)
            before = session.settled[asked]
            if answer_fingerprint(given.answer) != before.fingerprint:
                raise _conflict(session, asked, before.preview, given.answer)
            replayed.append(before.position)
        elif asked in session.withdrawn:
            over = f"the session is {session.state}" if session.is_terminal else "the program withdrew it"
            raise StaleQueryError(session.id, asked, over)
        else:
            raise UnknownQueryError(session.id, preview(asked).strip('"'), list(session.pending))
    return Decision(records=records, replayed=replayed)


def _check_decision(session: Session, asked: str, answer: Answer) -> None:
    """Raise `InvalidDecisionError` if somebody is asked to approve a call, and this is no answer to that."""
    query = session.pending[asked].query
    if isinstance(query, HumanQuery) and query.approves is not None:
        try:
            check_decision(query.approves, answer)
        except InvalidValueError as error:
            raise InvalidDecisionError(session.id, asked, query.approves.tool, str(error)) from None


def _sole_pending(session: Session) -> str:
    match list(session.pending):
        case [only]:
            return only
        case []:
            raise NoPendingQueryError(session.id, session.state)
        case several:
            raise QueryIdRequiredError(session.id, several)


def _conflict(session: Session, asked: str, recorded: str, given: Answer) -> AnswerConflictError:
    return AnswerConflictError(session.id, asked, recorded, preview(_shown(given)))


def _shown(answer: Answer) -> Json:
    return answer.value if isinstance(answer, Value) else answer


def decide_due(session: Session, now: int) -> list[Record]:
    """The answers that the clock gives: timers that have run out, and queries whose time has lapsed."""
    due = [p for p in session.pending.values() if p.due_at is not None and p.due_at <= now]
    due.sort(key=lambda p: (p.due_at or 0, int(p.query.id[2:])))
    answers: list[Record] = []
    for pending in due:
        query = pending.query
        if isinstance(query, TimerQuery):
            answer: Answer = Value(value=None)
        else:
            answer = Failure(f"no answer within {query.timeout_ms} ms", "timeout")
        answers.append(AnsweredRecord(query_id=query.id, answer=answer, by="clock"))
    return answers


# --- the program ----------------------------------------------------------------------------------


def decide_start(
    program: Program,
    *,
    ctx: Json = None,
    budget: Budget | None = None,
    prices: Mapping[str, Price] | None = None,
    parent: Parent | None = None,
    seed: int = 0,
) -> StartedRecord:
    """A new session."""
    check_value(ctx, "ctx")
    check_limits(budget, prices or {})
    started = StartedRecord(
        program=program, ctx=ctx, budget=budget, prices=dict(prices or {}), parent=parent, seed=seed
    )
    return checked(started, "start")


_WAKES = get_args(Wake)


def decide_pause(
    session: Session,
    queries: Sequence[Query],
    now: int,
    *,
    wake: Wake = "all",
    withdrawn: Sequence[str] = (),
) -> PausedRecord:
    """The program asks. The queries get their ids here, once they are known to fit into the budget."""
    if session.state is not State.RUNNING:
        raise TransitionError(session.id, "paused", State.RUNNING, session.state)
    if len(queries) > MAX_QUERIES_PER_PAUSE:
        why = f"{len(queries)} queries at once; at most {MAX_QUERIES_PER_PAUSE} are allowed"
        raise InvalidValueError("pause", why)
    for query in queries:
        check_query(query)
    reserve(session, queries, now, withdrawn)
    numbered = [_numbered(query, query_id(session.queries_asked + i)) for i, query in enumerate(queries)]
    record = PausedRecord(queries=numbered, wake=wake, withdrawn=list(withdrawn))
    if wake not in _WAKES:
        raise InvalidValueError("pause", f"wake must be one of {', '.join(_WAKES)}")
    session.check(record)
    return record


def _numbered(query: Query, asked: str) -> Query:
    return query if query.id == asked else msgspec.structs.replace(query, id=asked)


def decide_complete(session: Session, result: Json) -> CompletedRecord:
    """The program returned."""
    check_value(result, "result")
    record = CompletedRecord(result=result)
    session.check(record)
    return record


def decide_fail(session: Session, error: str, kind: str = "error") -> FailedRecord:
    """The program raised. The message is repaired rather than refused: an error must never be lost to its own text."""
    record = FailedRecord(error=repaired(error), kind=repaired(kind))
    session.check(record)
    return record


# --- inboxes ----------------------------------------------------------------------------------------


def decide_enqueue(session: Session, message: EnqueueMessage, now: int) -> Decision:
    """Accept an item. The same again is a replay; another one under the same id is a conflict."""
    item = message.item
    check_id(item.id, "item id")
    checked(message, "item")
    if session.started is None or session.started.program.kind != "agent":
        raise NoInboxError(session.id, "it is no agent session")
    known = session.inbox.accepted.get(item.id)
    if known is not None:
        if known.fingerprint != item_fingerprint(item):
            raise ItemConflictError(session.id, item.id)
        return Decision(records=[], replayed=[session.position])
    if session.is_terminal:
        raise NoInboxError(session.id, f"it is {session.state}; fork it, or open another one")
    if not item.content and item.command is None:
        raise InvalidValueError("item", "it says nothing; give it an input")
    if item.output is not None and (item.slot != "exclusive" or item.delivery != "after_turn"):
        raise InvalidValueError("item", "one that is to come to a value has a turn of its own: after_turn, exclusive")
    if len(session.inbox.waiting) >= MAX_WAITING:
        raise InboxFullError(session.id, len(session.inbox.waiting))
    waiting = [*session.inbox.waiting.values(), item]
    joined = _joined(session, waiting, now)
    return Decision(records=[EnqueuedRecord(item=item, by=message.by), *joined])


def decide_withdraw(session: Session, message: WithdrawMessage) -> Decision:
    """Take an item out of the inbox, or of a turn that has not shown it to the model yet; else nothing."""
    checked(message, "cancellation")
    # A program that goes on has counted what has entered its turn, and must find the same in a replay.
    is_late = message.item_id in session.inbox.unseen and session.state is not State.PAUSED
    if session.is_terminal or is_late or not session.inbox.can_withdraw(message.item_id):
        return Decision(records=[])
    return Decision(records=[DequeuedRecord(item_id=message.item_id, reason=message.reason, by=message.by)])


def decide_stop(session: Session, message: StopMessage) -> Decision:
    """Stop a turn that is under way: all that it waits for fails, which ends it. Any other turn: nothing."""
    checked(message, "cancellation")
    if session.turn != message.turn or session.state is not State.PAUSED or session.stop is not None:
        return Decision(records=[])
    stop = StopRecord(turn=message.turn, reason=message.reason, by=message.by)
    failure = Failure(message.reason or "somebody stopped it", "cancelled")
    waits = list(session.pending) if session.wake == "all" else list(session.pending)[:1]
    return Decision(records=[stop, *(AnsweredRecord(query_id=asked, answer=failure, by=message.by) for asked in waits)])


def decide_join(session: Session, now: int) -> list[Record]:
    """Let items that want that enter the turn under way."""
    return _joined(session, session.inbox.waiting.values(), now)


def _joined(session: Session, waiting: Iterable[Item], now: int) -> list[Record]:
    # Only while the program waits: when it goes on it has to know all that has entered, in a replay as well.
    if session.turn is None or session.state is not State.PAUSED or session.inbox.unseen or session.stop is not None:
        return []
    items = claim(waiting, now, in_turn=True)
    return [JoinedRecord(turn=session.turn, items=[item.id for item in items])] if items else []


def decide_claim(session: Session, now: int) -> list[Record]:
    """Begin a turn with what waits in the inbox of an agent that is between turns; nothing if that is not so."""
    asked = next((asked for asked, p in session.pending.items() if isinstance(p.query, InputQuery)), None)
    if asked is None or session.state is not State.PAUSED:
        return []
    items = claim(session.inbox.waiting.values(), now, in_turn=False)
    if not items:
        return []
    given: dict[str, Json] = {
        "turn": f"inbox-{session.position + 1}",
        "content": msgspec.to_builtins([block for item in items for block in item.content]),
        "items": [item.id for item in items],
    }
    policy = next((item.policy for item in reversed(items) if item.policy is not None), None)
    for name, value in (("command", items[0].command), ("output", items[0].output), ("policy", policy)):
        if value is not None:
            given[name] = msgspec.to_builtins(value)
    return [AnsweredRecord(query_id=asked, answer=Value(value=given), by=INBOX)]


# --- endings from outside -------------------------------------------------------------------------


def decide_cancel(session: Session, cancel: CancelMessage) -> Decision:
    """End the session. Cancelling a cancelled session again is a replay; any other ended session refuses."""
    checked(cancel, "cancellation")
    if session.state is State.CANCELLED:
        return Decision(records=[], replayed=[session.position])
    record = CancelledRecord(reason=cancel.reason, by=cancel.by)
    session.check(record)
    return Decision(records=[record])


def decide_expire(session: Session, now: int, ttl_ms: int) -> list[Record]:
    """End a paused session that nobody has touched for `ttl_ms`; nothing if it is not that old.

    A session that waits for a timer or a timeout is not idle before that is due: the clock still owes it an answer.
    Nor is one that waits for a child, which has a time of its own; nor an agent between two turns, or one that somebody
    is to approve something for.
    """
    if session.state is not State.PAUSED or any(_has_time(p.query) for p in session.pending.values()):
        return []
    last_due = max((p.due_at for p in session.pending.values() if p.due_at is not None), default=0)
    idle_since = max(session.metrics.last_activity_at, last_due)
    if now - idle_since < ttl_ms:
        return []
    reason = f"no answer for {now - session.metrics.last_activity_at} ms (the limit is {ttl_ms} ms)"
    return [ExpiredRecord(reason=reason)]


def _has_time(query: Query) -> bool:
    """Whether a query may wait for however long it takes."""
    return isinstance(query, ChildQuery | InputQuery) or (isinstance(query, HumanQuery) and query.approves is not None)
