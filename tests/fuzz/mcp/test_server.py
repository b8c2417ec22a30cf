"""What MCP hosts send, over both transports, changed: every message is answered or passed over, and the server stays.

Only tools that work on sessions are called: others write files where a path says, and a changed path is anywhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from typing import Any

import hypothesis.strategies as st
import mcp_types as types
from pydantic import ValidationError

import holdfast
from holdfast.core.values import Json
from holdfast.engine.holdfast import open_holdfast
from holdfast.serve.listener import HttpSettings
from holdfast.serve.mcp.http import serve_http
from holdfast.serve.mcp.server import McpServer
from holdfast.serve.mcp.stdio import StdioConnection, serve_stdio
from holdfast.store.memory import MemoryStore
from holdfast.testing.patience import HANG_S
from holdfast.testing.sessions import entries_of
from tests.fuzz.fuzzer import Fuzzer
from tests.fuzz.generation import Draw, changed_bytes, changed_json, encoded

SESSION = "session-of-the-sample"
"""Stands in samples for the id of a session that waits for two answers, which has as many characters."""

BUGS = (-32603, 0)
"""The codes of errors that nobody has declared: the protocol's, and the library's for an exception of a handler."""


@holdfast.strategy
async def pair(ctx: holdfast.Context) -> list[Any]:
    """Asks two questions."""
    return await ctx.llm_batch(["first?", "second?"])


def call(tool: str, **arguments: Json) -> Json:
    return request("tools/call", name=tool, arguments=arguments)


def request(method: str, **params: Json) -> Json:
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}


def complete(what: Json, name: str, value: str) -> Json:
    return request("completion/complete", ref=what, argument={"name": name, "value": value})


ONE: Json = {"query_id": "q-0", "response": "one", "usage": {"prompt_tokens": 3, "completion_tokens": 1}}

INITIALIZE = request(
    "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "fuzz", "version": "1"}
)

READING: list[Json] = [
    INITIALIZE,
    request("ping"),
    request("tools/list", cursor="x"),
    request("resources/list"),
    request("resources/templates/list"),
    request("resources/read", uri=f"holdfast://sessions/{SESSION}/journal?from=1&limit=2"),
    request("resources/read", uri="holdfast://strategies/cot/strategy.py"),
    request("resources/read", uri="alc://types/alc.d.lua"),
    request("prompts/list"),
    request("prompts/get", name="advice", arguments={"task": "tea", "strategy": "cot"}),
    complete({"type": "ref/prompt", "name": "advice"}, "strategy", "c"),
    complete({"type": "ref/resource", "uri": "holdfast://strategies/{name}"}, "name", ""),
    request("logging/setLevel", level="debug"),
    {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7, "reason": "enough"}},
    {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 0.5}},
    {"jsonrpc": "2.0", "id": 9, "result": {}},
    {"jsonrpc": "2.0", "id": 9, "error": {"code": 1, "message": "no"}},
    call("show", session_id=SESSION, result=True, journal=True, journal_after=1),
    call("sessions", states=["paused"], strategy="pair", limit=5, cursor="x"),
    call("strategies", search="think", limit=3, cursor="cot"),
    call("alc_status", session_id=SESSION, pending_filter={"fields": ["prompt"]}, include_history=True),
    call("alc_log_view", session_id=SESSION, limit=3, max_chars=500),
    call("alc_stats", strategy="pair", days=2),
    call("alc_info"),
    call("alc_v2_state", session_id=SESSION),
]

WRITING: list[Json] = [
    call("run", strategy="cot", task="tea", ctx={"depth": 2}, budget={"max_llm_calls": 3, "max_tokens": 50}),
    call("alc_advice", strategy="cot", task="tea", opts={"depth": 2}),
    call("answer", session_id=SESSION, answers=[ONE, {"query_id": "q-1", "error": "do not know"}]),
    call("answer", session_id=SESSION, response={"a": [1, None]}),
    call("alc_continue", session_id=SESSION, response="x", query_id="q-0", usage={"prompt_tokens": 3}),
    call("alc_continue", session_id=SESSION, responses=[ONE]),
    call("alc_v2_resume", session_id=SESSION, payload={"payload_kind": "single", **ONE}),
    call("alc_v2_resume", session_id=SESSION, payload={"payload_kind": "batch", "responses": [ONE]}),
    call("alc_note", session_id=SESSION, content="good", title="x"),
    call("fork", session_id=SESSION, at=2, before="q-0"),
    call("cancel", session_id=SESSION, reason="enough"),
    call("alc_cancel", session_id=SESSION, reason="enough"),
    call("alc_v2_cancel", session_id=SESSION, reason={"code": "user", "detail": "x", "requested_at": 1}),
]

PING = encoded({"jsonrpc": "2.0", "id": "the-end", "method": "ping"})


KNOWN = [
    encoded(call("run", strategy="cot", ctx="[" * 3_000)),
    encoded(call("alc_advice", strategy="cot", opts="[" * 3_000)),
    encoded(call("alc_v2_resume", session_id=SESSION, payload='{"a":' * 3_000)),
]
"""Messages that once were answered with an internal error."""


@st.composite
def messages(draw: Draw) -> bytes:
    """A message, changed, in one line."""
    samples = READING if draw(st.booleans()) else WRITING
    sample = samples[draw(st.integers(0, len(samples) - 1))]
    if "arguments" in sample.get("params", {}) and draw(st.integers(0, 3)):
        arguments = draw(changed_json([sample["params"]["arguments"]], most=2))
        sample = {**sample, "params": {**sample["params"], "arguments": arguments}}
    elif "params" in sample and draw(st.integers(0, 3)):
        sample = {**sample, "params": draw(changed_json([sample["params"]], most=2))}
    else:
        sample = draw(changed_json([sample], most=2))
    line = encoded(sample, ascii_only=draw(st.booleans()))
    if draw(st.integers(0, 9)) == 0:
        line = draw(changed_bytes([line], most=2))
    return line.replace(b"\n", b" ")


class Sessions:
    """A store, and on it a session that waits for two answers, another one whenever it was changed."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.holdfast = open_holdfast(self.store)
        self._number = 0

    async def begin(self) -> None:
        self._number += 1
        self.id = f"session-of-number-{self._number:03}"
        await self.holdfast.start(pair, id=self.id)
        self.entries = await entries_of(self.store, self.id)

    async def check(self, replies: list[Json]) -> None:
        """A session is as it was, unless a reply says that something was done."""
        if await entries_of(self.store, self.id) != self.entries:
            assert any("result" in reply and not reply["result"].get("isError") for reply in replies), replies
            await self.begin()


