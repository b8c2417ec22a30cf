"""The outcome of a program's step, as the records to append."""

from __future__ import annotations

from typing import assert_never

from holdfast.core.decide import decide_complete, decide_fail, decide_pause
from holdfast.core.errors import BudgetExceededError, InvalidValueError
from holdfast.core.queries import Failure
from holdfast.core.records import Record, RefusedRecord
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


def outcome_of(session: Session, step: Step, now: int) -> list[Record]:
    """The notes of the step, and then its outcome: queries that cannot be asked are refused."""
    match step:
        case AskStep():
            withdrawn = [asked for asked in step.withdrawn if asked in session.pending]
            try:
                paused = decide_pause(session, step.queries, now, wake=step.wake, withdrawn=withdrawn)
            except (BudgetExceededError, InvalidValueError) as error:
                refused = RefusedRecord(queries=len(step.queries), failure=Failure(str(error), error.kind))
                return [*step.notes, refused]
            return [*step.notes, paused]
        case ReturnStep(result=result):
            return [*step.notes, decide_complete(session, result)]
        case RaiseStep(error=error_text, kind=kind):
            return [*step.notes, decide_fail(session, error_text, kind)]
        case _:
            assert_never(step)
