"""Usage: five buckets for each call, added up by source and model; priced where prices are known; never lost twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.agent.machine.turn import StoppedOutcome
from holdfast.agent.results import TokenUsage, token_usage_of
from holdfast.core.budget import Price
from holdfast.core.queries import Usage
from holdfast.testing.patience import soon, until
from holdfast.testing.provider import ScriptedProvider, fault, reply, tool_call
from tests.agent.helpers import USED, Home, add

FULL = Usage(
    prompt_tokens=100, completion_tokens=50, cache_read_tokens=60, cache_write_tokens=30, reasoning_tokens=20, cost=0.25
)


def test_a_call_is_told_apart_into_five_buckets() -> None:
    buckets = token_usage_of(FULL)
    assert buckets == TokenUsage(input=10, output=50, cache_read=60, cache_write=30, reasoning=20, cost=0.25, calls=1)
    assert buckets.total == 150


def test_what_a_provider_does_not_say_is_nothing() -> None:
    assert token_usage_of(Usage()) == TokenUsage(calls=1)
    assert token_usage_of(Usage(prompt_tokens=5, cache_read_tokens=9)).input == 0


async def test_the_calls_of_a_turn_are_added_up_and_those_of_all_turns_in_the_report(home: Home) -> None:
    script: list[Any] = [
        reply(tool_call("add", a=1, b=2), usage=FULL),
        reply("3", usage=USED),
        reply("Hello", usage=USED),
    ]
    async with home.runtime(*script, tools=[add]) as runtime:
        session = await runtime.session("s").open()
        first = await soon(session.turn("add").run())
        second = await soon(session.turn("Hi").run())
        assert first.usage == token_usage_of(FULL) + token_usage_of(USED)
        assert second.usage == token_usage_of(USED)
        report = await session.usage_report()
        assert report.total == first.usage + second.usage
        assert (report.calls, report.unsettled) == (3, 0)
    async with home.runtime() as runtime:
        assert await (await runtime.session("s").open()).usage_report() == report


async def test_usage_is_told_apart_by_source_and_by_the_model_that_answered(home: Home) -> None:
    spare = ScriptedProvider([reply("Hello", usage=FULL)], id="spare")
    script: list[Any] = [reply("Hi", usage=USED), fault("auth")]
    async with home.runtime(*script, fallbacks=[(spare, "m-2")]) as runtime:
        session = await runtime.session("s").open()
        for _ in range(2):
            await soon(session.turn("Hi").run())
        report = await session.usage_report()
        assert report.by_model == {"m-1": token_usage_of(USED), "m-2": token_usage_of(FULL)}
        assert report.by_source == {"turn": report.total}


async def test_money_is_counted_where_prices_are_known_by_the_model_that_answered(home: Home) -> None:
    prices = {"m-1": Price(prompt=100_000, completion=200_000), "default": Price(prompt=1, completion=1)}
    async with home.runtime(reply("Hello", usage=USED), prices=prices) as runtime:
        session = await runtime.session("s").open()
        result = await soon(session.turn("Hi").run())
        assert result.usage.cost == pytest.approx(10 * 0.1 + 5 * 0.2)
        assert (await runtime.mount.store.load("s")).metrics.cost == pytest.approx(2.0)


async def test_what_the_provider_says_it_cost_counts_more_than_a_price(home: Home) -> None:
    prices = {"default": Price(prompt=1, completion=1)}
    async with home.runtime(reply("Hello", usage=FULL), prices=prices) as runtime:
        result = await soon((await runtime.session("s").open()).turn("Hi").run())
        assert result.usage.cost == 0.25


@pytest.mark.parametrize(("limit", "most"), [("tokens", 29), ("cost", 0.029)])
async def test_a_turn_is_limited_by_what_it_has_used_itself(home: Home, limit: str, most: float) -> None:
    prices = {"default": Price(prompt=1_000, completion=1_000)}
    calls = reply(tool_call("add", a=1, b=2), usage=USED)
    script: list[Any] = [reply("Hello", usage=USED), calls, calls]
    async with home.runtime(*script, tools=[add], limits={limit: most}, prices=prices) as runtime:
        session = await runtime.session("s").open()
        assert (await soon(session.turn("Hi").run())).is_success
        result = await soon(session.turn("go").run())
        assert isinstance(result.outcome, StoppedOutcome)
        assert (result.outcome.limit, result.usage.calls) == (limit, 2)


# --- across crashes -------------------------------------------------------------------------------------


async def test_usage_is_conserved_when_a_process_goes_between_an_attempt_and_its_answer(home: Home) -> None:
    """The attempt was written ahead: what was lost is known as lost, and what was settled is counted once."""
    async with home.runtime(reply("1", usage=USED), lambda request: asyncio.sleep(60, "late")) as runtime:
        session = await runtime.session("s").open()
        await soon(session.turn("one").id("t-1").run())
        work = asyncio.create_task(session.turn("two").id("t-2").run())
        await until(lambda: len(runtime.providers["scripted"].requests) == 2)  # type: ignore[attr-defined]
        before = await session.usage_report()
        assert (before.total, before.calls, before.unsettled) == (token_usage_of(USED), 1, 1)
        work.cancel()
    async with home.runtime(reply("2", usage=FULL)) as runtime:
        session = await runtime.session("s").open()
        result = await soon(session.turn("two").id("t-2").run())
        assert (result.usage, result.report.unsettled) == (token_usage_of(FULL), 1)
        report = await session.usage_report()
        assert report.total == token_usage_of(USED) + token_usage_of(FULL)
        assert (report.calls, report.unsettled) == (2, 1)
    async with home.runtime() as runtime:
        assert await (await runtime.session("s").open()).usage_report() == report


async def test_usage_of_a_reply_that_was_not_written_down_is_unsettled_and_that_of_the_next_one_counts(
    home: Home,
) -> None:
    async def seam(name: str) -> None:
        if name == "after effect":
            await asyncio.Event().wait()  # the reply is there, and the process gets no further

    async with home.runtime(reply("lost", usage=FULL), seam=seam) as runtime:
        session = await runtime.session("s").open()
        work = asyncio.create_task(session.turn("Hi").id("t-1").run())
        await until(lambda: runtime.providers["scripted"].requests)  # type: ignore[attr-defined]
        work.cancel()
    async with home.runtime(reply("Hello", usage=USED)) as runtime:
        session = await runtime.session("s").open()
        result = await soon(session.turn("Hi").id("t-1").run())
        assert (result.text, result.usage, result.report.unsettled) == ("Hello", token_usage_of(USED), 1)


async def test_a_call_that_failed_is_unsettled(home: Home) -> None:
    async with home.runtime(fault("auth"), reply("Hello", usage=USED)) as runtime:
        session = await runtime.session("s").open()
        failed = await soon(session.turn("Hi").run())
        assert (failed.report.calls, failed.report.unsettled) == (0, 1)
        await soon(session.turn("Hi").run())
        report = await session.usage_report()
        assert (report.calls, report.unsettled, report.total) == (1, 1, token_usage_of(USED))
