"""Sessions that run other sessions: the host sees what a child asks, and the parent how it ended."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.core.events import CompletedEvent, PausedEvent
from holdfast.core.queries import Value
from holdfast.core.records import AnsweredRecord, CompletedRecord
from holdfast.engine.errors import SessionFailedError
from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.programs.errors import ProgramNotFoundError, QueryFailedError
from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import strategy
from holdfast.store.session_rows import SessionFilter
from holdfast.testing.patience import soon
from tests.engine.helpers import append_by_hand, prompts, quiet, result, sqlite


@strategy(name="runtime-child")
async def child(ctx: Context) -> str:
    if ctx.get("fail"):
        raise ValueError("the child broke")
    return f"{ctx['word']}: {await ctx.llm('child asks')}"


@strategy(name="runtime-parent")
async def parent(ctx: Context) -> str:
    return f"got {await ctx.child(child, {'word': 'hello'})}"


@strategy(name="runtime-greedy")
async def greedy(ctx: Context) -> int:
    for calls in range(20):
        try:
            await ctx.llm("more")
        except QueryFailedError:
            return calls
    return 20


async def test_children_side_by_side_do_not_spend_more_than_their_parent_may(hf: Holdfast) -> None:
    async def three_children(ctx: Context) -> list[int]:
        return list(await asyncio.gather(*(ctx.child(greedy) for _ in range(3))))

    hf.drive("llm", lambda query: "yes")
    event = await soon(hf.start(three_children, budget={"max_llm_calls": 7}))
    assert sorted(result(event)) == [2, 2, 3]
    assert event.stats["auto"]["llm_calls"] == 7


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
    async with quiet(sqlite(tmp_path)) as hf:
        answered = AnsweredRecord(query_id="q-0", answer=Value(value="!"))
        await append_by_hand(hf.store, f"{event.session_id}.q-0", answered, CompletedRecord(result="by hand"))
    async with open_holdfast(sqlite(tmp_path)) as hf:
        assert await soon(hf.result(event.session_id)) == "got by hand"


async def test_children_go_on_in_a_fresh_engine(tmp_path: Path) -> None:
    async with quiet(sqlite(tmp_path)) as hf:
        event = await soon(hf.start(parent))
    async with quiet(sqlite(tmp_path)) as hf:
        assert result(await hf.feed(f"{event.session_id}.q-0", "!")) == "hello: !"
        assert await soon(hf.result(event.session_id)) == "got hello: !"
