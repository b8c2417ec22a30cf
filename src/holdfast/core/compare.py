"""Two sessions side by side: how far they agree, and how each continues from there.

What counts is what was asked, answered and said, and how it ended. When it was said, by whom it was answered, what it
cost, from which seed its random numbers come, and what a program noted beside its questions make no difference. The
costs are added up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby, takewhile, zip_longest
from typing import Any, ClassVar

import msgspec

from holdfast.core.kinds import find_kind
from holdfast.core.queries import Answer, Failure, Query
from holdfast.core.records import (
    AnsweredRecord,
    CancelledRecord,
    CompletedRecord,
    Entry,
    ExpiredRecord,
    FailedRecord,
    Fork,
    PausedRecord,
    Record,
    RefusedRecord,
    StartedRecord,
    type_of,
)
from holdfast.core.state import Session, State
from holdfast.core.values import Json, encode


class ComparedStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that happened in a session."""

    position: int
    kind: str
    """`started`, `asked`, `answered`, `failed`, `refused`, `ended`, or a word of the program kind."""
    text: str
    id: str = ""
    """Of the query that was asked or answered."""


class ComparedRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """What happened in both sessions at one place; None where one of them has nothing there."""

    left: ComparedStep | None
    right: ComparedStep | None
    same: bool = False


class ModelUsage(msgspec.Struct, frozen=True):
    """What was spent on models."""

    llm_calls: int
    tokens: int
    cost: float


