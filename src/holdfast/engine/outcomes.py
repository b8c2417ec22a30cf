"""The outcome of a program's step, as drafts of the records to append."""

from __future__ import annotations

from typing import assert_never

from holdfast.core.decide import decide_complete, decide_fail, decide_pause
from holdfast.core.errors import BudgetExceededError, InvalidValueError
from holdfast.core.queries import Failure
from holdfast.core.records import RecordDraft, RefusedRecord
from holdfast.core.state import Session
from holdfast.programs.contract import AskStep, RaiseStep, ReturnStep, Step

MAX_QUIET_STEPS = 10_000
"""Steps in a row that ask only for what is answered or refused at once. A program that takes more is in a loop that
nobody could end: it never waits, so it is never idle, and a cancellation never has its turn."""

ENDLESS = RaiseStep(
    error=f"the program took {MAX_QUIET_STEPS} steps in a row in which everything was answered or refused at once:"
    " it would never end",
    kind="endless",
)


def outcome_of(session: Session, step: Step, now: int) -> list[RecordDraft]:
    """The notes of the step, and then its outcome: queries that cannot be asked are refused."""
    drafts: list[RecordDraft] = [RecordDraft(note) for note in step.notes] if step.notes else []
    match step:
        case AskStep(queries=queries, wake=wake):
            withdrawn = step.withdrawn and [asked for asked in step.withdrawn if asked in session.pending]
            try:
                drafts.append(decide_pause(session, queries, now, wake=wake, withdrawn=withdrawn))
            except (BudgetExceededError, InvalidValueError) as error:
                failure = Failure(str(error), error.kind)
                drafts.append(RecordDraft(RefusedRecord(queries=len(queries), failure=failure)))
        case ReturnStep(result=result):
            drafts.append(RecordDraft(decide_complete(session, result)))
        case RaiseStep(error=error_text, kind=kind):
            drafts.append(RecordDraft(decide_fail(session, error_text, kind)))
        case _:
            assert_never(step)
    return drafts
