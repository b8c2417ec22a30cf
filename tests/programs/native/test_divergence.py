"""A replay with changed code: an error that shows both sides and changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from holdfast.programs.errors import DivergenceError
from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import strategy
from tests.programs.native.helpers import prompts, quiet, result


def define(name: str, function: Callable[[Context], Any]) -> None:
    """Put another program in the place of the one with this name."""
    strategy(name=name)(function)


async def original(ctx: Context) -> list[str]:
    return [await ctx.llm("one"), await ctx.llm("two"), await ctx.llm("three")]


async def other_prompt(ctx: Context) -> list[str]:
    return [await ctx.llm("one"), await ctx.llm("2"), await ctx.llm("three")]


async def fewer_questions(ctx: Context) -> list[str]:
    return [await ctx.llm("one")]


async def other_order(ctx: Context) -> list[str]:
    return [await ctx.llm("two"), await ctx.llm("one"), await ctx.llm("three")]


async def both_at_once(ctx: Context) -> list[str]:
    return [*await ctx.llm_batch(["one", "two"]), await ctx.llm("three")]


async def breaks_early(ctx: Context) -> list[str]:
    raise ValueError("new bug")


def local(function: Callable[[Context], Any]) -> Callable[[Context], Any]:
    """The function without an address, so that it is found by its name alone."""

    async def anonymous(ctx: Context) -> Any:
        return await function(ctx)

    return anonymous


@pytest.mark.parametrize(
    ("changed", "recorded", "now"),
    [
        (other_prompt, "two", '"2"'),
        (fewer_questions, "two", "result"),
        (other_order, "one", "two"),
        (both_at_once, "one", "two"),
        (breaks_early, "one", "new bug"),
    ],
)
async def test_changed_code_is_a_divergence_that_shows_both_sides_and_changes_nothing(
    tmp_path: Path, changed: Callable[[Context], Any], recorded: str, now: str
) -> None:
    define("changing", local(original))
    async with quiet(tmp_path) as hf:
        event = await hf.start("changing")
        event = await hf.feed(event.session_id, "1")
    define("changing", local(changed))
    async with quiet(tmp_path) as hf:
        before = await hf.store.session(event.session_id)
        with pytest.raises(DivergenceError) as caught:
            await hf.feed(event.session_id, "2")
        assert recorded in caught.value.recorded
        assert now in caught.value.asked
        assert (await hf.store.session(event.session_id)) == before
    define("changing", local(original))
    async with quiet(tmp_path) as hf:
        event = await hf.feed(event.session_id, "2")
        assert result(await hf.feed(event.session_id, "3")) == ["1", "2", "3"]


async def asks_llm(ctx: Context, prompt: str) -> None:
    await ctx.llm(prompt)


async def asks_batch(ctx: Context, prompt: str) -> None:
    await ctx.llm_batch([prompt])


async def asks_gathered(ctx: Context, prompt: str) -> None:
    await asyncio.gather(ctx.llm(prompt))


async def asks_in_task(ctx: Context, prompt: str) -> None:
    task = asyncio.create_task(_answered(asyncio.gather(ctx.llm(prompt))))
    await task


async def _answered(gathered: Awaitable[object]) -> object:
    return await gathered


async def asks_state(ctx: Context, prompt: str) -> None:
    await ctx.state(prompt).get("k")
    await ctx.llm("same")


@pytest.mark.parametrize(
    ("ask", "asking"),
    [
        (asks_llm, asks_llm),
        (asks_batch, asks_batch),
        (asks_gathered, asks_gathered),
        (asks_in_task, _answered),
        (asks_state, asks_state),
    ],
)
async def test_a_divergence_names_the_line_of_the_strategy(
    tmp_path: Path, ask: Callable[[Context, str], Awaitable[None]], asking: FunctionType
) -> None:
    async def before(ctx: Context) -> None:
        await ask(ctx, "old")

    async def after(ctx: Context) -> None:
        await ask(ctx, "new")

    define("relined", before)
    async with quiet(tmp_path) as hf:
        event = await hf.start("relined")
    define("relined", after)
    async with quiet(tmp_path) as hf:
        with pytest.raises(DivergenceError) as caught:
            await hf.feed(event.session_id, ["answer"])
        line = asking.__code__.co_firstlineno + 1
        assert caught.value.where == f"{__file__}:{line}"


async def test_a_diverged_session_can_be_forked_before_the_divergence(tmp_path: Path) -> None:
    define("forked", local(original))
    async with quiet(tmp_path) as hf:
        event = await hf.start("forked")
        event = await hf.feed(event.session_id, "1")
    define("forked", local(other_prompt))
    async with quiet(tmp_path) as hf:
        with pytest.raises(DivergenceError) as caught:
            await hf.feed(event.session_id, "2")
        fork = await hf.fork(event.session_id, at=caught.value.position - 1)
        assert prompts(fork) == ["2"]
        fork = await hf.feed(fork.session_id, "b")
        assert result(await hf.feed(fork.session_id, "c")) == ["1", "b", "c"]


async def test_a_diverged_session_can_be_cancelled_and_read(tmp_path: Path) -> None:
    define("ended", local(original))
    async with quiet(tmp_path) as hf:
        event = await hf.start("ended")
    define("ended", local(other_order))
    async with quiet(tmp_path) as hf:
        with pytest.raises(DivergenceError):
            await hf.feed(event.session_id, "1")
        assert (await hf.cancel(event.session_id, "code is gone")).status == "cancelled"
        assert (await hf.status(event.session_id))["phase"] == "cancelled"
