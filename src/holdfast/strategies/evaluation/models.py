"""The models of an evaluation: each with the options of its arms, a limit of calls at once, and what its calls cost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from functools import lru_cache
from typing import Any

import msgspec

from holdfast.agent.providers.prices import known_price
from holdfast.agent.providers.provider import ModelReply, ModelRequest, Provider, StreamItem
from holdfast.agent.runtime import Runtime
from holdfast.core.budget import DEFAULT_PRICE, Budget, Price
from holdfast.core.queries import Usage
from holdfast.core.values import Json
from holdfast.strategies.evaluation.arms import Arm
from holdfast.strategies.evaluation.errors import PlanError


@lru_cache(maxsize=256)
def price_of(model: str) -> Price | None:
    """The price of a model by genai-prices, or None. Kept: each look-up takes a millisecond."""
    return known_price(model)


def call_cost(model: str, usage: Usage, own: Price | None = None) -> float | None:
    """What a call costs in US dollars, with cached tokens and dearer tiers; None if nobody knows. `own` prices win."""
    if usage.cost is not None:
        return usage.cost
    prompt, completion = usage.prompt_tokens or 0, usage.completion_tokens or 0
    if own is not None:
        return own.of(prompt, completion)
    if price_of(model) is None:
        return None
    from genai_prices import Usage as PricedUsage
    from genai_prices import calc_price

    counted = PricedUsage(
        input_tokens=prompt,
        output_tokens=completion,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )
    try:
        return float(calc_price(counted, model.rpartition(":")[2]).total_price)
    except (LookupError, ValueError):
        return None


class EvaluatedModel:
    """A model under test, or a judge: a provider with options, priced, and with so many calls at once."""

    def __init__(
        self, name: str, provider: Provider, options: Mapping[str, Json], price: Price | None, calls: int
    ) -> None:
        self.id = f"evaluated:{name}"
        self._provider = provider
        self._options = dict(options)
        self._price = price
        self._slots = asyncio.Semaphore(calls)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem, None]:
        """Call the model once; see `Provider.stream`."""
        changed = (
            msgspec.structs.replace(request, params={**request.params, **self._options}) if self._options else request
        )
        async with self._slots, aclosing(_closable(self._provider.stream(changed))) as items:
            async for item in items:
                yield self._priced(item, request.model) if isinstance(item, ModelReply) else item

    def _priced(self, reply: ModelReply, model: str) -> ModelReply:
        if reply.usage is None:
            return reply
        cost = call_cost(model, reply.usage, self._price)
        return msgspec.structs.replace(reply, usage=msgspec.structs.replace(reply.usage, cost=cost))


def _closable(items: Any) -> AsyncGenerator[StreamItem, None]:
    if hasattr(items, "aclose"):
        return items  # type: ignore[no-any-return]

    async def generator() -> AsyncGenerator[StreamItem, None]:
        async for item in items:
            yield item

    return generator()


class ModelTable:
    """The models of an evaluation, as a runtime has them."""

    def __init__(self, prices: Mapping[str, Price], calls: int, model_calls: Mapping[str, int]) -> None:
        self._prices = prices
        self._calls = calls
        self._model_calls = model_calls

    def price(self, model: str | None) -> Price | None:
        """The price of a model: the one that was given, or the known one."""
        if model is None:
            return self._prices.get(DEFAULT_PRICE)
        return self._prices.get(model) or price_of(model) or self._prices.get(DEFAULT_PRICE)

    def add(self, runtime: Runtime, name: str, model: str, options: Mapping[str, Json]) -> None:
        """Let a runtime answer for a model of an arm or a judge, under the name that sessions are assigned to."""
        known = runtime.named_models.get(name)
        if known is not None and isinstance(known.provider, EvaluatedModel):
            return
        found = runtime.named_models.get(model)
        if found is not None and isinstance(found.provider, EvaluatedModel):
            found = None
        choice = found or runtime.model_of(model, runtime.policy.provider)
        own = self._prices.get(model)
        calls = self._model_calls.get(model, self._calls)
        metered = EvaluatedModel(name, choice.provider, options, own, calls)
        runtime.add_model(name, metered, choice.model)

    def session_prices(self, model: str | None, budget: Budget | None) -> dict[str, Price]:
        """The prices that sessions of a model are recorded with, so that the kernel can keep to a limit of money."""
        price = self.price(model)
        if price is not None:
            return {DEFAULT_PRICE: price}
        if budget is not None and budget.max_cost is not None:
            why = f"max_cost needs prices: nobody knows what '{model or 'the model'}' costs; give one under [prices]"
            raise PlanError("budget", why)
        return {}


def add_models(runtime: Runtime, table: ModelTable, arms: Sequence[Arm], judges: Sequence[str]) -> None:
    """Let a runtime answer for all models of an evaluation."""
    for arm in arms:
        if arm.model is not None and arm.llm is not None:
            table.add(runtime, arm.llm, arm.model, arm.model_options)
    for judge in judges:
        with contextlib.suppress(KeyError):
            table.add(runtime, judge, judge, {})
