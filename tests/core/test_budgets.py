"""Limits: the text of each refusal, what a query reserves, and what is left."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.budget import Budget, Price, RemainingBudget, remaining
from holdfast.core.decide import decide_pause, decide_start
from holdfast.core.errors import BudgetExceededError, InvalidBudgetError
from holdfast.core.queries import Failure, Query, TimerQuery, ToolQuery, Usage
from tests.core.helpers import PROGRAM, Journal, given, llm, refused, started
from tests.tables import each_row

CENT_A_TOKEN = {"default": Price(10_000.0, 10_000.0)}
"""A hundredth for each token."""


def limited(prices: dict[str, Price] | None = None, **limits: Any) -> Journal:
    return started(budget=Budget(**limits), prices=prices)


def refusal(journal: Journal, *queries: Query) -> tuple[str, str]:
    """The limit that refuses the queries, and the words."""
    with refused(journal.session, BudgetExceededError) as caught:
        decide_pause(journal.session, queries, journal.now)
    error = caught.value
    assert str(error).startswith(f"budget_exceeded: {error.why}")
    return error.limit, error.why


def fits(journal: Journal, *queries: Query) -> bool:
    return len(decide_pause(journal.session, queries, journal.now).record.queries) == len(queries)


def small(max_tokens: int = 9, **fields: Any) -> Query:
    """A query of one prompt token and as many response tokens as given."""
    return llm("abcd", max_tokens=max_tokens, **fields)


def spent(journal: Journal, tokens: int) -> Journal:
    """The same session after an exchange of so many tokens."""
    usage = Usage(prompt_tokens=tokens, completion_tokens=0)
    return journal.ask(small(1)).answer(f"q-{journal.session.queries_asked - 1}", "x", usage)


# --- the limits and their words ------------------------------------------------------------------------


def test_a_call_past_the_number_of_calls_is_refused() -> None:
    journal = limited(max_llm_calls=2).ask(llm(), llm()).answer("q-0").answer("q-1")
    assert refusal(journal, llm()) == ("max_llm_calls", "max_llm_calls (2) reached (2 used)")


def test_a_batch_past_the_number_of_calls_is_refused_as_a_whole() -> None:
    journal = limited(max_llm_calls=3).ask(llm()).answer("q-0")
    why = "max_llm_calls (3) would be passed (1 used, 3 asked)"
    assert refusal(journal, llm(), llm(), llm()) == ("max_llm_calls", why)
    assert fits(journal, llm(), llm())


def test_a_query_after_the_wall_time_is_refused() -> None:
    journal = limited(max_elapsed_ms=100).later(10).ask(llm()).later(89).answer("q-0")
    assert fits(journal, llm())
    assert refusal(journal.later(1), llm()) == ("max_elapsed_ms", "max_elapsed_ms (100ms) reached (100ms elapsed)")


def test_waiting_does_not_use_up_own_time() -> None:
    journal = limited(max_own_ms=100).later(60).ask(llm()).later(5_000).answer("q-0").later(39)
    assert fits(journal, llm())
    assert refusal(journal.later(1), llm()) == ("max_own_ms", "max_own_ms (100ms) reached (100ms of own time)")


def test_a_query_after_all_tokens_are_used_is_refused() -> None:
    journal = spent(limited(max_tokens=10), 12)
    assert refusal(journal, small()) == ("max_tokens", "max_tokens (10) reached (12 used)")


def test_a_query_whose_answer_might_not_fit_is_refused() -> None:
    journal = spent(limited(max_tokens=20), 5)
    assert refusal(journal, small(15)) == (
        "max_tokens",
        "max_tokens (20) would be passed (5 used, 0 reserved, 16 asked)",
    )
    assert fits(journal, small(14))


def test_a_query_whose_answer_might_cost_too_much_is_refused() -> None:
    journal = spent(limited(CENT_A_TOKEN, max_cost=0.25), 10)
    why = "max_cost (0.25) would be passed (0.1 used, 0 reserved, 0.16 asked)"
    assert refusal(journal, small(15)) == ("max_cost", why)
    assert fits(journal, small(13))


def test_a_query_without_a_price_is_refused_under_a_limit_of_cost() -> None:
    journal = limited({"big": Price(1.0, 1.0)}, max_cost=1.0)
    assert fits(journal, llm(options={"model": "big"}))
    why = "max_cost (1) cannot be kept: model 'small' has no price"
    assert refusal(journal, llm(options={"model": "small"})) == ("max_cost", why)
    assert refusal(journal, llm())[0] == "max_cost"


def test_a_limit_of_zero_allows_nothing() -> None:
    assert refusal(limited(max_llm_calls=0), llm()) == ("max_llm_calls", "max_llm_calls (0) reached (0 used)")
    assert refusal(limited(max_tokens=0), llm()) == ("max_tokens", "max_tokens (0) reached (0 used)")
    assert refusal(limited(max_elapsed_ms=0), llm()) == ("max_elapsed_ms", "max_elapsed_ms (0ms) reached (0ms elapsed)")


def test_the_limits_are_looked_at_in_their_order() -> None:
    exhausted = limited(CENT_A_TOKEN, max_llm_calls=0, max_elapsed_ms=0, max_own_ms=0, max_tokens=0, max_cost=0)
    assert refusal(exhausted, llm())[0] == "max_llm_calls"
    assert refusal(limited(max_elapsed_ms=0, max_own_ms=0, max_tokens=0), llm())[0] == "max_elapsed_ms"
    assert refusal(limited(max_own_ms=0, max_tokens=0), llm())[0] == "max_own_ms"
    assert refusal(limited(CENT_A_TOKEN, max_tokens=0, max_cost=0), llm())[0] == "max_tokens"


def test_queries_of_other_kinds_are_not_limited() -> None:
    journal = limited(max_llm_calls=0, max_tokens=0, max_elapsed_ms=0)
    assert fits(journal, ToolQuery(name="t"), TimerQuery(delay_ms=1))


def test_without_a_budget_everything_fits() -> None:
    assert fits(started(), *(llm(max_tokens=10**9) for _ in range(100)))


def test_a_free_query_fits_into_a_cost_of_nothing() -> None:
    assert fits(limited({"default": Price(0.0, 0.0)}, max_cost=0.0), llm())


# --- reservation -------------------------------------------------------------------------------------


def test_a_batch_reserves_for_each_of_its_queries() -> None:
    journal = limited(max_tokens=25)
    assert fits(journal, small(), small())
    assert refusal(journal, small(), small(), small())[0] == "max_tokens"


def test_what_is_pending_stays_reserved() -> None:
    journal = limited(max_tokens=30).ask(small(), small(), wake="first").answer("q-0", "", Usage(completion_tokens=0))
    assert journal.session.metrics.reserved_tokens == 9
    why = "max_tokens (30) would be passed (2 used, 9 reserved, 20 asked)"
    assert refusal(journal, small(19)) == ("max_tokens", why)
    assert fits(journal, small(18))


def test_what_is_pending_keeps_its_cost_reserved() -> None:
    journal = limited(CENT_A_TOKEN, max_cost=1.0).ask(small(), small(49), wake="first")
    journal.answer("q-0", "", Usage(cost=0.0))
    why = "max_cost (1) would be passed (0 used, 0.5 reserved, 0.6 asked)"
    assert refusal(journal, small(59)) == ("max_cost", why)
    assert fits(journal, small(39))


def test_an_answer_frees_what_it_did_not_use() -> None:
    journal = limited(max_tokens=100).ask(small(99))
    assert journal.session.metrics.reserved_tokens == 99
    journal.answer("q-0", "abcd")
    assert journal.session.metrics.reserved_tokens == 0
    assert fits(journal, small(97))


def test_a_failure_frees_what_was_reserved() -> None:
    journal = limited(CENT_A_TOKEN, max_cost=1.0).ask(small(99))
    assert journal.session.metrics.reserved_cost == pytest.approx(1.0)
    journal.feed(given("q-0", Failure("refused")))
    assert journal.session.metrics.reserved_cost == 0.0
    assert fits(journal, small(98))


def test_withdrawing_frees_what_was_reserved() -> None:
    journal = limited(max_tokens=100).ask(small(), small(80), wake="first").answer("q-0", "")
    journal.ask(ToolQuery(name="t"), withdrawn=["q-1"]).answer("q-2")
    assert journal.session.metrics.reserved_tokens == 0
    assert fits(journal, small(97))


def test_a_pause_may_ask_with_what_it_frees_by_withdrawing() -> None:
    journal = limited(max_tokens=100).ask(small(), small(80), wake="first").answer("q-0", "")
    journal.ask(small(80), withdrawn=["q-1"])
    assert journal.session.metrics.reserved_tokens == 80


@each_row("ending", ["complete", "fail", "cancel"])
def test_every_ending_frees_everything(ending: str) -> None:
    journal = started(prices=CENT_A_TOKEN).ask(small(), small(), wake="first").answer("q-0")
    getattr(journal, ending)()
    assert (journal.session.metrics.reserved_tokens, journal.session.metrics.reserved_cost) == (0, 0.0)


def test_queries_that_cost_exactly_what_is_left_fit() -> None:
    journal = limited({"default": Price(0.0, 100_000.0)}, max_cost=0.3)  # a tenth for each token
    assert fits(journal, small(1), small(1), small(1))


def test_an_answer_longer_than_was_reserved_counts_in_full() -> None:
    journal = limited(max_tokens=20).ask(small()).answer("q-0", "x", Usage(prompt_tokens=1, completion_tokens=50))
    assert refusal(journal, small(1)) == ("max_tokens", "max_tokens (20) reached (51 used)")


def test_a_refused_batch_reserves_nothing() -> None:
    journal = limited(max_tokens=25)
    refusal(journal, small(), small(), small())
    assert journal.session.metrics.reserved_tokens == 0


# --- what is left ------------------------------------------------------------------------------------


def left(journal: Journal, budget: Budget) -> RemainingBudget:
    return remaining(budget, journal.session.metrics, journal.now)


def test_what_is_left_takes_off_what_is_used_and_what_is_reserved() -> None:
    budget = Budget(max_llm_calls=5, max_elapsed_ms=1000, max_own_ms=500, max_tokens=100, max_cost=1.0)
    journal = started(budget=budget, prices=CENT_A_TOKEN).later(10).ask(small()).later(90)
    assert left(journal, budget) == RemainingBudget(llm_calls=4, elapsed_ms=900, own_ms=490, tokens=90, cost=0.9)


def test_what_is_not_limited_has_no_remainder() -> None:
    assert left(started(), Budget()) == RemainingBudget(
        llm_calls=None, elapsed_ms=None, own_ms=None, tokens=None, cost=None
    )


def test_what_is_left_is_never_less_than_nothing() -> None:
    budget = Budget(max_llm_calls=1, max_elapsed_ms=10, max_own_ms=10, max_tokens=3, max_cost=0.01)
    journal = started(prices=CENT_A_TOKEN).ask(small(), small()).answer("q-0").answer("q-1").later(100)
    assert left(journal, budget) == RemainingBudget(llm_calls=0, elapsed_ms=0, own_ms=0, tokens=0, cost=0.0)


def test_the_stats_tell_the_limits_that_were_set() -> None:
    assert limited(max_llm_calls=3, max_tokens=0).stats()["budget"] == {"max_llm_calls": 3, "max_tokens": 0}
    assert "budget" not in started().stats()


# --- budgets that cannot be kept -------------------------------------------------------------------------


@each_row("limit", ["max_llm_calls", "max_elapsed_ms", "max_own_ms", "max_tokens", "max_cost"])
def test_a_negative_limit_is_invalid(limit: str) -> None:
    with pytest.raises(InvalidBudgetError, match=f"{limit} must be at least 0, got -1"):
        decide_start(PROGRAM, budget=Budget(**{limit: -1}), prices=CENT_A_TOKEN)


@each_row("cost", [float("nan"), float("inf"), -0.01])
def test_a_cost_that_is_no_amount_is_invalid(cost: float) -> None:
    with pytest.raises(InvalidBudgetError):
        decide_start(PROGRAM, budget=Budget(max_cost=cost), prices=CENT_A_TOKEN)


@each_row("price", [float("nan"), float("inf"), -1.0])
def test_a_price_that_is_no_amount_is_invalid(price: float) -> None:
    for bad in (Price(price, 1.0), Price(1.0, price)):
        with pytest.raises(InvalidBudgetError, match="price 'big'"):
            decide_start(PROGRAM, prices={"big": bad})


def test_a_limit_of_cost_needs_prices() -> None:
    with pytest.raises(InvalidBudgetError, match="max_cost needs prices"):
        decide_start(PROGRAM, budget=Budget(max_cost=1.0))
    started_record = decide_start(PROGRAM, budget=Budget(max_cost=1.0), prices=CENT_A_TOKEN)
    assert started_record.prices == CENT_A_TOKEN


def test_a_budget_that_limits_nothing_is_valid() -> None:
    assert fits(limited(), llm())
