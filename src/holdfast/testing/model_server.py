"""A model behind a real HTTP server that speaks the chat-completions form of OpenAI, streaming included, from a script.

    async with ModelServer(["Hello!", tool_call("add", a=2, b=40), "It is 42."]) as server:
        OpenAIProvider(server.url)

Steps are those of `holdfast.testing.provider`. A `fault` is a status with an error in its body; after some text it is
an error within the stream. Three are faults of the connection: `network` cuts it, `bad_stream` ends the stream without
its last event, and `timeout` sends nothing more until the client goes away.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from types import TracebackType
from typing import Literal, assert_never

import msgspec

from holdfast.agent.providers.provider import ModelRequest, ProviderError
from holdfast.core.values import Json
from holdfast.testing.model_wire import chunk, chunks_of, completion_of, event, read_request, refusal_of
from holdfast.testing.provider import ModelScript, RawReply, ScriptedFailure, ScriptedReply, ScriptStep, fault


class WireOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the server writes. Every choice is allowed, or at least found in real servers."""

    newline: Literal["\n", "\r\n", "\r"] = "\n"
    split_bytes: int | None = None
    """Send everything in pieces of this many bytes, wherever that cuts."""
    comments: bool = False
    """Whether a comment precedes each event, as servers send to keep connections alive."""
    done: bool = True
    """Whether the stream ends with `[DONE]`."""
    streams: bool = True
    """False for a server that always answers in one piece."""


class ReceivedRequest(msgspec.Struct, frozen=True):
    """A request as it arrived."""

    headers: dict[str, str]
    """By names in lower case."""
    body: dict[str, Json]
    content: bytes
    """The body in the bytes that were sent."""


class ModelServer:
    """A scripted model at `url`, as long as the context lasts."""

    def __init__(
        self,
        script: ModelScript | Sequence[ScriptStep],
        *,
        loop: bool = False,
        wire: WireOptions | None = None,
        api_key: str | None = None,
    ) -> None:
        self.script = script if isinstance(script, ModelScript) else ModelScript(script, loop=loop)
        self.url = ""
        self.received: list[ReceivedRequest] = []
        self.connections = 0
        """How many were opened so far."""
        self.hangups = 0
        """How many clients went away before their answer was complete."""
        self._wire = wire or WireOptions()
        self._api_key = api_key
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def requests(self) -> list[ModelRequest]:
        """Every request so far."""
        return self.script.requests

    async def __aenter__(self) -> ModelServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    # --- connections -------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, asyncio.CancelledError):
                while await _Exchange(self, reader, writer).run():
                    pass
        except ConnectionError:
            self.hangups += 1
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


class _Exchange:
    """One request and its answer."""

    def __init__(self, server: ModelServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._server, self._reader, self._writer = server, reader, writer
        self._wire = server._wire

    async def run(self) -> bool:
        """Answer; whether the connection is good for another request."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        lines = [line.partition(":") for line in head[1:] if line]
        headers = {name.lower(): value.strip() for name, _, value in lines}
        content = await self._reader.readexactly(int(headers.get("content-length", "0")))
        method, path, _ = head[0].split(" ")
        if method != "POST" or path != "/v1/chat/completions":
            return await self._refuse(fault("invalid_request", f"no {method} {path} here", status=404))
        key = self._server._api_key
        if key is not None and headers.get("authorization") != f"Bearer {key}":
            return await self._refuse(fault("auth", "Incorrect API key provided"))
        body = msgspec.json.decode(content)
        self._server.received.append(ReceivedRequest(headers, body, content))
        request = read_request(body, headers.get("idempotency-key", ""))
        try:
            step = await self._server.script.next(request)
        except ProviderError as error:  # the script is at its end
            return await self._refuse(fault("invalid_request", str(error)))
        match step:
            case RawReply():
                return await self._send_raw(step)
            case ScriptedFailure():
                return await self._fail(step)
            case ScriptedReply():
                return await self._reply(step, request, body)
            case _:
                assert_never(step)

    # --- answers -----------------------------------------------------------------------------------

    async def _reply(self, step: ScriptedReply, request: ModelRequest, body: dict[str, Json]) -> bool:
        if not self._wire.streams or not body.get("stream"):
            await asyncio.sleep(step.delay_s)
            return await self._plain(200, completion_of(step, request))
        await self._begin(200, "text/event-stream")
        with_usage = bool((body.get("stream_options") or {}).get("include_usage"))
        for data, delay_s in chunks_of(step, request, with_usage=with_usage):
            await asyncio.sleep(delay_s)
            await self._event(data)
        if self._wire.done:
            await self._send(b"data: [DONE]" + self._newline * 2)
        return await self._end()

    async def _fail(self, step: ScriptedFailure) -> bool:
        await asyncio.sleep(step.delay_s)
        if not step.after and step.fault not in ("network", "bad_stream", "timeout"):
            return await self._refuse(step)
        if step.after or step.fault == "bad_stream":
            await self._begin(200, "text/event-stream")
        for delta in step.after:
            await self._event(chunk({"content": delta}, "scripted"))
        match step.fault:
            case "network":
                self._writer.transport.abort()
                return False
            case "timeout":
                return await self._hold()
            case "bad_stream":
                return await self._end()
            case _:
                await self._event(refusal_of(step)[1])
                return await self._end()

    async def _refuse(self, step: ScriptedFailure) -> bool:
        status, body = refusal_of(step)
        headers = {} if step.retry_after_s is None else {"Retry-After": f"{step.retry_after_s:g}"}
        return await self._plain(status, body, headers)

    async def _send_raw(self, step: RawReply) -> bool:
        await self._begin(step.status, step.content_type, step.headers)
        await self._send(step.body)
        match step.ending:
            case "end":
                return await self._end()
            case "cut":
                return False
            case "hold":
                return await self._hold()
            case _:
                assert_never(step.ending)

    # --- HTTP --------------------------------------------------------------------------------------

    @property
    def _newline(self) -> bytes:
        return self._wire.newline.encode()

    async def _plain(self, status: int, body: dict[str, Json], headers: dict[str, str] | None = None) -> bool:
        await self._begin(status, "application/json", headers)
        await self._send(msgspec.json.encode(body))
        return await self._end()

    async def _event(self, data: dict[str, Json]) -> None:
        comment = b": keep-alive" + self._newline * 2 if self._wire.comments else b""
        await self._send(comment + event(data, self._newline))

    async def _begin(self, status: int, content_type: str, headers: dict[str, str] | None = None) -> None:
        every = {"Content-Type": content_type, "Transfer-Encoding": "chunked", **(headers or {})}
        lines = [f"HTTP/1.1 {status} Scripted", *(f"{name}: {value}" for name, value in every.items())]
        self._writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        await self._writer.drain()

    async def _send(self, data: bytes) -> None:
        size = self._wire.split_bytes or max(1, len(data))
        for at in range(0, len(data), size):
            piece = data[at : at + size]
            self._writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await self._writer.drain()

    async def _hold(self) -> bool:
        await self._reader.read()
        self._server.hangups += 1
        return False

    async def _end(self) -> bool:
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()
        return True