# --- stdio ---------------------------------------------------------------------------------------------


class StdioServer:
    """A server on pipes, in this process."""

    def __init__(self) -> None:
        self.sessions = Sessions()

    async def open(self) -> None:
        await self.sessions.holdfast.__aenter__()
        await self.sessions.begin()
        there, self._to = os.pipe()
        back, here = os.pipe()
        self._wire = StdioConnection(there, here)
        server = McpServer(self.sessions.holdfast, family="all", keys=[b"k" * 32])
        self._serving = asyncio.create_task(serve_stdio(server, self._wire))
        self._lines = asyncio.StreamReader(limit=1 << 26)
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self._lines), os.fdopen(back, "rb")
        )
        await self._exchange(encoded(INITIALIZE))

    async def close(self) -> None:
        os.close(self._to)
        await self._serving
        for descriptor in self._wire:
            os.close(descriptor)
        self._transport.close()
        await self.sessions.holdfast.__aexit__(None, None, None)

    async def check(self, line: bytes) -> None:
        line = line.replace(SESSION.encode(), self.sessions.id.encode())
        replies = await self._exchange(line)
        for reply in replies:
            assert reply.get("error", {}).get("code") not in BUGS, reply
        await self.sessions.check(replies)

    async def _exchange(self, line: bytes) -> list[Json]:
        """What the server answers to a line: every request is answered, and so is a ping after it."""
        awaited: set[int | str] = {"the-end"}
        with contextlib.suppress(ValidationError):
            message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
            awaited |= {message.id} if isinstance(message, types.JSONRPCRequest) else set()
        await asyncio.to_thread(os.write, self._to, line + b"\n" + PING + b"\n")
        replies: list[Json] = []
        async with asyncio.timeout(HANG_S):
            while awaited:
                reply = json.loads(await self._lines.readuntil())
                if "method" not in reply:
                    awaited.discard(reply.get("id"))
                    replies.append(reply)
        return [reply for reply in replies if reply.get("id") != "the-end"]


