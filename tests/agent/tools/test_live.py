"""Tools while they run: what others see of them, calls side by side, and calls that are stopped."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from holdfast.agent.live_events import LiveEvent, ToolFinishedEvent, ToolOutputEvent, ToolStartedEvent
from holdfast.agent.tools import (
    ToolContext,
    ToolError,
    ToolRetryPolicy,
    tool,
)
from holdfast.agent.tools.runner import ModelCall, ToolRunner
from holdfast.engine.drivers import Attempt
from holdfast.testing.patience import HANG_S, soon, until
from tests.agent.tools.helpers import Model


@pytest.fixture
def model() -> Model:
    return Model()


# --- what others see ----------------------------------------------------------------------------------------


async def test_whoever_listens_is_told_of_start_output_and_end_in_order(model: Model) -> None:
    @tool
    async def work(n: int, ctx: ToolContext) -> int:
        ctx.output("a")
        await asyncio.sleep(0.01)
        ctx.output("b")
        ctx.progress(1, 2, "half")
        ctx.progress(2, 2)
        return n

    await model.call(work, n=7)
    first, *said, last = model.events
    assert first == ToolStartedEvent(turn="t-1", call="call-q-1", name="work", arguments={"n": 7})
    assert all(isinstance(event, ToolOutputEvent) and event.call == "call-q-1" for event in said)
    assert model.heard == "abhalf (1 of 2)\n(2 of 2)\n"
    assert last == ToolFinishedEvent(turn="t-1", call="call-q-1", name="work", result=7)


async def test_output_is_heard_while_the_tool_still_runs(model: Model) -> None:
    release = threading.Event()

    @tool
    def work(ctx: ToolContext) -> str:
        ctx.output("begun")
        assert release.wait(5)
        return "done"

    running = asyncio.create_task(model.call(work))
    await until(lambda: model.heard == "begun")
    assert not model.ended
    release.set()
    await soon(running)
    assert len(model.ended) == 1


async def test_progress_is_not_part_of_partial_output(model: Model) -> None:
    @tool
    def fail(ctx: ToolContext) -> None:
        ctx.progress(1, 3)
        raise ValueError("no")

    assert "partial" not in await model.error(fail)


async def test_the_end_of_a_failure_is_told_as_one(model: Model) -> None:
    @tool
    def fail() -> None:
        raise ValueError("no")

    await model.call(fail)
    (ended,) = model.ended
    assert ended.is_error
    assert ended.result == {"error": "ValueError: no", "code": "failed"}


async def test_a_listener_that_breaks_does_not_change_the_result() -> None:
    async def about(attempt: Attempt) -> ModelCall:
        return ModelCall(turn="t", call_id="c")

    async def emit(session_id: str, event: LiveEvent) -> None:
        raise ConnectionError("the browser is gone")

    @tool
    def work(ctx: ToolContext) -> str:
        ctx.output("x")
        return "done"

    assert await soon(ToolRunner(about=about, emit=emit).run(work, Attempt("s", "q-0", 1), {})) == "done"


async def test_sink_backpressure() -> None:
    """A listener that takes its time gets everything in order, and the call ends after it has."""
    taken: list[str] = []

    async def about(attempt: Attempt) -> ModelCall:
        return ModelCall(turn="t", call_id="c")

    async def emit(session_id: str, event: LiveEvent) -> None:
        await asyncio.sleep(0.01)
        taken.append(event.text if isinstance(event, ToolOutputEvent) else type(event).__name__)

    @tool
    async def work(ctx: ToolContext) -> str:
        for n in range(200):
            ctx.output(f"{n} ")
            await asyncio.sleep(0)
        return "done"

    await soon(ToolRunner(about=about, emit=emit).run(work, Attempt("s", "q-0", 1), {}))
    assert taken[0] == "ToolStartedEvent"
    assert "".join(taken[1:-1]) == "".join(f"{n} " for n in range(200))
    assert taken[-1] == "ToolFinishedEvent"
    assert len(taken) < 100, "what waited was brought together"


# --- side by side, and stopped ------------------------------------------------------------------------------


async def test_calls_run_side_by_side(model: Model) -> None:
    together = threading.Barrier(4, timeout=HANG_S)

    @tool
    def meet(n: int) -> int:
        together.wait()
        return n

    done = await asyncio.gather(*(model.call(meet, n=n) for n in range(4)))
    assert [each.content for each in done] == [0, 1, 2, 3]


async def test_more_threads_hang_than_a_pool_has_and_others_still_run(model: Model) -> None:
    release = threading.Event()

    @tool(timeout_s=0.05)
    def hang() -> None:
        release.wait(10)

    @tool
    def quick() -> str:
        return "done"

    await asyncio.gather(*(model.call(hang) for _ in range(40)))
    assert (await model.call(quick)).content == "done"
    release.set()


async def test_an_async_tool_that_is_cancelled_may_clean_up(model: Model) -> None:
    begun, cleaned = asyncio.Event(), asyncio.Event()

    @tool
    async def work() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)
            cleaned.set()

    running = asyncio.create_task(model.call(work))
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert cleaned.is_set()
    assert not model.ended


async def test_a_thread_whose_call_is_cancelled_is_left_and_knows_it(model: Model) -> None:
    begun, noticed = threading.Event(), threading.Event()

    @tool
    def work(ctx: ToolContext) -> str:
        begun.set()
        while not ctx.is_over:
            time.sleep(0.005)
        noticed.set()
        return "ignored"

    running = asyncio.create_task(model.call(work))
    await until(begun.is_set)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(running)
    await until(noticed.is_set)


async def test_a_wait_before_another_try_is_cancelled_too(model: Model) -> None:
    @tool(recovery="safe", retry=ToolRetryPolicy(base_delay_s=60, max_delay_s=60))
    async def busy() -> None:
        raise ToolError("busy", retryable=True)

    running = asyncio.create_task(model.call(busy))
    await until(lambda: "retrying" in model.heard)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(running)
