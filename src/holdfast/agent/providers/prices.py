"""Prices of models, from the table that comes with genai-prices. It is read only where money is limited."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.core.budget import DEFAULT_PRICE, Budget, Price
from holdfast.core.errors import InvalidBudgetError

_SAMPLE = 1_000
"""Tokens that a price is asked for: few, because some models cost more from a certain length on."""


def known_price(model: str) -> Price | None:
    """The price of a model in US dollars; None if nothing is known about it."""
    try:
        from genai_prices import Usage, calc_price
    except ImportError:
        return None
    try:
        found = calc_price(Usage(input_tokens=_SAMPLE, output_tokens=_SAMPLE), model.rpartition(":")[2])
    except LookupError:
        return None
    per_million = 1_000_000 / _SAMPLE
    return Price(float(found.input_price) * per_million, float(found.output_price) * per_million)


def session_prices(model: str, given: Mapping[str, Price], budget: Budget | None) -> dict[str, Price]:
    """The prices that a session of a model is recorded with: those that were given, and the model's own as the default.

    Raises `InvalidBudgetError` if money is limited, and nobody knows what the model costs.
    """
    own = given.get(model) or given.get(DEFAULT_PRICE)
    if own is None and budget is not None and budget.max_cost is not None:
        own = known_price(model)
        if own is None:
            raise InvalidBudgetError(f"max_cost needs prices: give one for '{model}', or for '{DEFAULT_PRICE}'")
    return {**given, DEFAULT_PRICE: own} if own is not None else dict(given)