def test_a_changed_message_over_stdio_is_answered_or_passed_over_and_the_server_stays(fuzzer: Fuzzer) -> None:
    with asyncio.Runner() as runner:
        server = StdioServer()
        runner.run(server.open())
        try:
            fuzzer.run(lambda line: runner.run(server.check(line)), messages(), examples=150, known=KNOWN)
        finally:
            runner.run(server.close())


# --- HTTP ----------------------------------------------------------------------------------------------

MOMENT_S = 0.05
"""How long a request that may be cut off is given for an answer: the server waits for the rest of it."""

TOKEN = "correct-horse-battery-staple"
HEADERS = (
    b"Host: 127.0.0.1\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
    b"Authorization: Bearer " + TOKEN.encode() + b"\r\n"
    b"MCP-Protocol-Version: 2025-11-25\r\nConnection: close\r\n"
)
WORDS = [
    *(b"Host: evil.example\r\n", b"Origin: http://[::1", b"Content-Length: -1\r\n", b"Transfer-Encoding: chunked\r\n"),
    *(
        b"Mcp-Session-Id: x\r\n",
        b"Last-Event-ID: 7\r\n",
        b"GET ",
        b"DELETE ",
        b"/mcp/../x",
        b"\r\n\r\n",
        b"Accept: \r\n",
    ),
]


def over_http(body: bytes) -> bytes:
    return b"POST /mcp HTTP/1.1\r\n" + HEADERS + b"Content-Length: %d\r\n\r\n" % len(body) + body


@st.composite
def http_requests(draw: Draw) -> tuple[bytes, bool]:
    """A request whose message, headers or framing was changed, and whether it is complete for certain."""
    whole = over_http(draw(messages()))
    is_cut = draw(st.booleans())
    return draw(changed_bytes([whole], most=2, words=WORDS)) if is_cut else whole, not is_cut


class HttpServer:
    """A server on a port, in this process."""

    def __init__(self) -> None:
        self.sessions = Sessions()

    async def open(self) -> None:
        await self.sessions.holdfast.__aenter__()
        await self.sessions.begin()
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        server = McpServer(self.sessions.holdfast, family="all", keys=[b"k" * 32])
        self._serving = asyncio.create_task(serve_http(server, HttpSettings(port=0, token=TOKEN), ready.set_result))
        self._port = int((await ready).rpartition(":")[2].partition("/")[0])

    async def close(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)  # which the server catches
        await self._serving
        await self.sessions.holdfast.__aexit__(None, None, None)

    async def check(self, sent: bytes, *, is_whole: bool) -> None:
        head = await self._exchange(sent.replace(SESSION.encode(), self.sessions.id.encode()), is_whole)
        assert not head.startswith(b"HTTP/1.1 5"), head
        assert (await self._exchange(over_http(encoded(INITIALIZE)), True)).startswith(b"HTTP/1.1 200"), head

    async def _exchange(self, sent: bytes, is_whole: bool) -> bytes:
        """The beginning of the response, or nothing if the server waits for more or hangs up."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(sent)
            with contextlib.suppress(ConnectionError, TimeoutError):
                async with asyncio.timeout(HANG_S if is_whole else MOMENT_S):
                    return await reader.read(4_096)
            return b""
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


def test_a_changed_http_request_is_answered_without_an_error_of_the_server(fuzzer: Fuzzer) -> None:
    with asyncio.Runner() as runner:
        server = HttpServer()
        runner.run(server.open())
        try:
            fuzzer.run(lambda sent: runner.run(server.check(sent[0], is_whole=sent[1])), http_requests(), examples=40)
        finally:
            runner.run(server.close())
