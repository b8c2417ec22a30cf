"""Native strategies: what they may ask, how they pause, how they fail, and that a replay takes the same steps."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.errors import HoldfastError, StaleQueryError
from holdfast.core.events import AcceptedEvent, CompletedEvent, Event, FailedEvent, PausedEvent, RunningEvent
from holdfast.core.queries import Failure, HumanQuery, LlmQuery, Query, ToolQuery
from holdfast.core.records import (
    AnsweredRecord,
    CompletedRecord,
    LoggedRecord,
    PausedRecord,
    ProgressedRecord,
    RefusedRecord,
    StartedRecord,
    StatRecord,
)
from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.engine.minder import Minder
from holdfast.programs.errors import DivergenceError, QueryFailedError
from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import strategy

T = TypeVar("T")


@pytest.fixture
async def hf() -> AsyncIterator[Holdfast]:
    async with open_holdfast("memory:") as opened:
        yield opened


def ponder(seconds: float) -> None:
    """Compute for a while."""
    time.sleep(seconds)


async def soon(work: Awaitable[T], seconds: float = 5) -> T:
    """The outcome of something that must not hang."""
    return await asyncio.wait_for(work, seconds)


def quiet(folder: Path) -> Holdfast:
    return open_holdfast(f"sqlite:///{folder}/sessions.db", minder=Minder(on=False))


def asked(event: Event) -> list[Query]:
    assert isinstance(event, PausedEvent), event
    return event.queries


def prompts(event: Event) -> list[str]:
    return [query.prompt for query in asked(event) if isinstance(query, (LlmQuery, HumanQuery))]


def result(event: Event) -> Any:
    assert isinstance(event, CompletedEvent), event
    return event.result


def failed(event: Event) -> FailedEvent:
    assert isinstance(event, FailedEvent), event
    return event


async def of_type(hf: Holdfast, session_id: str, kind: type[T]) -> list[T]:
    return [entry.record async for entry in hf.store.journal(session_id) if isinstance(entry.record, kind)]


# --- questions ------------------------------------------------------------------------------------------


async def test_an_answer_is_the_value_of_the_question(hf: Holdfast) -> None:
    async def one_question(ctx: Context) -> str:
        return f"so {await ctx.llm('why?')}"

    event = await hf.start(one_question)
    assert prompts(event) == ["why?"]
    assert result(await hf.feed(event.session_id, "because")) == "so because"


async def test_a_strategy_that_asks_nothing_ends_at_once(hf: Holdfast) -> None:
    async def silent(ctx: Context) -> list[int]:
        return [1, 2]

    assert result(await hf.start(silent)) == [1, 2]


async def test_llm_passes_on_what_it_does_not_know_as_options(hf: Holdfast) -> None:
    async def optioned(ctx: Context) -> Any:
        return await ctx.llm("p", system="s", max_tokens=7, grounded=True, model="m", temperature=0.5)

    (query,) = asked(await hf.start(optioned))
    assert query == LlmQuery(
        id="q-0", prompt="p", system="s", max_tokens=7, grounded=True, options={"model": "m", "temperature": 0.5}
    )


async def test_a_batch_is_one_pause_and_gives_the_answers_in_its_own_order(hf: Holdfast) -> None:
    async def batch(ctx: Context) -> list[str]:
        return await ctx.llm_batch(["a", {"prompt": "b", "system": "s", "model": "m"}, "c"])

    event = await hf.start(batch)
    first, second, third = asked(event)
    assert second == LlmQuery(id="q-1", prompt="b", system="s", options={"model": "m"})
    accepted = await hf.feed(event.session_id, {third.id: "3"})
    assert isinstance(accepted, AcceptedEvent)
    assert accepted.remaining == ["q-0", "q-1"]
    assert result(await hf.feed(event.session_id, {second.id: "2", first.id: "1"})) == ["1", "2", "3"]


async def test_an_empty_batch_is_answered_without_a_pause(hf: Holdfast) -> None:
    async def empty_batch(ctx: Context) -> list[str]:
        return await ctx.llm_batch([])

    assert result(await hf.start(empty_batch)) == []


async def test_gather_of_questions_is_one_pause_that_wakes_when_all_are_answered(hf: Holdfast) -> None:
    async def gathered(ctx: Context) -> list[Any]:
        return list(await asyncio.gather(ctx.llm("a"), ctx.ask("b"), ctx.tool("c", x=1)))

    event = await hf.start(gathered)
    assert [query.id for query in asked(event)] == ["q-0", "q-1", "q-2"]
    (paused,) = await of_type(hf, event.session_id, PausedRecord)
    assert paused.wake == "all_or_failure"
    assert isinstance(await hf.feed(event.session_id, {"q-1": 2}), AcceptedEvent)
    assert result(await hf.feed(event.session_id, {"q-0": "1", "q-2": {"x": 3}})) == ["1", 2, {"x": 3}]


async def test_calls_made_before_the_program_blocks_form_one_pause(hf: Holdfast) -> None:
    async def early_calls(ctx: Context) -> str:
        first, second = ctx.llm("a"), ctx.llm("b")
        task = asyncio.create_task(later(ctx))
        return str(await first + await second + await task)

    async def later(ctx: Context) -> str:
        return str(await ctx.llm("c"))

    event = await hf.start(early_calls)
    assert prompts(event) == ["a", "b", "c"]
    assert result(await hf.feed(event.session_id, {"q-0": "1", "q-1": "2", "q-2": "3"})) == "123"


async def test_tasks_that_ask_in_sequence_do_not_wait_for_each_other(hf: Holdfast) -> None:
    async def two_lines(ctx: Context) -> list[str]:
        return list(await asyncio.gather(line(ctx, "x"), line(ctx, "y")))

    async def line(ctx: Context, name: str) -> str:
        return str(await ctx.llm(f"{name}1") + await ctx.llm(f"{name}2"))

    event = await hf.start(two_lines)
    assert prompts(event) == ["x1", "y1"]
    event = await hf.feed(event.session_id, {"q-0": "a"})
    assert prompts(event) == ["y1", "x2"]
    event = await hf.feed(event.session_id, {"q-2": "b"})
    assert isinstance(event, AcceptedEvent)
    event = await hf.feed(event.session_id, {"q-1": "c"})
    assert prompts(event) == ["y2"]
    assert result(await hf.feed(event.session_id, "d")) == ["ab", "cd"]


async def test_a_task_whose_gather_is_complete_does_not_wait_for_the_gather_of_another(hf: Holdfast) -> None:
    async def two_gathers(ctx: Context) -> list[str]:
        return list(await asyncio.gather(pair(ctx, "x"), pair(ctx, "y")))

    async def pair(ctx: Context, name: str) -> str:
        a, b = await asyncio.gather(ctx.llm(f"{name}1"), ctx.llm(f"{name}2"))
        return str(await ctx.llm(f"{name} then {a}{b}"))

    event = await hf.start(two_gathers)
    event = await hf.feed(event.session_id, {"q-0": "1", "q-1": "2"})
    assert prompts(event) == ["y1", "y2", "x then 12"]


async def test_a_failure_ends_a_gather_without_waiting_for_the_other_answers(hf: Holdfast) -> None:
    async def failing_gather(ctx: Context) -> str:
        try:
            await asyncio.gather(ctx.llm("a"), ctx.llm("b"))
        except QueryFailedError as error:
            return f"{error}"
        return "no"

    event = await hf.start(failing_gather)
    assert result(await hf.feed(event.session_id, {"q-1": Failure("down")})) == "down"


async def test_a_task_group_asks_together_and_joins(hf: Holdfast) -> None:
    async def grouped(ctx: Context) -> list[str]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(ctx, n)) for n in range(3)]
        return [task.result() for task in tasks]

    async def one(ctx: Context, n: int) -> str:
        return str(await ctx.llm(f"p{n}"))

    event = await hf.start(grouped)
    assert prompts(event) == ["p0", "p1", "p2"]
    assert isinstance(await hf.feed(event.session_id, {"q-2": "c"}), AcceptedEvent)
    assert result(await hf.feed(event.session_id, {"q-1": "b", "q-0": "a"})) == ["a", "b", "c"]


async def test_a_failure_in_a_task_group_withdraws_the_questions_of_the_others(hf: Holdfast) -> None:
    async def failing_group(ctx: Context) -> str:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(one(ctx, "a"))
                group.create_task(one(ctx, "b"))
        except* QueryFailedError:
            pass
        return str(await ctx.llm("after"))

    async def one(ctx: Context, prompt: str) -> None:
        await ctx.llm(prompt)

    event = await hf.start(failing_group)
    event = await hf.feed(event.session_id, {"q-0": Failure("down")})
    assert prompts(event) == ["after"]
    with pytest.raises(StaleQueryError, match="withdrew"):
        await hf.feed(event.session_id, {"q-1": "late"})
    assert result(await hf.feed(event.session_id, "end")) == "end"


async def test_the_first_answer_of_several_goes_on_and_the_rest_are_withdrawn(hf: Holdfast) -> None:
    async def race(ctx: Context) -> list[str]:
        tasks = [ctx.llm("a"), ctx.llm("b"), ctx.llm("c")]
        done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for each in rest:
            each.cancel()
        return [each.result() for each in done] + [await ctx.llm("next")]

    event = await hf.start(race)
    event = await hf.feed(event.session_id, {"q-1": "fast"})
    assert prompts(event) == ["next"]
    _, second = await of_type(hf, event.session_id, PausedRecord)
    assert sorted(second.withdrawn) == ["q-0", "q-2"]
    assert result(await hf.feed(event.session_id, "end")) == ["fast", "end"]


async def test_answers_that_arrive_together_do_not_break_a_race_for_the_first(hf: Holdfast) -> None:
    async def race_together(ctx: Context) -> list[str]:
        tasks = [ctx.llm("a"), ctx.llm("b")]
        done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for each in rest:
            each.cancel()
        return [each.result() for each in done] + [await ctx.llm("next")]

    event = await hf.start(race_together)
    event = await hf.feed(event.session_id, {"q-0": "1", "q-1": "2"})
    assert prompts(event) == ["next"]
    last = result(await soon(hf.feed(event.session_id, "end")))
    assert last[-1] == "end"


async def test_timeouts_that_are_due_together_end_a_task_group_once(hf: Holdfast) -> None:
    async def group_of_timeouts(ctx: Context) -> str:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(impatient(ctx, "a"))
                group.create_task(impatient(ctx, "b"))
        except* TimeoutError:
            pass
        await ctx.sleep(0.01)
        return "over"

    async def impatient(ctx: Context, prompt: str) -> None:
        async with asyncio.timeout(0.03):
            await ctx.llm(prompt)

    event = await hf.start(group_of_timeouts)
    assert await soon(hf.result(event.session_id)) == "over"


async def test_a_question_under_a_timeout_is_answered_in_time(hf: Holdfast) -> None:
    async def in_time(ctx: Context) -> str:
        async with asyncio.timeout(60):
            answer = await ctx.llm("quick?")
        return str(answer + await ctx.llm("then?"))

    event = await hf.start(in_time)
    assert prompts(event) == ["quick?"]
    (llm,) = asked(event)
    event = await hf.feed(event.session_id, {llm.id: "yes"})
    assert prompts(event) == ["then?"]
    _, second = await of_type(hf, event.session_id, PausedRecord)
    assert len(second.withdrawn) == 1
    assert result(await hf.feed(event.session_id, "!")) == "yes!"


async def test_a_timeout_that_passes_raises_inside_the_program_and_withdraws_the_question(hf: Holdfast) -> None:
    async def too_slow(ctx: Context) -> str:
        try:
            async with asyncio.timeout(0.05):
                await ctx.llm("slow?")
        except TimeoutError:
            return "timed out"
        return "no"

    event = await hf.start(too_slow)
    assert prompts(event) == ["slow?"]
    assert await soon(hf.result(event.session_id)) == "timed out"


async def test_wait_for_gives_up_in_the_same_way(hf: Holdfast) -> None:
    async def waiting_for(ctx: Context) -> str:
        try:
            return str(await asyncio.wait_for(ctx.llm("slow?"), 0.05))
        except TimeoutError:
            return str(await ctx.llm("instead?"))

    event = await hf.start(waiting_for)
    (slow,) = asked(event)

    async def second() -> bool:
        return (await hf.store.session(event.session_id)).position >= 4

    async with asyncio.timeout(5):
        while True:
            if await second():
                break
            await asyncio.sleep(0.01)
    event = await hf.resume(event.session_id)
    assert prompts(event) == ["instead?"]
    with pytest.raises(StaleQueryError):
        await hf.feed(event.session_id, {slow.id: "late"})
    assert result(await hf.feed(event.session_id, "ok")) == "ok"


async def test_a_bare_answer_goes_to_the_only_question_that_was_offered(hf: Holdfast) -> None:
    async def with_deadline(ctx: Context) -> str:
        async with asyncio.timeout(60):
            return str(await ctx.llm("?"))

    event = await hf.start(with_deadline)
    assert len(asked(event)) == 1
    assert result(await hf.feed(event.session_id, "!")) == "!"


async def test_a_cancelled_task_withdraws_its_question(hf: Holdfast) -> None:
    async def cancelling(ctx: Context) -> str:
        task = asyncio.create_task(hopeless(ctx))
        answer = await ctx.llm("a")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return str(answer + await ctx.llm("b"))

    async def hopeless(ctx: Context) -> None:
        await ctx.llm("never mind")

    event = await hf.start(cancelling)
    assert prompts(event) == ["a", "never mind"]
    event = await hf.feed(event.session_id, {"q-0": "1"})
    assert prompts(event) == ["b"]
    assert result(await hf.feed(event.session_id, "2")) == "12"


async def test_a_question_cancelled_before_it_was_asked_is_never_asked(hf: Holdfast) -> None:
    async def thinks_better(ctx: Context) -> str:
        ctx.llm("no").cancel()
        return str(await ctx.llm("yes"))

    event = await hf.start(thinks_better)
    assert prompts(event) == ["yes"]
    assert [query.id for query in asked(event)] == ["q-0"]


async def test_locks_and_queues_between_tasks_work(hf: Holdfast) -> None:
    async def producer_and_consumer(ctx: Context) -> list[str]:
        queue: asyncio.Queue[str] = asyncio.Queue()
        lock = asyncio.Lock()

        async def produce(prompt: str) -> None:
            async with lock:
                await queue.put(await ctx.llm(prompt))

        async with asyncio.TaskGroup() as group:
            group.create_task(produce("a"))
            group.create_task(produce("b"))
        return [queue.get_nowait(), queue.get_nowait()]

    event = await hf.start(producer_and_consumer)
    assert prompts(event) == ["a"]
    event = await hf.feed(event.session_id, "1")
    assert prompts(event) == ["b"]
    assert result(await hf.feed(event.session_id, "2")) == ["1", "2"]


async def test_two_equal_calls_later_are_two_timers(hf: Holdfast) -> None:
    async def two_equal_timers(ctx: Context) -> int:
        rung: list[int] = []
        done = asyncio.Event()

        def ring() -> None:
            rung.append(1)
            if len(rung) == 2:
                done.set()

        loop = asyncio.get_running_loop()
        loop.call_later(0.02, ring)
        loop.call_later(0.02, ring)
        await done.wait()
        return len(rung)

    assert result(await soon(hf.start(two_equal_timers))) == 2


# --- a person, a tool, the clock, state -----------------------------------------------------------------


async def test_ask_is_a_question_to_a_person_with_choices(hf: Holdfast) -> None:
    async def personal(ctx: Context) -> Any:
        return await ctx.ask("colour?", choices=("red", "blue"))

    event = await hf.start(personal)
    assert asked(event) == [HumanQuery(id="q-0", prompt="colour?", choices=["red", "blue"])]
    assert result(await hf.feed(event.session_id, {"any": ["json", 1]})) == {"any": ["json", 1]}


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
        for event in await soon(asyncio.gather(*feeds), 20):
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


# --- failures -------------------------------------------------------------------------------------------


async def test_a_failed_question_is_an_error_that_can_be_caught_and_has_a_code(hf: Holdfast) -> None:
    async def catches(ctx: Context) -> list[str]:
        try:
            await ctx.llm("?")
        except QueryFailedError as error:
            return [str(error), error.code]
        return []

    event = await hf.start(catches)
    assert result(await hf.feed(event.session_id, Failure("no quota", "rate_limit"))) == ["no quota", "rate_limit"]


async def test_a_failure_nobody_catches_fails_the_session_with_its_code_and_place(hf: Holdfast) -> None:
    async def careless(ctx: Context) -> None:
        await ctx.llm("?")

    event = await hf.start(careless)
    told = failed(await hf.feed(event.session_id, Failure("no quota", "rate_limit")))
    assert "no quota" in told.error
    assert "test_native.py" in told.error
    assert told.error_kind == "rate_limit"
    assert told.stats["auto"]["llm_calls"] == 1


async def test_an_exception_fails_the_session_and_names_the_line_of_the_strategy(hf: Holdfast) -> None:
    async def breaks(ctx: Context) -> None:
        import json

        json.loads("{")

    told = failed(await hf.start(breaks))
    assert "JSONDecodeError" in told.error
    assert "test_native.py" in told.error


async def test_the_error_of_a_task_group_tells_what_went_wrong_inside(hf: Holdfast) -> None:
    async def group_breaks(ctx: Context) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(explode())

    async def explode() -> None:
        raise ValueError("the real reason")

    told = failed(await hf.start(group_breaks))
    assert "the real reason" in told.error


async def test_leaving_with_sys_exit_fails_the_session_and_not_the_process(hf: Holdfast) -> None:
    async def leaves(ctx: Context) -> None:
        await ctx.llm("?")
        sys.exit(3)

    event = await hf.start(leaves)
    try:
        told = await hf.feed(event.session_id, "!")
    except SystemExit:
        pytest.fail("the strategy's sys.exit reached whoever fed it")
    assert "SystemExit" in failed(told).error


@pytest.mark.parametrize("value", [object(), {1: 2}, float("nan"), b"bytes", {"deep": [{"x": {1, 2}}]}])
async def test_a_result_that_is_no_json_fails_the_session(hf: Holdfast, value: Any) -> None:
    async def returns_it(ctx: Context) -> Any:
        return value

    assert failed(await hf.start(returns_it)).error_kind == "invalid_result"


async def test_a_question_that_is_no_json_fails_inside_the_program_and_can_be_caught(hf: Holdfast) -> None:
    async def asks_badly(ctx: Context) -> str:
        try:
            await ctx.tool("t", x=object())
        except HoldfastError as error:
            return error.kind
        return "no"

    event = await hf.start(asks_badly)
    assert result(event) == "invalid_value"
    assert await of_type(hf, event.session_id, PausedRecord) == []


async def test_a_result_is_the_same_at_the_end_and_when_it_is_read_later(hf: Holdfast) -> None:
    async def returns_a_tuple(ctx: Context) -> Any:
        return {"pair": (1, 2)}

    event = await hf.start(returns_a_tuple)
    assert result(event) == await hf.result(event.session_id)


# --- budgets --------------------------------------------------------------------------------------------


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


# --- what cannot be waited for ---------------------------------------------------------------------------


async def sleeps(ctx: Context) -> None:
    await asyncio.sleep(0.01)


async def uses_a_thread(ctx: Context) -> None:
    await asyncio.to_thread(time.sleep, 0)


async def connects(ctx: Context) -> None:
    await asyncio.open_connection("localhost", 9)


async def starts_a_process(ctx: Context) -> None:
    await asyncio.create_subprocess_exec("true")


@pytest.mark.parametrize("program", [sleeps, uses_a_thread, connects, starts_a_process])
async def test_reaching_outside_is_detected_explained_and_placed(
    hf: Holdfast, program: Callable[[Context], Any]
) -> None:
    told = failed(await hf.start(program))
    assert told.error_kind == "not_a_query"
    assert "ctx." in told.error
    assert "test_native.py" in told.error


async def test_waiting_for_an_event_that_nobody_sets_is_detected_and_placed(hf: Holdfast) -> None:
    async def deadlock(ctx: Context) -> None:
        await ctx.llm("?")
        await asyncio.Event().wait()

    event = await hf.start(deadlock)
    told = failed(await soon(hf.feed(event.session_id, "!")))
    assert told.error_kind == "not_a_query"
    assert "not a query" in told.error
    assert "test_native.py" in told.error


async def test_waiting_for_a_future_of_another_loop_is_detected_and_placed(hf: Holdfast) -> None:
    foreign: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def waits_for_foreign(ctx: Context) -> None:
        await foreign

    told = failed(await soon(hf.start(waits_for_foreign)))
    assert "test_native.py" in told.error
    assert "different loop" in told.error
    foreign.cancel()


async def test_yielding_with_sleep_zero_is_allowed(hf: Holdfast) -> None:
    async def yields(ctx: Context) -> int:
        for _ in range(3):
            await asyncio.sleep(0)
        return 3

    assert result(await hf.start(yields)) == 3


# --- ends -----------------------------------------------------------------------------------------------


async def test_finally_blocks_run_on_cancellation_but_cannot_ask(hf: Holdfast) -> None:
    seen: list[str] = []

    async def tidy(ctx: Context) -> None:
        try:
            await ctx.llm("?")
        finally:
            seen.append("tidied")
            await ctx.llm("may I?")
            seen.append("heard")

    event = await hf.start(tidy)
    await hf.cancel(event.session_id, "enough")
    assert seen == ["tidied"]
    assert len(await of_type(hf, event.session_id, PausedRecord)) == 1


async def test_a_program_that_will_not_be_cancelled_is_ended_all_the_same(hf: Holdfast) -> None:
    async def stubborn(ctx: Context) -> None:
        while True:
            try:
                await ctx.llm("?")
            except asyncio.CancelledError:
                continue

    event = await hf.start(stubborn)
    assert (await soon(hf.cancel(event.session_id))).status == "cancelled"


# --- what a program is given is its own ------------------------------------------------------------------


async def test_a_program_may_change_the_answer_it_was_given(tmp_path: Path) -> None:
    async def changes_the_answer(ctx: Context) -> Any:
        items = await ctx.ask("items?")
        items.append("mine")
        await ctx.llm(f"{items}")
        return items

    async with quiet(tmp_path) as hf:
        event = await hf.start(changes_the_answer)
        event = await hf.feed(event.session_id, ["yours"])
        (answered,) = await of_type(hf, event.session_id, AnsweredRecord)
        assert answered.answer.value == ["yours"]  # type: ignore[union-attr]
    async with quiet(tmp_path) as hf:
        assert result(await hf.feed(event.session_id, "ok")) == ["yours", "mine"]


async def test_a_program_may_change_the_data_it_was_started_with(tmp_path: Path) -> None:
    async def changes_its_data(ctx: Context) -> Any:
        ctx.data["n"] += 1
        await ctx.llm(f"{ctx.data}")
        return ctx.data

    mine = {"n": 1}
    async with quiet(tmp_path) as hf:
        event = await hf.start(changes_its_data, ctx=mine)
        assert mine == {"n": 1}
        (started,) = await of_type(hf, event.session_id, StartedRecord)
        assert started.ctx == {"n": 1}
    async with quiet(tmp_path) as hf:
        assert result(await hf.feed(event.session_id, "ok")) == {"n": 2}


async def test_a_tuple_among_the_arguments_replays_as_what_was_recorded(tmp_path: Path) -> None:
    async def asks_with_tuple(ctx: Context) -> Any:
        await ctx.tool("area", corners=((0, 0), (1, 1)))
        return await ctx.llm("?", stop=("a", "b"))

    async with quiet(tmp_path) as hf:
        event = await hf.start(asks_with_tuple)
    async with quiet(tmp_path) as hf:
        event = await hf.feed(event.session_id, 1)
    async with quiet(tmp_path) as hf:
        assert result(await hf.feed(event.session_id, "ok")) == "ok"


# --- slow steps -----------------------------------------------------------------------------------------


async def test_a_slow_step_has_its_answer_committed_first_and_holds_up_nobody(tmp_path: Path) -> None:
    async def ponders(ctx: Context) -> str:
        await ctx.llm("first")
        ponder(0.05)
        await ctx.llm("second")
        ponder(0.5)
        return "thought"

    async def is_quick(ctx: Context) -> str:
        return str(await ctx.llm("?"))

    async with quiet(tmp_path) as hf:
        event = await hf.start(ponders)
        event = await soon(hf.feed(event.session_id, "1"))
        assert prompts(event) == ["second"]
        began = time.monotonic()
        feeding = asyncio.create_task(hf.feed(event.session_id, "2"))
        await asyncio.sleep(0.1)
        answered = await of_type(hf, event.session_id, AnsweredRecord)
        assert len(answered) == 2
        assert not await of_type(hf, event.session_id, CompletedRecord)
        status = await hf.status(event.session_id)
        assert status["phase"] == "running"
        assert status["owner"] is not None
        other = await hf.start(is_quick)
        assert result(await hf.feed(other.session_id, "!")) == "!"
        assert time.monotonic() - began < 0.4
        assert result(await soon(feeding)) == "thought"


async def test_a_wait_for_a_slow_step_may_run_out_and_the_result_comes_later(tmp_path: Path) -> None:
    async def ponders_twice(ctx: Context) -> str:
        for n in range(2):
            await ctx.llm(f"{n}")
            ponder(0.3)
        return "thought"

    async with quiet(tmp_path) as hf:
        event = await hf.start(ponders_twice)
        await soon(hf.feed(event.session_id, "0"))
        event = await hf.feed(event.session_id, "1", wait=0.05)
        assert isinstance(event, RunningEvent)
        assert await soon(hf.result(event.session_id)) == "thought"


async def test_an_answer_that_arrives_while_the_program_runs_may_be_withdrawn_by_it(tmp_path: Path) -> None:
    async def slow_race(ctx: Context) -> list[str]:
        ponder(0.05)
        tasks = [ctx.llm("a"), ctx.llm("b")]
        done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        ponder(0.4)
        for each in rest:
            each.cancel()
        return [each.result() for each in done] + [await ctx.llm("next")]

    async with quiet(tmp_path) as hf:
        event = await hf.start(slow_race)
        assert isinstance(await hf.feed(event.session_id, {"q-0": "1"}, wait=0.1), RunningEvent)
        await hf.feed(event.session_id, {"q-1": "2"}, wait=0)
        event = await soon(hf.resume(event.session_id))
        assert prompts(event) == ["next"]
        assert result(await soon(hf.feed(event.session_id, {"q-2": "end"}))) == ["1", "end"]


# --- divergence -----------------------------------------------------------------------------------------


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


async def asks_state(ctx: Context, prompt: str) -> None:
    await ctx.state(prompt).get("k")
    await ctx.llm("same")


@pytest.mark.parametrize("ask", [asks_llm, asks_batch, asks_state])
async def test_a_divergence_names_the_line_of_the_strategy(
    tmp_path: Path, ask: Callable[[Context, str], Awaitable[None]]
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
        line = ask.__code__.co_firstlineno + 1
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


# --- replay at every pause ------------------------------------------------------------------------------


async def rich(ctx: Context) -> Any:
    """A bit of everything that needs no clock."""
    seen: list[Any] = [ctx.random.randint(0, 9), str(ctx.uuid())]
    ctx.log("begun")
    seen.append(await ctx.llm("plain"))
    seen += await ctx.llm_batch(["a", "b"])
    seen.append(await ctx.state.update("n", lambda n: n + 1, default=0))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(chain(ctx, name)) for name in "xy"]
    seen += [task.result() for task in tasks]
    racing = [ctx.ask("fast?"), ctx.ask("slow?")]
    done, rest = await asyncio.wait(racing, return_when=asyncio.FIRST_COMPLETED)
    for each in rest:
        each.cancel()
    seen += [each.result() for each in done]
    try:
        async with asyncio.timeout(3600):
            seen.append(await ctx.tool("t", x=len(seen)))
    except QueryFailedError as error:
        seen.append(error.code)
    seen.append(ctx.random.random())
    return seen


async def chain(ctx: Context, name: str) -> str:
    try:
        first = await ctx.llm(f"{name}1")
    except QueryFailedError:
        first = "none"
    return str(first + await ctx.llm(f"{name}2 after {first}"))


Transcript = list[Any]


async def play(folder: Path, program: Any, session_id: str, reopen: Callable[[int], bool]) -> tuple[Transcript, Any]:
    """Answer one question at a time, the last offered first; the engine is closed and opened where `reopen` says."""
    hf = await quiet(folder).__aenter__()
    transcript: Transcript = []
    try:
        event = await soon(hf.start(program, id=session_id))
        for round_ in range(200):
            if reopen(round_):
                await hf.__aexit__()
                hf = await quiet(folder).__aenter__()
                event = await soon(hf.resume(session_id))
            if not isinstance(event, (PausedEvent, AcceptedEvent)):
                break
            event = await soon(hf.resume(session_id)) if isinstance(event, AcceptedEvent) else event
            shown = sorted((query.id, repr(query)) for query in asked(event))
            transcript.append(shown)
            last = max((query.id for query in asked(event)), key=lambda asked: int(asked[2:]))
            answer: Any = Failure("no", "code") if round_ % 7 == 5 else f"answer {round_}"
            event = await soon(hf.feed(session_id, {last: answer}))
        return transcript, event.to_json().get("result", event.to_json().get("error"))
    finally:
        await hf.__aexit__()


async def seeded(folder: Path, program: Any) -> str:
    """A fresh session of a program, to be forked: so that two runs have the same seed."""
    async with quiet(folder) as hf:
        return (await hf.start(program)).session_id


async def test_a_replay_at_every_pause_gives_the_same_questions_and_the_same_result(tmp_path: Path) -> None:
    async def fixed(ctx: Context) -> Any:
        ctx.random.seed(7)
        return await rich(ctx)

    for name in ("straight", "broken"):
        (tmp_path / name).mkdir()
    straight = await play(tmp_path / "straight", fixed, "s", lambda round_: False)
    broken = await play(tmp_path / "broken", fixed, "s", lambda round_: True)
    assert straight == broken
    assert len(straight[0]) >= 8


Op = tuple[Any, ...]


def ops(depth: int) -> st.SearchStrategy[list[Op]]:
    leaf = st.one_of(
        st.tuples(st.just("llm")),
        st.tuples(st.just("ask")),
        st.tuples(st.just("batch"), st.integers(0, 3)),
        st.tuples(st.just("draw")),
        st.tuples(st.just("log")),
        st.tuples(st.just("state")),
        st.tuples(st.just("race"), st.integers(1, 3)),
        st.tuples(st.just("late")),
    )
    if depth == 0:
        return st.lists(leaf, max_size=4)
    inner = ops(depth - 1)
    node = st.one_of(
        leaf,
        st.tuples(st.just("group"), st.lists(inner, min_size=1, max_size=3)),
        st.tuples(st.just("gather"), st.lists(inner, min_size=1, max_size=3)),
        st.tuples(st.just("timeout"), inner),
    )
    return st.lists(node, max_size=4)


async def perform(ctx: Context, todo: list[Op], name: str) -> list[Any]:
    """A random program: its questions say where they come from and what came before."""
    seen: list[Any] = []
    for number, op in enumerate(todo):
        here = f"{name}.{number}"
        try:
            match op:
                case ("llm",):
                    seen.append(await ctx.llm(f"{here} {seen[-1:]}"))
                case ("ask",):
                    seen.append(await ctx.ask(here))
                case ("batch", n):
                    seen += await ctx.llm_batch([f"{here}[{i}]" for i in range(n)])
                case ("draw",):
                    seen.append(ctx.random.randint(0, 99))
                case ("log",):
                    ctx.log(here)
                case ("state",):
                    seen.append(await ctx.state.update("n", lambda n: n + 1, default=0))
                case ("race", n):
                    racing = [ctx.llm(f"{here}/{i}") for i in range(n)]
                    done, rest = await asyncio.wait(racing, return_when=asyncio.FIRST_COMPLETED)
                    for each in rest:
                        each.cancel()
                    seen += [each.result() for each in done]
                case ("late",):
                    early = ctx.llm(f"{here} early")
                    seen.append(await ctx.llm(f"{here} late"))
                    seen.append(await early)
                case ("group", parts):
                    async with asyncio.TaskGroup() as group:
                        tasks = [group.create_task(perform(ctx, p, f"{here}g{i}")) for i, p in enumerate(parts)]
                    seen += [task.result() for task in tasks]
                case ("gather", parts):
                    seen += await asyncio.gather(*(perform(ctx, p, f"{here}a{i}") for i, p in enumerate(parts)))
                case ("timeout", part):
                    async with asyncio.timeout(3600):
                        seen += await perform(ctx, part, f"{here}t")
        except QueryFailedError as error:
            seen.append(error.code)
    return seen


@settings(max_examples=40, deadline=None)
@given(todo=ops(2), reopened=st.sets(st.integers(0, 30)))
def test_random_programs_give_the_same_however_often_the_engine_is_closed(
    tmp_path_factory: pytest.TempPathFactory, todo: list[Op], reopened: set[int]
) -> None:
    folder = tmp_path_factory.mktemp("random")
    for name in ("straight", "broken"):
        (folder / name).mkdir()

    async def performer(ctx: Context) -> Any:
        ctx.random.seed(7)
        return await perform(ctx, todo, "p")

    async def both() -> None:
        straight = await play(folder / "straight", performer, "s", lambda round_: False)
        broken = await play(folder / "broken", performer, "s", lambda round_: round_ in reopened)
        assert straight == broken

    asyncio.run(both())
