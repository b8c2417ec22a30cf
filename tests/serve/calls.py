"""A host for the tests: the official client on a server of this process, in either era of the protocol."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp import Client

from holdfast.engine.holdfast import Holdfast
from holdfast.serve.mcp.allowed import AllowedCode
from holdfast.serve.mcp.server import McpServer
from holdfast.serve.mcp.tools import McpTool, ToolCatalog

ERAS = ("legacy", "2026-07-28")

Told = dict[str, Any]


class Host:
    """Calls tools, and checks what every call promises."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def call(self, tool: str, /, **arguments: Any) -> Any:
        """The result of a call that is carried out: its text is JSON, and says the same as the structured content."""
        result = await self.client.call_tool(tool, arguments)
        text = _text(result)
        assert not result.is_error, text
        told = json.loads(text)
        assert (told if isinstance(told, dict) else {"result": told}) == result.structured_content
        return told

    async def refusal(self, tool: str, /, **arguments: Any) -> str:
        """Why a call is not carried out."""
        result = await self.client.call_tool(tool, arguments)
        assert result.is_error, _text(result)
        assert result.structured_content is None
        return _text(result)


@contextlib.asynccontextmanager
async def host_of(
    holdfast: Holdfast,
    tools: Iterable[McpTool[Any]],
    era: str = "2026-07-28",
    directories: Sequence[Path] = (),
    *,
    trusts_specs: bool = False,
    allowed: AllowedCode | None = None,
) -> AsyncIterator[Host]:
    """A host of a server that has these tools."""
    server = McpServer(
        holdfast, family="alc", keys=[b"k" * 32], allowed=allowed or AllowedCode(directories, trusts_specs)
    )
    server.tools = ToolCatalog(tools)
    connected: asyncio.Future[Host] = asyncio.get_running_loop().create_future()
    over = asyncio.Event()

    async def connect() -> None:
        # In a task of its own: the client has to be left by the task that entered it, and fixtures are not.
        async with Client(server.server, mode=era) as client:
            connected.set_result(Host(client))
            await over.wait()

    connection = asyncio.create_task(connect())
    either: set[asyncio.Future[Any]] = {connection, connected}
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if not connected.done():
        await connection
    try:
        yield connected.result()
    finally:
        over.set()
        await connection


def _text(result: types.CallToolResult) -> str:
    [content] = result.content
    assert isinstance(content, types.TextContent)
    return content.text
