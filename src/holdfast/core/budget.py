"""Budgets: what a session may spend, and the check that each query fits before it is asked.

Every query reserves what it may come to cost (one call; its prompt's tokens and its `max_tokens`; their price) until
its answer says what it did cost. A pause whose queries do not all fit is refused as a whole: a batch cannot overshoot.

A query for a child reserves the child's share until the child has ended: what is left is divided equally among the
children that are asked for together, and their parent, if it may go on meanwhile; a child whose query has a budget of
its own gets no more than that. Shares follow from the journal, and a child starts with its share as its budget. What it
did not spend is its parent's again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar, cast

import msgspec

from holdfast.core.errors import BudgetExceededError, InvalidBudgetError, InvalidValueError
from holdfast.core.tokens import estimate_tokens
from holdfast.core.values import check_value, checked

if TYPE_CHECKING:
    from holdfast.core.metrics import Metrics
    from holdfast.core.queries import LlmQuery, Query
    from holdfast.core.state import Session

N = TypeVar("N", int, float)

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


class ChildShare(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a child may spend of its parent's budget; 0 also where that has no limit."""

    llm_calls: int = 0
    tokens: int = 0
    cost: float = 0.0


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
    """Estimated tokens of all that a query sends to a model."""
    own = estimate_tokens(query.prompt) + (estimate_tokens(query.system) if query.system else 0)
    return own + query.context_tokens


def reserve(session: Session, queries: Iterable[Query], now: int, withdrawn: Iterable[str] = ()) -> None:
    """Raise `BudgetExceededError` unless all the queries together fit into what is left of a session's budget.

    What the queries in `withdrawn` had reserved is free again.
    """
    started, spent = session.started, session.metrics
    assert started is not None
    assert started.budget is not None
    asked = [cast("LlmQuery", query) for query in queries if query.kind == "llm"]
    if not asked:
        return
    budget = started.budget
    freed = [spent.open[query] for query in withdrawn if query in spent.open]
    returned = [spent.shares[query] for query in withdrawn if query in spent.shares]
    reserved_calls = spent.reserved_calls - sum(share.llm_calls for share in returned)
    reserved_tokens = spent.reserved_tokens - sum(call.reserved_tokens for call in freed)
    reserved_tokens -= sum(share.tokens for share in returned)
    reserved_cost = spent.reserved_cost - sum(call.reserved_cost for call in freed)
    reserved_cost -= sum(share.cost for share in returned)

    def refuse(limit: str, why: str) -> BudgetExceededError:
        return BudgetExceededError(session.id, limit, why)

    if (most := budget.max_llm_calls) is not None:
        used = spent.charged_calls
        if used >= most:
            raise refuse("max_llm_calls", f"max_llm_calls ({most}) reached ({used} used)")
        if used + reserved_calls + len(asked) > most:
            kept = f"{reserved_calls} reserved for children, " if reserved_calls else ""
            why = f"max_llm_calls ({most}) would be passed ({used} used, {kept}{len(asked)} asked)"
            raise refuse("max_llm_calls", why)
    if (most := budget.max_elapsed_ms) is not None and (elapsed := spent.elapsed_ms(now)) >= most:
        raise refuse("max_elapsed_ms", f"max_elapsed_ms ({most}ms) reached ({elapsed}ms elapsed)")
    if (most := budget.max_own_ms) is not None and (own := spent.own_ms(now)) >= most:
        raise refuse("max_own_ms", f"max_own_ms ({most}ms) reached ({own}ms of own time)")
    if (most := budget.max_tokens) is not None:
        used = spent.charged_tokens
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
        if spent.charged_cost + reserved_cost + cost > ceiling + _CENTS_LOST_TO_ROUNDING:
            why = (
                f"max_cost ({ceiling:g}) would be passed"
                f" ({spent.charged_cost:g} used, {reserved_cost:g} reserved, {cost:g} asked)"
            )
            raise refuse("max_cost", why)


def child_shares(
    budget: Budget, spent: Metrics, children: Mapping[str, Budget | None], *, parent_goes_on: bool
) -> dict[str, ChildShare]:
    """What is set aside for children that are asked for together, by their queries, each with a budget of its own.

    `parent_goes_on` if their parent waits for something else as well, and may ask more meanwhile: it keeps a part.
    """
    left = remaining(budget, spent, spent.last_activity_at)
    parts = len(children) + parent_goes_on
    shares: dict[str, ChildShare] = {}
    for number, (asked, own) in enumerate(children.items()):
        most = own or Budget()
        shares[asked] = ChildShare(
            _least(_part(left.llm_calls, number, parts), most.max_llm_calls),
            _least(_part(left.tokens, number, parts), most.max_tokens),
            _least(0.0 if left.cost is None else left.cost / parts, most.max_cost),
        )
    return shares


def _least(part: N, most: N | None) -> N:
    return part if most is None else min(part, most)


def _part(left: int | None, number: int, parts: int) -> int:
    """One of so many equal parts; the first ones get what does not divide."""
    whole, rest = divmod(left or 0, parts)
    return whole + (number < rest)


def for_child(session: Session, asked: str, own: Budget | None, now: int) -> Budget | None:
    """What the child of a query may spend that begins at `now`, and no more than its `own`.

    That is its share of its parent's budget, and the time that is left of it. The time that the parent itself may
    compute is its own.
    """
    started = session.started
    if started is None or started.budget is None:
        return own
    budget, share = started.budget, session.metrics.shares.get(asked, ChildShare())
    left = remaining(budget, session.metrics, now)
    given = Budget(
        max_llm_calls=None if budget.max_llm_calls is None else share.llm_calls,
        max_elapsed_ms=left.elapsed_ms,
        max_tokens=None if budget.max_tokens is None else share.tokens,
        max_cost=None if budget.max_cost is None else share.cost,
    )
    return least(given, own)


def least(*budgets: Budget | None) -> Budget | None:
    """The lowest of each limit; None if there is none at all."""
    limits = {
        name: [limit for each in budgets if each is not None and (limit := getattr(each, name)) is not None]
        for name in Budget.__struct_fields__
    }
    lowest = Budget(**{name: min(found) for name, found in limits.items() if found})
    return lowest if lowest != Budget() else None


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
        llm_calls=left(budget.max_llm_calls, spent.charged_calls + spent.reserved_calls),
        elapsed_ms=left(budget.max_elapsed_ms, spent.elapsed_ms(now)),
        own_ms=left(budget.max_own_ms, spent.own_ms(now)),
        tokens=left(budget.max_tokens, spent.charged_tokens + spent.reserved_tokens),
        cost=None if most_cost is None else max(0.0, most_cost - spent.charged_cost - spent.reserved_cost),
    )
