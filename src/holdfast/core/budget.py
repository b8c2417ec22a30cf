"""Budgets: what a session may spend, and the check that each query fits before it is asked.

Every query reserves what it may come to cost (one call; its prompt's tokens and its `max_tokens`; their price) until
its answer says what it did cost. A pause whose queries do not all fit is refused as a whole: a batch cannot overshoot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.errors import BudgetExceededError, InvalidBudgetError, InvalidValueError
from holdfast.core.queries import LlmQuery, Query
from holdfast.core.tokens import estimate_tokens
from holdfast.core.values import check_value, checked

if TYPE_CHECKING:
    from holdfast.core.metrics import Metrics
    from holdfast.core.state import Session

DEFAULT_PRICE = "default"
"""The key of the price that applies to a query whose model has none of its own."""

_MILLION = 1_000_000

_CENTS_LOST_TO_ROUNDING = 1e-9
"""By how much sums of prices may be off, in the currency of the prices."""


class Price(msgspec.Struct, frozen=True):
    """The price of a million tokens, in any one currency."""

    prompt: float
    completion: float

    def of(self, prompt_tokens: int, completion_tokens: int) -> float:
        return (prompt_tokens * self.prompt + completion_tokens * self.completion) / _MILLION


class Budget(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The limits of a session; what is not set is not limited."""

    max_llm_calls: int | None = None
    max_elapsed_ms: int | None = None
    """Wall time since the start, waiting included."""
    max_own_ms: int | None = None
    """Time the program itself ran, waiting excluded."""
    max_tokens: int | None = None
    """Prompt and response tokens together."""
    max_cost: float | None = None
    """In the currency of the session's prices."""


def check_limits(budget: Budget | None, prices: Mapping[str, Price]) -> None:
    """Raise `InvalidBudgetError` for a budget or prices that cannot be kept."""
    try:
        for name, price in prices.items():
            check_value(name, "name of a price")
            checked(price, f"price '{name}'")
        if budget is not None:
            checked(budget, "budget")
    except InvalidValueError as error:
        raise InvalidBudgetError(str(error)) from None
    for name, price in prices.items():
        if price.prompt < 0 or price.completion < 0:
            raise InvalidBudgetError(f"the price '{name}' must be at least 0")
    if budget is None:
        return
    for field in budget.__struct_fields__:
        limit = getattr(budget, field)
        if limit is not None and limit < 0:
            raise InvalidBudgetError(f"{field} must be at least 0, got {limit}")
    if budget.max_cost is not None and not prices:
        raise InvalidBudgetError(f"max_cost needs prices; give one for '{DEFAULT_PRICE}' or for each model")


def price_for(query: LlmQuery, prices: Mapping[str, Price]) -> Price | None:
    """The price that applies to a query: that of its `model` option, else the default."""
    model = query.options.get("model")
    named = prices.get(model) if isinstance(model, str) else None
    return named or prices.get(DEFAULT_PRICE)


def prompt_estimate(query: LlmQuery) -> int:
    """Estimated tokens of a query's prompt and system text."""
    return estimate_tokens(query.prompt) + (estimate_tokens(query.system) if query.system else 0)


