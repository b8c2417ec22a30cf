"""The server on standard input and output: one host, one message a line, and nothing else on the wire.

Reading waits in the event loop and not in a thread, so that a signal ends the server although the host says nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import select
import signal
import sys
from collections.abc import Iterator
from typing import NamedTuple

import anyio
import mcp_types as types
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from holdfast.core.errors import InvalidValueError
from holdfast.serve.mcp.limits import MAX_MESSAGE_BYTES
from holdfast.serve.mcp.server import McpServer
from holdfast.serve.message_keys import check_message_keys

_CHUNK = 1 << 16
"""Bytes read at once: what a pipe holds."""

_SURE = select.PIPE_BUF
"""Bytes that a descriptor which can be written to takes without waiting."""

_ID = rb'"id"\s*:\s*(\d{1,18}|"[^"\\]{1,200}")'
_ID_FIRST = re.compile(rb'(?:(?!"params").)*?' + _ID, re.DOTALL)
_ID_LAST = re.compile(_ID + rb"\s*\}\s*$")
"""The id of a request that is too long to be read: before its parameters, or at its end."""


class StdioConnection(NamedTuple):
    """The descriptors of the connection to the host, which nobody else knows."""

    reading: int
    writing: int


def take_stdio() -> StdioConnection:
    """Keep standard input and output for the protocol alone.

    Whoever prints from now on, in Python or not, here or in a child, prints on standard error; whoever reads standard
    input finds nothing. There is no way back: the process belongs to the protocol until it ends.
    """
    sys.stdout.flush()
    wire = StdioConnection(*(fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3) for descriptor in (0, 1)))
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    try:
        os.dup2(2, 1)
    except OSError:  # there is no standard error
        os.dup2(nothing, 1)
    os.close(nothing)
    sys.stdout = sys.stderr
    return wire


async def serve_stdio(server: McpServer, wire: StdioConnection) -> None:
    """Serve the host until it closes the connection, or a signal asks to end. Sessions stay as they are."""
    to_server, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, from_server = anyio.create_memory_object_stream[SessionMessage](0)
    out = _Out(wire.writing)
    options = server.server.create_initialization_options()
    serving = asyncio.create_task(server.server.run(incoming, outgoing, options))
    writing = asyncio.create_task(_write(from_server, out))
    reading = asyncio.create_task(_read(wire.reading, to_server, out))
    try:
        with _ended_by_signals(serving):
            await asyncio.wait([serving, writing], return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait([writing], timeout=1)  # what was said last has a moment to get out
    finally:
        for task in (reading, writing, serving):
            task.cancel()
        _, _, ended = await asyncio.gather(reading, writing, serving, return_exceptions=True)
    if isinstance(ended, Exception) and not out.is_closed:
        raise ended


@contextlib.contextmanager
def _ended_by_signals(task: asyncio.Task[None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, task.cancel)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.remove_signal_handler(number)


# --- from the host ---------------------------------------------------------------------------------


async def _read(descriptor: int, into: MemoryObjectSendStream[SessionMessage | Exception], out: _Out) -> None:
    lines = _Lines()
    async with into:
        while data := await _chunk(descriptor):
            for line in lines.of(data):
                if isinstance(line, _TooLong):
                    await out.send(line.refusal())
                elif line.strip():
                    try:
                        message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
                        await check_message_keys(line)
                    except (ValidationError, InvalidValueError) as error:
                        refusal = _unreadable(line, error)
                        await (into.send(error) if refusal is None else out.send(refusal))
                    else:
                        await into.send(SessionMessage(message))


def _unreadable(line: bytes, error: ValidationError | InvalidValueError) -> bytes | None:
    """The reply to a request that cannot be read, under the id that it seems to have; None if there is none."""
    found = _ID_FIRST.match(line[:1000]) or _ID_LAST.search(line[-1000:])
    if found is None:
        return None
    if isinstance(error, InvalidValueError):
        is_json, why = True, str(error)
    else:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        is_json = first["type"] != "json_invalid"
        why = "this is no message of the protocol" if is_json else first["msg"]
    refusal = {"code": types.INVALID_REQUEST if is_json else types.PARSE_ERROR, "message": why}
    return b'{"jsonrpc":"2.0","id":' + found[1] + b',"error":' + msgspec.json.encode(refusal) + b"}\n"


async def _chunk(descriptor: int) -> bytes:
    """The next bytes; none at the end."""
    await _ready(descriptor, select.POLLIN)
    try:
        return os.read(descriptor, _CHUNK)
    except OSError:
        return b""  # a terminal or a connection that is gone


class _TooLong(NamedTuple):
    """A line that was not kept, but for its two ends."""

    beginning: bytes
    end: bytes

    def refusal(self) -> bytes:
        found = _ID_FIRST.match(self.beginning) or _ID_LAST.search(self.end)
        named = found[1] if found else b"null"
        why = f"the message is longer than {MAX_MESSAGE_BYTES >> 20} MB, which is the most a message may have"
        error = f'"error":{{"code":{types.INVALID_REQUEST},"message":"{why}"}}'
        return b'{"jsonrpc":"2.0","id":' + named + b"," + error.encode() + b"}\n"


class _Lines:
    """Bytes cut into lines. Of a line that is too long only the two ends are kept."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def of(self, data: bytes) -> Iterator[bytes | _TooLong]:
        *ended, rest = data.split(b"\n")
        for part in ended:
            self._keep(part)
            whole = b"".join(self._parts)
            yield whole if self._size <= MAX_MESSAGE_BYTES else _TooLong(whole[:1000], whole[-1000:])
            self._parts, self._size = [], 0
        self._keep(rest)

    def _keep(self, part: bytes) -> None:
        self._size += len(part)
        self._parts.append(part)
        if self._size > MAX_MESSAGE_BYTES:
            self._parts[1:] = [b"".join(self._parts[-2:])[-1000:]]


# --- to the host -----------------------------------------------------------------------------------


async def _write(messages: MemoryObjectReceiveStream[SessionMessage], out: _Out) -> None:
    async with messages:
        async for message in messages:
            text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            await out.send(text.encode() + b"\n")
            if out.is_closed:
                return


class _Out:
    """What the host reads, one whole message after the other."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._turn = asyncio.Lock()
        self.is_closed = False
        """Whether the host has gone."""

    async def send(self, data: bytes) -> None:
        """Write all of it, however slowly the host reads."""
        left = memoryview(data)
        async with self._turn:
            while left and not self.is_closed:
                await _ready(self._descriptor, select.POLLOUT)
                try:
                    left = left[os.write(self._descriptor, left[:_SURE]) :]
                except OSError:
                    self.is_closed = True


async def _ready(descriptor: int, what: int) -> None:
    """Wait until a descriptor can be read or written without waiting. Files always can, and cannot be watched."""
    poll = select.poll()
    poll.register(descriptor, what)
    if poll.poll(0):
        return
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    watch, leave = (
        (loop.add_reader, loop.remove_reader) if what == select.POLLIN else (loop.add_writer, loop.remove_writer)
    )
    watch(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        leave(descriptor)
