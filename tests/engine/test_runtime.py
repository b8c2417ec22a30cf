"""The door: start, feed, look, wait, watch, fork, delete, cancel, and sessions that run other sessions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.decide import FeedMessage, GivenAnswer
from holdfast.core.errors import (
    AnswerConflictError,
    InvalidBudgetError,
    InvalidIdError,
    InvalidValueError,
    NoPendingQueryError,
    QueryIdRequiredError,
    SessionDeletedError,
    SessionExistsError,
    SessionNotFoundError,
    StaleQueryError,
    TransitionError,
    UnknownQueryError,
)
from holdfast.core.events import AcceptedEvent, CancelledEvent, CompletedEvent, PausedEvent, RunningEvent
from holdfast.core.queries import Failure, LlmQuery, Usage, Value
from holdfast.core.records import (
    AnsweredRecord,
    CancelledRecord,
    CompletedRecord,
    Entry,
    PausedRecord,
    StartedRecord,
)
from holdfast.core.state import State
from holdfast.engine.errors import ResultTimeoutError, SessionFailedError
from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.programs.errors import ProgramNotFoundError, QueryFailedError
from holdfast.programs.native.ctx import Context
from holdfast.programs.native.kind import PROMPT_MS
from holdfast.programs.registry import strategy
from holdfast.store.contract import SessionFilter
from holdfast.store.errors import ForkPositionError
from holdfast.testing.patience import HANG_S, soon, until
from tests.engine.helpers import asked, error, of_type, ponder, prompts, quiet, records, result, sqlite, write


@pytest.fixture
async def hf(tmp_path: Path) -> AsyncIterator[Holdfast]:
    async with open_holdfast(sqlite(tmp_path)) as opened:
        yield opened


@strategy(name="runtime-two-questions")
async def two_questions(ctx: Context) -> list[str]:
    return [await ctx.llm("one"), await ctx.llm("two")]


@strategy(name="runtime-pair")
async def pair(ctx: Context) -> list[Any]:
    return list(await asyncio.gather(ctx.llm("left"), ctx.llm("right")))


# --- start ----------------------------------------------------------------------------------------------


async def test_a_session_may_have_the_id_its_caller_chose(hf: Holdfast) -> None:
    event = await hf.start(two_questions, id="my-session")
    assert event.session_id == "my-session"


async def test_an_id_that_is_taken_is_refused_here_and_in_another_engine(hf: Holdfast, tmp_path: Path) -> None:
    await hf.start(two_questions, id="taken")
    with pytest.raises(SessionExistsError):
        await hf.start(two_questions, id="taken")
    async with quiet(sqlite(tmp_path)) as other:
        with pytest.raises(SessionExistsError):
            await other.start(two_questions, id="taken")


async def test_of_many_starts_under_one_id_one_wins(hf: Holdfast) -> None:
    starts = [hf.start(two_questions, id="contested") for _ in range(5)]
    outcomes = await soon(asyncio.gather(*starts, return_exceptions=True))
    assert sum(isinstance(outcome, PausedEvent) for outcome in outcomes) == 1
    assert sum(isinstance(outcome, SessionExistsError) for outcome in outcomes) == 4
    await hf.feed("contested", "1")
    assert result(await hf.feed("contested", "2")) == ["1", "2"]


async def test_an_id_that_was_asked_for_before_it_existed_can_be_started(hf: Holdfast) -> None:
    with pytest.raises(SessionNotFoundError):
        await hf.feed("early", "too early")
    assert prompts(await hf.start(two_questions, id="early")) == {"q-0": "one"}


async def test_a_bad_start_is_refused_and_leaves_nothing(hf: Holdfast) -> None:
    with pytest.raises(InvalidIdError):
        await hf.start(two_questions, id="no spaces")
    with pytest.raises(InvalidValueError):
        await hf.start(two_questions, ctx=object())
    with pytest.raises(InvalidBudgetError):
        await hf.start(two_questions, budget={"max_llm_calls": -1})
    with pytest.raises(ProgramNotFoundError):
        await hf.start("nobody-knows-this")
    assert (await hf.sessions()).rows == []


async def test_every_event_has_the_same_attributes(hf: Holdfast) -> None:
    async def breaks(ctx: Context) -> None:
        raise ValueError("no")

    event = await hf.start(two_questions)
    events = [
        event,
        await hf.start(pair, wait=0),
        await hf.feed((await hf.start(pair)).session_id, {"q-0": "l"}),
        await hf.start(breaks),
        await hf.cancel(event.session_id),
    ]
    for each in events:
        for name in ("status", "session_id", "queries", "result", "error", "stats"):
            assert hasattr(each, name), (type(each).__name__, name)
        assert each.to_json()["session_id"] == each.session_id


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


# --- two engines on one store ---------------------------------------------------------------------------


async def test_engines_that_share_a_store_see_what_the_other_did(tmp_path: Path) -> None:
    async with quiet(sqlite(tmp_path)) as one, quiet(sqlite(tmp_path)) as two:
        event = await one.start(two_questions)
        assert prompts(await two.feed(event.session_id, {"q-0": "1"})) == {"q-1": "two"}
        assert prompts(await one.resume(event.session_id)) == {"q-1": "two"}
        assert result(await one.feed(event.session_id, {"q-1": "2"})) == ["1", "2"]
        assert await soon(two.result(event.session_id)) == ["1", "2"]


async def test_a_start_that_waits_returns_when_another_engine_goes_on_with_the_session(tmp_path: Path) -> None:
    async def sleeps_then_asks(ctx: Context) -> str:
        await ctx.sleep(0.1)
        return str(await ctx.llm("awake"))

    async with quiet(sqlite(tmp_path)) as one, open_holdfast(sqlite(tmp_path)):
        assert prompts(await soon(one.start(sleeps_then_asks))) == {"q-1": "awake"}


async def test_a_replay_in_an_engine_that_takes_over_is_durable_before_it_is_told(tmp_path: Path) -> None:
    async with quiet(sqlite(tmp_path)) as hf:
        started = StartedRecord(program=two_questions.program, seed=1)
        paused = PausedRecord(queries=[LlmQuery(id="q-0", prompt="one")])
        answered = AnsweredRecord(query_id="q-0", answer=Value(value="1"))
        await write(hf.store, "left", started, [paused, answered])
        event = await soon(hf.feed("left", {"q-0": "1"}))
        if isinstance(event, PausedEvent):
            assert len(await of_type(hf.store, "left", PausedRecord)) == 2
        assert prompts(await soon(hf.resume("left"))) == {"q-1": "two"}
        assert len(await of_type(hf.store, "left", PausedRecord)) == 2


async def test_a_message_that_a_dead_owner_never_took_is_taken_by_the_next(tmp_path: Path) -> None:
    async with quiet(sqlite(tmp_path)) as hf:
        event = await hf.start(two_questions, id="s")
        message = FeedMessage([GivenAnswer(Value(value="1"), "q-0")])
        await hf.store.send(event.session_id, "k-1", message, 1)
    async with quiet(sqlite(tmp_path)) as hf:
        assert prompts(await soon(hf.resume("s"))) == {"q-1": "two"}
        assert await hf.store.mailbox("s") == []


# --- looking --------------------------------------------------------------------------------------------


async def test_any_engine_sees_a_session_while_it_runs(tmp_path: Path) -> None:
    async def asks_slowly(ctx: Context) -> str:
        return str(await ctx.tool("slow-look"))

    async def slow_look() -> str:
        await asyncio.sleep(0.3)
        return "seen"

    async with quiet(sqlite(tmp_path)) as one, quiet(sqlite(tmp_path)) as two:
        one.drive("slow-look", slow_look)
        event = await one.start(asks_slowly, wait=0.01)
        assert isinstance(event, RunningEvent)
        status = await two.status(event.session_id)
        assert status["owner"] is not None
        assert status["pending"] == [
            {"kind": "tool", "query_id": "q-0", "name": "slow-look", "arguments": {}},
        ]
        assert await soon(two.result(event.session_id)) == "seen"
        assert (await two.status(event.session_id))["outcome"]["result"] == "seen"
        assert (await two.status(event.session_id))["owner"] is None


async def test_sessions_are_listed_and_filtered(hf: Holdfast) -> None:
    a = await hf.start(two_questions, id="list-a")
    await hf.start(pair, id="list-b")
    await hf.cancel(a.session_id)
    assert [row.session_id for row in (await hf.sessions()).rows] == ["list-b", "list-a"]
    assert [row.session_id for row in (await hf.sessions(SessionFilter(states=[State.PAUSED]))).rows] == ["list-b"]
    by_name = await hf.sessions(SessionFilter(program="runtime-two-questions"))
    assert [row.session_id for row in by_name.rows] == ["list-a"]


async def test_an_unknown_session_is_said_to_be_unknown_everywhere(hf: Holdfast) -> None:
    for call in (hf.status, hf.cancel, hf.resume, hf.delete, hf.fork, hf.result):
        with pytest.raises(SessionNotFoundError):
            await soon(call("nobody"))
    with pytest.raises(SessionNotFoundError):
        async for _ in hf.watch("nobody"):
            pass


async def test_a_result_that_does_not_come_in_time_says_what_the_session_does(hf: Holdfast) -> None:
    event = await hf.start(two_questions)
    with pytest.raises(ResultTimeoutError, match="paused"):
        await hf.result(event.session_id, timeout=0.05)


async def test_a_session_that_ended_without_result_says_why(hf: Holdfast) -> None:
    async def fails(ctx: Context) -> None:
        raise ValueError("the reason")

    event = await hf.start(fails)
    with pytest.raises(SessionFailedError, match="the reason"):
        await hf.result(event.session_id)
    event = await hf.start(two_questions)
    await hf.cancel(event.session_id, "no need")
    with pytest.raises(SessionFailedError, match="no need"):
        await hf.result(event.session_id)


async def test_every_ending_tells_session_stats_and_why(hf: Holdfast) -> None:
    async def fails_late(ctx: Context) -> None:
        await ctx.llm("?")
        raise ValueError("the reason")

    one, two, three = [await hf.start(program) for program in (two_questions, fails_late, two_questions)]
    await hf.feed(one.session_id, "1")
    completed = await hf.feed(one.session_id, "2")
    broken = await hf.feed(two.session_id, "!")
    cancelled = await hf.cancel(three.session_id, "enough", by="me")
    assert completed.to_json()["result"] == ["1", "2"]
    assert "the reason" in broken.to_json()["error"]
    assert cancelled.to_json()["reason"] == "enough"
    for event, calls in ((completed, 2), (broken, 1), (cancelled, 1)):
        told = event.to_json()
        assert told["session_id"] == event.session_id
        assert told["stats"]["auto"]["llm_calls"] == calls
        assert (await hf.status(event.session_id))["outcome"] == told


async def test_watch_begins_at_a_cursor_follows_other_engines_and_ends_with_the_session(tmp_path: Path) -> None:
    async with quiet(sqlite(tmp_path)) as one, quiet(sqlite(tmp_path)) as two:
        event = await one.start(two_questions)

        async def watch(from_: int) -> list[Entry]:
            return [entry async for entry in two.watch(event.session_id, from_=from_)]

        watching = [asyncio.create_task(watch(from_)) for from_ in (0, 1, 3)]
        await asyncio.sleep(0.05)
        await one.feed(event.session_id, "1")
        await one.feed(event.session_id, "2")
        whole, later, latest = await soon(asyncio.gather(*watching))
        assert [entry.position for entry in whole] == [1, 2, 3, 4, 5, 6]
        assert later == whole[1:]
        assert latest == whole[3:]
        assert isinstance(whole[-1].record, CompletedRecord)
        assert await soon(watch(6)) == []


# --- fork and delete ------------------------------------------------------------------------------------


@strategy(name="runtime-forkable")
async def forkable(ctx: Context) -> list[Any]:
    ctx.log("begun")
    seen: list[Any] = [ctx.random.randint(0, 999), await ctx.llm("one")]
    seen.append(await ctx.state.update("n", lambda n: 1, default=0))
    try:
        seen.append(await ctx.llm("over budget", max_tokens=10**9))
    except QueryFailedError as refused:
        seen.append(refused.code)
    async with asyncio.timeout(3600):
        seen += await asyncio.gather(ctx.llm("two"), ctx.ask("three"))
    await ctx.sleep(0.01)
    return [*seen, await ctx.llm("four")]


ANSWERS = {"one": "1", "two": "2", "three": "3", "four": "4"}


async def finish(hf: Holdfast, event: Any) -> Any:
    for _ in range(20):
        if isinstance(event, PausedEvent):
            event = await soon(hf.feed(event.session_id, {q: ANSWERS[p] for q, p in prompts(event).items()}))
        elif isinstance(event, (RunningEvent, AcceptedEvent)):
            event = await soon(hf.resume(event.session_id))
        else:
            break
    return result(event)


async def test_a_fork_at_every_position_goes_on_as_the_original_did(hf: Holdfast) -> None:
    event = await hf.start(forkable, budget={"max_tokens": 100_000})
    expected = await finish(hf, event)
    last = (await hf.store.session(event.session_id)).position
    for position in range(1, last + 1):
        fork = await soon(hf.fork(event.session_id, at=position))
        assert fork.session_id != event.session_id
        assert await finish(hf, fork) == expected, f"forked at {position}"
        started, *_ = await records(hf.store, fork.session_id)
        assert isinstance(started, StartedRecord)
        assert started.forked_from is not None
        assert started.forked_from.position == (1 if position == 2 else position)  # the log line was written at once


async def test_a_fork_takes_other_answers_and_leaves_the_original_alone(hf: Holdfast) -> None:
    event = await hf.start(two_questions)
    await hf.feed(event.session_id, "1")
    fork = await hf.fork(event.session_id, at=2, id="the-fork")
    assert prompts(fork) == {"q-0": "one"}
    await hf.feed("the-fork", "other")
    assert result(await hf.feed("the-fork", "2")) == ["other", "2"]
    assert (await hf.status(event.session_id))["phase"] == "paused"


@pytest.mark.parametrize("position", [0, 3, -1])
async def test_a_fork_where_the_journal_has_nothing_is_refused(hf: Holdfast, position: int) -> None:
    event = await hf.start(two_questions)
    with pytest.raises(ForkPositionError):
        await hf.fork(event.session_id, at=position)


async def test_a_deleted_session_is_gone_and_its_id_stays_taken(hf: Holdfast) -> None:
    event = await hf.start(two_questions, id="doomed")
    await hf.delete(event.session_id)
    for call in (hf.status, hf.resume, hf.cancel):
        with pytest.raises(SessionDeletedError):
            await soon(call("doomed"))
    with pytest.raises(SessionDeletedError):
        await hf.feed("doomed", "?")
    with pytest.raises((SessionDeletedError, SessionExistsError)):
        await hf.start(two_questions, id="doomed")


# --- few programs in memory ------------------------------------------------------------------------------


@pytest.mark.parametrize("hot", [0, 1, 5])
async def test_many_sessions_work_with_few_programs_in_memory(tmp_path: Path, hot: int) -> None:
    async with open_holdfast(sqlite(tmp_path), hot_programs=hot) as hf:
        events = await soon(asyncio.gather(*(hf.start(two_questions) for _ in range(50))))
        ids = [event.session_id for event in events]
        await soon(asyncio.gather(*(hf.feed(each, f"1 {each}") for each in ids)))
        ended = await soon(asyncio.gather(*(hf.feed(each, "2") for each in ids)))
        assert [result(event) for event in ended] == [[f"1 {each}", "2"] for each in ids]


# --- cancel ---------------------------------------------------------------------------------------------


async def test_a_cancelled_session_says_by_whom_and_why_and_is_cancelled_once(hf: Holdfast) -> None:
    event = await hf.start(two_questions)
    first = await hf.cancel(event.session_id, "enough", by="me")
    assert isinstance(first, CancelledEvent)
    assert (first.reason, first.by) == ("enough", "me")
    again = await hf.cancel(event.session_id, "again")
    assert isinstance(again, CancelledEvent)
    assert again.reason == "enough"
    assert len(await of_type(hf.store, event.session_id, CancelledRecord)) == 1


async def test_a_session_that_has_ended_cannot_be_cancelled(hf: Holdfast) -> None:
    async def quick_end(ctx: Context) -> int:
        return 1

    event = await hf.start(quick_end)
    with pytest.raises(TransitionError):
        await hf.cancel(event.session_id)
    assert await hf.result(event.session_id) == 1


async def test_a_session_is_cancelled_while_its_program_computes(hf: Holdfast) -> None:
    may_end, has_ended = threading.Event(), threading.Event()

    async def computes_long(ctx: Context) -> str:
        ponder(10 * PROMPT_MS / 1000)  # so that it is run in a thread
        await ctx.llm("?")
        may_end.wait(HANG_S)
        has_ended.set()
        return "too late"

    event = await hf.start(computes_long)
    assert isinstance(await hf.feed(event.session_id, "!", wait=0.05), RunningEvent)
    assert (await soon(hf.cancel(event.session_id))).status == "cancelled"
    may_end.set()
    await until(has_ended.is_set)
    await asyncio.sleep(0.05)  # in which what it returns would be heard
    assert (await hf.status(event.session_id))["phase"] == "cancelled"
    assert (await hf.store.session(event.session_id)).owner is None


async def test_cancelling_a_parent_cancels_its_children_and_ends_the_parent_as_cancelled(hf: Holdfast) -> None:
    async def parent_of_two(ctx: Context) -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(one_child(ctx))
            group.create_task(one_child(ctx))
        return "no"

    async def one_child(ctx: Context) -> None:
        await ctx.child(two_questions)

    event = await soon(hf.start(parent_of_two))
    assert isinstance(event, PausedEvent)
    assert (await soon(hf.cancel(event.session_id, "stop"))).status == "cancelled"
    for child in ("q-0", "q-1"):
        status = await hf.status(f"{event.session_id}.{child}")
        assert status["phase"] == "cancelled"
        assert "stop" in status["outcome"]["reason"]


# --- children -------------------------------------------------------------------------------------------


@strategy(name="runtime-child")
async def child(ctx: Context) -> str:
    if ctx.get("fail"):
        raise ValueError("the child broke")
    return f"{ctx['word']}: {await ctx.llm('child asks')}"


@strategy(name="runtime-parent")
async def parent(ctx: Context) -> str:
    return f"got {await ctx.child(child, {'word': 'hello'})}"


async def test_a_child_that_needs_a_host_makes_the_start_of_its_parent_return(hf: Holdfast) -> None:
    event = await soon(hf.start(parent))
    assert prompts(event) == {"q-0.q-0": "child asks"}
    child_id = f"{event.session_id}.q-0"
    listed = await hf.sessions(SessionFilter(parent=event.session_id))
    assert [row.session_id for row in listed.rows] == [child_id]
    assert (await hf.status(child_id))["phase"] == "paused"
    assert result(await hf.feed(child_id, "!")) == "hello: !"
    assert await soon(hf.result(event.session_id)) == "got hello: !"


async def test_a_grandchild_that_needs_a_host_makes_the_start_of_the_first_return(hf: Holdfast) -> None:
    async def grandparent(ctx: Context) -> str:
        return f"and {await ctx.child(parent)}"

    event = await soon(hf.start(grandparent))
    assert prompts(event) == {"q-0.q-0.q-0": "child asks"}
    assert isinstance(await soon(hf.feed(f"{event.session_id}.q-0.q-0", "!")), CompletedEvent)
    assert await soon(hf.result(event.session_id)) == "and got hello: !"


async def test_a_child_under_a_timeout_that_needs_a_host_makes_the_start_return(hf: Holdfast) -> None:
    async def patient_parent(ctx: Context) -> str:
        async with asyncio.timeout(3600):
            return str(await ctx.child(child, {"word": "x"}))

    event = await soon(hf.start(patient_parent))
    assert isinstance(event, PausedEvent)


async def test_a_child_that_fails_is_a_failure_its_parent_can_catch(hf: Holdfast) -> None:
    async def careful_parent(ctx: Context) -> list[str]:
        try:
            await ctx.child(child, {"fail": True})
        except QueryFailedError as failure:
            return [failure.code, str(failure)]
        return []

    code, text = result(await soon(hf.start(careful_parent)))
    assert code == "child_failed"
    assert "the child broke" in text


async def test_a_child_that_is_cancelled_is_a_failure_to_its_parent(hf: Holdfast) -> None:
    event = await soon(hf.start(parent))
    await hf.cancel(f"{event.session_id}.q-0", "not wanted")
    with pytest.raises(SessionFailedError, match="not wanted"):
        await soon(hf.result(event.session_id))


async def test_a_child_of_an_unknown_program_fails_inside_its_parent(hf: Holdfast) -> None:
    async def mistaken_parent(ctx: Context) -> str:
        try:
            await ctx.child("no-such-program")
        except (QueryFailedError, ProgramNotFoundError):
            return "caught"
        return "no"

    assert result(await soon(hf.start(mistaken_parent))) == "caught"


async def test_a_parent_is_told_after_a_restart_that_its_child_has_ended(tmp_path: Path) -> None:
    async with quiet(sqlite(tmp_path)) as hf:
        event = await soon(hf.start(parent))
        child_id = f"{event.session_id}.q-0"
        session = await hf.store.load(child_id)
    async with quiet(sqlite(tmp_path)) as hf:
        await end_by_hand(hf, child_id, session.position)
    async with open_holdfast(sqlite(tmp_path)) as hf:
        assert await soon(hf.result(event.session_id)) == "got by hand"


async def end_by_hand(hf: Holdfast, session_id: str, position: int) -> None:
    """The last commit of a process that died before it could tell the parent."""
    from holdfast.core.summary import summarize
    from holdfast.store.commits import Commit

    session = await hf.store.load(session_id)
    entries = [
        Entry(position + 1, 1, AnsweredRecord(query_id="q-0", answer=Value(value="!"))),
        Entry(position + 2, 1, CompletedRecord(result="by hand")),
    ]
    for entry in entries:
        session.apply(entry)
    await hf.store.append(
        Commit(
            session_id=session_id,
            expected=position,
            entries=entries,
            summary=summarize(session),
            owner="gone",
            hold_ms=0,
        )
    )


async def test_children_go_on_in_a_fresh_engine(tmp_path: Path) -> None:
    async with quiet(sqlite(tmp_path)) as hf:
        event = await soon(hf.start(parent))
    async with quiet(sqlite(tmp_path)) as hf:
        assert result(await hf.feed(f"{event.session_id}.q-0", "!")) == "hello: !"
        assert await soon(hf.result(event.session_id)) == "got hello: !"


async def test_a_failure_as_an_answer_is_recorded_as_one(hf: Holdfast) -> None:
    event = await hf.start(two_questions)
    told = error(await hf.feed(event.session_id, Failure("busy", "rate_limit")))
    assert told.error_kind == "rate_limit"

    async def ended() -> bool:
        return (await hf.store.session(event.session_id)).summary.state is State.FAILED

    await until(ended)
