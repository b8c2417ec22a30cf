"""Cancelling a session: once, with who and why, whatever it is doing, and its children with it."""

from __future__ import annotations

import asyncio
import threading

import pytest

from holdfast.core.errors import TransitionError
from holdfast.core.events import CancelledEvent, PausedEvent, RunningEvent
from holdfast.core.records import CancelledRecord
from holdfast.engine.holdfast import Holdfast
from holdfast.programs.native.ctx import Context
from holdfast.programs.native.kind import PROMPT_MS
from holdfast.testing.patience import HANG_S, soon, until
from tests.engine.helpers import of_type, ponder
from tests.engine.programs import two_questions


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
        ponder(2 * PROMPT_MS / 1000)  # so that it is run in a thread
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
