"""The catalog of a session's tools, with its cache, and access to tools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.agent.errors import PluginError
from holdfast.agent.loaded_session import KEPT_CATALOGS
from holdfast.agent.machine.prompt import Contribution
from holdfast.agent.plugins.plugin import Plugin
from holdfast.agent.providers.provider import ToolSpec
from holdfast.agent.runtime import Runtime
from holdfast.agent.tools import RemoteTool, ToolContext
from holdfast.agent.tools.session_catalog import ToolSummary
from holdfast.testing.patience import soon
from holdfast.testing.provider import ScriptedProvider, tool_call
from tests.agent.helpers import OBJECT
from tests.agent.toolbox import Shelf, drill, names, runtime_with, saw
from tests.tables import each_row


class Chooser(Plugin):
    """Hides tools, and describes them otherwise."""

    id = "chooser"
    hidden: Sequence[str] = ()
    said = ""

    def catalog(self, tools: Sequence[ToolSummary]) -> Sequence[ToolSummary]:
        left = [tool for tool in tools if tool.name not in self.hidden]
        if not self.said:
            return left
        return [ToolSummary(name=tool.name, description=self.said, owner=tool.owner) for tool in left]


# --- the cache -----------------------------------------------------------------------------------------


async def test_an_unchanged_catalog_is_the_same_object_and_is_built_once() -> None:
    async with await runtime_with(*["Hello."] * 5) as runtime:
        session = await runtime.session("s-1").open()
        first = await session.catalog()
        for _ in range(5):
            await soon(session.turn("Hi").run())
            assert await session.catalog() is first
        assert (await session.loaded()).builds == 1


async def test_key_parts_each_invalidate() -> None:
    chooser = Chooser()
    async with await runtime_with() as runtime:
        session = await runtime.session("s-1").plugin(chooser).open()
        resident = await session.loaded()
        seen = [await session.catalog()]

        async def is_new() -> bool:
            now = await session.catalog()
            is_known = any(now is each for each in seen)
            seen.append(now)
            return not is_known and await session.catalog() is now

        assert not await is_new()
        await session.set_context(include_base=False)
        assert await is_new(), "whether the runtime's tools are there"
        assert await names(session) == []
        await session.set_context([Shelf("cup")], include_base=False)
        assert await is_new(), "the overlay"
        await session.set_context([Shelf("cup")])
        assert await is_new()
        runtime.tools.remove("saw")
        assert await is_new(), "the generation of the registry"
        own = resident.hooks.get("chooser")
        assert own is not None
        own.hidden = ["drill"]  # type: ignore[attr-defined]
        assert not await is_new(), "a plugin says so itself when it changes its mind"
        own.revision += 1
        assert await is_new(), "the revision of a plugin"
        assert await names(session) == ["cup"]
        await session.configure(deny=["cup"])
        assert await is_new(), "the access rules"
        assert await names(session) == []


async def test_same_object_overlay_no_op() -> None:
    async with await runtime_with() as runtime:
        session = await runtime.session("s-1").open()
        shelf, words = Shelf("cup"), [Contribution("context", "A cup is here.")]
        await session.set_context([shelf, saw_again], words)
        before = await session.catalog()
        await session.set_context([shelf, saw_again], [Contribution("context", "A cup is here.")])
        assert await session.catalog() is before
        assert shelf.asked == 1
        await session.set_context([saw_again, shelf], words)  # the same objects in another order are another overlay
        assert await session.catalog() is not before


def saw_again() -> str:
    """Saw once more."""
    return "sawn again"


async def test_equal_but_distinct_provider_invalidates() -> None:
    async with await runtime_with() as runtime:
        session = await runtime.session("s-1").open()
        one, other = Shelf("cup"), Shelf("cup")
        assert one == other
        await session.set_context([one])
        before = await session.catalog()
        await session.set_context([other])
        assert await session.catalog() is not before
        assert (one.asked, other.asked) == (1, 1)


@each_row(
    ("broken", "told"),
    [
        (lambda: [Shelf("cup"), Shelf("broken", id="b")], "the shelf has fallen down"),
        (lambda: [Shelf("saw")], "saw"),
        (lambda: [Shelf("cup"), Shelf("cup", id="other")], "cup"),
        (lambda: [lambda x: x], "has no type"),
    ],
)
async def test_failure_leaves_old(broken: Any, told: str) -> None:
    async with await runtime_with() as runtime:
        session = await runtime.session("s-1").open()
        await session.set_context([Shelf("jug")], [Contribution("context", "A jug.")])
        before = await session.catalog()
        with pytest.raises(PluginError, match=told) as caught:
            await session.set_context(broken(), [Contribution("context", "Something else.")])
        assert caught.value.session_id == "s-1"
        assert await session.catalog() is before
        resident = await session.loaded()
        assert resident.prompt(session.policy, None, before) == "# Context\n\nA jug."


async def test_json_view_built_once() -> None:
    async with await runtime_with() as runtime:
        session = await runtime.session("s-1").open()
        first = (await session.catalog()).json
        assert (await session.catalog()).json is first
        assert [tool["name"] for tool in first] == ["saw", "drill"]
        assert first[0]["parameters"] == {
            "type": "object",
            "properties": {},
            "required": [],
            "additionalProperties": False,
        }


async def test_refresh_clears() -> None:
    shelf, own = Shelf("cup"), Shelf("jug", id="own")
    async with Runtime("memory:", provider=ScriptedProvider([]), tools=[shelf]) as runtime:
        session = await runtime.session("s-1").open()
        await session.set_context([own])
        before = await session.catalog()
        await session.refresh_catalog()
        assert await session.catalog() is not before  # also where nothing has changed
        shelf.names, own.names = ["cup", "bowl"], ["jug", "pot"]
        assert await names(session) == ["cup", "jug"]
        await session.refresh_catalog()
        assert await names(session) == ["cup", "bowl", "jug", "pot"]


async def test_a_refresh_that_fails_leaves_what_was_there() -> None:
    shelf = Shelf("cup")
    async with Runtime("memory:", provider=ScriptedProvider([]), tools=[shelf]) as runtime:
        session = await runtime.session("s-1").open()
        before = await session.catalog()
        shelf.names = ["broken"]
        with pytest.raises(ConnectionError):
            await session.refresh_catalog()
        assert await session.catalog() is before


async def test_bound_on_entries() -> None:
    async with await runtime_with() as runtime:
        session = await runtime.session("s-1").open()
        resident = await session.loaded()
        for number in range(100):
            await session.configure(deny=[f"tool-{number}"])
            await session.catalog()
        assert resident.builds == 100
        assert len(resident._catalogs) == KEPT_CATALOGS
        await session.configure(deny=["tool-95"])
        await session.catalog()
        assert resident.builds == 100  # a plugin or host that switches between a few has them all at hand
        await session.configure(deny=["tool-5"])
        await session.catalog()
        assert resident.builds == 101


async def test_a_plugin_with_another_configuration_is_asked_again() -> None:
    class Hides(Plugin):
        id = "hides"

        def catalog(self, tools: Sequence[ToolSummary]) -> Sequence[ToolSummary]:
            return [tool for tool in tools if tool.name != self.config]

        def prompt(self) -> Sequence[Contribution]:
            return [Contribution("context", f"There is no {self.config}.")]

    provider = ScriptedProvider(["Hello."], loop=True)
    async with Runtime("memory:", provider=provider, tools=[saw, drill]) as runtime:
        for config, left in (("saw", ["drill"]), ("drill", ["saw"]), ("saw", ["drill"])):
            session = await runtime.session("s-1").plugin(Hides(), config).open()
            await soon(session.turn("Hi").run())
            assert [tool.name for tool in provider.requests[-1].tools] == left
            assert provider.requests[-1].system == f"# Context\n\nThere is no {config}."


async def test_contracts_are_looked_up_when_a_model_is_told_of_them() -> None:
    looked_up: list[str] = []

    class Lazy(RemoteTool):
        @property
        def spec(self) -> ToolSpec:
            looked_up.append(self.name)
            return super().spec

    async def call(arguments: dict[str, Any], ctx: ToolContext) -> str:
        return "done"

    tools = [Lazy(f"tool-{number}", "A tool.", OBJECT, call, owner="a test") for number in range(63)]
    provider = ScriptedProvider(["Hello."], loop=True)
    async with Runtime("memory:", provider=provider, tools=tools) as runtime:
        session = await runtime.session("s-1").open()
        found = await session.catalog()
        assert len(found.summaries) == 63
        assert looked_up == []
        assert found.parameters("tool-7") == OBJECT
        assert looked_up == ["tool-7"]
        for _ in range(3):
            await soon(session.turn("Hi").run())
        assert len(looked_up) == 1 + 63


async def test_the_very_same_list_of_tools_is_told_in_every_turn() -> None:
    provider = ScriptedProvider(["Hello."], loop=True)
    async with Runtime("memory:", provider=provider, tools=[saw, drill]) as runtime:
        session = await runtime.session("s-1").open()
        for _ in range(3):
            await soon(session.turn("Hi").run())
    assert provider.requests[0].tools is provider.requests[1].tools is provider.requests[2].tools


# --- which tools ---------------------------------------------------------------------------------------


async def _left(**spec: Any) -> list[str]:
    tools = [Shelf("file_read", "file_write", "file_delete", "web_get", "web_post")]
    async with Runtime("memory:", provider=ScriptedProvider([]), tools=tools) as runtime:
        return await names(await runtime.session("s-1").spec(**spec).open())


@each_row(
    ("spec", "left"),
    [
        ({}, ["file_read", "file_write", "file_delete", "web_get", "web_post"]),
        ({"tools": []}, []),
        ({"tools": ["web_get"]}, ["web_get"]),
        ({"tools": ["file_*", "web_get"]}, ["file_read", "file_write", "file_delete", "web_get"]),
        ({"deny": ["file_*"]}, ["web_get", "web_post"]),
        ({"tools": ["file_*"], "deny": ["*_delete"]}, ["file_read", "file_write"]),
        ({"tools": ["file_read"], "deny": ["file_read"]}, []),
        ({"deny": ["*"]}, []),
        ({"tools": ["FILE_READ", "nowhere"]}, []),
    ],
)
async def test_access_is_by_name_or_pattern_and_deny_beats_allow(spec: dict[str, Any], left: list[str]) -> None:
    assert await _left(**spec) == left


async def test_what_is_denied_cannot_be_called_either() -> None:
    provider = ScriptedProvider([tool_call("saw"), "Oh."])
    async with Runtime("memory:", provider=provider, tools=[saw, drill]) as runtime:
        session = await runtime.session("s-1").spec(deny=["saw"]).open()
        result = await soon(session.turn("Saw!").run())
        assert result.tool_calls[0].result["code"] == "unknown_tool"
        assert "saw" not in result.tool_calls[0].result["error"].partition(";")[2].replace("'saw'", "")


async def test_deny_holds_for_the_sessions_own_tools_as_well() -> None:
    async with await runtime_with() as runtime:
        session = await runtime.session("s-1").spec(deny=["cup"]).open()
        await session.set_context([Shelf("cup", "jug")])
        assert await names(session) == ["saw", "drill", "jug"]


async def test_a_plugin_hides_tools_and_describes_them_otherwise() -> None:
    class Terse(Chooser):
        hidden = ("drill",)
        said = "Use it well."

    provider = ScriptedProvider([tool_call("drill"), tool_call("saw"), "Done."])
    async with Runtime("memory:", provider=provider, tools=[saw, drill]) as runtime:
        session = await runtime.session("s-1").plugin(Terse()).open()
        result = await soon(session.turn("Drill and saw").run())
        assert [(tool.name, tool.description) for tool in provider.requests[0].tools] == [("saw", "Use it well.")]
        assert [call.is_error for call in result.tool_calls] == [True, False]
        other = await runtime.session("s-2").open()
        assert await names(other) == ["saw", "drill"]


@each_row(
    "gives",
    [
        lambda tools: [ToolSummary(name="fly", description="Fly.", owner="nobody")],
        lambda tools: [tools[0], tools[0]],
        lambda tools: ["saw"],
        lambda tools: [ToolSummary(name="saw", description=None, owner="x")],  # type: ignore[arg-type]
        lambda tools: None,
    ],
)
async def test_a_plugin_can_neither_invent_tools_nor_spoil_the_catalog(gives: Any) -> None:
    class Odd(Plugin):
        id = "odd"

        def catalog(self, tools: Sequence[ToolSummary]) -> Sequence[ToolSummary]:
            return gives(tools)  # type: ignore[no-any-return]

    async with await runtime_with() as runtime:
        session = await runtime.session("s-1").plugin(Odd()).open()
        assert await names(session) == ["saw", "drill"]


async def test_a_declared_tool_is_in_the_catalog_and_says_so() -> None:
    async with await runtime_with() as runtime:
        runtime.tools.declare("ask", "Ask the user.", OBJECT)
        session = await runtime.session("s-1").open()
        found = {each.name: each.is_declared for each in (await session.catalog()).summaries}
        assert found == {"saw": False, "drill": False, "ask": True}
