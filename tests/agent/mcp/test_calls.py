"""Calls of a server's tools: what they come to over both transports, how long they take, and what a child is told."""

from __future__ import annotations

import asyncio
import os
import shlex
import time
from pathlib import Path

import pytest

from holdfast.agent.live_events import ToolOutputEvent
from holdfast.agent.mcp.client import McpClient
from holdfast.agent.mcp.errors import McpDefinitionError, McpUnavailableError
from holdfast.agent.mcp.limits import McpLimits
from holdfast.agent.tools import Catalog
from holdfast.testing.patience import until
from tests.agent.mcp.helpers import Friendly, children, hosting, is_alive, script
from tests.tables import each_row

TOOLS = ["add", "ask", "die", "environment", "everything", "fail", "grow", "hang", "place", "put", "steps", "whoami"]


async def test_tools_of_a_server_are_offered_and_called_over_both_transports(friendly: Friendly) -> None:
    async with hosting(friendly.server) as host:
        assert set(host.names) >= {f"srv_{name}" for name in TOOLS}
        assert host.tool("srv_add").description == "Add two numbers."
        assert host.tool("srv_add").parameters["required"] == ["a", "b"]
        assert await host.call("srv_add", a=2, b=40) == "42"
        assert await host.call("srv_place", name="here") == {"name": "here", "people": 42}
        assert (await host.error("srv_fail"))["error"].endswith("the moon is in the wrong place")
        assert "argument 'b' is missing" in (await host.error("srv_add", a=1))["error"]


async def test_progress_is_shown_and_extends_the_time_of_a_call(tmp_path: Path) -> None:
    timeouts = McpLimits(call_s=1.0)
    async with hosting(McpClient.stdio("srv", script("friendly", "stdio", tmp_path), timeouts=timeouts)) as host:
        assert await host.call("srv_steps", count=4, every_s=0.4) == "done"
        told = [event.text for event in host.events if isinstance(event, ToolOutputEvent)]
    assert "".join(told) == "".join(f"working ({number} of 4)\n" for number in range(1, 5))


async def test_progress_extends_the_time_of_a_call_up_to_the_hard_limit_only(tmp_path: Path) -> None:
    timeouts = McpLimits(call_s=0.8, call_max_s=0.9)
    async with hosting(McpClient.stdio("srv", script("friendly", "stdio", tmp_path), timeouts=timeouts)) as host:
        told = await host.error("srv_steps", count=50, every_s=0.1)
    assert told["code"] == "timeout"
    assert told["error"] == "'srv_steps' was stopped after 0.9 s, its time limit"


async def test_a_call_that_hangs_is_given_up_and_the_server_is_told(tmp_path: Path) -> None:
    timeouts = McpLimits(call_s=0.3)
    async with hosting(McpClient.stdio("srv", script("friendly", "stdio", tmp_path), timeouts=timeouts)) as host:
        told = await host.error("srv_hang")
        await until((tmp_path / "cancelled").exists)
        assert await host.call("srv_add", a=1, b=1) == "2"
    assert told["code"] == "timeout"
    assert "0.3 s, without any progress from the server" in told["error"]


async def test_cancelling_a_call_is_told_to_the_server(friendly: Friendly) -> None:
    async with hosting(friendly.server) as host:
        calling = asyncio.create_task(host.done("srv_hang"))
        await until((friendly.folder / "hung").exists)
        calling.cancel()
        await until((friendly.folder / "cancelled").exists)
        with pytest.raises(asyncio.CancelledError):
            await calling


async def test_what_is_no_text_is_described(tmp_path: Path) -> None:
    async with hosting(McpClient.stdio("srv", script("friendly", "stdio", tmp_path), prefix="")) as host:
        assert await host.call("everything") == "\n".join(
            [
                "first",
                "[image, image/png, 4 bytes; not shown]",
                "[link to the resource 'a.txt', text/plain: file:///a.txt]",
                "[the resource file:///b.txt]",
                "inside",
            ]
        )


async def test_a_server_that_wants_to_ask_a_person_is_refused(friendly: Friendly) -> None:
    async with hosting(friendly.server) as host:
        told = await host.error("srv_ask")
        assert told["code"] == "refused"
        assert await host.call("srv_add", a=1, b=1) == "2"


async def test_a_child_gets_no_variables_but_harmless_ones_and_those_that_are_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    monkeypatch.setenv("LC_TIME", "C")
    server = McpClient.stdio("srv", script("friendly", "stdio", tmp_path), env={"TOKEN": "mine"}, allow=["env*"])
    async with hosting(server) as host:
        assert host.names == ["srv_environment"]
        told = await host.call("srv_environment")
    seen = dict(line.split("=", 1) for line in told.splitlines())
    assert "very-secret" not in told
    assert seen["TOKEN"] == "mine"
    assert seen["PATH"] == os.environ["PATH"]
    assert seen["LC_TIME"] == "C"
    harmless = {"HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER", "TOKEN"}
    assert {name for name in seen if not name.startswith("LC_")} <= harmless


async def test_a_child_is_started_in_the_folder_that_is_given(tmp_path: Path) -> None:
    (tmp_path / "serve.py").write_text((Path(script("crude")[1])).read_text())
    server = McpClient.stdio("old", [script("crude")[0], "serve.py", "old"], cwd=tmp_path)
    async with hosting(server) as host:
        assert host.names == ["old_listed", "old_look", "old_shout"]


async def test_allowed_and_denied_tools_are_told_by_the_servers_own_names(tmp_path: Path) -> None:
    command = script("friendly", "stdio", tmp_path)
    async with hosting(McpClient.stdio("srv", command, allow=["*d*", "put"], deny=["die*", "srv_add"])) as host:
        assert host.names == ["srv_add", "srv_put"]


