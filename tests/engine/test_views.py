"""Looking at sessions: every phase and every ending can be seen, listed, awaited and watched by any engine."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.core.errors import SessionNotFoundError
from holdfast.core.events import RunningEvent
from holdfast.core.records import CompletedRecord, Entry
from holdfast.core.state import State
from holdfast.engine.errors import ResultTimeoutError, SessionFailedError
from holdfast.engine.holdfast import Holdfast
from holdfast.programs.native.ctx import Context
from holdfast.store.session_rows import SessionFilter
from holdfast.testing.patience import soon
from tests.engine.helpers import quiet, sqlite
from tests.engine.programs import pair, two_questions


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
