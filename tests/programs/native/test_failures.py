"""How native strategies fail and end, and what they cannot wait for."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.core.queries import Failure
from holdfast.core.records import (
    PausedRecord,
)
from holdfast.engine.holdfast import Holdfast
from holdfast.programs.errors import QueryFailedError
from holdfast.programs.native.ctx import Context
from holdfast.testing.patience import soon
from tests.programs.native.helpers import failed, of_type, result

# --- failures -------------------------------------------------------------------------------------------


async def test_a_failed_question_is_an_error_that_can_be_caught_and_has_a_code(hf: Holdfast) -> None:
    async def catches(ctx: Context) -> list[str]:
        try:
            await ctx.llm("?")
        except QueryFailedError as error:
            return [str(error), error.code]
        return []

    event = await hf.start(catches)
    assert result(await hf.feed(event.session_id, Failure("no quota", "rate_limit"))) == ["no quota", "rate_limit"]


async def test_a_failure_nobody_catches_fails_the_session_with_its_code_and_place(hf: Holdfast) -> None:
    async def careless(ctx: Context) -> None:
        await ctx.llm("?")

    event = await hf.start(careless)
    event = failed(await hf.feed(event.session_id, Failure("no quota", "rate_limit")))
    assert "no quota" in event.error
    assert "test_failures.py" in event.error
    assert event.error_kind == "rate_limit"
    assert event.stats["auto"]["llm_calls"] == 1


async def test_an_exception_fails_the_session_and_names_the_line_of_the_strategy(hf: Holdfast) -> None:
    async def breaks(ctx: Context) -> None:
        import json

        json.loads("{")

    event = failed(await hf.start(breaks))
    assert "JSONDecodeError" in event.error
    assert "test_failures.py" in event.error


async def test_the_error_of_a_task_group_tells_what_went_wrong_inside(hf: Holdfast) -> None:
    async def group_breaks(ctx: Context) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(explode())

    async def explode() -> None:
        raise ValueError("the real reason")

    event = failed(await hf.start(group_breaks))
    assert "the real reason" in event.error


async def test_leaving_with_sys_exit_fails_the_session_and_not_the_process(hf: Holdfast) -> None:
    async def leaves(ctx: Context) -> None:
        await ctx.llm("?")
        sys.exit(3)

    event = await hf.start(leaves)
    try:
        event = await hf.feed(event.session_id, "!")
    except SystemExit:
        pytest.fail("the strategy's sys.exit reached whoever fed it")
    assert "SystemExit" in failed(event).error


@pytest.mark.parametrize("value", [object(), {1: 2}, float("nan"), b"bytes", {"deep": [{"x": {1, 2}}]}])
async def test_a_result_that_is_no_json_fails_the_session(hf: Holdfast, value: Any) -> None:
    async def returns_it(ctx: Context) -> Any:
        return value

    assert failed(await hf.start(returns_it)).error_kind == "invalid_result"


async def test_a_question_that_is_no_json_fails_inside_the_program_and_can_be_caught(hf: Holdfast) -> None:
    async def asks_badly(ctx: Context) -> str:
        try:
            await ctx.tool("t", x=object())
        except HoldfastError as error:
            return error.kind
        return "no"

    event = await hf.start(asks_badly)
    assert result(event) == "invalid_value"
    assert await of_type(hf, event.session_id, PausedRecord) == []


async def test_a_result_is_the_same_at_the_end_and_when_it_is_read_later(hf: Holdfast) -> None:
    async def returns_a_tuple(ctx: Context) -> Any:
        return {"pair": (1, 2)}

    event = await hf.start(returns_a_tuple)
    assert result(event) == await hf.result(event.session_id)


# --- what cannot be waited for ---------------------------------------------------------------------------


async def sleeps(ctx: Context) -> None:
    await asyncio.sleep(0.01)


async def uses_a_thread(ctx: Context) -> None:
    await asyncio.to_thread(time.sleep, 0)


async def connects(ctx: Context) -> None:
    await asyncio.open_connection("localhost", 9)


async def starts_a_process(ctx: Context) -> None:
    await asyncio.create_subprocess_exec("true")


@pytest.mark.parametrize("program", [sleeps, uses_a_thread, connects, starts_a_process])
async def test_reaching_outside_is_detected_explained_and_placed(
    hf: Holdfast, program: Callable[[Context], Any]
) -> None:
    event = failed(await hf.start(program))
    assert event.error_kind == "not_a_query"
    assert "ctx." in event.error
    assert "test_failures.py" in event.error


async def test_waiting_for_an_event_that_nobody_sets_is_detected_and_placed(hf: Holdfast) -> None:
    async def deadlock(ctx: Context) -> None:
        await ctx.llm("?")
        await asyncio.Event().wait()

    event = await hf.start(deadlock)
    event = failed(await soon(hf.feed(event.session_id, "!")))
    assert event.error_kind == "not_a_query"
    assert "not a query" in event.error
    assert "test_failures.py" in event.error


async def test_waiting_for_a_future_of_another_loop_is_detected_and_placed(hf: Holdfast) -> None:
    foreign: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def waits_for_foreign(ctx: Context) -> None:
        await foreign

    event = failed(await soon(hf.start(waits_for_foreign)))
    assert "test_failures.py" in event.error
    assert "different loop" in event.error
    foreign.cancel()


async def test_yielding_with_sleep_zero_is_allowed(hf: Holdfast) -> None:
    async def yields(ctx: Context) -> int:
        for _ in range(3):
            await asyncio.sleep(0)
        return 3

    assert result(await hf.start(yields)) == 3


# --- ends -----------------------------------------------------------------------------------------------


async def test_finally_blocks_run_on_cancellation_but_cannot_ask(hf: Holdfast) -> None:
    seen: list[str] = []

    async def tidy(ctx: Context) -> None:
        try:
            await ctx.llm("?")
        finally:
            seen.append("tidied")
            await ctx.llm("may I?")
            seen.append("heard")

    event = await hf.start(tidy)
    await hf.cancel(event.session_id, "enough")
    assert seen == ["tidied"]
    assert len(await of_type(hf, event.session_id, PausedRecord)) == 1


async def test_a_program_that_will_not_be_cancelled_is_ended_all_the_same(hf: Holdfast) -> None:
    async def stubborn(ctx: Context) -> None:
        while True:
            try:
                await ctx.llm("?")
            except asyncio.CancelledError:
                continue

    event = await hf.start(stubborn)
    assert (await soon(hf.cancel(event.session_id))).status == "cancelled"