async def test_what_a_server_says_of_a_tool_decides_whether_a_lost_call_is_repeated(tmp_path: Path) -> None:
    command = script("friendly", "stdio", tmp_path)
    async with hosting(McpClient.stdio("srv", command)) as host:
        assert host.tool("srv_add").recovery == "never"
        assert host.tool("srv_put").recovery == "idempotent"
        assert host.tool("srv_die_once").recovery == "safe"
        await host.catalog.add_provider(host.server, recovery="never")
        assert host.tool("srv_die_once").recovery == "never"


# --- beginnings and ends -------------------------------------------------------------------------------


async def test_one_connection_is_made_for_all_that_need_it_at_once() -> None:
    server = McpClient.stdio("old", script("crude", "old"))
    before = children()
    try:
        await asyncio.gather(*(server.list_tools() for _ in range(10)))
        assert len(children() - before) == 1
    finally:
        await server.aclose()
    assert children() == before


async def test_nothing_is_started_before_a_tool_is_asked_for() -> None:
    before = children()
    catalog = Catalog([McpClient.stdio("old", script("crude", "old"))])
    await catalog.aclose()
    assert children() == before


async def test_a_server_that_was_closed_can_be_used_again() -> None:
    server = McpClient.stdio("old", script("crude", "old"))
    for _ in range(2):
        assert [spec.name for spec in await server.list_tools()] == ["old_listed", "old_look", "old_shout"]
        await server.aclose()


async def test_a_child_that_ignores_sigterm_is_killed_after_two_seconds() -> None:
    server = McpClient.stdio("srv", script("crude", "stubborn"))
    before = children()
    await server.list_tools()
    (child,) = children() - before
    began = time.monotonic()
    await server.aclose()
    assert time.monotonic() - began >= 2.0
    assert not is_alive(child)


async def test_what_a_child_has_started_is_ended_with_it(tmp_path: Path) -> None:
    line = f"sleep 600 & echo $! > {tmp_path}/pid; exec {shlex.join(script('crude', 'old'))}"
    server = McpClient.stdio("old", ["sh", "-c", line])
    await server.list_tools()
    grandchild = int((tmp_path / "pid").read_text())
    assert is_alive(grandchild)
    await server.aclose()
    await until(lambda: not is_alive(grandchild))


async def test_closing_while_a_connection_is_made_ends_it_and_tells_whoever_waits() -> None:
    server = McpClient.stdio("srv", script("crude", "silent"))
    before = children()
    waiting = asyncio.create_task(server.list_tools())
    await until(lambda: children() - before)
    await server.aclose()
    with pytest.raises(McpUnavailableError, match="it was closed"):
        await waiting
    assert children() == before


async def test_a_command_that_is_not_there_is_named() -> None:
    server = McpClient.stdio("ghost", ["no-such-program-anywhere"])
    with pytest.raises(McpUnavailableError, match=r"'ghost'.*no-such-program-anywhere"):
        await server.list_tools()


async def test_a_server_that_fails_to_start_is_told_with_its_last_words_but_not_its_secrets() -> None:
    server = McpClient.stdio("bad", script("crude", "broken", "hunter2-hunter2"), env={"PASSWORD": "hunter2-hunter2"})
    with pytest.raises(McpUnavailableError) as raised:
        await server.list_tools()
    assert raised.value.why == "its process ended with exit code 7"
    assert raised.value.stderr == ["Traceback (most recent call last):", "KeyError: no such key: [PASSWORD]"]
    assert "KeyError" in str(raised.value)


async def test_a_server_that_never_answers_is_given_up() -> None:
    server = McpClient.stdio("mute", script("crude", "silent"), timeouts=McpLimits(connect_s=0.3))
    before = children()
    with pytest.raises(McpUnavailableError, match=r"'mute'.*did not answer within 0\.3 s"):
        await server.list_tools()
    assert children() == before


async def test_failed_connections_are_tried_again(tmp_path: Path) -> None:
    missing = tmp_path / "server"
    server = McpClient.stdio("late", [str(missing), "old"])
    with pytest.raises(McpUnavailableError):
        await server.list_tools()
    missing.write_text(f"#!/bin/sh\nexec {script('crude')[0]} {script('crude')[1]} old\n")
    missing.chmod(0o755)
    try:
        assert [spec.name for spec in await server.list_tools()][1] == "late_look"
    finally:
        await server.aclose()


async def test_an_optional_server_that_cannot_be_reached_has_no_tools_until_the_next_refresh(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    missing = tmp_path / "server"
    catalog = Catalog([McpClient.stdio("late", [str(missing), "old"], optional=True)])
    await catalog.refresh()
    assert len(catalog) == 0
    assert "MCP server 'late' cannot be used now" in caplog.text
    missing.write_text(f"#!/bin/sh\nexec {script('crude')[0]} {script('crude')[1]} old\n")
    missing.chmod(0o755)
    await catalog.refresh()
    assert "late_look" in catalog
    await catalog.aclose()


@each_row("name", ["", "a b", "x" * 33])
def test_a_server_needs_a_name_that_tools_can_begin_with(name: str) -> None:
    with pytest.raises(McpDefinitionError):
        McpClient.stdio(name, ["true"])


def test_a_command_is_a_list_and_a_url_is_one() -> None:
    with pytest.raises(McpDefinitionError, match="must be a list"):
        McpClient.stdio("srv", "npx server")
    with pytest.raises(McpDefinitionError, match="https://"):
        McpClient.http("srv", "example.org")
