"""A server as there are many: `friendly.py stdio FOLDER`, or `friendly.py http FOLDER PORT`. FOLDER is for notes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import EmbeddedResource, ImageContent, ResourceLink, TextContent, TextResourceContents, ToolAnnotations
from pydantic import BaseModel

server = MCPServer("friendly")
folder = Path(sys.argv[2])


class Place(BaseModel):
    """What is known of a place."""

    name: str
    people: int


def note(what: str) -> int:
    """Note that something happened; how often it has."""
    with (folder / what).open("a") as file:
        file.write(".")
    return (folder / what).stat().st_size


@server.tool(structured_output=False)
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool()
def place(name: str) -> Place:
    """Look up a place."""
    return Place(name=name, people=42)


@server.tool(structured_output=False)
def everything() -> list[TextContent | ImageContent | ResourceLink | EmbeddedResource]:
    """Give something of every kind."""
    return [
        TextContent(text="first"),
        ImageContent(data="QUJDRA==", mime_type="image/png"),
        ResourceLink(uri="file:///a.txt", name="a.txt", mime_type="text/plain"),
        EmbeddedResource(resource=TextResourceContents(uri="file:///b.txt", text="inside")),
    ]


@server.tool()
def fail() -> str:
    """Fail."""
    raise ToolError("the moon is in the wrong place")


@server.tool(structured_output=False)
def environment() -> str:
    """Tell all variables."""
    return "\n".join(f"{name}={value}" for name, value in sorted(os.environ.items()))


@server.tool(structured_output=False)
def whoami() -> str:
    """Tell the id of the process."""
    return str(os.getpid())


@server.tool(structured_output=False)
async def steps(count: int, every_s: float, ctx: Context) -> str:
    """Say how far it is, step by step."""
    for number in range(count):
        await ctx.report_progress(number + 1, count, "working")
        await anyio.sleep(every_s)
    return "done"


@server.tool(structured_output=False)
async def hang() -> str:
    """Never come back, and note when that is ended from outside."""
    note("hung")
    try:
        await anyio.sleep_forever()
    finally:
        note("cancelled")
    return ""


@server.tool(structured_output=False)
def die() -> str:
    """Note the call, and end the process."""
    note("died")
    os._exit(3)


@server.tool(structured_output=False, annotations=ToolAnnotations(read_only_hint=True))
def die_once() -> str:
    """End the process the first time, and answer the second time."""
    if note("died_once") == 1:
        os._exit(3)
    return "alive"


@server.tool(structured_output=False, annotations=ToolAnnotations(idempotent_hint=True))
def put(value: str) -> str:
    """Put a value where it is already."""
    return value


@server.tool(structured_output=False)
async def grow(name: str, ctx: Context, times: int = 1) -> str:
    """Get another tool, and say so."""

    def grown() -> str:
        return name

    if name not in {each.name for each in await server.list_tools()}:
        server.add_tool(grown, name=name, description="It has grown.", structured_output=False)
    for _ in range(times):
        await ctx.notify_tools_changed()
    return name


@server.tool(structured_output=False)
async def ask(ctx: Context) -> str:
    """Ask a person for something."""
    got = await ctx.elicit("who are you?", Place)
    return got.action


if sys.argv[1] == "stdio":
    server.run("stdio")
elif sys.argv[1] == "sse":
    server.run("sse", host="127.0.0.1", port=int(sys.argv[3]))
else:
    server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[3]))