def reserve(session: Session, queries: Iterable[Query], now: int, withdrawn: Iterable[str] = ()) -> None:
    """Raise `BudgetExceededError` unless all the queries together fit into what is left of the session's budget.

    What the queries in `withdrawn` had reserved is free again.
    """
    started, spent = session.started, session.metrics
    if started is None or started.budget is None:
        return
    asked = [query for query in queries if isinstance(query, LlmQuery)]
    if not asked:
        return
    budget = started.budget
    freed = [spent.open[query] for query in withdrawn if query in spent.open]
    reserved_tokens = spent.reserved_tokens - sum(exchange.reserved_tokens for exchange in freed)
    reserved_cost = spent.reserved_cost - sum(exchange.reserved_cost for exchange in freed)

    def refuse(limit: str, why: str) -> BudgetExceededError:
        return BudgetExceededError(session.id, limit, why)

    if (most := budget.max_llm_calls) is not None:
        if spent.llm_calls >= most:
            raise refuse("max_llm_calls", f"max_llm_calls ({most}) reached ({spent.llm_calls} used)")
        if spent.llm_calls + len(asked) > most:
            why = f"max_llm_calls ({most}) would be passed ({spent.llm_calls} used, {len(asked)} asked)"
            raise refuse("max_llm_calls", why)
    if (most := budget.max_elapsed_ms) is not None and (elapsed := spent.elapsed_ms(now)) >= most:
        raise refuse("max_elapsed_ms", f"max_elapsed_ms ({most}ms) reached ({elapsed}ms elapsed)")
    if (most := budget.max_own_ms) is not None and (own := spent.own_ms(now)) >= most:
        raise refuse("max_own_ms", f"max_own_ms ({most}ms) reached ({own}ms of own time)")
    if (most := budget.max_tokens) is not None:
        used = spent.total_tokens
        if used >= most:
            raise refuse("max_tokens", f"max_tokens ({most}) reached ({used} used)")
        need = sum(prompt_estimate(query) + query.max_tokens for query in asked)
        if used + reserved_tokens + need > most:
            why = f"max_tokens ({most}) would be passed ({used} used, {reserved_tokens} reserved, {need} asked)"
            raise refuse("max_tokens", why)
    if (ceiling := budget.max_cost) is not None:
        cost = 0.0
        for query in asked:
            price = price_for(query, started.prices)
            if price is None:
                model = query.options.get("model")
                raise refuse("max_cost", f"max_cost ({ceiling:g}) cannot be kept: model {model!r} has no price")
            cost += price.of(prompt_estimate(query), query.max_tokens)
        if spent.cost + reserved_cost + cost > ceiling + _CENTS_LOST_TO_ROUNDING:
            why = (
                f"max_cost ({ceiling:g}) would be passed"
                f" ({spent.cost:g} used, {reserved_cost:g} reserved, {cost:g} asked)"
            )
            raise refuse("max_cost", why)


def for_child(session: Session, own: Budget | None, now: int) -> Budget | None:
    """What a child may spend that begins at `now`: what is left of its parent's budget, and no more than its `own`.

    The time that the parent itself may compute is its own.
    """
    started = session.started
    if started is None or started.budget is None:
        return own
    left = remaining(started.budget, session.metrics, now)
    given = Budget(
        max_llm_calls=left.llm_calls, max_elapsed_ms=left.elapsed_ms, max_tokens=left.tokens, max_cost=left.cost
    )
    if own is None:
        return given if given != Budget() else None
    limits = {name: [getattr(each, name) for each in (given, own)] for name in Budget.__struct_fields__}
    return Budget(
        **{name: min((limit for limit in both if limit is not None), default=None) for name, both in limits.items()}
    )


class RemainingBudget(msgspec.Struct, frozen=True):
    """What is left of each limit, reservations taken off; None where there is no limit."""

    llm_calls: int | None
    elapsed_ms: int | None
    own_ms: int | None
    tokens: int | None
    cost: float | None


def remaining(budget: Budget, spent: Metrics, now: int) -> RemainingBudget:
    """What is left of a budget at `now`."""

    def left(most: int | None, used: int) -> int | None:
        return None if most is None else max(0, most - used)

    most_cost = budget.max_cost
    return RemainingBudget(
        llm_calls=left(budget.max_llm_calls, spent.llm_calls),
        elapsed_ms=left(budget.max_elapsed_ms, spent.elapsed_ms(now)),
        own_ms=left(budget.max_own_ms, spent.own_ms(now)),
        tokens=left(budget.max_tokens, spent.total_tokens + spent.reserved_tokens),
        cost=None if most_cost is None else max(0.0, most_cost - spent.cost - spent.reserved_cost),
    )
