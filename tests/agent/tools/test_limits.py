"""Tools and their limits: time, tries, and how much of a result a model is shown."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from holdfast.agent.machine.conversation import tool_done
from holdfast.agent.tools import (
    Finish,
    OutputLimits,
    Tool,
    ToolContext,
    ToolError,
    ToolRetryPolicy,
    full_result,
    tool,
)
from holdfast.agent.tools import runner as runner_module
from holdfast.core.queries import Failure, Value
from holdfast.testing.patience import until
from tests.agent.tools.helpers import Model


@pytest.fixture
def model() -> Model:
    return Model()


# --- time ---------------------------------------------------------------------------------------------------


async def test_an_async_tool_whose_time_is_over_is_cancelled_and_its_output_kept(model: Model) -> None:
    cancelled = asyncio.Event()

    @tool(timeout_s=0.05)
    async def slow(ctx: ToolContext) -> None:
        ctx.output("first\n")
        ctx.output("second\n")
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()

    error = await model.error(slow)
    assert error == {
        "error": "'slow' was stopped after 0.05 s, its time limit",
        "code": "timeout",
        "partial": "first\nsecond\n",
    }
    assert cancelled.is_set()


async def test_a_thread_whose_time_is_over_is_left_to_itself_and_its_output_kept(model: Model) -> None:
    noticed = threading.Event()

    @tool(timeout_s=0.05)
    def slow(ctx: ToolContext) -> str:
        ctx.output("begun\n")
        while not ctx.is_over:
            time.sleep(0.005)
        ctx.output("too late\n")
        noticed.set()
        return "too late"

    error = await model.error(slow)
    assert (error["code"], error["partial"]) == ("timeout", "begun\n")
    await until(noticed.is_set)
    await asyncio.sleep(0.02)
    assert model.heard == "begun\n"


async def test_a_tool_that_will_not_be_cancelled_is_left_to_itself(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_module, "CLEANUP_S", 0.05)
    release = asyncio.Event()

    @tool(timeout_s=0.05)
    async def stubborn() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        raise ValueError("nobody hears this")

    assert (await model.error(stubborn))["code"] == "timeout"
    release.set()


async def test_a_timeout_that_says_nothing_is_a_plain_failure(model: Model) -> None:
    @tool(timeout_s=0.02)
    async def slow() -> None:
        await asyncio.sleep(60)

    answer = await model.answer(slow)
    assert isinstance(answer, Failure)
    assert answer.code == "timeout"


async def test_what_a_tool_said_before_it_failed_is_told(model: Model) -> None:
    @tool
    def fail(ctx: ToolContext) -> None:
        ctx.output("step 1\n")
        raise ValueError("step 2")

    assert await model.error(fail) == {"error": "ValueError: step 2", "code": "failed", "partial": "step 1\n"}


async def test_a_timeout_can_stop_the_turn(model: Model) -> None:
    @tool(timeout_s=0.02, on_error="stop")
    async def slow() -> None:
        await asyncio.sleep(60)

    assert (await model.call(slow)).stops


# --- again --------------------------------------------------------------------------------------------------


async def test_a_failure_that_may_be_over_soon_is_tried_again_with_the_same_key(model: Model) -> None:
    seen: list[tuple[str, int]] = []

    @tool(recovery="idempotent", retry=ToolRetryPolicy(max_attempts=3, base_delay_s=0.001))
    def flaky(ctx: ToolContext) -> str:
        seen.append((ctx.key, ctx.retry))
        if len(seen) < 3:
            raise ToolError("busy", retryable=True)
        return "done"

    assert (await model.call(flaky)).content == "done"
    assert seen == [("s-1/q-1", 0), ("s-1/q-1", 1), ("s-1/q-1", 2)]
    assert model.heard == "busy; retrying in 0.001 s\nbusy; retrying in 0.002 s\n"


async def test_it_is_tried_no_more_often_than_allowed(model: Model) -> None:
    tries: list[int] = []

    @tool(recovery="safe", retry=ToolRetryPolicy(max_attempts=2, base_delay_s=0))
    async def busy() -> None:
        tries.append(1)
        raise ToolError("busy", code="busy", retryable=True)

    assert (await model.error(busy)) == {"error": "busy", "code": "busy"}
    assert len(tries) == 2


async def test_a_failure_that_the_tool_did_not_mark_is_not_tried_again(model: Model) -> None:
    tries: list[int] = []

    @tool(recovery="safe", retry=ToolRetryPolicy(base_delay_s=0))
    async def fail() -> None:
        tries.append(1)
        raise ValueError("for good")

    await model.error(fail)
    assert len(tries) == 1


async def test_without_a_retry_nothing_is_tried_again(model: Model) -> None:
    tries: list[int] = []

    @tool(recovery="safe")
    async def busy() -> None:
        tries.append(1)
        raise ToolError("busy", retryable=True)

    await model.error(busy)
    assert len(tries) == 1


async def test_retry_policy_with_retry_after_cap(model: Model) -> None:
    times: list[float] = []

    @tool(recovery="safe", retry=ToolRetryPolicy(max_attempts=2, base_delay_s=60, max_delay_s=0.05))
    async def limited() -> str:
        times.append(time.monotonic())
        if len(times) == 1:
            raise ToolError("busy", retryable=True, retry_after_s=3600)
        return "done"

    assert (await model.call(limited)).content == "done"
    assert times[1] - times[0] >= 0.04


def test_waits_double_and_heed_what_was_asked_for() -> None:
    retry = ToolRetryPolicy(max_attempts=5, base_delay_s=1, max_delay_s=5)
    assert [retry.delay_s(n, None) for n in range(1, 6)] == [1, 2, 4, 5, None]
    assert [retry.delay_s(1, asked) for asked in (0.0, 3.0, 60.0, -1.0)] == [0.0, 3.0, 5.0, 0.0]


# --- much to say --------------------------------------------------------------------------------------------


async def test_a_long_text_is_shown_with_its_beginning_and_its_end(model: Model) -> None:
    text = "\n".join(f"line {n}" for n in range(10_000))
    answer = await model.answer(Tool.of(lambda: text, name="read"))
    shown = tool_done(Value(value=answer)).content
    assert shown.startswith("line 0\nline 1\n")
    assert shown.endswith("line 9998\nline 9999")
    assert "10000 lines in total" in shown
    assert len(shown.encode()) <= 16 * 1024 + 200
    assert shown.count("\n") <= 402
    assert full_result(answer) == text


async def test_many_bytes_on_one_line_are_shortened_too(model: Model) -> None:
    answer = await model.answer(Tool.of(lambda: "é" * 20_000, name="read"))
    shown = tool_done(Value(value=answer)).content
    assert shown.startswith("é")
    assert shown.endswith("é")
    assert len(shown.encode()) <= 16 * 1024 + 200


async def test_a_large_object_is_shown_as_shortened_json_and_kept_as_it_is(model: Model) -> None:
    rows = [{"n": n, "text": "x" * 20} for n in range(2_000)]
    answer = await model.answer(Tool.of(lambda: rows, name="query"))
    shown = tool_done(Value(value=answer)).content
    assert shown.startswith('[{"n":0,')
    assert shown.endswith("}]")
    assert full_result(answer) == rows


async def test_a_huge_result_is_kept_up_to_a_limit(model: Model) -> None:
    answer = await model.answer(Tool.of(lambda: "x" * 3_000_000, name="read"))
    kept = full_result(answer)
    assert isinstance(kept, str)
    assert 1_000_000 < len(kept) < 1_100_000


async def test_a_result_within_the_limit_is_shown_whole(model: Model) -> None:
    text = "x" * (16 * 1024)
    answer = await model.answer(Tool.of(lambda: text, name="read"))
    assert answer == text
    assert full_result(answer) is None


async def test_a_tool_may_have_other_limits(model: Model) -> None:
    done = await model.call(Tool.of(lambda: "abcdefghi\n" * 10, name="read", output=OutputLimits(max_lines=3)))
    assert done.content.startswith("abcdefghi\nabcdefghi\n[…")


async def test_the_value_of_a_finish_is_never_shortened(model: Model) -> None:
    done = await model.call(Tool.of(lambda: Finish("x" * 50_000), name="submit"))
    assert done.finish == "x" * 50_000
    assert len(done.content) < 20_000


async def test_partial_output_is_limited_from_both_ends(model: Model) -> None:
    @tool
    def chatty(ctx: ToolContext) -> None:
        for n in range(100_000):
            ctx.output(f"{n}\n")
        raise ValueError("enough")

    partial = (await model.error(chatty))["partial"]
    assert partial.startswith("0\n1\n")
    assert partial.endswith("99999\n")
    assert len(partial.encode()) < 17_000
