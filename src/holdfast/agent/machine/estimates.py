"""Queries for the model that say what they may come to cost, where a budget has to allow them."""

from __future__ import annotations

from holdfast.agent.machine.policy import Policy
from holdfast.agent.machine.queries import ReplyQuery, SummaryQuery
from holdfast.core.limits import DEFAULT_MAX_TOKENS
from holdfast.core.state import Session


def reply_query(session: Session, policy: Policy, shown: int, iteration: int, remark: str) -> ReplyQuery:
    """The query for a reply of a model that is shown about so many tokens."""
    if session.started is None or session.started.budget is None:
        return ReplyQuery(iteration=iteration, remark=remark)
    most = policy.generation.get("max_tokens")
    return ReplyQuery(
        iteration=iteration,
        remark=remark,
        context_tokens=shown,
        max_tokens=most if isinstance(most, int) and most > 0 else DEFAULT_MAX_TOKENS,
    )


def summary_query(session: Session, shown: int, instructions: str, keep: int) -> SummaryQuery:
    """The query for a summary of a conversation of about so many tokens."""
    has_budget = session.started is not None and session.started.budget is not None
    return SummaryQuery(prompt=instructions, keep=keep, context_tokens=shown if has_budget else 0)
