"""Money: what calls cost, and how a budget is shared."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.core.budget import Budget, Price
from holdfast.core.queries import Usage
from holdfast.strategies.evaluation.models import call_cost
from holdfast.strategies.evaluation.shares import SharedBudget, Spent, next_share


@pytest.mark.parametrize(
    ("model", "usage", "cost"),
    [
        ("openai:gpt-4o", Usage(prompt_tokens=1_000, completion_tokens=100), 0.0035),
        ("openai:gpt-5.5", Usage(prompt_tokens=100_000, completion_tokens=1_000), 0.53),
        ("openai:gpt-5.5", Usage(prompt_tokens=300_000, completion_tokens=1_000), 3.045),
        (
            "anthropic:claude-sonnet-4",
            Usage(prompt_tokens=4_740, cache_write_tokens=4_735, completion_tokens=255),
            0.02159625,
        ),
        ("ollama:llama-of-mine", Usage(prompt_tokens=10, completion_tokens=1), None),
    ],
)
def test_cached_tokens_and_tiers_are_priced_and_unknown_prices_are_none(
    model: str, usage: Usage, cost: float | None
) -> None:
    found = call_cost(model, usage)
    assert found is None if cost is None else found == pytest.approx(cost, abs=1e-12)


def test_prices_that_were_given_win() -> None:
    assert call_cost("openai:gpt-4o", Usage(prompt_tokens=1_000_000), Price(7.0, 1.0)) == 7.0
    assert call_cost("openai:gpt-4o", Usage(prompt_tokens=1_000_000, cost=1.5), Price(7.0, 1.0)) == 1.5


def share(spent: float, reserved: float, slots: tuple[int, int], dearest: float = 0.0) -> Spent | str:
    return next_share(Budget(max_cost=10.0), Spent(spent), Spent(reserved), slots, Spent(dearest))


def test_what_is_left_is_divided_among_those_who_may_run() -> None:
    assert share(0, 0, (0, 5)) == Spent(2.0)
    assert share(4, 2, (1, 5)) == Spent(1.0)


def test_near_the_end_fewer_run_at_once() -> None:
    assert share(9, 0, (0, 50), dearest=0.4) == Spent(0.5)
    assert share(9, 0.9, (1, 50), dearest=0.4) == "wait"
    assert share(9.5, 0, (0, 50), dearest=0.4) == Spent(0.5)
    assert share(9.7, 0, (0, 50), dearest=0.4) == "exhausted"
    assert share(10, 0, (0, 50)) == "exhausted"
    assert share(8, 2, (1, 50)) == "wait"


def test_calls_are_whole() -> None:
    limits = Budget(max_llm_calls=3)
    assert next_share(limits, Spent(), Spent(), (0, 2), Spent()) == Spent(0.0, 0, 1)
    assert next_share(limits, Spent(), Spent(), (0, 4), Spent()) == Spent(0.0, 0, 1)
    assert next_share(limits, Spent(calls=3), Spent(), (0, 4), Spent()) == "exhausted"


async def test_open_shares_and_what_was_spent_never_pass_the_limit() -> None:
    budget = SharedBudget(Budget(max_cost=1.0), Spent(), 10)
    open_shares: list[float] = []
    most = 0.0

    async def trial(needs: float) -> None:
        nonlocal most
        taken = await budget.take()
        if taken is None:
            return
        open_shares.append(taken.cost)
        most = max(most, budget.spent.cost + sum(open_shares))
        await asyncio.sleep(0)
        open_shares.remove(taken.cost)
        used = min(needs, taken.cost)
        await budget.give_back(taken, Spent(used), was_short=needs > taken.cost)

    await asyncio.gather(*(trial(0.03 + 0.001 * (number % 7)) for number in range(60)))
    assert most <= 1.0 + 1e-9
    assert 0.9 < budget.spent.cost <= 1.0 + 1e-9
    assert budget.is_exhausted
