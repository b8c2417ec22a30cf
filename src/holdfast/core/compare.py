"""Two sessions side by side: how far they say the same, and how each goes on from there.

What counts is what was asked, answered and said, and how it ended. When it was said, by whom it was answered, what it
cost, from which seed its random numbers come, and what a program noted beside its questions make no difference. Costs
are added up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby, takewhile, zip_longest
from typing import Any, Literal, TypeAlias

import msgspec

from holdfast.agent.machine.conversation import TurnInput, input_of, tool_done
from holdfast.agent.machine.messages import AgentMessage
from holdfast.agent.machine.turn import Outcome, Stopped, reply_of
from holdfast.core.fork_points import message_text, told
from holdfast.core.queries import Answer, Failure, InputQuery, LlmQuery, Query, ToolQuery
from holdfast.core.records import (
    AnsweredRecord,
    CallRecord,
    CancelledRecord,
    CompletedRecord,
    EnqueuedRecord,
    Entry,
    ExpiredRecord,
    FailedRecord,
    Fork,
    FrameRecord,
    JoinedRecord,
    PausedRecord,
    Record,
    RefusedRecord,
    StartedRecord,
    TurnRecord,
)
from holdfast.core.state import Session, State
from holdfast.core.values import Json, encode

StepKind: TypeAlias = Literal[
    "started",
    "asked",
    "answered",
    "failed",
    "refused",
    "user",
    "joined",
    "assistant",
    "tool",
    "turn",
    "window",
    "ended",
]


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that happened in a session."""

    position: int
    kind: StepKind
    text: str
    id: str = ""
    """Of the query that was asked or answered."""


class Row(msgspec.Struct, frozen=True, omit_defaults=True):
    """What happened in both sessions at one place; None where one of them has nothing there."""

    left: Step | None
    right: Step | None
    same: bool = False


class Spending(msgspec.Struct, frozen=True):
    """What was spent on models."""

    llm_calls: int
    tokens: int
    cost: float


