"""Budgets, as a native strategy meets them."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

from holdfast.core.records import (
    RefusedRecord,
)
from holdfast.engine.holdfast import Holdfast
from holdfast.programs.errors import QueryFailedError
from holdfast.programs.native.ctx import Context
from tests.programs.native.helpers import asked, of_type, ponder, prompts, quiet, result


async def test_a_budget_refuses_inside_the_program_and_a_replay_is_refused_in_the_same_way(tmp_path: Path) -> None:
    async def spends(ctx: Context) -> list[Any]:
        said = [await ctx.llm("one")]
        try:
            await ctx.llm("two")
        except QueryFailedError as error:
            said.append(error.code)
        said.append(await ctx.ask("three"))
        said.append(await ctx.ask("four"))
        return said

    async with quiet(tmp_path) as hf:
        event = await hf.start(spends, budget={"max_llm_calls": 1})
        event = await hf.feed(event.session_id, "1")
        assert prompts(event) == ["three"]
        (refused,) = await of_type(hf, event.session_id, RefusedRecord)
        assert refused.failure.code == "budget_exceeded"
    async with quiet(tmp_path) as hf:
        event = await hf.feed(event.session_id, "3")
        assert prompts(event) == ["four"]
        assert [query.id for query in asked(event)] == ["q-2"]
    async with quiet(tmp_path) as hf:
        assert result(await hf.feed(event.session_id, "4")) == ["1", "budget_exceeded", "3", "4"]


async def test_a_batch_that_passes_the_budget_is_refused_as_a_whole(hf: Holdfast) -> None:
    async def big_batch(ctx: Context) -> Any:
        try:
            await ctx.llm_batch(["a", "b", "c"])
        except QueryFailedError:
            return await ctx.llm_batch(["a", "b"])

    event = await hf.start(big_batch, budget={"max_llm_calls": 2})
    assert [query.id for query in asked(event)] == ["q-0", "q-1"]


async def test_a_refusal_under_a_timeout_is_a_refusal_and_not_a_timeout(hf: Holdfast) -> None:
    async def refused_in_time(ctx: Context) -> str:
        try:
            async with asyncio.timeout(60):
                await ctx.llm("?")
        except QueryFailedError as error:
            return error.code
        except TimeoutError:
            return "timeout"
        return "no"

    assert result(await hf.start(refused_in_time, budget={"max_llm_calls": 0})) == "budget_exceeded"


async def test_questions_withdrawn_together_with_a_refused_one_stay_withdrawn(hf: Holdfast) -> None:
    async def withdraws_and_asks(ctx: Context) -> str:
        losing = ctx.ask("losing")
        await ctx.llm("first")
        losing.cancel()
        with contextlib.suppress(QueryFailedError):
            await ctx.llm("too much")
        return str(await ctx.ask("last"))

    event = await hf.start(withdraws_and_asks, budget={"max_llm_calls": 1})
    event = await hf.feed(event.session_id, {"q-1": "1"})
    assert prompts(event) == ["last"]
    assert result(await hf.feed(event.session_id, {"q-2": "end"})) == "end"


async def test_what_is_left_of_the_budget_is_known(hf: Holdfast) -> None:
    async def looks(ctx: Context) -> list[Any]:
        seen = [ctx.budget_remaining()]
        await ctx.llm("?")
        seen.append(ctx.budget_remaining())
        return [left and left.llm_calls for left in seen]

    event = await hf.start(looks, budget={"max_llm_calls": 5})
    assert result(await hf.feed(event.session_id, "!")) == [5, 4]

    async def unlimited(ctx: Context) -> bool:
        return ctx.budget_remaining() is None

    assert result(await hf.start(unlimited)) is True


async def test_what_is_left_of_the_budget_is_the_same_in_a_replay(tmp_path: Path) -> None:
    async def tells_what_is_left(ctx: Context) -> None:
        for _ in range(3):
            ponder(0.005)
            ctx.log("worked a while")
            left = ctx.budget_remaining()
            await ctx.llm(f"{left}")

    budget = {"max_llm_calls": 9, "max_own_ms": 60_000, "max_elapsed_ms": 60_000, "max_tokens": 90_000}
    async with quiet(tmp_path) as hf:
        event = await hf.start(tells_what_is_left, budget=budget)
        event = await hf.feed(event.session_id, "a")
    async with quiet(tmp_path) as hf:
        event = await hf.feed(event.session_id, "b")
        assert len(asked(event)) == 1
