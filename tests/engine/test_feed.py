"""Feeding answers: each is applied once, in one commit with what follows, or refused without a change."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.decide import GivenAnswer
from holdfast.core.errors import (
    AnswerConflictError,
    EmptyFeedError,
    InvalidValueError,
    NoPendingQueryError,
    QueryIdRequiredError,
    SessionNotFoundError,
    StaleQueryError,
    UnknownQueryError,
)
from holdfast.core.events import AcceptedEvent, RunningEvent
from holdfast.core.limits import RECENT_ANSWERS
from holdfast.core.queries import Failure, Usage, Value
from holdfast.core.records import AnsweredRecord
from holdfast.core.state import State
from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.programs.native.ctx import Context
from holdfast.testing.patience import soon, until
from tests.engine.helpers import asked, error, of_type, prompts, records, result, sqlite
from tests.engine.programs import pair, two_questions

# --- feed -----------------------------------------------------------------------------------------------


async def test_an_answer_and_the_next_question_are_one_commit(hf: Holdfast) -> None:
    event = await hf.start(two_questions)
    before = await hf.store.session(event.session_id)
    event = await hf.feed(event.session_id, "1", by="me")
    after = await hf.store.session(event.session_id)
    assert after.epoch == before.epoch + 1
    assert after.position == before.position + 2
    *_, answered, _ = await records(hf.store, event.session_id)
    assert answered == AnsweredRecord(query_id="q-0", answer=Value(value="1"), by="me")


async def test_the_same_answer_twice_gets_the_same_reply_again(hf: Holdfast) -> None:
    event = await hf.start(two_questions)
    first = await hf.feed(event.session_id, {"q-0": "1"})
    again = await hf.feed(event.session_id, {"q-0": "1"})
    assert again.replayed
    assert {**again.to_json(), "replayed": None} == {**first.to_json(), "replayed": None}


async def test_a_replayed_reply_offers_what_the_first_one_offered(hf: Holdfast) -> None:
    async def then_with_a_deadline(ctx: Context) -> str:
        await ctx.llm("one")
        async with asyncio.timeout(60):
            return str(await ctx.llm("two"))

    event = await hf.start(then_with_a_deadline)
    first = await hf.feed(event.session_id, {"q-0": "1"})
    again = await hf.feed(event.session_id, {"q-0": "1"})
    assert prompts(first) == {"q-2": "two"}
    assert asked(again) == asked(first)


async def test_an_answer_of_long_ago_is_found_in_the_journal(hf: Holdfast) -> None:
    async def many_questions(ctx: Context) -> None:
        racing = [asyncio.ensure_future(ctx.llm("slow")), asyncio.ensure_future(ctx.llm("fast"))]
        _, rest = await asyncio.wait(racing, return_when=asyncio.FIRST_COMPLETED)
        for task in rest:
            task.cancel()
        for number in range(RECENT_ANSWERS + 1):
            await ctx.llm(f"number {number}")

    session_id = (await hf.start(many_questions)).session_id
    first = await hf.feed(session_id, {"q-1": "fast"})
    for number in range(RECENT_ANSWERS + 1):
        await hf.feed(session_id, {f"q-{number + 2}": number})
    again = await hf.feed(session_id, {"q-1": "fast"})
    assert again.replayed
    assert prompts(again) == prompts(first) == {"q-2": "number 0"}
    with pytest.raises(AnswerConflictError) as caught:
        await hf.feed(session_id, {"q-1": "slow"})
    assert "fast" in str(caught.value)
    assert "slow" in str(caught.value)
    with pytest.raises(StaleQueryError):
        await hf.feed(session_id, {"q-0": "late"})


async def test_another_answer_to_the_same_question_is_a_conflict_that_names_both(hf: Holdfast) -> None:
    event = await hf.start(two_questions)
    await hf.feed(event.session_id, {"q-0": "this"})
    with pytest.raises(AnswerConflictError) as caught:
        await hf.feed(event.session_id, {"q-0": "that"})
    assert "this" in str(caught.value)
    assert "that" in str(caught.value)


async def test_answers_that_do_not_fit_are_refused_and_change_nothing(hf: Holdfast) -> None:
    event = await hf.start(pair)
    before = await records(hf.store, event.session_id)
    with pytest.raises(UnknownQueryError):
        await hf.feed(event.session_id, {"q-9": "?"})
    with pytest.raises(QueryIdRequiredError):
        await hf.feed(event.session_id, "which?")
    with pytest.raises(InvalidValueError):
        await hf.feed(event.session_id, {"q-0": object()})
    with pytest.raises(UnknownQueryError):
        await hf.feed(event.session_id, {"q-0": "fine", "q-9": "not"})
    with pytest.raises(SessionNotFoundError):
        await hf.feed("nobody", "?")
    assert await records(hf.store, event.session_id) == before
    assert result(await hf.feed(event.session_id, {"q-0": 1, "q-1": 2})) == [1, 2]


async def test_a_wrong_id_is_refused_and_the_open_ones_are_named(hf: Holdfast) -> None:
    event = await hf.start(two_questions)
    before = await records(hf.store, event.session_id)
    for wrong in ({"call_1": "yes"}, {"q-0": "1", "call_1": "yes"}, GivenAnswer(Value(value="yes"), "call_1")):
        with pytest.raises(UnknownQueryError, match=r"unknown query_id: call_1 .*waits for q-0"):
            await hf.feed(event.session_id, wrong)
    with pytest.raises(EmptyFeedError):
        await hf.feed(event.session_id, {})
    with pytest.raises(InvalidValueError, match="1 is not a query id"):
        await hf.feed(event.session_id, {1: "yes"})
    assert await records(hf.store, event.session_id) == before


async def test_an_object_is_an_answer_where_it_is_said_to_be_a_value(hf: Holdfast) -> None:
    event = await hf.start(two_questions)
    await hf.feed(event.session_id, Value(value={"call_1": "yes"}))
    (answered,) = await of_type(hf.store, event.session_id, AnsweredRecord)
    assert answered.answer == Value(value={"call_1": "yes"})


async def test_answers_after_the_end_are_refused_or_recognised(hf: Holdfast) -> None:
    event = await hf.start(two_questions)
    await hf.feed(event.session_id, "1")
    first = await hf.feed(event.session_id, {"q-1": "2"})
    again = await hf.feed(event.session_id, {"q-1": "2"})
    assert again.replayed
    assert result(again) == result(first)
    with pytest.raises(NoPendingQueryError):
        await hf.feed(event.session_id, "3")
    event = await hf.start(two_questions)
    await hf.cancel(event.session_id)
    with pytest.raises(StaleQueryError):
        await hf.feed(event.session_id, {"q-0": "late"})


async def test_a_part_of_the_answers_is_accepted_and_says_what_remains(hf: Holdfast) -> None:
    event = await hf.start(pair)
    accepted = await hf.feed(event.session_id, {"q-1": "r"})
    assert accepted == AcceptedEvent(session_id=event.session_id, remaining=["q-0"])
    assert result(await hf.feed(event.session_id, "l")) == ["l", "r"]


async def test_usage_goes_with_an_answer_however_it_is_given(hf: Holdfast) -> None:
    usage = Usage(prompt_tokens=11, completion_tokens=7)
    for answer in (
        "text",
        {"q-0": "text"},
        {"q-0": GivenAnswer(Value(value="text"), usage=usage)},
        Value(value="text"),
    ):
        event = await hf.start(two_questions)
        await hf.feed(event.session_id, answer, usage=usage)
        (answered,) = await of_type(hf.store, event.session_id, AnsweredRecord)
        assert answered.usage == usage, answer


async def test_feed_waits_for_what_goes_on_by_itself(hf: Holdfast) -> None:
    async def tool_and_host(ctx: Context) -> list[Any]:
        return list(await asyncio.gather(ctx.llm("?"), ctx.tool("slowly")))

    async def slowly() -> str:
        await asyncio.sleep(0.2)
        return "done"

    hf.drive("slowly", slowly)
    event = await hf.start(tool_and_host)
    assert prompts(event) == {"q-0": "?"}
    assert result(await soon(hf.feed(event.session_id, {"q-0": "!"}))) == ["!", "done"]


async def test_wait_says_running_and_the_result_comes_later(hf: Holdfast) -> None:
    async def sleeps_a_little(ctx: Context) -> str:
        await ctx.sleep(0.2)
        return "rested"

    event = await hf.start(sleeps_a_little, wait=0.01)
    assert event == RunningEvent(session_id=event.session_id, waits_for=["timer"])
    assert (await hf.status(event.session_id))["pending"][0]["kind"] == "timer"
    assert await soon(hf.result(event.session_id)) == "rested"


async def test_a_feed_that_is_given_up_does_not_disturb_effects_under_way(tmp_path: Path) -> None:
    stuck = asyncio.Event()
    reached = asyncio.Event()
    runs: list[int] = []

    async def seam(name: str) -> None:
        if name == "before partial feed" and not reached.is_set():
            reached.set()
            await stuck.wait()

    async def tool_and_questions(ctx: Context) -> list[Any]:
        return list(await asyncio.gather(ctx.llm("a"), ctx.llm("b"), ctx.tool("once")))

    async def once() -> str:
        runs.append(1)
        await asyncio.sleep(0.3)
        return "done"

    async with open_holdfast(sqlite(tmp_path), seam=seam) as hf:
        hf.drive("once", once)
        event = await hf.start(tool_and_questions)
        feeding = asyncio.create_task(hf.feed(event.session_id, {"q-0": "1"}))
        await soon(reached.wait())
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
        stuck.set()
        await soon(hf.feed(event.session_id, {"q-0": "1"}))
        await soon(hf.feed(event.session_id, {"q-1": "2"}))
        assert await soon(hf.result(event.session_id)) == ["1", "2", "done"]
        assert runs == [1]


# --- children -------------------------------------------------------------------------------------------


async def test_a_failure_as_an_answer_is_recorded_as_one(hf: Holdfast) -> None:
    event = await hf.start(two_questions)
    told = error(await hf.feed(event.session_id, Failure("busy", "rate_limit")))
    assert told.error_kind == "rate_limit"

    async def ended() -> bool:
        return (await hf.store.session(event.session_id)).summary.state is State.FAILED

    await until(ended)
