"""What MCP servers send, changed: a server that cannot be used is named, and every call has an outcome."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import hypothesis.strategies as st
import msgspec

from holdfast.agent.mcp.client import McpClient
from holdfast.agent.mcp.limits import McpLimits
from holdfast.core.errors import InvalidValueError
from holdfast.core.values import Json, check_value
from tests.agent.mcp.helpers import hosting
from tests.fuzz.fuzzer import Fuzzer, assert_is_declared
from tests.fuzz.generation import Draw, changed_bytes, changed_json, encoded

CHILD = Path(__file__).parent / "stdio_child.py"

WAIT_S = 0.3
"""How long a server is waited for that does not answer: many of these do not."""

SCHEMA: Json = {
    "type": "object",
    "properties": {"a": {"type": "integer", "minimum": 1}, "b": {"$ref": "#/$defs/b"}, "c": {"enum": ["x", None]}},
    "required": ["a"],
    "$defs": {"b": {"type": "array", "items": {"type": ["string", "null"]}, "pattern": "^(a+)+$"}},
}

RESULTS: dict[str, Json] = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {"listChanged": True}},
        "serverInfo": {"name": "s", "version": "1"},
        "instructions": "Be kind.",
    },
    "tools/list": {
        "tools": [
            {"name": "add", "description": "Adds.", "inputSchema": SCHEMA, "annotations": {"readOnlyHint": True}},
            {"name": "now", "inputSchema": {"type": "object"}, "outputSchema": SCHEMA, "title": "Now"},
        ],
    },
    "tools/call": {
        "content": [
            {"type": "text", "text": "42"},
            {"type": "image", "data": "iVBORw==", "mimeType": "image/png"},
            {"type": "resource_link", "uri": "x://y", "name": "y"},
            {"type": "resource", "resource": {"uri": "x://y", "text": "z", "mimeType": "text/plain"}},
        ],
        "structuredContent": {"a": 1, "c": None},
        "isError": False,
    },
}


@dataclass(frozen=True)
class Server:
    """What a server answers to each method, and how."""

    results: dict[str, Json]
    garbled: bytes | None = None
    """In place of the answer to a call."""
    streams: bool = False

    def reply(self, message: dict[str, Json]) -> tuple[str, bytes]:
        method = message.get("method")
        if method == "tools/call" and self.garbled is not None:
            return "application/json", self.garbled
        if method in self.results:
            body = encoded({"jsonrpc": "2.0", "id": message.get("id"), "result": self.results[method]})
        else:
            body = encoded({"jsonrpc": "2.0", "id": message.get("id"), "error": {"code": -32601, "message": "no"}})
        return ("text/event-stream", b"data: " + body + b"\n\n") if self.streams else ("application/json", body)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                length = int(head.partition("content-length:")[2].partition("\r\n")[0] or 0)
                body = await reader.readexactly(length)
                if not head.startswith("post"):
                    writer.write(b"HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n")
                elif "id" not in (message := json.loads(body)):
                    writer.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
                else:
                    kind, data = self.reply(message)
                    writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n".encode())
                    writer.write(b"Content-Length: %d\r\n\r\n" % len(data) + data)
                await writer.drain()
        writer.close()
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            await writer.wait_closed()


@st.composite
def servers(draw: Draw) -> Server:
    """A server one of whose answers was changed."""
    results = dict(RESULTS)
    method = draw(st.sampled_from(["initialize", "tools/list", "tools/list", "tools/call", "tools/call"]))
    results[method] = draw(changed_json([RESULTS[method]]))
    garbled = None
    if draw(st.integers(0, 5)) == 0:
        good = encoded({"jsonrpc": "2.0", "id": 2, "result": RESULTS["tools/call"]})
        results, garbled = dict(RESULTS), draw(changed_bytes([good]))
    return Server(results, garbled, draw(st.booleans()))


KNOWN = [Server({**RESULTS, "initialize": {**RESULTS["initialize"], "protocolVersion": "x" * 10_000}})]
"""A server that once was quoted in full."""


async def use(client: McpClient) -> None:
    """Connect to a server and call its tools."""
    try:
        async with hosting(client) as host:
            for entry in list(host.catalog)[:2]:
                _assert_can_be_kept(host.tool(entry.name).spec)
                _assert_can_be_kept(await host.done(entry.name, a=1))
    except Exception as error:
        assert_is_declared(error)


async def check(server: Server) -> None:
    waits = McpLimits(connect_s=WAIT_S, list_s=WAIT_S, call_s=WAIT_S, call_max_s=WAIT_S)
    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        await server.serve(reader, writer)

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/mcp"
    try:
        await use(McpClient.http("srv", url, timeouts=waits))
    finally:
        listening.close()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        await listening.wait_closed()


def _assert_can_be_kept(struct: msgspec.Struct) -> None:
    try:
        check_value(msgspec.to_builtins(struct), "struct")
    except InvalidValueError as error:
        raise AssertionError(f"{struct} cannot be kept") from error


def test_a_server_whose_answers_were_changed_is_used_or_named(fuzzer: Fuzzer) -> None:
    fuzzer.run(lambda server: asyncio.run(check(server)), servers(), examples=30, known=KNOWN)


CHILD_WAIT_S = 2.0
"""As `WAIT_S`, for a server that has to be started."""


async def check_child(server: Server, file: Path) -> None:
    """The same server as a child process."""
    lines = {
        method: encoded({"jsonrpc": "2.0", "id": "@id@", "result": result}, ascii_only=False).decode("latin-1")
        for method, result in server.results.items()
    }
    if server.garbled is not None:
        lines["tools/call"] = server.garbled.decode("latin-1")
    file.write_text(json.dumps(lines), "ascii")
    waits = McpLimits(connect_s=CHILD_WAIT_S, list_s=WAIT_S, call_s=WAIT_S, call_max_s=WAIT_S)
    await use(McpClient.stdio("srv", [sys.executable, "-S", str(CHILD), str(file)], timeouts=waits))


def test_a_child_whose_answers_were_changed_is_used_or_named(fuzzer: Fuzzer, tmp_path: Path) -> None:
    fuzzer.run(lambda server: asyncio.run(check_child(server, tmp_path / "lines")), servers(), examples=10)
