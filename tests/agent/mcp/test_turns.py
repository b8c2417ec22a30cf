"""MCP tools in turns of an agent."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast.agent.machine.messages import ToolResultBlock
from holdfast.agent.machine.turn import MessageOutcome
from holdfast.agent.mcp import errors
from holdfast.agent.mcp.client import McpClient
from holdfast.agent.mcp.errors import McpMissingError, McpUnavailableError
from holdfast.agent.runtime import Runtime
from holdfast.testing.provider import ScriptedProvider, ScriptStep, tool_call
from tests.agent.mcp.helpers import children, script


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/chat.db"


def runtime_on(url: str, *steps: ScriptStep, tools: list[McpClient]) -> Runtime:
    return Runtime(url, provider=ScriptedProvider(steps), model="m-1", tools=tools)


async def test_a_model_calls_a_tool_of_a_server_in_a_turn_and_the_server_ends_with_the_runtime(
    url: str, tmp_path: Path
) -> None:
    before = children()
    server = McpClient.stdio("srv", script("friendly", "stdio", tmp_path))
    calls = [tool_call("srv_add", a=2, b=40), tool_call("srv_place", name="here")]
    async with runtime_on(url, [*calls], "It is 42.", tools=[server]) as runtime:
        session = await runtime.session("s").open()
        result = await session.turn("How much is it?").run()
        assert (result.text, result.outcome) == ("It is 42.", MessageOutcome())
        provider = runtime.providers["scripted"]
        assert isinstance(provider, ScriptedProvider)
        told = {spec.name: spec for spec in provider.requests[0].tools}
        assert told["srv_add"].description == "Add two numbers."
        blocks = [block for message in provider.requests[1].messages for block in message.content]
        results = [block.content for block in blocks if isinstance(block, ToolResultBlock)]
        assert results == ["42", {"name": "here", "people": 42}]
        assert len(children() - before) == 1
    assert children() == before


async def test_two_sessions_share_a_connection(url: str) -> None:
    server, before = McpClient.stdio("old", script("crude", "old")), children()
    async with runtime_on(url, tool_call("old_look"), "One.", tool_call("old_look"), "Two.", tools=[server]) as runtime:
        for number in (1, 2):
            session = await runtime.session(f"s-{number}").open()
            assert (await session.turn("Look.").run()).is_success
        assert len(children() - before) == 1


async def test_a_runtime_whose_server_cannot_be_reached_does_not_open_and_leaves_nothing_behind(url: str) -> None:
    before = children()
    servers = [McpClient.stdio("old", script("crude", "old")), McpClient.stdio("bad", script("crude", "broken", "x"))]
    with pytest.raises(McpUnavailableError, match="'bad'"):
        async with runtime_on(url, tools=servers):
            pass
    assert children() == before


async def test_an_optional_server_that_cannot_be_reached_does_not_keep_a_runtime_from_opening(url: str) -> None:
    servers = [McpClient.stdio("bad", script("crude", "broken", "x"), optional=True)]
    async with runtime_on(url, "Hello!", tools=servers) as runtime:
        session = await runtime.session("s").open()
        assert (await session.turn("Hi").run()).text == "Hello!"


def test_the_server_is_found_in_the_package() -> None:
    assert holdfast.McpClient is McpClient


def test_without_the_package_that_speaks_mcp_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "find_spec", lambda _: None)
    with pytest.raises(McpMissingError, match=r"pip install 'holdfast\[mcp\]'"):
        McpClient.stdio("srv", ["true"])


@pytest.mark.executes
def test_a_server_can_be_described_without_loading_the_package_that_speaks_mcp() -> None:
    program = "import sys, holdfast; holdfast.McpClient.stdio('a', ['b']); print('mcp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
