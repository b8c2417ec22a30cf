"""Starting a session: under an id of its own, once, or refused without a trace."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.core.errors import (
    InvalidBudgetError,
    InvalidIdError,
    InvalidValueError,
    SessionExistsError,
    SessionNotFoundError,
)
from holdfast.core.events import PausedEvent
from holdfast.engine.holdfast import Holdfast
from holdfast.programs.errors import ProgramNotFoundError
from holdfast.programs.native.ctx import Context
from holdfast.testing.patience import soon
from tests.engine.helpers import prompts, quiet, result, sqlite
from tests.engine.programs import pair, two_questions


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
