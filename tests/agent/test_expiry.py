"""A turn may wait for as long as it takes; only an operator who asks for it ends one, and never the conversation."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.agent.machine.turn import StoppedOutcome
from holdfast.agent.runtime import Runtime
from holdfast.agent.session import AgentSession
from holdfast.engine.upkeep import Upkeep
from holdfast.store.environment import Environment
from holdfast.testing.patience import soon, until
from holdfast.testing.provider import ScriptStep, tool_call
from tests.agent.helpers import OBJECT, Home
from tests.engine.helpers import LaterClock


def with_approval(home: Home, *script: ScriptStep, **options: Any) -> Runtime:
    runtime = home.runtime(*script, **options)
    runtime.tools.declare("approve", "Ask somebody.", OBJECT)
    return runtime


async def is_asked(session: AgentSession) -> str | None:
    asked = (await session.conversation(fresh=True)).asked
    return next((query.id for query in asked.values() if query.kind == "tool"), None)


async def begun(home: Home) -> None:
    """A turn waits for a declared tool, and its process has ended."""
    async with with_approval(home, tool_call("approve")) as runtime:
        session = await runtime.session("s").open()
        running = asyncio.create_task(session.turn("May I?").id("t-1").run())
        await until(lambda: is_asked(session))
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_turn_that_waits_for_a_declared_tool_waits_for_more_than_a_year(home: Home) -> None:
    await begun(home)
    later = Environment(LaterClock(days=400))
    async with with_approval(home, "Thank you.", environment=later) as runtime:
        assert await runtime.mount.holdfast.clean() == ([], [])
        session = await runtime.session("s").open()
        asked = await until(lambda: is_asked(session))
        await soon(session.answer(asked, "yes"))
        assert (await soon(session.turn("May I?").id("t-1").run())).text == "Thank you."


async def test_an_operator_may_let_turns_expire_and_the_conversation_goes_on(home: Home) -> None:
    await begun(home)
    upkeep, later = Upkeep(on=False, idle_ttl_ms=1000), Environment(LaterClock(days=1))
    async with with_approval(home, "Hello", upkeep=upkeep, environment=later) as runtime:
        assert await runtime.mount.holdfast.clean() == (["s"], [])
        session = await runtime.session("s").open()
        ended = await soon(session.turn("May I?").id("t-1").run())
        assert isinstance(ended.outcome, StoppedOutcome)
        assert (ended.outcome.reason, ended.outcome.by) == ("cancelled", "clock")
        assert "the limit is 1000 ms" in ended.outcome.detail
        assert await runtime.mount.holdfast.clean() == ([], [])  # between turns there is nothing to end
        assert (await soon(session.turn("Hi").run())).text == "Hello"
