"""The context of a session: tools and words of its own, and when they are let go."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from typing import Any

from holdfast.agent.machine.prompt import Contribution
from holdfast.agent.plugins.plugin import Plugin
from holdfast.agent.providers.provider import ToolSpec
from holdfast.agent.runtime import Runtime
from holdfast.agent.tools import ToolContext
from holdfast.testing.patience import soon, until
from holdfast.testing.provider import ScriptedProvider, ScriptedReply, reply, tool_call
from tests.agent.toolbox import Shelf, names, runtime_with, saw


async def test_tools_and_words_of_the_overlay_are_this_sessions_alone() -> None:
    provider = ScriptedProvider([tool_call("cup"), "Done.", tool_call("cup"), "Oh."])
    async with Runtime("memory:", provider=provider, tools=[saw]) as runtime:
        session = await runtime.session("s-1").open()
        await session.set_context([Shelf("cup")], [Contribution("context", "A cup is here.")])
        result = await soon(session.turn("Take it").run())
        assert [call.result for call in result.tool_calls] == ["the cup of s-1"]
        assert provider.requests[0].system == "# Context\n\nA cup is here."
        other = await runtime.session("s-2").open()
        result = await soon(other.turn("Take it").run())
        assert result.tool_calls[0].result["code"] == "unknown_tool"
        assert provider.requests[2].system == ""


async def test_an_overlay_instead_of_the_runtimes_tools_leaves_none_of_those() -> None:
    provider = ScriptedProvider([[tool_call("saw"), tool_call("jug")], "Done."])
    async with Runtime("memory:", provider=provider, tools=[saw]) as runtime:
        session = await runtime.session("s-1").open()
        await session.set_context([Shelf("jug")], include_base=False)
        result = await soon(session.turn("Go").run())
        assert [call.is_error for call in result.tool_calls] == [True, False]


class Closable:
    """A provider that holds something until it is closed."""

    def __init__(self, name: str) -> None:
        self.id = name
        self.is_closed = False

    async def list_tools(self) -> list[ToolSpec]:
        return [ToolSpec(f"{self.id}_look", "Look.", {"type": "object", "properties": {}})]

    async def call(self, name: str, arguments: dict[str, Any], ctx: ToolContext) -> str:
        return "seen"

    async def aclose(self) -> None:
        self.is_closed = True


async def test_providers_that_an_overlay_no_longer_has_are_closed_and_the_others_are_not() -> None:
    gone, kept = Closable("gone"), Closable("kept")
    async with Runtime("memory:", provider=ScriptedProvider([])) as runtime:
        session = await runtime.session("s-1").open()
        await session.set_context([gone, kept])
        await session.set_context([kept])
        assert (gone.is_closed, kept.is_closed) == (True, False)
    assert kept.is_closed


async def test_a_context_is_kept_however_many_sessions_there_are() -> None:
    closed: list[str] = []

    class Diary(Plugin):
        id = "diary"

        def closed(self) -> None:
            closed.append(self.session.session_id)

    async with await runtime_with(plugins=[Diary()], hot_programs=3) as runtime:
        session = await runtime.session("s-0").open()
        await session.set_context([Shelf("cup")])
        for number in range(1, 10):
            await runtime.session(f"s-{number}").open()
        assert await names(session) == ["saw", "drill", "cup"]
        await until(lambda: len(closed) == 6)
        assert closed == [f"s-{number}" for number in range(1, 7)]


async def test_closing_the_last_handle_closes_the_providers_of_the_context() -> None:
    shelf = Closable("shelf")
    async with Runtime("memory:", provider=ScriptedProvider(["Hello"])) as runtime:
        first, second, other = [await runtime.session("s").open() for _ in range(3)]
        await first.set_context([shelf])
        await second.set_context([shelf])
        await first.close()
        await other.close()
        assert not shelf.is_closed
        assert (await second.catalog()).names == {"shelf_look"}
        await second.close()
        assert shelf.is_closed
        again = await runtime.session("s").open()
        assert (await again.catalog()).names == set()
        assert (await soon(again.turn("Hi").run())).text == "Hello"


async def test_a_turn_that_is_running_keeps_the_context_until_it_is_over() -> None:
    shelf, may_go_on = Closable("shelf"), asyncio.Event()

    async def first(request: Any) -> ScriptedReply:
        await may_go_on.wait()
        return reply(tool_call("shelf_look"))

    provider = ScriptedProvider([first, "Thank you."])
    async with Runtime("memory:", provider=provider) as runtime:
        session = await runtime.session("s").open()
        await session.set_context([shelf])
        running = asyncio.create_task(session.turn("Look").run())
        await until(lambda: provider.requests)
        await session.close()
        assert not shelf.is_closed
        may_go_on.set()
        assert (await soon(running)).text == "Thank you."
        assert "seen" in str(provider.requests[-1].messages)
        await until(lambda: shelf.is_closed)


async def test_deleting_a_session_closes_the_providers_of_its_context() -> None:
    shelf = Closable("shelf")
    async with Runtime("memory:", provider=ScriptedProvider([])) as runtime:
        session = await runtime.session("s").open()
        await session.set_context([shelf])
        await runtime.mount.holdfast.delete("s")
        assert shelf.is_closed
        await session.close()


async def test_a_session_whose_handles_are_closed_or_gone_makes_room_for_others() -> None:
    closed_one, forgotten = Closable("closed"), Closable("forgotten")
    async with Runtime("memory:", provider=ScriptedProvider([]), hot_programs=3) as runtime:
        session = await runtime.session("s-closed").open()
        await session.set_context([closed_one])
        await session.close()
        await (await runtime.session("s-forgotten").open()).set_context([forgotten])
        gc.collect()
        for number in range(10):
            await runtime.session(f"s-{number}").open()
        await until(lambda: forgotten.is_closed)
        assert runtime.mount.holdfast.engine.alive("s-closed") is None
        assert runtime.mount.holdfast.engine.alive("s-forgotten") is None


async def test_tools_of_a_plugin_are_the_methods_of_the_sessions_own_copy() -> None:
    class Named(Plugin):
        id = "named"

        def tools(self) -> Sequence[Any]:
            return [self.who]

        def who(self) -> str:
            """Who am I?"""
            return f"{self.session.session_id} with {self.config}"

    provider = ScriptedProvider([tool_call("who"), "Done."], loop=True)
    async with Runtime("memory:", provider=provider) as runtime:
        plugin = Named()
        sessions = [await runtime.session(f"s-{n}").plugin(plugin, n).open() for n in range(3)]
        for number, session in enumerate(sessions):
            result = await soon(session.turn("Who?").run())
            assert [call.result for call in result.tool_calls] == [f"s-{number} with {number}"]
