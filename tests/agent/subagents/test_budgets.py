"""Budgets of sessions over their whole life, and what subagents get of them."""

from __future__ import annotations

import pytest

from holdfast.agent.machine.queries import DelegateQuery
from holdfast.agent.machine.turn import StoppedOutcome
from holdfast.agent.providers.provider import ModelRequest
from holdfast.core.budget import Budget, Price
from holdfast.core.errors import InvalidBudgetError
from holdfast.core.queries import Usage
from holdfast.testing.patience import HANG_S
from holdfast.testing.provider import ScriptedProvider, ScriptStep, reply
from tests.agent.helpers import Home
from tests.agent.subagents.helpers import agent, cast, child_of, delegating, saying

USED = Usage(prompt_tokens=100, completion_tokens=20)


async def test_a_session_that_has_made_its_calls_ends_further_turns_and_says_so(home: Home) -> None:
    async with home.runtime(reply("one", usage=USED), reply("two", usage=USED)) as runtime:
        session = await runtime.session("chat").budget(max_llm_calls=2).open()
        assert (await session.turn("a").run(wait=HANG_S)).text == "one"
        assert (await session.turn("b").run(wait=HANG_S)).text == "two"
        stopped = (await session.turn("c").run(wait=HANG_S)).stopped
        assert stopped is not None
        assert (stopped.reason, stopped.limit) == ("budget", "budget")
        assert "max_llm_calls (2) reached" in stopped.detail
        assert (await session.read_view()).running is None


async def test_a_turn_that_would_pass_the_tokens_is_not_begun_with_the_model(home: Home) -> None:
    model = ScriptedProvider([reply("x" * 8_000, usage=Usage(prompt_tokens=10, completion_tokens=2_000))], loop=True)
    async with home.runtime(provider=model) as runtime:
        session = await runtime.session("chat").budget(max_tokens=4_500).open()
        assert (await session.turn("a").run(wait=HANG_S)).is_success
        stopped = (await session.turn("b").run(wait=HANG_S)).stopped  # 2,010 spent, 2,000 to be shown, 1,024 to come
        assert stopped is not None
        assert stopped.reason == "budget"
        assert "max_tokens" in stopped.detail
    assert len(model.requests) == 1


async def test_money_is_limited_by_the_prices_of_the_runtime(home: Home) -> None:
    prices = {"default": Price(1_000.0, 1_000.0)}
    model = ScriptedProvider([reply("x", usage=USED)], loop=True)
    async with home.runtime(provider=model, prices=prices) as runtime:
        session = await runtime.session("chat").budget(max_cost=1.2).open()
        assert (await session.turn("a").run(wait=HANG_S)).is_success
        stopped = (await session.turn("b").run(wait=HANG_S)).stopped
        assert stopped is not None
        assert "max_cost" in stopped.detail


async def test_money_needs_a_price_and_common_models_have_one(home: Home) -> None:
    pytest.importorskip("genai_prices")
    async with home.runtime(reply("x", usage=USED)) as runtime:
        with pytest.raises(InvalidBudgetError, match="'m-1'"):
            await runtime.session("chat").budget(max_cost=1.0).open()
        session = await runtime.session("chat").spec(model="gpt-4o").budget(max_cost=1.0).open()
        result = await session.turn("a").run(wait=HANG_S)
        assert result.usage.cost == pytest.approx((100 * 2.5 + 20 * 10) / 1_000_000)


async def test_a_session_keeps_the_budget_that_it_began_with(home: Home) -> None:
    async with home.runtime("x", budget=Budget(max_llm_calls=5)) as runtime:
        session = await runtime.session("chat").open()
        known = (await session.mount.holdfast.session("chat")).started
        assert known is not None
        assert known.budget == Budget(max_llm_calls=5)
        await runtime.session("chat").budget(max_llm_calls=5).open()
        with pytest.raises(InvalidBudgetError, match="began with"):
            await runtime.session("chat").budget(max_llm_calls=6).open()
        with pytest.raises(InvalidBudgetError, match="no such limit"):
            runtime.session("chat").budget(tokens=6)


async def test_subagents_share_what_is_left_and_give_back_the_rest(home: Home) -> None:
    model = cast({"worker": saying("ok")}, delegating(*({"agent": "worker", "task": str(n)} for n in range(2))))
    async with home.runtime(
        provider=model, agents=[agent("worker"), agent("cheap", budget=Budget(max_tokens=5))]
    ) as rt:
        session = await rt.session("chat").budget(max_tokens=50_015, max_llm_calls=11).open()
        result = await session.turn("go").run(wait=HANG_S)
        assert result.text == "ok | ok"
        budgets = [(await child_of(session, query)).started for query in ("q-2", "q-3")]
        shares = [started.budget for started in budgets if started is not None]
        assert shares == [Budget(max_tokens=25_000, max_llm_calls=5), Budget(max_tokens=25_000, max_llm_calls=5)]
        after = (await session.mount.holdfast.session("chat")).metrics
        assert (after.reserved_tokens, after.reserved_calls) == (0, 0)
        assert after.total_tokens == 50
        assert after.llm_calls == 4


async def test_a_subagent_without_means_is_a_result_and_not_the_end_of_its_parent(home: Home) -> None:
    model = cast({"cheap": saying("never")}, delegating({"agent": "cheap", "task": "x"}))
    async with home.runtime(provider=model, agents=[agent("cheap", budget=Budget(max_tokens=5))]) as runtime:
        session = await runtime.session("chat").open()
        result = await session.turn("go").run(wait=HANG_S)
        assert result.tool_calls[0].result["status"] == "budget"
        assert "max_tokens" in result.tool_calls[0].result["error"]
        assert result.is_success


async def test_the_limits_of_a_turn_are_shared_with_its_subagents(home: Home) -> None:
    calls = [{"agent": "worker", "task": str(n)} for n in range(2)]

    def parent(request: ModelRequest) -> ScriptStep:
        return delegating(*calls)(request)

    model = cast(
        {"worker": lambda request: reply("spent", usage=Usage(prompt_tokens=2_000, completion_tokens=10))}, parent
    )
    async with home.runtime(provider=model, agents=[agent("worker")], limits={"tokens": 4_015}) as runtime:
        session = await runtime.session("chat").open()
        result = await session.turn("go").run(wait=HANG_S)
        asked = [
            query
            async for entry in session.mount.store.journal("chat")
            for query in getattr(entry.record, "queries", [])
            if isinstance(query, DelegateQuery)
        ]
        assert [query.budget for query in asked] == [Budget(max_tokens=2_000)] * 2
        assert isinstance(result.outcome, StoppedOutcome)  # what they spent counts for the turn
        assert result.outcome.limit == "tokens"
