"""A fork continues as its original did or takes other answers; a deleted session is gone for good."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.core.errors import SessionDeletedError, SessionExistsError
from holdfast.core.events import AcceptedEvent, PausedEvent, RunningEvent
from holdfast.core.records import StartedRecord
from holdfast.engine.holdfast import Holdfast
from holdfast.programs.errors import QueryFailedError
from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import strategy
from holdfast.store.errors import ForkPositionError
from holdfast.testing.patience import soon
from tests.engine.helpers import prompts, records, result
from tests.engine.programs import two_questions


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
