"""Hosts for the tests of the server: the official client, with or without a stream between, and small strategies."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client
from mcp.client._memory import InMemoryTransport
from mcp.shared.exceptions import MCPError

from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.programs import registry
from holdfast.serve.mcp.server import Family, McpServer

ERAS = ("legacy", "2026-07-28")
KEYS = [b"k" * 32]
TWICE = """
--- twice: asks, and asks again.
local M = {}
M.meta = { name = "twice", version = "1.2.0", description = "Asks twice, to be sure", category = "verification" }
function M.run(ctx)
    local first = alc.llm("First: " .. ctx.task, { system = "Be brief.", max_tokens = 50 })
    local second = alc.llm("Sure? " .. first)
    return { first = first, second = second }
end
return M
"""

COMPUTED = """
local M = { meta = { name = "computed" } }
M.meta.description = "Says " .. "it late"
function M.run(ctx) return ctx.task end
return M
"""

LIBRARY = 'return { meta = { name = "shelf", description = "A library" }, add = function(a, b) return a + b end }'


def install(root: Path, packages: Mapping[str, str]) -> None:
    """Put packages where they are found."""
    for name, source in packages.items():
        (root / name).mkdir(parents=True, exist_ok=True)
        (root / name / "init.lua").write_text(source, encoding="utf-8")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's directory of our own, with three packages in it."""
    place = tmp_path / "home"
    for variable in ("HOLDFAST_HOME", "ALC_HOME"):
        monkeypatch.setenv(variable, str(place))
    for variable in ("HOLDFAST_PACKAGES_PATH", "ALC_PACKAGES_PATH", "HOLDFAST_PROJECT_ROOT", "ALC_PROJECT_ROOT"):
        monkeypatch.delenv(variable, raising=False)
    install(place / "packages", {"twice": TWICE, "computed": COMPUTED, "shelf": LIBRARY})
    # Without what tests of other rooms have registered in this process: theirs are named in one word.
    ours = {name: each for name, each in registry.registered().items() if "-" in name}
    monkeypatch.setattr(registry, "_registered", ours)
    return place


@asynccontextmanager
async def served(family: Family = "holdfast") -> AsyncIterator[McpServer]:
    """A server on a store of its own."""
    async with open_holdfast("memory:") as holdfast:
        yield McpServer(holdfast, family=family, keys=KEYS)


def over_streams(server: McpServer, era: str, **callbacks: Any) -> Client:
    """A host with a stream of messages between it and the server, as over stdio."""
    return Client(InMemoryTransport(server.server), mode=era, **callbacks)


class Tools:
    """Calls tools, and checks what every call promises."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def __call__(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """The result of a call that is carried out. The client has checked it against the tool's schema."""
        result = await self._client.call_tool(tool, arguments)
        assert not result.is_error, text_of(result)
        told: dict[str, Any] = json.loads(text_of(result))
        assert told == result.structured_content
        return told

    async def refusal(self, tool: str, /, **arguments: Any) -> str:
        """Why a call is not carried out."""
        result = await self._client.call_tool(tool, arguments)
        assert result.is_error, text_of(result)
        return text_of(result)


def text_of(result: types.CallToolResult) -> str:
    [content] = result.content
    assert isinstance(content, types.TextContent)
    return content.text


async def read_text(client: Client, uri: str) -> str:
    """What a resource says."""
    [content] = (await client.read_resource(uri)).contents
    assert isinstance(content, types.TextResourceContents)
    assert content.uri == uri
    return content.text


async def read_json(client: Client, uri: str) -> Any:
    return json.loads(await read_text(client, uri))


async def error_of(asking: Awaitable[object]) -> types.ErrorData:
    """The protocol error that a request ends in."""
    with pytest.raises(MCPError) as refused:
        await asking
    return refused.value.error


async def only_session(holdfast: Holdfast) -> str | None:
    """The id of the one session there is, once there is one."""
    rows = (await holdfast.sessions()).rows
    assert len(rows) <= 1
    return rows[0].session_id if rows else None
