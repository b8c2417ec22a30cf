"""Plugins in several processes: what is recorded of them, and who goes on with what others have begun."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast.agent.machine.prompt import Contribution
from holdfast.agent.machine.turn import MessageOutcome
from holdfast.agent.plugins.plugin import Plugin
from holdfast.agent.runtime import Runtime
from holdfast.agent.session import AgentSession
from holdfast.agent.tools import Tool, ToolContext
from holdfast.agent.tools.catalog import Toolish
from holdfast.testing.patience import soon, until
from holdfast.testing.provider import ScriptedProvider, reply, tool_call


class Shelf(Plugin):
    """A tool that is a method, and what it gives depends on the configuration."""

    id = "shelf"

    def tools(self) -> Sequence[Toolish]:
        return [self.fetch]

    def prompt(self) -> Sequence[Contribution]:
        return [Contribution("context", f"The shelf is {self.config}.")]

    async def fetch(self, ctx: ToolContext) -> str:
        """Fetch something from the shelf."""
        return f"from {self.config} of {self.session.session_id}"


async def test_a_worker_goes_on_with_the_plugin_it_knows_and_the_configuration_that_was_recorded(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    silent = ScriptedProvider([reply(delay_s=60)])
    async with Runtime(url, provider=silent) as runtime:
        session = await runtime.session("s-1").plugin(Shelf(), "oak").open()
        turn = asyncio.create_task(session.turn("Fetch").id("t-1").run())
        await until(lambda: silent.requests)
        turn.cancel()
    provider = ScriptedProvider([tool_call("fetch"), "Here it is."])
    async with Runtime(url, provider=provider) as runtime:
        runtime.plugins.add(Shelf())
        await runtime.mount.holdfast.resume("s-1", wait=10)  # nobody opens it
        conversation = await runtime.mount.conversations.get("s-1")
        assert conversation.turns["t-1"].calls[0].done is not None
        assert conversation.turns["t-1"].calls[0].done.content == "from oak of s-1"
    assert provider.requests[0].system == "# Context\n\nThe shelf is oak."
    assert [tool.name for tool in provider.requests[0].tools] == ["fetch"]


class Bare(Plugin):
    """The same plugin as another process may have it: without the tool."""

    id = "shelf"


async def test_a_call_of_a_plugins_tool_that_waits_is_run_by_a_worker_that_opens_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    async with Runtime(url, provider=ScriptedProvider([tool_call("fetch")])) as runtime:
        runtime.tools.declare("fetch", "Fetch.", {"type": "object", "properties": {}})
        session = await runtime.session("s-1").plugin(Bare()).spec(tools=["*", "fetch"]).open()
        turn = asyncio.create_task(session.turn("Fetch").id("t-1").run())
        await until(lambda: _asks(session, "fetch"))
        turn.cancel()

    async with Runtime(url, provider=ScriptedProvider(["Here it is."])) as runtime:
        runtime.plugins.add(Shelf())
        await runtime.mount.holdfast.resume("s-1", wait=10)
        calls = (await runtime.mount.conversations.get("s-1")).turns["t-1"].calls
        assert [call.done.content for call in calls if call.done is not None] == ["from None of s-1"]


async def _asks(session: AgentSession, name: str) -> bool:
    asked = (await session.conversation(fresh=True)).asked.values()
    return any(getattr(query, "name", "") == name for query in asked)


async def test_a_plugin_that_is_missing_is_warned_of_once_and_the_session_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    silent = ScriptedProvider([reply(delay_s=60)], loop=True)
    async with Runtime(url, provider=silent) as runtime:
        for number in (1, 2):
            session = await runtime.session(f"s-{number}").plugin(Shelf(), "oak").open()
            turn = asyncio.create_task(session.turn("Fetch").id("t-1").run())
            await until(partial(_has_asked, silent, number))
            turn.cancel()
    caplog.set_level(logging.WARNING, "holdfast.plugins")
    provider = ScriptedProvider(["Without it, then."], loop=True)
    async with Runtime(url, provider=provider) as runtime:
        for number in (1, 2):
            await runtime.mount.holdfast.resume(f"s-{number}", wait=10)
            conversation = await runtime.mount.conversations.get(f"s-{number}")
            assert conversation.turns["t-1"].ended == MessageOutcome()
    lines = [record.getMessage() for record in caplog.records if record.name == "holdfast.plugins"]
    [line] = lines  # of whichever session was resumed first
    assert line.partition(" has ")[2] == "the plugin 'shelf', which this process does not have"


def _has_asked(provider: ScriptedProvider, times: int) -> bool:
    return len(provider.requests) == times


async def test_a_plugin_that_cannot_be_built_is_missed_and_named(caplog: pytest.LogCaptureFixture) -> None:
    class Picky(Plugin):
        id = "picky"

        def build(self, session: Any, config: Any) -> Plugin:
            raise ValueError("not this session")

    async with Runtime("memory:", provider=ScriptedProvider(["Hello."])) as runtime:
        session = await runtime.session("s-1").plugin(Picky()).open()
        assert (await soon(session.turn("Hi").run())).text == "Hello."
    assert "session 's-1': its plugin 'picky' could not be built" in caplog.text


@pytest.mark.parametrize(("recovery", "result"), [("never", None), ("safe", "done at last")])
async def test_a_call_that_was_under_way_is_treated_as_its_tool_says_also_where_nobody_opens_the_session(
    recovery: Any, result: str | None, tmp_path: Path
) -> None:
    ran: list[str] = []

    class Works(Plugin):
        id = "works"

        def __init__(self, name: str) -> None:
            self.name = name

        def tools(self) -> Sequence[Toolish]:
            return [Tool.of(self.work, recovery=recovery)]

        async def work(self) -> str:
            """Work."""
            ran.append(self.name)
            if self.name == "first":
                await asyncio.Event().wait()
            return "done at last"

    url = f"sqlite:///{tmp_path}/a.db"
    async with Runtime(url, provider=ScriptedProvider([tool_call("work")])) as runtime:
        session = await runtime.session("s-1").plugin(Works("first")).open()
        turn = asyncio.create_task(session.turn("Work").id("t-1").run())
        await until(lambda: ran)
        turn.cancel()
    async with Runtime(url, provider=ScriptedProvider(["Done."])) as runtime:
        runtime.plugins.add(Works("second"))
        await runtime.mount.holdfast.resume("s-1", wait=10)
        (call,) = (await runtime.mount.conversations.get("s-1")).turns["t-1"].calls
        assert call.done is not None
        if result is None:
            assert call.done.content["code"] == "unknown_outcome"
            assert ran == ["first"]
        else:
            assert call.done.content == result
            assert ran == ["first", "second"]