class ComparedSession(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One of the two sessions."""

    session_id: str
    state: State
    position: int
    common: int
    """The last position up to which it says what the other one says."""
    total: ModelUsage
    branch: ModelUsage
    """Since then."""
    forked_from: Fork | None = None


class CommonFork(msgspec.Struct, frozen=True):
    """The session from which both have the beginning of their journals, and the last position of that."""

    session_id: str
    position: int


class Comparison(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Two sessions compared."""

    left: ComparedSession
    right: ComparedSession
    descent: CommonFork | None = None
    """Where their common history comes from; None if neither was forked from the other, nor both from a third."""
    difference: str | None = None
    """The first thing that differs, in words, or None if nothing does."""
    rows: list[ComparedRow] = []
    """How they go on after what they have in common, what belongs together in one row."""


def compare(left: tuple[str, Sequence[Entry]], right: tuple[str, Sequence[Entry]]) -> Comparison:
    """Two sessions, each given by its id and its journal."""
    ours, theirs = _compared(*left), _compared(*right)
    pairs = zip(ours.marks, theirs.marks, strict=False)
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    sessions = ours.compared(common), theirs.compared(common)
    rows = _aligned(ours.steps_after(common), theirs.steps_after(common), ours.round_begins_with)
    return Comparison(
        left=sessions[0],
        right=sessions[1],
        descent=_common_fork(*sessions),
        difference=next((_difference(row, ours.names, *sessions) for row in rows if not row.same), None),
        rows=rows,
    )


def _compared(session_id: str, entries: Sequence[Entry]) -> ComparedJournal:
    first = entries[0].record
    kind = find_kind(first.program.kind) if isinstance(first, StartedRecord) else None
    journal = kind.compared_journal if kind is not None and kind.compared_journal is not None else ComparedJournal
    return journal(session_id, entries)


class ComparedJournal:
    """A journal, as far as it counts when sessions are compared. A program kind may read its own records into it."""

    counts: ClassVar[tuple[type[Record], ...]] = (
        StartedRecord,
        PausedRecord,
        AnsweredRecord,
        RefusedRecord,
        CompletedRecord,
        FailedRecord,
        CancelledRecord,
        ExpiredRecord,
    )
    """The types of records that make a difference."""
    names: ClassVar[dict[str, str]] = {
        "started": "what it was started with",
        "asked": "the question",
        "answered": "the answer",
        "failed": "the failed answer",
        "refused": "the refusal",
        "ended": "the end",
    }
    """What each kind of step is called in a sentence."""
    round_begins_with: ClassVar[str | None] = None
    """The kind of step with which a round begins, where rows belong together by rounds and not by queries."""

    def __init__(self, session_id: str, entries: Sequence[Entry]) -> None:
        self.id = session_id
        self._entries = entries
        self._counted = [entry for entry in entries if isinstance(entry.record, self.counts)]
        self.queries: dict[str, Query] = {
            query.id: query
            for entry in entries
            if isinstance(entry.record, PausedRecord)
            for query in entry.record.queries
        }
        self.marks = [self.mark(entry.record) for entry in self._counted]

    def mark(self, record: Record) -> Any:
        """Equal exactly when two records say the same."""
        match record:
            case StartedRecord():
                return msgspec.structs.replace(record, forked_from=None, parent=None, seed=0)
            case AnsweredRecord(query_id=asked, answer=answer):
                return asked, answer
            case CancelledRecord(reason=reason):
                return "cancelled", reason
            case _:
                return record

    def steps(self, entry: Entry) -> Iterable[ComparedStep]:
        """The steps that one entry stands for."""
        at = entry.position
        match entry.record:
            case StartedRecord(program=program, ctx=ctx):
                yield ComparedStep(at, "started", f"{program.name} {value_text(ctx)}")
            case PausedRecord(queries=queries):
                for query in queries:
                    yield ComparedStep(at, "asked", query.text, query.id)
            case AnsweredRecord(query_id=asked, answer=answer):
                kind, text = self.answer_step(asked, answer)
                yield ComparedStep(at, kind, text, asked)
            case RefusedRecord(failure=failure):
                yield ComparedStep(at, "refused", failure.message)
            case CompletedRecord(result=result):
                yield ComparedStep(at, "ended", f"completed: {value_text(result)}")
            case FailedRecord(error=why) | ExpiredRecord(reason=why):
                yield ComparedStep(at, "ended", f"{type_of(entry.record)}: {why}")
            case CancelledRecord(reason=reason):
                yield ComparedStep(at, "ended", f"cancelled: {reason or 'no reason was given'}")
            case _:
                pass

    def answer_step(self, asked: str, answer: Answer) -> tuple[str, str]:
        """The kind and the text of the step that an answer is."""
        if isinstance(answer, Failure):
            return "failed", f"{answer.message} ({answer.code})"
        return "answered", value_text(answer.value)

    def steps_after(self, common: int) -> list[ComparedStep]:
        """The steps of all but the first `common` records that count."""
        return [step for entry in self._counted[common:] for step in self.steps(entry)]

    def compared(self, common: int) -> ComparedSession:
        """The session, whose first `common` records that count are those of the other one."""
        last = self._counted[common - 1].position if common else 0
        session = Session.fold(self.id, self._entries[:last])
        before = _model_usage(session)
        for entry in self._entries[last:]:
            session.apply(entry)
        total = _model_usage(session)
        branch = ModelUsage(total.llm_calls - before.llm_calls, total.tokens - before.tokens, total.cost - before.cost)
        return ComparedSession(
            session_id=self.id,
            state=session.state,
            position=session.position,
            common=last,
            total=total,
            branch=branch,
            forked_from=session.started.forked_from if session.started else None,
        )


def value_text(value: Json) -> str:
    """A value in words: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else encode(value).decode()


def _model_usage(session: Session) -> ModelUsage:
    spent = session.metrics
    return ModelUsage(
        spent.llm_calls + spent.children.llm_calls, spent.total_tokens, round(spent.cost + spent.children.cost, 12)
    )


def _common_fork(left: ComparedSession, right: ComparedSession) -> CommonFork | None:
    one, two = left.forked_from, right.forked_from
    if two is not None and two.session_id == left.session_id:
        return CommonFork(left.session_id, two.position)
    if one is not None and one.session_id == right.session_id:
        return CommonFork(right.session_id, one.position)
    if one is not None and two is not None and one.session_id == two.session_id:
        return CommonFork(one.session_id, min(one.position, two.position))
    origins = {side.forked_from.origin if side.forked_from else side.session_id for side in (left, right)}
    return CommonFork(origins.pop(), min(left.common, right.common)) if len(origins) == 1 else None


# --- rows ------------------------------------------------------------------------------------------


def _aligned(left: list[ComparedStep], right: list[ComparedStep], begins_with: str | None) -> list[ComparedRow]:
    """Steps of both, those that belong together in one row: by rounds and their order, or by their queries."""
    if begins_with is not None:
        rounds = zip_longest(_rounds(left, begins_with), _rounds(right, begins_with))
        return [_row(*steps) for one, two in rounds for steps in zip_longest(one or [], two or [])]
    ours, theirs = _keyed(left), _keyed(right)
    follow: dict[Any, list[ComparedRow]] = {None: []}
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


def _rounds(steps: list[ComparedStep], begins_with: str) -> list[list[ComparedStep]]:
    """Steps by round; each round but the first begins with a step of this kind."""
    number = 0

    def round_of(step: ComparedStep) -> int:
        nonlocal number
        number += step.kind == begins_with
        return number

    return [list(group) for _, group in groupby(steps, round_of)]


def _keyed(steps: list[ComparedStep]) -> dict[Any, ComparedStep]:
    """Steps by what they are about: a query and whether it was asked, or their number among those of their kind."""
    keyed: dict[Any, ComparedStep] = {}
    counts: Counter[str] = Counter()
    for step in steps:
        counts[step.kind] += 1
        keyed[(step.kind == "asked", step.id) if step.id else (step.kind, counts[step.kind])] = step
    return keyed


def _row(left: ComparedStep | None, right: ComparedStep | None) -> ComparedRow:
    same = left is not None and right is not None and (left.kind, left.text) == (right.kind, right.text)
    return ComparedRow(left, right, same)


def _difference(row: ComparedRow, names: dict[str, str], left: ComparedSession, right: ComparedSession) -> str:
    if row.left is None or row.right is None:
        step, session = (row.left, left) if row.left is not None else (row.right, right)
        assert step is not None
        return f"only {session.session_id} has it: {_about(step, names)}"
    if row.left.kind != row.right.kind:
        return f"{_about(row.left, names)} in one, {_about(row.right, names)} in the other"
    return f"{_about(row.left, names)} is another"


def _about(step: ComparedStep, names: dict[str, str]) -> str:
    match step.kind:
        case "asked":
            return f"{names[step.kind]} {step.id}"
        case "answered" | "failed":
            return f"{names[step.kind]} to {step.id}"
        case kind:
            return names[kind]
