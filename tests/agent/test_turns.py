"""Turns: plain ones, tools, retries, limits; turns at the same time, and turns that are tried again."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from holdfast.agent.errors import TurnConflictError, TurnInProgressError
from holdfast.agent.live_events import RetryEvent
from holdfast.agent.machine.messages import ImageBlock, ImageSource, TextBlock, ToolUseBlock
from holdfast.agent.machine.turn import MessageOutcome, StoppedOutcome, ToolValueOutcome, ValueOutcome
from holdfast.agent.providers.retry import RetryPolicy
from holdfast.agent.session import AgentSession
from holdfast.agent.tools import Finish, ToolContext, ToolError, ToolRetryPolicy, tool
from holdfast.core.errors import InvalidValueError
from holdfast.core.records import AnsweredRecord, attempted_in
from holdfast.testing.patience import soon, until
from holdfast.testing.provider import ScriptedToolCall, fault, reply, tool_call
from tests.agent.helpers import OBJECT, Home, add, journal, said


def stopped(result: Any) -> StoppedOutcome:
    assert isinstance(result.outcome, StoppedOutcome), result.outcome
    return result.outcome


async def running(session: AgentSession) -> bool:
    return (await session.read_view()).running is not None


# --- plain ----------------------------------------------------------------------------------------------


async def test_a_plain_turn_says_what_the_model_said(home: Home) -> None:
    async with home.runtime("Hello!", instructions="Be kind.") as runtime:
        session = await runtime.session("s").open()
        result = await soon(session.turn("Hi").run())
        assert (result.text, result.outcome, result.is_success) == ("Hello!", MessageOutcome(), True)
        assert await said(session) == [("user", "Hi"), ("assistant", "Hello!")]
        (request,) = runtime.providers["scripted"].requests  # type: ignore[attr-defined]
        assert (request.system, request.model, request.tools) == ("Be kind.", "m-1", [])


async def test_an_input_may_have_pictures_and_nothing_that_only_models_say(home: Home) -> None:
    picture = ImageBlock(ImageSource("image/png", b"\x89PNG"))
    async with home.runtime("A cat.") as runtime:
        session = await runtime.session("s").open()
        await soon(session.turn([TextBlock("What is it?"), picture]).run())
        (request,) = runtime.providers["scripted"].requests  # type: ignore[attr-defined]
        assert request.messages[0].content == [TextBlock("What is it?"), picture]
        with pytest.raises(InvalidValueError, match="ToolUseBlock"):
            session.turn([ToolUseBlock("c", "add", {})])


async def test_an_empty_input_is_an_invalid_one_and_the_model_is_not_asked(home: Home) -> None:
    async with home.runtime() as runtime:
        session = await runtime.session("s").open()
        assert stopped(await soon(session.turn("").run())).reason == "invalid_input"
        assert runtime.providers["scripted"].requests == []  # type: ignore[attr-defined]


async def test_a_turn_can_come_to_a_value_that_the_model_submits(home: Home) -> None:
    script = [tool_call("finish", result="many"), tool_call("finish", result=42)]
    async with home.runtime(*script) as runtime:
        session = await runtime.session("s").open()
        result = await soon(session.turn("How many?").output({"type": "integer"}).run())
        assert (result.outcome, result.value) == (ValueOutcome(42), 42)
        assert [call.is_error for call in result.tool_calls] == [True, False]


async def test_a_tool_can_end_the_turn_with_a_value(home: Home) -> None:
    async def book(seat: str) -> Finish:
        """Book a seat."""
        return Finish({"seat": seat})

    async with home.runtime(tool_call("book", seat="12A"), tools=[book]) as runtime:
        result = await soon((await runtime.session("s").open()).turn("Book").run())
        assert result.outcome == ToolValueOutcome("book", {"seat": "12A"})


# --- tools ----------------------------------------------------------------------------------------------


async def test_tools_run_in_parallel_and_their_results_are_in_source_order(home: Home) -> None:
    together = asyncio.Barrier(6)

    async def wait(n: int) -> int:
        """Wait for the others, and then the longer the earlier it was called."""
        await together.wait()
        await asyncio.sleep(0.01 * (6 - n))
        return n

    calls: list[Any] = [tool_call("wait", n=n) for n in range(6)]
    async with home.runtime(calls, "done", tools=[wait]) as runtime:
        session = await runtime.session("s").open()
        result = await soon(session.turn("go").run())
        assert [call.result for call in result.tool_calls] == list(range(6))
        told = runtime.providers["scripted"].requests[1].messages[2:]  # type: ignore[attr-defined]
        assert [message.content[0].content for message in told] == list(range(6))
        assert [message.content[0].tool_use_id for message in told] == [f"call_{n}" for n in range(1, 7)]
        answered = [e.record for e in await journal(session) if isinstance(e.record, AnsweredRecord)]
        assert {record.query_id for record in answered} == {f"q-{n}" for n in range(9)}


async def test_no_more_tools_run_at_once_than_the_runtime_allows(home: Home) -> None:
    now = most = 0

    async def work() -> None:
        """Work."""
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.01)
        now -= 1

    calls: list[Any] = [tool_call("work") for _ in range(6)]
    async with home.runtime(calls, "done", tools=[work], tool_concurrency=2) as runtime:
        await soon((await runtime.session("s").open()).turn("go").run())
    assert most == 2


async def test_a_tool_panic_is_contained_and_so_is_every_other_failure(home: Home) -> None:
    class Panic(BaseException):
        pass

    def panics() -> None:
        """Panic."""
        raise Panic("out of everything")

    async def raises() -> None:
        """Raise."""
        raise LookupError("no such thing")

    calls: list[Any] = [
        tool_call("panics"),
        tool_call("raises"),
        tool_call("nope"),
        tool_call("add", a="one"),
        ScriptedToolCall("add", "not JSON"),
        tool_call("add", a=1, b=2),
    ]
    async with home.runtime(calls, "I see.", tools=[panics, raises, add]) as runtime:
        session = await runtime.session("s").open()
        result = await soon(session.turn("go").run())
        assert result.text == "I see."
        assert [call.is_error for call in result.tool_calls] == [True] * 5 + [False]
        codes = [call.result["code"] for call in result.tool_calls[:5]]
        assert codes == ["tool_panicked", "failed", "unknown_tool", "invalid_arguments", "invalid_arguments"]
        assert result.tool_calls[1].result["error"] == "LookupError: no such thing"


async def test_a_tool_whose_failure_is_to_stop_the_turn_stops_it(home: Home) -> None:
    @tool(on_error="stop")
    async def pay() -> None:
        """Pay."""
        raise ToolError("no money", code="broke")

    async with home.runtime(tool_call("pay"), "never said", tools=[pay]) as runtime:
        session = await runtime.session("s").open()
        ended = stopped(await soon(session.turn("Pay").run()))
        assert (ended.reason, ended.tool, ended.value["code"]) == ("tool_failure", "pay", "broke")
        assert (await said(session))[-1][0] == "tool"


async def test_calls_with_the_same_id_in_one_turn_do_not_hide_each_other(home: Home) -> None:
    script: list[Any] = [
        [ScriptedToolCall("add", {"a": 1, "b": 1}, "c"), ScriptedToolCall("add", {"a": 2, "b": 2}, "c")],
        ScriptedToolCall("add", {"a": 3, "b": 3}, "model"),
        "done",
    ]
    async with home.runtime(*script, tools=[add]) as runtime:
        result = await soon((await runtime.session("s").open()).turn("go").run())
        assert [call.result for call in result.tool_calls] == [2, 4, 6]
        told = runtime.providers["scripted"].requests[-1].messages  # type: ignore[attr-defined]
        assert [message.role for message in told] == ["user", "assistant", "tool", "tool", "assistant", "tool"]


# --- retries --------------------------------------------------------------------------------------------


async def test_the_retry_policy_waits_as_long_as_the_service_asks_and_no_longer_than_its_cap(home: Home) -> None:
    script: list[Any] = [fault("rate_limit", retry_after_s=1_000), fault("overloaded", retry_after_s=0.01), "at last"]
    retry = RetryPolicy(retry_after_cap_s=0.02)
    async with home.runtime(*script, retry=retry) as runtime:
        session = await runtime.session("s").open()
        events = [event async for event in session.turn("Hi").stream()]
        assert [event.delay_s for event in events if isinstance(event, RetryEvent)] == [0.02, 0.01]
        turn = (await session.conversation()).turns[events[0].turn]
        assert turn.messages[-1].text == "at last"


async def test_a_tool_that_marks_its_failure_is_tried_again_within_its_own_cap(home: Home) -> None:
    keys: list[tuple[str, int]] = []

    @tool(recovery="safe", retry=ToolRetryPolicy(max_attempts=3, max_delay_s=0.01))
    async def get(ctx: ToolContext) -> str:
        """Get."""
        keys.append((ctx.key, ctx.retry))
        if ctx.retry < 2:
            raise ToolError("busy", retryable=True, retry_after_s=1_000)
        return "got"

    async with home.runtime(tool_call("get"), "done", tools=[get]) as runtime:
        result = await soon((await runtime.session("s").open()).turn("go").run())
        assert result.tool_calls[0].result == "got"
        assert [retry for _, retry in keys] == [0, 1, 2]
        assert len({key for key, _ in keys}) == 1


async def test_a_provider_that_fails_for_good_stops_the_turn_and_the_session_goes_on(home: Home) -> None:
    async with home.runtime(fault("auth", "bad key"), "Hello") as runtime:
        session = await runtime.session("s").open()
        ended = stopped(await soon(session.turn("Hi").run()))
        assert ended.reason == "provider_error"
        assert "bad key" in ended.detail
        assert (await soon(session.turn("Hi again").run())).text == "Hello"


# --- limits ---------------------------------------------------------------------------------------------


async def test_max_turns_ends_the_turn_with_a_note_right_after_the_results(home: Home) -> None:
    calls = [tool_call("add", a=1, b=1)] * 3
    async with home.runtime(*calls, "Where were we?", tools=[add], limits={"iterations": 3}) as runtime:
        session = await runtime.session("s").open()
        result = await soon(session.turn("go").run())
        assert (stopped(result).reason, stopped(result).limit) == ("max_turns", "iterations")
        assert [role for role, _ in await said(session)] == ["user", *["assistant", "tool"] * 3, "system"]
        assert result.messages[-1].text.startswith("The turn was stopped: ")
        await soon(session.turn("And?").run())
        shown = runtime.providers["scripted"].requests[-1].messages  # type: ignore[attr-defined]
        assert [message.role for message in shown[-2:]] == ["user", "user"]
        assert shown[-2].text == f"<runtime>\n{result.messages[-1].text}\n</runtime>"


async def test_a_model_that_makes_no_progress_is_stopped(home: Home) -> None:
    script: list[Any] = [reply(), tool_call("nope"), tool_call("add", a="?")]
    async with home.runtime(*script, tools=[add], limits={"no_progress": 3}) as runtime:
        result = await soon((await runtime.session("s").open()).turn("go").run())
        assert (stopped(result).reason, stopped(result).limit) == ("max_turns", "no_progress")


async def test_calls_beyond_what_a_turn_may_make_are_not_run_and_the_next_turn_can_go_on(home: Home) -> None:
    """Services refuse a conversation in which a call has no result."""
    calls: list[Any] = [tool_call("add", a=1, b=1), tool_call("add", a=2, b=2)]
    async with home.runtime(calls, "Hello", tools=[add], limits={"tool_calls": 1}) as runtime:
        session = await runtime.session("s").open()
        result = await soon(session.turn("go").run())
        assert stopped(result).limit == "tool_calls"
        assert [asked for each in await journal(session) for asked in attempted_in(each.record)] == ["q-1"]
        await soon(session.turn("Hi").run())
        shown = runtime.providers["scripted"].requests[-1].messages  # type: ignore[attr-defined]
        results = [message.content[0] for message in shown if message.role == "tool"]
        assert [(block.tool_use_id, block.is_error) for block in results] == [("call_1", True), ("call_2", True)]


async def test_wall_time_is_a_limit_and_what_is_under_way_is_waited_for(home: Home) -> None:
    async def work() -> str:
        """Work."""
        await asyncio.sleep(0.03)
        return "worked"

    async with home.runtime(tool_call("work"), "never said", tools=[work], limits={"wall_ms": 20}) as runtime:
        result = await soon((await runtime.session("s").open()).turn("go").run())
        assert stopped(result).limit == "wall_ms"
        assert result.tool_calls[0].result == "worked"


# --- accepted, then driven ------------------------------------------------------------------------------


async def test_a_turn_is_durable_and_can_be_found_before_its_first_model_call(home: Home) -> None:
    seen: list[Any] = []

    async with home.runtime() as other:

        async def look(request: Any) -> str:
            session = await other.session("s").open()
            view = await session.read_view()
            seen.append((view.running, [message.text for message in view.messages]))
            return "Hello"

        async with home.runtime(look) as runtime:
            await soon((await runtime.session("s").open()).turn("Hi").id("t-1").run())
    assert seen == [("t-1", ["Hi"])]


async def test_a_retry_with_the_same_turn_id_joins_the_turn_and_both_get_one_result(home: Home) -> None:
    gate = asyncio.Event()

    async def waits(request: Any) -> str:
        await gate.wait()
        return "Hello"

    async with home.runtime(waits) as runtime, home.runtime() as other:
        session = await runtime.session("s").open()
        first = asyncio.create_task(session.turn("Hi").id("t-1").run())
        await until(lambda: running(session))
        again = asyncio.create_task(session.turn("Hi").id("t-1").run())
        elsewhere = asyncio.create_task((await other.session("s").open()).turn("Hi").id("t-1").run())
        await asyncio.sleep(0.02)
        gate.set()
        results = await soon(asyncio.gather(first, again, elsewhere))
        assert {result.text for result in results} == {"Hello"}
        assert len({result.receipt.position for result in results}) == 1
        assert len(await said(session)) == 2
        assert len(runtime.providers["scripted"].requests) == 1  # type: ignore[attr-defined]


async def test_a_turn_that_was_not_waited_for_goes_on_and_running_it_again_joins_it(home: Home) -> None:
    gate = asyncio.Event()

    async def waits(request: Any) -> str:
        await gate.wait()
        return "Hello"

    async with home.runtime(waits) as runtime:
        turn = (await runtime.session("s").open()).turn("Hi")
        with pytest.raises(TimeoutError):
            await turn.run(wait=0.02)
        gate.set()
        assert (await soon(turn.run())).text == "Hello"


async def test_the_same_turn_id_with_another_input_is_a_conflict_that_shows_both(home: Home) -> None:
    async with home.runtime("Hello") as runtime:
        session = await runtime.session("s").open()
        await soon(session.turn("Hi").id("t-1").run())
        before = await journal(session)
        for other in (session.turn("Ho"), session.turn("Hi").output({"type": "integer"})):
            with pytest.raises(TurnConflictError) as caught:
                await soon(other.id("t-1").run())
            assert (caught.value.session_id, caught.value.turn) == ("s", "t-1")
            assert "Hi" in caught.value.before
            assert caught.value.before != caught.value.now
        assert await journal(session) == before


async def test_turns_of_one_handle_wait_for_each_other_in_their_order(home: Home) -> None:
    async with home.runtime(*"abcd") as runtime:
        session = await runtime.session("s").open()
        results = await soon(asyncio.gather(*(session.turn(str(n)).run() for n in range(4))))
        assert [result.text for result in results] == list("abcd")
        assert [text for _, text in await said(session)] == list("0a1b2c3d")


async def test_a_turn_of_another_handle_is_refused_while_one_is_under_way(home: Home) -> None:
    gate = asyncio.Event()

    async def waits(request: Any) -> str:
        await gate.wait()
        return "Hello"

    async with home.runtime(waits, "again") as runtime, home.runtime() as other:
        session = await runtime.session("s").open()
        first = asyncio.create_task(session.turn("Hi").id("t-1").run())
        await until(lambda: running(session))
        for handle in (await runtime.session("s").open(), await other.session("s").open()):
            with pytest.raises(TurnInProgressError) as caught:
                await soon(handle.turn("Me too").run())
            assert (caught.value.session_id, caught.value.running) == ("s", "t-1")
        gate.set()
        await soon(first)
        assert len(await said(session)) == 2


# --- phases ---------------------------------------------------------------------------------------------


async def test_a_phase_probe_is_told_of_each_phase_once_it_is_durable(home: Home) -> None:
    phases: list[str] = []
    calls: list[Any] = [tool_call("add", a=1, b=1), tool_call("add", a=2, b=2)]
    async with home.runtime(calls, "done", "Hello", "unseen", tools=[add]) as runtime:
        session = await runtime.session("s").open()
        other = await runtime.session("other").open()
        session.set_turn_phase_probe(phases.append)
        await soon(session.turn("go").run())
        model = ["model_started", "model_done"]
        assert phases == ["accepted", *model, "tools_started", "tools_done", *model, "committed"]
        phases.clear()
        await soon(other.turn("Hi").run())
        assert phases == []
        session.set_turn_phase_probe(None)
        await soon(session.turn("Hi").run())
        assert phases == []


async def test_a_phase_probe_that_raises_does_not_harm_the_turn(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    def broken(phase: str) -> None:
        raise RuntimeError("no ink")

    async with home.runtime("Hello") as runtime:
        session = await runtime.session("s").open()
        session.set_turn_phase_probe(broken)
        with caplog.at_level(logging.CRITICAL, "holdfast.agent"):
            assert (await soon(session.turn("Hi").run())).text == "Hello"


# --- tools that come and go -----------------------------------------------------------------------------


async def test_a_tool_that_is_only_declared_is_told_to_the_model(home: Home) -> None:
    async with home.runtime("Hello") as runtime:
        runtime.tools.declare("approve", "Ask somebody.", OBJECT)
        await soon((await runtime.session("s").open()).turn("Hi").run())
        (request,) = runtime.providers["scripted"].requests  # type: ignore[attr-defined]
        assert [spec.name for spec in request.tools] == ["approve"]


# --- what a turn is asked with --------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [None, 5, b"Hi", {"text": "Hi"}, TextBlock("Hi"), ["Hi"]])
async def test_an_input_that_is_none_is_refused_in_words(home: Home, wrong: Any) -> None:
    async with home.runtime() as runtime:
        session = await runtime.session("s").open()
        for begin in (session.turn, session.enqueue):
            with pytest.raises(InvalidValueError, match=r"input.*text.*list"):
                begin(wrong)


async def test_a_reply_that_a_content_filter_cut_off_is_no_ordinary_message(home: Home) -> None:
    async with home.runtime(reply("The recipe is", stop="refusal"), "Hello") as runtime:
        session = await runtime.session("s").open()
        cut = await soon(session.turn("How?").run())
        assert cut.stopped is not None
        assert (cut.stopped.reason, cut.is_success, cut.text) == ("refused", False, "The recipe is")
        assert "content filter" in cut.stopped.detail
        assert (await soon(session.turn("Hi").run())).text == "Hello"
