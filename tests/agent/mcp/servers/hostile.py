"""A server that has too much of everything: `python hostile.py WHAT`. What it lists depends on WHAT."""

from __future__ import annotations

import sys
from itertools import count
from typing import Any

import anyio
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)

what = sys.argv[1]
pages = count(1)


def tool(name: str, description: str = "A tool.", **schema: Any) -> Tool:
    return Tool(name=name, description=description, input_schema={"type": "object", **schema})


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


RECURSIVE: dict[str, Any] = {
    "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
    "properties": {"root": {"$ref": "#/$defs/node"}},
}

TOOLS = {
    "many": [tool(f"t{number:05}") for number in range(10_000)],
    "bombs": [
        tool("deep", properties={"a": nested(60)}),
        tool("wide", properties={"a": {"type": "string", "enum": [f"value-{number}" for number in range(200_000)]}}),
        tool("broken", properties={"a": {"type": 5}}),
        tool("integer", properties={"a": {"const": 2**70}}),
        tool("recursive", **RECURSIVE),
        tool("slow", properties={"a": {"type": "string", "pattern": "^(a+)+$"}}),
        tool("wordy", "word " * 10_000),
        tool("fine"),
    ],
    "collisions": [
        tool("a.b"),
        tool("a b"),
        tool("a_b"),
        tool("c/d"),
        tool("l" * 100),
        tool("l" * 101),
        tool("add"),
        tool("twice"),
        tool("twice", "Another one."),
    ],
    "large": [tool("large", properties={"bytes": {"type": "integer"}}), tool("structured"), tool("slow")],
}


async def list_tools(_: Any, params: PaginatedRequestParams | None) -> ListToolsResult:
    if what == "endless":
        number = next(pages)
        return ListToolsResult(tools=[tool(f"t{number}")], next_cursor=f"page-{number}")
    if what == "circular":
        return ListToolsResult(tools=[tool(f"t{next(pages)}")], next_cursor="again")
    listed = TOOLS[what]
    if what == "bombs":
        listed[5].output_schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
    if what == "collisions" and params is not None and next(pages) % 2:
        listed = listed[::-1]
    return ListToolsResult(tools=listed)


async def call_tool(_: Any, params: CallToolRequestParams) -> CallToolResult:
    if params.name == "structured":
        return CallToolResult(content=[], structured_content={"text": "x" * 2_000_000})
    if what == "bombs":
        return CallToolResult(content=[], structured_content={"a": "a" * 50 + "!"})
    size = (params.arguments or {}).get("bytes", 10)
    return CallToolResult(content=[TextContent(text="x" * size)])


async def main() -> None:
    server: Server[Any] = Server("hostile", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


anyio.run(main)