class Side(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One of the two sessions."""

    session_id: str
    state: State
    position: int
    common: int
    """The last position up to which it says what the other one says."""
    total: Spending
    branch: Spending
    """Since then."""
    forked_from: Fork | None = None


class Descent(msgspec.Struct, frozen=True):
    """The session from which both have the beginning of their journals, and the last position of that."""

    session_id: str
    position: int


class Comparison(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Two sessions compared."""

    left: Side
    right: Side
    descent: Descent | None = None
    """Where their common history comes from; None if neither was forked from the other, nor both from a third."""
    difference: str | None = None
    """The first thing that is not the same, in words; None if nothing is."""
    rows: list[Row] = []
    """How they go on after what they have in common, what belongs together in one row."""


def compare(left: tuple[str, Sequence[Entry]], right: tuple[str, Sequence[Entry]]) -> Comparison:
    """Two sessions, each given by its id and its journal."""
    told_left, told_right = _Told(*left), _Told(*right)
    pairs = zip(told_left.marks, told_right.marks, strict=False)
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    sides = told_left.side(common), told_right.side(common)
    rows = _aligned(told_left.steps(common), told_right.steps(common), by_turn=told_left.is_agent)
    return Comparison(
        left=sides[0],
        right=sides[1],
        descent=_descent(*sides),
        difference=next((_difference(row, *sides) for row in rows if not row.same), None),
        rows=rows,
    )


class _Told:
    """A journal, as far as it counts."""

    def __init__(self, session_id: str, entries: Sequence[Entry]) -> None:
        self.id = session_id
        self._entries = entries
        self._counts = [entry for entry in entries if isinstance(entry.record, _COUNTS)]
        self._queries = {
            query.id: query
            for entry in entries
            if isinstance(entry.record, PausedRecord)
            for query in entry.record.queries
        }
        self._items = {
            entry.record.item.id: entry.record.item.content
            for entry in entries
            if isinstance(entry.record, EnqueuedRecord)
        }
        self.marks = [self._mark(entry.record) for entry in self._counts]
        first = entries[0].record
        self._started = first if isinstance(first, StartedRecord) else None
        self.is_agent = self._started is not None and self._started.program.kind == "agent"

    def steps(self, common: int) -> list[Step]:
        return [step for entry in self._counts[common:] for step in self._steps(entry)]

    def side(self, common: int) -> Side:
        last = self._counts[common - 1].position if common else 0
        session = Session.fold(self.id, self._entries[:last])
        before = _spending(session)
        for entry in self._entries[last:]:
            session.apply(entry)
        total = _spending(session)
        branch = Spending(total.llm_calls - before.llm_calls, total.tokens - before.tokens, total.cost - before.cost)
        return Side(
            session_id=self.id,
            state=session.state,
            position=session.position,
            common=last,
            total=total,
            branch=branch,
            forked_from=self._started.forked_from if self._started else None,
        )

    def _mark(self, record: Record) -> Any:
        """Equal exactly when two records say the same."""
        match record:
            case StartedRecord():
                return msgspec.structs.replace(record, forked_from=None, parent=None, seed=0)
            case AnsweredRecord(query_id=asked, answer=answer):
                return asked, _without_turn(answer) if isinstance(self._queries.get(asked), InputQuery) else answer
            case CancelledRecord(reason=reason):
                return "cancelled", reason
            case JoinedRecord(items=items):
                return "joined", [self._items.get(item) for item in items]
            case _:
                return record

    def _steps(self, entry: Entry) -> Iterable[Step]:
        """What one entry comes to. What an agent asks of its model and tools is told by their answers."""
        at = entry.position
        match entry.record:
            case StartedRecord(program=program, ctx=ctx):
                yield Step(at, "started", f"{program.name} {_text(ctx)}")
            case PausedRecord(queries=queries):
                for query in queries:
                    if not _is_of_turn(query):
                        yield Step(at, "asked", told(query), query.id)
            case AnsweredRecord(query_id=asked, answer=answer):
                kind, text = _answered(self._queries.get(asked), answer)
                yield Step(at, kind, text, asked)
            case RefusedRecord(failure=failure):
                yield Step(at, "refused", failure.message)
            case TurnRecord(outcome=outcome):
                yield Step(at, "turn", _outcome(outcome))
            case JoinedRecord(items=items):
                for item in items:
                    yield Step(at, "joined", message_text(AgentMessage("user", self._items.get(item, []))))
            case CallRecord(done=done):
                yield Step(at, "tool", _text(done.content))
            case FrameRecord(summary=summary):
                yield Step(at, "window", summary)
            case CompletedRecord(result=result):
                yield Step(at, "ended", f"completed: {_text(result)}")
            case FailedRecord(error=why) | ExpiredRecord(reason=why):
                yield Step(at, "ended", f"{entry.record.__struct_config__.tag}: {why}")
            case CancelledRecord(reason=reason):
                yield Step(at, "ended", f"cancelled: {reason or 'no reason was given'}")
            case _:
                pass


_COUNTS = (
    StartedRecord,
    PausedRecord,
    AnsweredRecord,
    RefusedRecord,
    TurnRecord,
    CallRecord,
    FrameRecord,
    JoinedRecord,
    CompletedRecord,
    FailedRecord,
    CancelledRecord,
    ExpiredRecord,
)


def _without_turn(answer: Answer) -> TurnInput | Answer:
    """The input of a turn but for its id, and those of the items it is made of, which are chance."""
    try:
        return msgspec.structs.replace(input_of(answer), turn="", items=[])
    except ValueError:  # not understood, and passed over by the agent
        return answer


def _is_of_turn(query: Query) -> bool:
    match query:
        case InputQuery() | LlmQuery(iteration=int()) | ToolQuery(call_id=str()):
            return True
        case _:
            return False


def _answered(query: Query | None, answer: Answer) -> tuple[StepKind, str]:
    if isinstance(answer, Failure) and not isinstance(query, ToolQuery):
        return "failed", f"{answer.message} ({answer.code})"
    try:
        match query:
            case InputQuery():
                given = input_of(answer)
                return "user", message_text(AgentMessage("user", given.content))
            case LlmQuery(iteration=int()):
                reply = reply_of(getattr(answer, "value", None))
                return "assistant", message_text(AgentMessage("assistant", reply.content))
            case ToolQuery(call_id=str()):
                return "tool", _text(tool_done(answer).content)
            case _:
                pass
    except ValueError:  # in no form that an agent would understand
        pass
    if isinstance(answer, Failure):
        return "failed", f"{answer.message} ({answer.code})"
    return "answered", _text(answer.value)


def _outcome(outcome: Outcome) -> str:
    tag = str(outcome.__struct_config__.tag)
    if isinstance(outcome, Stopped):
        return f"{tag}: {outcome.reason}" + (f": {outcome.detail}" if outcome.detail else "")
    fields = {name: getattr(outcome, name) for name in outcome.__struct_fields__}
    return f"{tag} {_text(fields)}" if fields else tag


def _text(value: Json) -> str:
    return value if isinstance(value, str) else encode(value).decode()


def _spending(session: Session) -> Spending:
    spent = session.metrics
    return Spending(
        spent.llm_calls + spent.children.llm_calls, spent.total_tokens, round(spent.cost + spent.children.cost, 12)
    )


def _descent(left: Side, right: Side) -> Descent | None:
    one, two = left.forked_from, right.forked_from
    if two is not None and two.session_id == left.session_id:
        return Descent(left.session_id, two.position)
    if one is not None and one.session_id == right.session_id:
        return Descent(right.session_id, one.position)
    if one is not None and two is not None and one.session_id == two.session_id:
        return Descent(one.session_id, min(one.position, two.position))
    origins = {side.forked_from.origin if side.forked_from else side.session_id for side in (left, right)}
    return Descent(origins.pop(), min(left.common, right.common)) if len(origins) == 1 else None


# --- rows ------------------------------------------------------------------------------------------


def _aligned(left: list[Step], right: list[Step], *, by_turn: bool) -> list[Row]:
    """Steps of both, those that belong together in one row: by their queries; in agents, by turn and order."""
    if by_turn:
        turns = zip_longest(_turns(left), _turns(right))
        return [_row(*steps) for one, two in turns for steps in zip_longest(one or [], two or [])]
    ours, theirs = _keyed(left), _keyed(right)
    follow: dict[Any, list[Row]] = {None: []}
    last = None
    for key, step in theirs.items():  # what only the right one has follows what it has in common with the left one
        if key in ours:
            last = key
            follow[key] = []
        else:
            follow[last].append(_row(None, step))
    rows = list(follow[None])
    for key, step in ours.items():
        rows += [_row(step, theirs.get(key)), *follow.get(key, [])]
    return rows


def _turns(steps: list[Step]) -> list[list[Step]]:
    """Steps by turn; each turn but the first begins with its input."""
    number = 0

    def turn(step: Step) -> int:
        nonlocal number
        number += step.kind == "user"
        return number

    return [list(group) for _, group in groupby(steps, turn)]


def _keyed(steps: list[Step]) -> dict[Any, Step]:
    """Steps of a strategy by what they are about: a query and whether it was asked, or the how-manieth of its kind."""
    keyed: dict[Any, Step] = {}
    counts: Counter[str] = Counter()
    for step in steps:
        counts[step.kind] += 1
        keyed[(step.kind == "asked", step.id) if step.id else (step.kind, counts[step.kind])] = step
    return keyed


def _row(left: Step | None, right: Step | None) -> Row:
    same = left is not None and right is not None and (left.kind, left.text) == (right.kind, right.text)
    return Row(left, right, same)


def _difference(row: Row, left: Side, right: Side) -> str:
    if row.left is None or row.right is None:
        step, side = (row.left, left) if row.left is not None else (row.right, right)
        assert step is not None
        return f"only {side.session_id} has it: {_about(step)}"
    if row.left.kind != row.right.kind:
        return f"{_about(row.left)} in one, {_about(row.right)} in the other"
    return f"{_about(row.left)} is another"


def _about(step: Step) -> str:
    match step.kind:
        case "asked":
            return f"{_WHAT[step.kind]} {step.id}"
        case "answered" | "failed":
            return f"{_WHAT[step.kind]} to {step.id}"
        case kind:
            return _WHAT[kind]


_WHAT: dict[StepKind, str] = {
    "started": "what it was started with",
    "asked": "the question",
    "answered": "the answer",
    "failed": "the failed answer",
    "refused": "the refusal",
    "user": "the input",
    "joined": "what was said meanwhile",
    "assistant": "the model's reply",
    "tool": "the result of a tool",
    "turn": "the outcome of the turn",
    "window": "the summary",
    "ended": "the end",
}
