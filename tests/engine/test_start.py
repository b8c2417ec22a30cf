"""Starting a session: under an id of its own, once, or refused without a trace."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from holdfast.core.errors import (
    InvalidBudgetError,
    InvalidIdError,
    InvalidValueError,
    SessionExistsError,
    SessionNotFoundError,
)
from holdfast.core.records import StartedRecord
from holdfast.engine.holdfast import Holdfast
from holdfast.programs.errors import ProgramNotFoundError
from holdfast.programs.native.ctx import Context
from holdfast.testing.patience import soon
from tests.engine.helpers import prompts, quiet, result, sqlite
from tests.engine.programs import pair, two_questions


async def test_a_session_may_have_the_id_its_caller_chose(hf: Holdfast) -> None:
    event = await hf.start(two_questions, id="my-session")
    assert event.session_id == "my-session"


async def test_a_start_that_is_tried_again_gets_the_same_event_here_and_in_another_engine(
    hf: Holdfast, tmp_path: Path
) -> None:
    first = await hf.start(two_questions, ctx={"a": [1, 2]}, budget={"max_llm_calls": 5}, id="mine")
    assert not first.replayed
    async with quiet(sqlite(tmp_path)) as other:
        for engine in (hf, other):
            again = await engine.start(two_questions, ctx={"a": [1, 2]}, budget={"max_llm_calls": 5}, id="mine")
            assert again == msgspec.structs.replace(first, replayed=True)
    entries = await hf.store.entries("mine")
    assert sum(isinstance(entry.record, StartedRecord) for entry in entries) == 1


async def test_a_start_that_is_tried_again_gets_the_questions_that_are_open_now_and_then_the_end(
    hf: Holdfast, tmp_path: Path
) -> None:
    await hf.start(two_questions, id="mine")
    async with quiet(sqlite(tmp_path)) as other:
        await other.feed("mine", "1")
        for engine in (hf, other):
            again = await engine.start(two_questions, id="mine")
            assert (prompts(again), again.replayed) == ({"q-1": "two"}, True)
        await other.feed("mine", "2")
        again = await hf.start(two_questions, id="mine")
        assert (result(again), again.replayed) == (["1", "2"], True)


async def test_a_start_of_what_has_ended_that_is_tried_again_gets_its_end(hf: Holdfast) -> None:
    async def at_once(ctx: Context) -> str:
        return "done"

    first = await hf.start(at_once, id="mine")
    assert (await hf.start(at_once, id="mine")) == msgspec.structs.replace(first, replayed=True)


async def test_a_start_of_what_drivers_answer_that_is_tried_again_waits_for_the_same_end(hf: Holdfast) -> None:
    hf.drive("llm", lambda query: f"about {query.prompt}")
    first = await soon(hf.start(two_questions, id="mine"))
    again = await soon(hf.start(two_questions, id="mine"))
    assert (result(again), again.replayed) == (result(first), True)


async def test_another_start_under_an_id_that_is_taken_is_refused_and_says_what_differs(
    hf: Holdfast, tmp_path: Path
) -> None:
    await hf.start(two_questions, ctx={"a": 1}, id="taken")
    before = await hf.store.entries("taken")
    async with quiet(sqlite(tmp_path)) as other:
        for engine in (hf, other):
            with pytest.raises(SessionExistsError, match=r"ctx.*1.*2"):
                await engine.start(two_questions, ctx={"a": 2}, id="taken")
            with pytest.raises(SessionExistsError, match=r"program.*two-questions.*pair"):
                await engine.start(pair, ctx={"a": 1}, id="taken")
            with pytest.raises(SessionExistsError, match="budget"):
                await engine.start(two_questions, ctx={"a": 1}, budget={"max_llm_calls": 5}, id="taken")
    await hf.fork("taken", id="fork")
    with pytest.raises(SessionExistsError, match="fork of 'taken'"):
        await hf.start(two_questions, ctx={"a": 1}, id="fork")
    assert await hf.store.entries("taken") == before


async def test_of_many_starts_under_one_id_one_is_first(hf: Holdfast) -> None:
    starts = [hf.start(two_questions, id="contested") for _ in range(5)]
    events = await soon(asyncio.gather(*starts))
    assert [event.replayed for event in events].count(False) == 1
    assert [prompts(event) for event in events] == [{"q-0": "one"}] * 5
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
