"""Tools of many sessions in one process: none waits for one that waits itself, or for the slow ones of another."""

from __future__ import annotations

import asyncio

from holdfast.agent.providers.provider import ModelRequest
from holdfast.agent.tools import tool
from holdfast.testing.patience import soon, until
from holdfast.testing.provider import ScriptedReply, ScriptStep, reply, tool_call
from tests.agent.helpers import Home

TOOLS = 8
"""As many as run at once by default."""


async def test_tools_that_each_run_a_child_session_do_not_wait_for_each_other(home: Home) -> None:
    @tool
    async def consult(number: int) -> str:
        """Let a child session do it."""
        child = await runtime.session(f"child-{number}").open()
        return (await child.turn("Look").run()).text or ""

    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    def answer(request: ModelRequest) -> ScriptedReply:
        text = str(request)
        if "seen" in text:
            return reply("I saw it.")
        return reply(tool_call("look"))

    calls = reply(*(tool_call("consult", number=number) for number in range(TOOLS)))
    async with home.runtime(calls, *[answer] * (2 * TOOLS), "All done.", tools=[consult, look]) as runtime:
        session = await runtime.session("parent").open()
        assert (await soon(session.turn("Go").run())).text == "All done."


async def test_slow_tools_of_one_session_do_not_delay_the_quick_ones_of_another(home: Home) -> None:
    may_end, slow_ones = asyncio.Event(), 0

    @tool
    async def slow() -> str:
        """Take long."""
        nonlocal slow_ones
        slow_ones += 1
        await may_end.wait()
        return "at last"

    @tool
    async def quick() -> str:
        """Take no time."""
        return "done"

    script: list[ScriptStep] = [reply(*[tool_call("slow")] * (2 * TOOLS)), reply(tool_call("quick")), "Quick.", "Slow."]
    async with home.runtime(*script, tools=[slow, quick]) as runtime:
        first, second = [await runtime.session(name).open() for name in ("first", "second")]
        waits = asyncio.create_task(first.turn("Go").run())
        await until(lambda: slow_ones == TOOLS)
        assert (await soon(second.turn("Go").run())).text == "Quick."
        assert slow_ones == TOOLS
        may_end.set()
        assert (await soon(waits)).text == "Slow."
