"""Closing a runtime: whoever waits is told so at once, tools have a bounded time, and what did not end says why."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast.agent.runtime import Runtime
from holdfast.agent.session import AgentSession
from holdfast.agent.tools import tool
from holdfast.agent.tools.catalog import Toolish
from holdfast.core.queries import Failure
from holdfast.core.records import AnsweredRecord, InterruptedRecord
from holdfast.engine.drivers import Recovery
from holdfast.engine.errors import RuntimeClosedError
from holdfast.engine.upkeep import Upkeep
from holdfast.testing.patience import soon, until
from holdfast.testing.provider import tool_call
from tests.agent.helpers import Home, journal

QUIET = Upkeep(on=False)


async def hangs(request: Any) -> Any:
    await asyncio.sleep(3600)


async def streamed(session: AgentSession) -> None:
    async for _ in session.turn("Hi").id("t").stream():
        pass


async def waited_for(session: AgentSession) -> None:
    await session.wait_for("i")


async def watched(session: AgentSession) -> None:
    async for _ in session.mount.holdfast.watch(session.session_id):
        pass


async def worked(session: AgentSession) -> None:
    await session.runtime.work().run()


async def drained(session: AgentSession) -> None:
    await session.queued_turn().run()


WAITS: dict[str, Callable[[AgentSession], Awaitable[Any]]] = {
    "run": lambda session: session.turn("Hi").id("t").run(),
    "stream": streamed,
    "wait_for": waited_for,
    "queued turns": drained,
    "result": lambda session: session.mount.holdfast.result(session.session_id),
    "watch": watched,
    "work": worked,
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=list(WAITS))
async def test_whoever_waits_is_told_that_the_session_goes_on_elsewhere(
    any_home: Home, wait: Callable[[AgentSession], Awaitable[Any]]
) -> None:
    async with any_home.runtime(hangs, upkeep=QUIET) as runtime:
        session = await runtime.session("s").open()
        if wait in (waited_for, worked, drained):
            await session.enqueue("Hi").id("i")
        waiting = asyncio.ensure_future(wait(session))
        if wait in (WAITS["run"], streamed, worked, drained):
            await until(lambda: runtime.providers["scripted"].requests)  # type: ignore[attr-defined]
        await asyncio.sleep(0.05)
        assert not waiting.done()
    with pytest.raises(RuntimeClosedError) as caught:
        await soon(waiting)
    if wait is not worked:
        assert "session 's'" in str(caught.value)
        assert "goes on in any process that serves it" in str(caught.value)


async def test_a_turn_that_was_waited_for_goes_on_in_the_next_runtime(any_home: Home) -> None:
    async with any_home.runtime(hangs) as runtime:
        session = await runtime.session("s").open()
        waiting = asyncio.create_task(session.turn("Hi").id("t").run())
        await until(lambda: runtime.providers["scripted"].requests)  # type: ignore[attr-defined]
    with pytest.raises(RuntimeClosedError):
        await soon(waiting)
    async with any_home.runtime("Hello") as runtime:
        session = await runtime.session("s").open()
        assert (await soon(session.turn("Hi").id("t").run())).text == "Hello"
        assert [each for each in await records(session) if isinstance(each, InterruptedRecord)] == [
            InterruptedRecord(query_id="q-1")
        ]


async def test_what_is_begun_after_the_close_is_refused(home: Home) -> None:
    async with home.runtime("Hello") as runtime:
        session = await runtime.session("s").open()
    with pytest.raises(RuntimeClosedError):
        await soon(session.turn("Hi").run())


async def records(session: AgentSession) -> list[Any]:
    return [entry.record for entry in await journal(session)]


class Slow:
    """A tool that takes its time, and what became of it."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.begun = 0
        self.ended = 0

    def as_tool(self, recovery: Recovery) -> Toolish:
        @tool(recovery=recovery)
        async def work() -> str:
            """Work."""
            self.begun += 1
            await asyncio.sleep(self.seconds)
            self.ended += 1
            return "done at last"

        return work


async def closed_while_it_runs(home: Home, slow: Slow, recovery: Recovery, close_s: float) -> float:
    """Close a runtime while a tool of a turn is under way; gives how long that takes."""
    work = slow.as_tool(recovery)
    async with home.runtime(tool_call("work"), tools=[work], close_s=close_s) as runtime:
        session = await runtime.session("s").open()
        waiting = asyncio.create_task(session.turn("Go").id("t").run())
        await until(lambda: slow.begun)
        began = time.monotonic()
    with pytest.raises(RuntimeClosedError):
        await soon(waiting)
    return time.monotonic() - began


async def answers(runtime: Runtime) -> list[Any]:
    session = await runtime.session("s").open()
    assert (await soon(session.turn("Go").id("t").run())).text == "Fine."
    return [each.answer for each in await records(session) if isinstance(each, AnsweredRecord)]


async def test_a_tool_that_ends_in_time_is_not_interrupted(any_home: Home) -> None:
    slow = Slow(0.3)
    await closed_while_it_runs(any_home, slow, "never", close_s=60)
    assert slow.ended == 1
    async with any_home.runtime("Fine.") as runtime:
        assert "done at last" in str(await answers(runtime))


async def test_a_tool_that_does_not_end_was_interrupted_by_a_shutdown(any_home: Home) -> None:
    slow = Slow(3600)
    assert await closed_while_it_runs(any_home, slow, "never", close_s=0.2) < 30
    work = slow.as_tool("never")
    async with any_home.runtime("Fine.", tools=[work]) as runtime:
        failures = [each for each in await answers(runtime) if isinstance(each, Failure)]
    assert [failure.code for failure in failures] == ["unknown_outcome"]
    assert "interrupted by a shutdown" in failures[0].message
    assert slow.begun == 1


async def test_a_tool_that_may_be_repeated_is_not_waited_for_and_runs_again_elsewhere(any_home: Home) -> None:
    slow = Slow(3600)
    assert await closed_while_it_runs(any_home, slow, "safe", close_s=60) < 30
    slow.seconds = 0.0
    work = slow.as_tool("safe")
    async with any_home.runtime("Fine.", tools=[work]) as runtime:
        assert "done at last" in str(await answers(runtime))
    assert slow.begun == 2
