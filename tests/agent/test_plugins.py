"""Plugins: what they bring to the sessions that have them, and to no others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast.agent.errors import MissingPluginInputError, PluginConflictError, PluginError, UnknownPluginError
from holdfast.agent.machine.messages import TextBlock
from holdfast.agent.plugins.plugin import Plugin
from holdfast.agent.providers.provider import ToolSpec
from holdfast.agent.runtime import Runtime
from holdfast.agent.session import AgentSession
from holdfast.agent.tools import DuplicateToolError, ToolContext
from holdfast.agent.tools.catalog import Toolish
from holdfast.testing import ScriptedProvider, tool_call


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Notes(Plugin):
    """Keeps notes: a tool, a layer of instructions that the config is part of, and nothing of the turns."""

    id = "notes"

    def __init__(self) -> None:
        self.kept: list[str] = []

    def instructions(self) -> str:
        return f"Keep notes in {self.config}."

    def tools(self) -> Sequence[Toolish]:
        return [self.note]

    def note(self, text: str, ctx: ToolContext) -> str:
        """Keep a note."""
        self.kept.append(f"{ctx.session_id}: {text}")
        return "kept"


class Ticket(Plugin):
    """Every turn is about a ticket."""

    id = "ticket"
    requires_turn_input = True

    def turn_text(self, turn_input: Any) -> str:
        return f"[ticket {turn_input}]"


class Mood(Plugin):
    """A mood for a turn, if there is one."""

    id = "mood"

    def turn_text(self, turn_input: Any) -> str:
        return "" if turn_input is None else f"[{turn_input}]"


def told(provider: ScriptedProvider, call: int = -1) -> list[str]:
    """The names of the tools that a model was told of."""
    return [tool.name for tool in provider.requests[call].tools]


def said(provider: ScriptedProvider, call: int = -1) -> list[str]:
    """The texts of the last message that a model was given."""
    return [block.text for block in provider.requests[call].messages[-1].content if isinstance(block, TextBlock)]


async def journal(session: AgentSession) -> int:
    return (await session.read_view()).position


async def test_plugin_requiring_input_rejects_bare_turn() -> None:
    provider = ScriptedProvider(["Hello."], loop=True)
    async with Runtime("memory:", provider=provider) as runtime:
        session = await runtime.session("s-1").plugin(Ticket()).open()
        before = await journal(session)
        with pytest.raises(MissingPluginInputError, match="plugin_input") as caught:
            await session.turn("Hi").run()
        assert (caught.value.plugin, caught.value.session_id) == ("ticket", "s-1")
        with pytest.raises(MissingPluginInputError):
            async for _ in session.turn("Hi").stream():
                pass
        assert await journal(session) == before
        assert provider.requests == []
        result = await session.turn("Hi").plugin_input("ticket", 7).run()
        assert result.text == "Hello."
        assert said(provider) == ["Hi", "[ticket 7]"]


async def test_none_is_an_input_too() -> None:
    provider = ScriptedProvider(["Hello."])
    async with Runtime("memory:", provider=provider) as runtime:
        session = await runtime.session("s-1").plugin(Ticket()).open()
        await session.turn("Hi").plugin_input("ticket", None).run()
        assert said(provider) == ["Hi", "[ticket None]"]


async def test_a_plugin_that_can_do_without_adds_nothing_to_a_bare_turn() -> None:
    provider = ScriptedProvider(["Hello."], loop=True)
    async with Runtime("memory:", provider=provider) as runtime:
        session = await runtime.session("s-1").plugin(Mood()).plugin(Ticket()).open()
        await session.turn("Hi").plugin_input("ticket", 1).run()
        assert said(provider) == ["Hi", "[ticket 1]"]
        await session.turn("Hi").plugin_input("ticket", 2).plugin_input("mood", "glad").run()
        assert said(provider) == ["Hi", "[glad]", "[ticket 2]"]


async def test_the_same_turn_with_the_same_plugin_input_is_joined() -> None:
    async with Runtime("memory:", provider=ScriptedProvider(["Hello."])) as runtime:
        session = await runtime.session("s-1").plugin(Ticket()).open()
        turn = session.turn("Hi").id("t-1").plugin_input("ticket", 7)
        assert not (await turn.run()).receipt.replayed
        assert (await turn.run()).receipt.replayed
        again = await session.turn("Hi").id("t-1").plugin_input("ticket", 7).run()
        assert again.receipt.replayed
        assert again.text == "Hello."


async def test_an_input_for_a_plugin_that_the_session_lacks_is_refused() -> None:
    async with Runtime("memory:", provider=ScriptedProvider([])) as runtime:
        session = await runtime.session("s-1").plugin(Mood()).open()
        with pytest.raises(UnknownPluginError, match="no plugin 'modo' to take an input; it has mood"):
            session.turn("Hi").plugin_input("modo", "glad")


async def test_two_plugins_of_one_id_are_refused() -> None:
    async with Runtime("memory:", provider=ScriptedProvider([])) as runtime:
        with pytest.raises(PluginConflictError, match="already has a plugin 'mood'"):
            runtime.session("s-1").plugin(Mood()).plugin(Mood())


async def test_instructions_are_layered_in_the_order_they_were_given() -> None:
    provider = ScriptedProvider(["Hello."])
    async with Runtime("memory:", provider=provider, instructions="Be kind.") as runtime:
        session = await runtime.session("s-1").prompt("Be brief.").plugin(Notes(), "a drawer").prompt("Rhyme.").open()
        await session.turn("Hi").run()
        assert provider.requests[0].system == "Be kind.\n\nBe brief.\n\nKeep notes in a drawer.\n\nRhyme."


async def test_only_sessions_with_the_plugin_are_told_of_its_tools() -> None:
    provider = ScriptedProvider(["Hello."], loop=True)
    async with Runtime("memory:", provider=provider, tools=[add]) as runtime:
        plain = await runtime.session("plain").open()
        await plain.turn("Hi").run()
        assert told(provider) == ["add"]
        with_notes = await runtime.session("with").plugin(Notes(), "a drawer").open()
        await with_notes.turn("Hi").run()
        assert told(provider) == ["add", "note"]
        await plain.turn("Hi again").run()
        assert told(provider) == ["add"]


async def test_a_session_without_the_plugin_cannot_call_its_tools_either() -> None:
    notes = Notes()
    provider = ScriptedProvider([tool_call("note", text="mine"), "Oh."])
    async with Runtime("memory:", provider=provider, tools=[add]) as runtime:
        await runtime.session("with").plugin(notes, "a drawer").open()
        plain = await runtime.session("plain").open()
        result = await plain.turn("Note this").run()
        call = result.tool_calls[0]
        assert call.is_error
        assert call.result == {"error": "there is no tool 'note'; the tools are add", "code": "unknown_tool"}
        assert notes.kept == []


async def test_tools_of_a_plugin_run_for_its_sessions() -> None:
    notes = Notes()
    provider = ScriptedProvider([tool_call("note", text="milk"), "Done."])
    async with Runtime("memory:", provider=provider) as runtime:
        session = await runtime.session("s-1").plugin(notes, "a drawer").open()
        result = await session.turn("Note milk").run()
        assert [call.result for call in result.tool_calls] == ["kept"]
        assert notes.kept == ["s-1: milk"]


async def test_sessions_with_other_configs_share_the_same_tools() -> None:
    notes = Notes()
    provider = ScriptedProvider(["Hello."], loop=True)
    async with Runtime("memory:", provider=provider, tools=[add]) as runtime:
        for config in ("a drawer", "a drawer", "a book"):
            session = await runtime.session(f"s-{config[-1]}").plugin(notes, config).open()
            await session.turn("Hi").run()
            assert told(provider) == ["add", "note"]


class Other(Plugin):
    """Brings another tool of the same name."""

    id = "other"

    def tools(self) -> Sequence[Toolish]:
        def note(text: str) -> str:
            """Keep it elsewhere."""
            return text

        return [note]


async def test_another_tool_of_the_same_name_is_the_catalogs_error_and_changes_nothing() -> None:
    provider = ScriptedProvider(["Hello."], loop=True)
    async with Runtime("memory:", provider=provider, tools=[add]) as runtime:
        await runtime.session("s-1").plugin(Notes()).open()
        with pytest.raises(DuplicateToolError, match="note"):
            await runtime.session("s-2").plugin(Other()).open()
        plain = await runtime.session("s-2").open()
        await plain.turn("Hi").run()
        assert told(provider) == ["add"]


async def test_tools_that_a_session_was_limited_to_are_joined_by_those_of_its_plugins() -> None:
    def extra() -> str:
        """More."""
        return "more"

    provider = ScriptedProvider(["Hello."], loop=True)
    async with Runtime("memory:", provider=provider, tools=[add, extra]) as runtime:
        session = await runtime.session("s-1").spec(tools=["extra"]).plugin(Notes()).open()
        await session.turn("Hi").run()
        assert told(provider) == ["extra", "note"]


async def test_a_tool_that_all_sessions_have_stays_theirs_when_a_plugin_brings_it_too() -> None:
    class Sums(Plugin):
        id = "sums"

        def tools(self) -> Sequence[Toolish]:
            shared = runtime.tools.get("add")
            assert shared is not None
            return [shared]  # type: ignore[list-item]

    provider = ScriptedProvider(["Hello."], loop=True)
    async with Runtime("memory:", provider=provider, tools=[add]) as runtime:
        await runtime.session("with").plugin(Sums()).open()
        plain = await runtime.session("plain").open()
        await plain.turn("Hi").run()
        assert told(provider) == ["add"]


class Shelf:
    """A provider of tools, whose tools change."""

    id = "shelf"

    def __init__(self, *names: str) -> None:
        self.names = names

    async def list_tools(self) -> Sequence[ToolSpec]:
        return [ToolSpec(name, "From the shelf.", {"type": "object", "properties": {}}) for name in self.names]

    async def call(self, name: str, arguments: dict[str, Any], ctx: ToolContext) -> Any:
        return f"{name} it is"


class Shelves(Plugin):
    id = "shelves"

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf

    def tools(self) -> Sequence[Toolish]:
        return [self.shelf]


async def test_a_plugin_may_bring_a_provider_of_tools_whose_tools_stay_its_own() -> None:
    shelf = Shelf("cup")
    provider = ScriptedProvider([tool_call("cup"), "Done.", "Hello.", "Hello."])
    async with Runtime("memory:", provider=provider, tools=[add]) as runtime:
        session = await runtime.session("with").plugin(Shelves(shelf)).open()
        result = await session.turn("A cup").run()
        assert [call.result for call in result.tool_calls] == ["cup it is"]
        assert told(provider) == ["add", "cup"]
        shelf.names = ("cup", "jug")
        await runtime.tools.refresh()
        plain = await runtime.session("plain").open()
        await plain.turn("Hi").run()
        assert told(provider) == ["add"]
        again = await runtime.session("with").plugin(Shelves(shelf)).open()
        await again.turn("A jug").run()
        assert told(provider) == ["add", "cup", "jug"]


async def test_a_session_that_is_opened_without_its_plugin_goes_on_without_its_tools(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    async with Runtime(url, provider=ScriptedProvider(["Hello."])) as runtime:
        session = await runtime.session("s-1").plugin(Notes(), "a drawer").open()
        await session.turn("Hi").run()
    provider = ScriptedProvider(["Hello again."])
    async with Runtime(url, provider=provider, tools=[add]) as runtime:
        session = await runtime.session("s-1").open()
        await session.turn("Hi").run()
        assert told(provider) == ["add"]
        assert provider.requests[0].system == "Keep notes in a drawer."


async def test_a_call_under_way_goes_on_in_a_process_that_has_the_plugin_from_the_start(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    async with Runtime(url, provider=ScriptedProvider([tool_call("note", text="milk")])) as runtime:
        runtime.tools.declare("note", "Keep a note.", {"type": "object", "properties": {"text": {"type": "string"}}})
        session = await runtime.session("s-1").spec(tools=["*", "note"]).open()
        with pytest.raises(TimeoutError):
            await session.turn("Note milk").id("t-1").run(wait=0.2)
    notes = Notes()
    runtime = Runtime(url, provider=ScriptedProvider(["Done."]))
    assert await runtime.plugins.install(notes) == ["note"]
    async with runtime:
        session = await runtime.session("s-1").plugin(notes).open()
        assert (await session.turn("Note milk").id("t-1").run(wait=5)).text == "Done."
        assert notes.kept == ["s-1: milk"]


async def test_what_a_plugin_raises_is_raised_before_anything_is_written() -> None:
    class Broken(Plugin):
        id = "broken"

        def turn_text(self, turn_input: Any) -> str:
            raise LookupError("no such thing")

    async with Runtime("memory:", provider=ScriptedProvider([])) as runtime:
        session = await runtime.session("s-1").plugin(Broken()).open()
        before = await journal(session)
        with pytest.raises(PluginError, match="'broken' failed at 'turn_text': LookupError: no such thing"):
            await session.turn("Hi").run()
        assert await journal(session) == before
