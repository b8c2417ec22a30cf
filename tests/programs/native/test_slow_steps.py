"""Native strategies that compute for long: their answers are committed first, and they hold up nobody."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from holdfast.core.events import RunningEvent
from holdfast.core.records import (
    AnsweredRecord,
    CompletedRecord,
)
from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.engine.upkeep import Upkeep
from holdfast.programs.native.ctx import Context
from holdfast.programs.native.kind import PROMPT_MS, NativeKind
from holdfast.testing.patience import HANG_S, soon, until
from tests.programs.native.helpers import of_type, ponder, prompts, quiet, result

SLOW_S = 2 * PROMPT_MS / 1000
"""Seconds of a step that is not prompt: its strategy is run in a thread for fifty times as long."""


async def _has_answers(hf: Holdfast, session_id: str, count: int) -> bool:
    return len(await of_type(hf, session_id, AnsweredRecord)) == count


async def test_a_slow_step_has_its_answer_committed_first_and_holds_up_nobody(tmp_path: Path) -> None:
    thought = threading.Event()

    async def ponders(ctx: Context) -> str:
        await ctx.llm("first")
        ponder(SLOW_S)
        await ctx.llm("second")
        thought.wait(HANG_S)
        return "thought"

    async def is_quick(ctx: Context) -> str:
        return str(await ctx.llm("?"))

    async with quiet(tmp_path) as hf:
        event = await hf.start(ponders)
        event = await soon(hf.feed(event.session_id, "1"))
        assert prompts(event) == ["second"]
        feeding = asyncio.create_task(hf.feed(event.session_id, "2"))
        await until(lambda: _has_answers(hf, event.session_id, 2))
        assert not await of_type(hf, event.session_id, CompletedRecord)
        status = await hf.status(event.session_id)
        assert status["phase"] == "running"
        assert status["owner"] is not None
        other = await hf.start(is_quick)
        assert result(await hf.feed(other.session_id, "!")) == "!"
        thought.set()
        assert result(await soon(feeding)) == "thought"


async def test_a_wait_for_a_slow_step_may_run_out_and_the_result_comes_later(tmp_path: Path) -> None:
    thought = threading.Event()

    async def ponders_twice(ctx: Context) -> str:
        await ctx.llm("0")
        ponder(SLOW_S)
        await ctx.llm("1")
        thought.wait(HANG_S)
        return "thought"

    async with quiet(tmp_path) as hf:
        event = await hf.start(ponders_twice)
        await soon(hf.feed(event.session_id, "0"))
        event = await hf.feed(event.session_id, "1", wait=0.05)
        assert isinstance(event, RunningEvent)
        thought.set()
        assert await soon(hf.result(event.session_id)) == "thought"


async def test_an_answer_that_arrives_while_the_program_runs_may_be_withdrawn_by_it(tmp_path: Path) -> None:
    raced = threading.Event()

    async def slow_race(ctx: Context) -> list[str]:
        ponder(SLOW_S)
        tasks = [ctx.llm("a"), ctx.llm("b")]
        done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        raced.wait(HANG_S)
        for each in rest:
            each.cancel()
        return [each.result() for each in done] + [await ctx.llm("next")]

    async with quiet(tmp_path) as hf:
        event = await hf.start(slow_race)
        assert isinstance(await hf.feed(event.session_id, {"q-0": "1"}, wait=0.1), RunningEvent)
        await hf.feed(event.session_id, {"q-1": "2"}, wait=0)
        raced.set()
        event = await soon(hf.resume(event.session_id))
        assert prompts(event) == ["next"]
        assert result(await soon(hf.feed(event.session_id, {"q-2": "end"}))) == ["1", "end"]


@pytest.mark.parametrize(("every", "is_moved"), [(50, False), (2, True)], ids=["now and then", "again and again"])
async def test_a_strategy_is_not_blamed_for_a_machine_that_stalls_now_and_then(every: int, is_moved: bool) -> None:
    now, threads = 0.0, list[int]()

    async def steps(ctx: Context) -> None:
        nonlocal now
        for number in range(1, 120):
            await ctx.llm("?")
            threads.append(threading.get_ident())
            if number % every == 0:
                now += SLOW_S  # time passes in which it did not compute

    async with open_holdfast("memory:", upkeep=Upkeep(on=False)) as hf:
        hf.add_kind(NativeKind(clock=lambda: now))
        event = await hf.start(steps, llm="host")
        for _ in range(119):
            event = await hf.feed(event.session_id, "!")
    assert (set(threads) != {threading.get_ident()}) == is_moved
