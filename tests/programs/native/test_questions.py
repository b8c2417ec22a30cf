"""Questions to models: one by one, together, under timeouts and withdrawn."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.core.errors import StaleQueryError
from holdfast.core.events import AcceptedEvent
from holdfast.core.queries import Failure, LlmQuery
from holdfast.core.records import (
    PausedRecord,
)
from holdfast.engine.holdfast import Holdfast
from holdfast.programs.errors import QueryFailedError
from holdfast.programs.native.ctx import Context
from holdfast.testing.patience import soon
from tests.programs.native.helpers import asked, of_type, prompts, result


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
