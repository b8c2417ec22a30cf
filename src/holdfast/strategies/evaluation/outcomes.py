"""What became of a trial's session: its row, and its result."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.agent.providers.provider import RETRIED
from holdfast.core.errors import BudgetExceededError
from holdfast.core.events import CancelledEvent, CompletedEvent, Event, FailedEvent
from holdfast.core.queries import Failure
from holdfast.core.records import AnsweredRecord, RefusedRecord
from holdfast.core.values import Json
from holdfast.store.contract import Store
from holdfast.strategies.evaluation.graders.grade import excerpt
from holdfast.strategies.evaluation.shares import Spent
from holdfast.strategies.evaluation.trials import Status

_AWAY = frozenset([*RETRIED, "auth", "unknown_outcome", "process_died"])
"""Failures of model calls that say nothing about the strategy: the service was not there."""


class TrialOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a session ended, and what it spent."""

    status: Status
    result: Json = None
    error: str = ""
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0
    own_ms: int = 0
    waiting_ms: int = 0

    @property
    def spent(self) -> Spent:
        return Spent(self.cost, self.prompt_tokens + self.completion_tokens, self.calls)

    @property
    def latency_ms(self) -> int:
        return self.own_ms + self.waiting_ms


async def outcome_of(store: Store, event: Event) -> TrialOutcome | None:
    """The outcome of a session that says this; None if it has not ended."""
    match event:
        case CompletedEvent(result=result):
            return TrialOutcome(status="done", result=result, **_figures(event.stats))
        case FailedEvent(error=error):
            status = await _failed_status(store, event.session_id)
            return TrialOutcome(status=status, error=excerpt(error), **_figures(event.stats))
        case CancelledEvent(reason=reason):
            return TrialOutcome(status="cancelled", error=excerpt(reason or "cancelled"), **_figures(event.stats))
        case _ if event.stats and event.status not in ("running", "needs_response", "accepted"):
            return TrialOutcome(status="cancelled", error=event.status, **_figures(event.stats))
        case _:
            return None


def _figures(stats: dict[str, Any]) -> dict[str, Any]:
    auto = stats["auto"]
    return {
        "calls": auto["llm_calls"],
        "prompt_tokens": auto["prompt_tokens"]["tokens"],
        "completion_tokens": auto["response_tokens"]["tokens"],
        "cost": auto.get("cost", 0.0),
        "own_ms": auto["own_ms"],
        "waiting_ms": auto["waiting_ms"],
    }


async def _failed_status(store: Store, session_id: str) -> Status:
    """Why a session failed: for lack of money, because a service was away, or by itself. Its last trouble decides."""
    status: Status = "error"
    async for entry in store.journal(session_id):
        match entry.record:
            case RefusedRecord(failure=Failure(code=code)):
                status = "over_budget" if code == BudgetExceededError.kind else "error"
            case AnsweredRecord(answer=Failure(code=code)):
                status = "missing" if code in _AWAY else "over_budget" if code == BudgetExceededError.kind else "error"
            case AnsweredRecord():
                status = "error"
            case _:
                pass
    return status
