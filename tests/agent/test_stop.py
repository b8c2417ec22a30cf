"""Stopping a turn: before it begins, while the model is asked, while tools run, and when it is too late."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from holdfast.agent.machine.turn import MessageOutcome, StoppedOutcome
from holdfast.agent.session import AgentSession
from holdfast.testing.patience import soon, until
from holdfast.testing.provider import fault, reply, tool_call
from tests.agent.helpers import Home, add, journal, said


def stopped(result: Any) -> StoppedOutcome:
    assert isinstance(result.outcome, StoppedOutcome), result.outcome
    if result.outcome.reason == "cancelled":
        assert result.started_at <= (result.outcome.at or 0) <= result.ended_at
    return msgspec.structs.replace(result.outcome, at=None)


async def running(session: AgentSession) -> bool:
    return (await session.read_view()).running is not None


async def test_stopping_before_a_turn_has_begun_stops_nothing_and_writes_nothing(home: Home) -> None:
    async with home.runtime("Hello") as runtime:
        session = await runtime.session("s").open()
        before = await journal(session)
        assert await session.stop() is False
        assert await journal(session) == before
        assert (await soon(session.turn("Hi").run())).text == "Hello"


async def test_stopping_in_the_midst_of_the_model_cancels_its_call_and_commits_the_turn(home: Home) -> None:
    was_cancelled = asyncio.Event()

    async def hangs(request: Any) -> Any:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            was_cancelled.set()
            raise

    async with home.runtime(hangs, "Hello again") as runtime:
        session = await runtime.session("s").open()
        work = asyncio.create_task(session.turn("Hi").run())
        await until(lambda: runtime.providers["scripted"].requests)  # type: ignore[attr-defined]
        assert await soon(session.stop("enough")) is True
        assert stopped(await soon(work)) == StoppedOutcome("cancelled", "enough")
        await soon(was_cancelled.wait())
        assert (await soon(session.turn("Hi").run())).text == "Hello again"
    async with home.runtime() as runtime:
        assert [text for _, text in await said(await runtime.session("s").open())] == ["Hi", "Hi", "Hello again"]


async def test_stopping_in_the_midst_of_tools_keeps_the_results_that_are_there(home: Home) -> None:
    was_cancelled = asyncio.Event()
    is_slow = asyncio.Event()

    async def slow() -> None:
        """Take long."""
        is_slow.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            was_cancelled.set()
            raise

    calls: list[Any] = [tool_call("slow"), tool_call("add", a=1, b=2)]
    async with home.runtime(calls, "Hello", tools=[slow, add]) as runtime:
        session = await runtime.session("s").open()
        work = asyncio.create_task(session.turn("go").run())

        async def added() -> bool:
            turns = (await session.conversation(fresh=True)).turns.values()
            return any(call.done is not None for turn in turns for call in turn.calls)

        await until(added)
        await soon(is_slow.wait())
        assert await soon(session.stop("enough")) is True
        result = await soon(work)
        assert stopped(result) == StoppedOutcome("cancelled", "enough")
        assert [(call.result, call.is_error) for call in result.tool_calls] == [
            ({"error": "enough", "code": "cancelled"}, True),
            (3, False),
        ]
        await soon(was_cancelled.wait())
        assert (await soon(session.turn("Hi").run())).text == "Hello"


async def test_stopping_after_completion_loses_the_race(home: Home) -> None:
    async with home.runtime("Hello", "Hello") as runtime:
        session = await runtime.session("s").open()
        await soon(session.turn("Hi").run())
        assert await session.stop() is False
        work = asyncio.create_task(session.turn("Hi").run())
        await until(lambda: len(runtime.providers["scripted"].requests) == 2)  # type: ignore[attr-defined]
        is_stopped = await soon(session.stop())
        result = await soon(work)
        assert is_stopped == (result.outcome != MessageOutcome())  # whoever was first, both tell the same


async def test_another_process_can_stop_a_turn(shared_home: Home) -> None:
    async def hangs(request: Any) -> Any:
        await asyncio.sleep(60)

    async with shared_home.runtime(hangs) as runtime, shared_home.runtime() as other:
        session = await runtime.session("s").open()
        work = asyncio.create_task(session.turn("Hi").run())
        elsewhere = await other.session("s").open()
        await until(lambda: running(elsewhere))
        assert await soon(elsewhere.stop("not now")) is True
        assert stopped(await soon(work)) == StoppedOutcome("cancelled", "not now")


async def test_a_stopped_turn_is_committed_whatever_stopped_it(home: Home) -> None:
    async with home.runtime(fault("auth"), reply("half an ans", stop="length"), tools=[add]) as runtime:
        session = await runtime.session("s").open()
        for number, reason in enumerate(["provider_error", "incomplete"]):
            assert stopped(await soon(session.turn("go").id(f"t-{number}").run())).reason == reason
    async with home.runtime() as runtime:
        session = await runtime.session("s").open()
        for number, reason in enumerate(["provider_error", "incomplete"]):
            again = await soon(session.turn("go").id(f"t-{number}").run())
            assert (stopped(again).reason, again.receipt.replayed) == (reason, True)
