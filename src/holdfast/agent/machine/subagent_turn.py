"""The turn of a subagent: what it gets of its parent's turn, how a budget stops it, and how it ends its session."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.agent.machine.calls import ChildTerms, wish
from holdfast.agent.machine.delegation import DELEGATE_TOOL, status_of
from holdfast.agent.machine.records import TurnRecord
from holdfast.agent.machine.turn import (
    CallTools,
    FrameSwitchOutcome,
    MessageOutcome,
    StoppedOutcome,
    Turn,
    TurnOutcome,
)
from holdfast.core.budget import Budget
from holdfast.core.errors import BudgetExceededError
from holdfast.core.queries import Failure
from holdfast.core.state import Session
from holdfast.programs.contract import Note, RaiseStep, ReturnStep, Step


def child_terms(turn: Turn, effect: CallTools, spent: tuple[int, float], at: int) -> ChildTerms:
    """What is left of the limits of a turn for the subagents of a reply, for each an equal part.

    `spent` are the tokens and the cost of the turn so far.
    """
    limits, parts = turn.limits, sum(wish(call)[0] == DELEGATE_TOOL for call in effect.calls)
    if not parts or (limits.tokens is None and limits.cost is None and limits.wall_ms is None):
        return ChildTerms(turn.spent)
    tokens, cost = spent
    budget = Budget(
        max_tokens=None if limits.tokens is None else max(0, limits.tokens - tokens) // parts,
        max_cost=None if limits.cost is None else max(0.0, limits.cost - cost) / parts,
    )
    left_ms = None if limits.wall_ms is None else max(1, limits.wall_ms - (at - turn.began_at))
    return ChildTerms(turn.spent, None if budget == Budget() else budget, left_ms)


def refusal_of(session: Session, failure: Failure, at: int) -> StoppedOutcome:
    """How a turn ends whose next call is not allowed."""
    if failure.code != BudgetExceededError.kind:
        return StoppedOutcome("runtime_error", failure.message)
    budget = session.started.budget if session.started is not None else None
    wall_ms = budget.max_elapsed_ms if budget is not None else None
    is_late = wall_ms is not None and session.metrics.elapsed_ms(at) >= wall_ms
    return StoppedOutcome("budget", failure.message, limit="max_elapsed_ms" if is_late else "budget")


def final_step(outcome: TurnOutcome, said: str, notes: Sequence[Note]) -> Step:
    """The step that ends the session of a subagent with its turn, in which the model last said this."""
    notes = [*notes, TurnRecord(outcome=outcome)]
    match outcome:
        case StoppedOutcome(reason=reason, detail=detail):
            return RaiseStep(error=detail or reason, kind=status_of(outcome), notes=notes)
        case FrameSwitchOutcome():
            why = "it opened a new frame, which ends a turn, and a subagent has one turn"
            return RaiseStep(error=why, kind=status_of(outcome), notes=notes)
        case MessageOutcome():
            return ReturnStep(result=said, notes=notes)
        case _:
            return ReturnStep(result=outcome.value, notes=notes)
