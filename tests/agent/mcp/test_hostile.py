"""Servers that mean no good, or know no better: too much of everything, and none of it hangs, crashes or floods us."""

from __future__ import annotations

import pytest

from holdfast.agent.mcp.client import McpClient
from holdfast.agent.mcp.errors import McpUnavailableError
from holdfast.agent.mcp.limits import DESCRIPTION_CHARS, MAX_TOOLS, McpLimits
from holdfast.agent.tools import Catalog, DuplicateToolError, tool
from holdfast.testing.patience import soon
from tests.agent.mcp.helpers import children, hosting, script


async def test_of_ten_thousand_tools_some_are_offered_and_the_others_named(caplog: pytest.LogCaptureFixture) -> None:
    async with hosting(McpClient.stdio("srv", script("hostile", "many"))) as host:
        assert host.names == [f"srv_t{number:05}" for number in range(MAX_TOOLS)]
    assert "9744 tools are not offered: there are more than 256" in caplog.text
    assert "'t00256'" in caplog.text
    assert len(caplog.text) < 2_000


async def test_one_of_ten_thousand_can_be_chosen() -> None:
    async with hosting(McpClient.stdio("srv", script("hostile", "many"), allow=["t0999?"], deny=["*9"])) as host:
        assert host.names == [f"srv_t0999{number}" for number in range(9)]


async def test_schemas_that_are_too_much_are_left_out_and_the_others_offered(caplog: pytest.LogCaptureFixture) -> None:
    async with hosting(McpClient.stdio("srv", script("hostile", "bombs"))) as host:
        assert host.names == ["srv_fine", "srv_recursive", "srv_slow", "srv_wordy"]
        description = host.tool("srv_wordy").description
        assert len(description) < DESCRIPTION_CHARS + 50
        assert description.endswith("more characters]")
        assert await host.call("srv_recursive", root={"next": {"next": {}}}) == {"a": "a" * 50 + "!"}
        # A pattern that is tried on such a text takes for ever.
        assert await soon(host.call("srv_slow", a="a" * 50 + "!")) == {"a": "a" * 50 + "!"}
    for name in ("deep", "wide", "broken", "integer"):
        assert f"'{name}'" in caplog.text


async def test_a_tool_that_violates_the_protocol_refuses_only_itself(caplog: pytest.LogCaptureFixture) -> None:
    async with hosting(McpClient.stdio("srv", script("crude", "malformed"))) as host:
        assert host.names == ["srv_listed", "srv_look", "srv_shout"]
        assert await host.call("srv_listed") == "there were 1 listings"
    assert (
        "3 tools are not offered: they violate the protocol: 'odd', '(without a name)', '(without a name)'"
        in caplog.text
    )


async def test_a_listing_that_never_ends_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    async with hosting(McpClient.stdio("srv", script("hostile", "endless"))) as host:
        assert len(host.names) == 100
    assert "its tool list does not end" in caplog.text


async def test_a_listing_that_goes_in_circles_is_cut() -> None:
    async with hosting(McpClient.stdio("srv", script("hostile", "circular"))) as host:
        assert host.names == ["srv_t1", "srv_t2"]


async def test_tools_whose_names_collide_are_all_there_under_the_same_names_each_time() -> None:
    async with hosting(McpClient.stdio("srv", script("hostile", "collisions"))) as host:
        names = host.names
        assert len(names) == 8
        assert {"srv_a_b", "srv_c_d", "srv_add", "srv_twice"} < set(names)
        assert all(len(name) <= 64 for name in names)
        assert sum(name.startswith("srv_a_b_") for name in names) == 2
        before = host.catalog.generation
        await host.catalog.refresh()
        assert (host.names, host.catalog.generation) == (names, before)


async def test_a_name_that_a_tool_here_has_already_is_refused_with_both_owners() -> None:
    @tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    server = McpClient.stdio("srv", script("hostile", "collisions"), prefix="")
    catalog = Catalog([add, server])
    try:
        with pytest.raises(DuplicateToolError) as raised:
            await catalog.refresh()
    finally:
        await catalog.aclose()
    assert raised.value.tool == "add"
    assert "the provider 'mcp:srv'" in str(raised.value)
    assert "add" in raised.value.owner
    assert len(catalog) == 1


async def test_of_a_large_result_the_beginning_and_the_end_are_taken() -> None:
    async with hosting(McpClient.stdio("srv", script("hostile", "large"))) as host:
        done = await host.call("srv_large", bytes=3_000_000)
        assert len(done) < 20_000
        assert "omitted here" in done
        done = await host.call("srv_structured")
        assert done.startswith('{"text":"xxx')
        assert "omitted here" in done


async def test_an_answer_that_is_larger_than_any_message_may_be_is_refused_and_the_connection_stays() -> None:
    async with hosting(McpClient.stdio("srv", script("hostile", "large"))) as host:
        told = await host.error("srv_large", bytes=20_000_000)
        assert told["code"] == "refused"
        assert "the limit is 8,388,608" in told["error"]
        assert await host.call("srv_large", bytes=3) == "xxx"


async def test_lines_that_are_no_messages_are_passed_over() -> None:
    async with hosting(McpClient.stdio("old", script("crude", "prattling"))) as host:
        assert await host.call("old_look") == "there are 4"


async def test_a_server_that_says_nothing_but_garbage_is_given_up_and_quoted() -> None:
    server = McpClient.stdio("noise", script("crude", "garbage"), timeouts=McpLimits(connect_s=0.5))
    before = children()
    with pytest.raises(McpUnavailableError) as raised:
        await server.list_tools()
    assert "lines of its output were not messages" in raised.value.why
    assert "hello, is anybody there?" in raised.value.why
    assert children() == before
