"""What else a native strategy asks, says and keeps: people, tools, the clock, notes and state."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.events import CompletedEvent
from holdfast.core.queries import HumanQuery, ToolQuery, Value
from holdfast.core.records import (
    LoggedRecord,
    ProgressedRecord,
    StatRecord,
)
from holdfast.engine.holdfast import Holdfast
from holdfast.programs.errors import QueryFailedError
from holdfast.programs.native.ctx import Context
from holdfast.testing.patience import soon
from tests.programs.native.helpers import asked, of_type, prompts, quiet, result


async def test_ask_is_a_question_to_a_person_with_choices(hf: Holdfast) -> None:
    async def personal(ctx: Context) -> Any:
        return await ctx.ask("colour?", choices=("red", "blue"))

    event = await hf.start(personal)
    assert asked(event) == [HumanQuery(id="q-0", prompt="colour?", choices=["red", "blue"])]
    assert result(await hf.feed(event.session_id, Value(value={"any": ["json", 1]}))) == {"any": ["json", 1]}


async def test_tool_is_a_question_with_arguments(hf: Holdfast) -> None:
    async def tooled(ctx: Context) -> Any:
        return await ctx.tool("search", name="x", limit=3)

    event = await hf.start(tooled)
    assert asked(event) == [ToolQuery(id="q-0", name="search", arguments={"name": "x", "limit": 3})]


async def test_sleep_is_a_timer_and_now_moves_with_it(hf: Holdfast) -> None:
    async def sleeper(ctx: Context) -> list[Any]:
        before = ctx.now()
        assert ctx.now() == before
        await ctx.sleep(0.05)
        return [before, ctx.now()]

    before, after = result(await soon(hf.start(sleeper)))
    assert round(after - before, 3) >= 0.05
    assert abs(time.time() - after) < 5


async def test_the_start_data_is_at_hand(hf: Holdfast) -> None:
    async def reads_data(ctx: Context) -> list[Any]:
        return [ctx.task, ctx["n"], ctx.get("missing", 7), ctx.data, ctx.session_id]

    event = await hf.start(reads_data, ctx={"task": "t", "n": 2}, id="mine")
    assert result(event) == ["t", 2, 7, {"task": "t", "n": 2}, "mine"]


async def test_log_progress_and_stats_stand_in_the_journal_and_the_status(hf: Holdfast) -> None:
    async def talks(ctx: Context) -> None:
        ctx.log("hello", level="debug")
        ctx.progress(1, 3, "one")
        ctx.stats.record("tries", 4)
        await ctx.llm("?")

    event = await hf.start(talks)
    assert await of_type(hf, event.session_id, LoggedRecord) == [LoggedRecord(message="hello", level="debug")]
    assert await of_type(hf, event.session_id, ProgressedRecord) == [ProgressedRecord(step=1, total=3, message="one")]
    assert await of_type(hf, event.session_id, StatRecord) == [StatRecord(key="tries", value=4)]
    status = await hf.status(event.session_id)
    assert status["metrics"]["progress"] == {"step": 1, "total": 3, "message": "one"}
    ended = await hf.feed(event.session_id, "!")
    assert ended.to_json()["stats"]["custom"] == {"tries": 4}


@pytest.mark.parametrize(
    "bad",
    [
        lambda ctx: ctx.progress(0.5, 1),
        lambda ctx: ctx.stats.record(7, 1),
        lambda ctx: ctx.stats.record("x", object()),
        lambda ctx: ctx.log("x", level=3),
    ],
    ids=["progress", "stat key", "stat value", "log level"],
)
async def test_a_note_that_cannot_be_kept_is_an_error_inside_the_program(
    hf: Holdfast, bad: Callable[[Context], None]
) -> None:
    async def notes_badly(ctx: Context) -> str:
        await ctx.llm("?")
        try:
            bad(ctx)
        except Exception:
            return "caught"
        return "not raised"

    event = await hf.start(notes_badly)
    assert result(await hf.feed(event.session_id, "!")) == "caught"


async def test_state_is_kept_between_sessions_under_the_name_of_the_strategy(hf: Holdfast) -> None:
    async def remembers(ctx: Context) -> list[Any]:
        before = await ctx.state.get("n", 0)
        await ctx.state.set("n", before + 1)
        other = await ctx.state("elsewhere").get("n", "none")
        return [before, await ctx.state.get("n"), other, await ctx.state.keys()]

    assert result(await hf.start(remembers)) == [0, 1, "none", ["n"]]
    assert result(await hf.start(remembers)) == [1, 2, "none", ["n"]]


async def test_state_is_updated_and_deleted(hf: Holdfast) -> None:
    async def updates(ctx: Context) -> list[Any]:
        first = await ctx.state.update("n", lambda n: n + 1, default=0)
        second = await ctx.state.update("n", lambda n: n + 1, default=0)
        return [first, second, await ctx.state.delete("n"), await ctx.state.delete("n"), await ctx.state.keys()]

    assert result(await hf.start(updates)) == [1, 2, True, False, []]


async def test_updates_of_one_key_by_many_sessions_are_all_counted(tmp_path: Path) -> None:
    async def counts(ctx: Context) -> None:
        await ctx.llm("go?")
        await ctx.state("counters").update("n", lambda n: n + 1, default=0)

    async with quiet(tmp_path) as one, quiet(tmp_path) as two:
        started = [await hf.start(counts) for hf in (one, two) * 10]
        feeds = [hf.feed(event.session_id, "go") for hf, event in zip((one, two) * 10, started, strict=True)]
        for event in await soon(asyncio.gather(*feeds)):
            assert isinstance(event, CompletedEvent)
        item = await one.store.get_state("counters", "n")
        assert item is not None
        assert item.value == 20


async def test_all_keys_of_the_state_are_listed_however_many_there_are(hf: Holdfast) -> None:
    for n in range(1_005):
        await hf.store.put_state("crowd", f"k{n:04}", n)

    async def lists(ctx: Context) -> int:
        return len(await ctx.state("crowd").keys())

    assert result(await hf.start(lists)) == 1_005


async def test_a_state_key_that_is_no_key_fails_inside_the_program(hf: Holdfast) -> None:
    async def bad_key(ctx: Context) -> str:
        try:
            await ctx.state.get("long" * 100)
        except QueryFailedError as error:
            return error.code
        return "no"

    assert result(await hf.start(bad_key)) == "invalid_id"


async def test_random_numbers_and_uuids_are_the_same_in_a_replay_and_differ_between_sessions(tmp_path: Path) -> None:
    async def random_walk(ctx: Context) -> list[Any]:
        drawn = [ctx.random.random(), str(ctx.uuid())]
        await ctx.llm(f"{drawn}")
        return [*drawn, str(ctx.uuid())]

    async with quiet(tmp_path) as hf:
        one, two = await hf.start(random_walk), await hf.start(random_walk)
        assert prompts(one) != prompts(two)
    async with quiet(tmp_path) as hf:
        drawn = result(await hf.feed(one.session_id, "!"))
        assert prompts(one) == [f"{drawn[:2]}"]
