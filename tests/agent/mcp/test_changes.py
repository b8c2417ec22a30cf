"""Tools that change while they are used: what a server says of it, when it is looked at, and what stays as it was."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from holdfast.agent.mcp.client import McpClient
from holdfast.agent.providers.provider import ToolSpec
from holdfast.agent.tools import Catalog, DuplicateToolError, ToolContext, tool
from holdfast.agent.tools.tool import Tool, ToolSettings
from holdfast.core.values import Json
from holdfast.testing.patience import HANG_S, until
from tests.agent.mcp.helpers import Friendly, Host, hosting, script


async def test_a_tool_that_a_server_gets_is_offered_and_the_generation_goes_up_once(friendly: Friendly) -> None:
    async with hosting(friendly.server) as host:
        before = host.catalog.generation
        await host.call("srv_grow", name="leaf")
        await until(lambda: "srv_leaf" in host.catalog)
        assert await host.call("srv_leaf") == "leaf"
        assert host.catalog.generation == before + 1


async def listings(host: Host) -> int:
    """How often the old server was asked for its tools."""
    return int((await host.call("old_listed")).split()[2])


async def test_news_without_a_change_are_looked_at_and_leave_the_generation_as_it_is() -> None:
    async with hosting(McpClient.stdio("old", script("crude", "old"))) as host:
        before = host.catalog.generation
        await host.call("old_shout")
        async with asyncio.timeout(HANG_S):
            while await listings(host) < 2:
                pass
        await host.catalog.refresh()
        assert host.catalog.generation == before


async def test_a_storm_of_news_is_looked_at_a_few_times_only() -> None:
    """The server speaks the protocol of 2025, and says 500 times that something has changed."""
    async with hosting(McpClient.stdio("old", script("crude", "old"))) as host:
        for number in (1, 2):
            await host.call("old_look")
            await until(lambda name=f"old_found_{number}": name in host.catalog)  # type: ignore[misc]
        assert await listings(host) <= 6


async def test_tools_are_looked_at_again_after_a_connection_was_made_anew() -> None:
    async with hosting(McpClient.stdio("old", script("crude", "old"))) as host:
        await host.call("old_look")
        await until(lambda: "old_found_1" in host.catalog)
        await host.server.aclose()  # the next one knows nothing of what was found
        assert await host.call("old_found_1") == "there are 3"
        await until(lambda: "old_found_1" not in host.catalog)


# --- any provider --------------------------------------------------------------------------------------


class Shelf:
    """A provider that tells of its changes, knows how its tools are run, and can be closed."""

    def __init__(self, *names: str, id: str = "shelf") -> None:
        self.id = id
        self.names = list(names)
        self.recovery: dict[str, Any] = {}
        self.asked = 0
        self.is_broken = False
        self.is_closed = False
        self.watchers: list[Callable[[], Awaitable[None]]] = []
        self.waits: list[asyncio.Event] = []

    async def list_tools(self) -> Sequence[ToolSpec]:
        self.asked += 1
        found = [ToolSpec(name, "", {"type": "object"}) for name in self.names]
        if self.waits:
            await self.waits.pop(0).wait()
        if self.is_broken:
            raise ConnectionError("the shelf is broken")
        return found

    def settings_of(self, name: str) -> ToolSettings:
        return {"recovery": self.recovery.get(name, "never")}

    async def call(self, name: str, arguments: dict[str, Json], ctx: ToolContext) -> Any:
        return name

    def watch(self, watcher: Callable[[], Awaitable[None]]) -> Callable[[], None]:
        self.watchers.append(watcher)
        return lambda: self.watchers.remove(watcher)

    async def aclose(self) -> None:
        self.is_closed = True

    async def tell(self) -> None:
        for watcher in self.watchers:
            await watcher()


async def test_only_the_provider_that_tells_of_a_change_is_asked() -> None:
    one, other = Shelf("a", id="one"), Shelf("b", id="other")
    catalog = Catalog([one, other])
    await catalog.refresh()
    one.names.append("c")
    await one.tell()
    assert "c" in catalog
    assert (one.asked, other.asked) == (2, 1)


async def test_a_refresh_that_fails_leaves_the_tools_as_they_were() -> None:
    shelf = Shelf("a")
    catalog = Catalog([shelf])
    await catalog.refresh()
    before = catalog.generation
    shelf.is_broken = True
    with pytest.raises(ConnectionError):
        await shelf.tell()
    assert ("a" in catalog, catalog.generation) == (True, before)


async def test_a_change_to_the_name_of_another_tool_is_refused_with_both_owners() -> None:
    @tool
    def local() -> str:
        """A tool of our own."""
        return ""

    shelf = Shelf("a")
    catalog = Catalog([local, shelf])
    await catalog.refresh()
    shelf.names.append("local")
    with pytest.raises(DuplicateToolError, match=r"'local'.*local.*the provider 'shelf'"):
        await shelf.tell()
    assert "a" in catalog


async def test_an_answer_that_was_overtaken_by_a_later_one_is_not_taken() -> None:
    shelf = Shelf("a")
    catalog = Catalog([shelf])
    await catalog.refresh()
    late = asyncio.Event()
    shelf.waits.append(late)
    earlier = asyncio.create_task(shelf.tell())
    await until(lambda: not shelf.waits)
    shelf.names.append("b")
    await shelf.tell()
    late.set()
    await earlier
    assert "b" in catalog


async def test_how_a_tool_is_run_may_be_said_by_its_provider_and_overruled_by_whoever_adds_it() -> None:
    shelf = Shelf("a", "b")
    shelf.recovery["a"] = "safe"
    catalog = Catalog([shelf])
    await catalog.refresh()
    assert [entry.recovery for entry in catalog if isinstance(entry, Tool)] == ["safe", "never"]
    shelf.recovery["b"] = "idempotent"
    await shelf.tell()
    assert [entry.recovery for entry in catalog if isinstance(entry, Tool)] == ["safe", "idempotent"]
    await catalog.add_provider(shelf, recovery="never")
    assert [entry.recovery for entry in catalog if isinstance(entry, Tool)] == ["never", "never"]


async def test_a_closed_catalog_closes_its_providers_and_hears_of_them_no_more() -> None:
    one, other = Shelf("a", id="one"), Shelf("b", id="other")
    catalog = Catalog([one, other])
    await catalog.aclose()
    assert one.is_closed
    assert other.is_closed
    assert one.watchers == []


async def test_a_provider_that_takes_the_place_of_another_is_the_only_one_that_is_heard() -> None:
    before, after = Shelf("a"), Shelf("b")
    catalog = Catalog()
    await catalog.add_provider(before)
    await catalog.add_provider(after)
    assert before.watchers == []
    assert len(after.watchers) == 1
    assert [entry.name for entry in catalog] == ["b"]
