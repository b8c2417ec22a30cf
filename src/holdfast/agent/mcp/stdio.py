"""A server as a child process: started with little of our environment, connected by pipes, ended with us.

The child leads a process group of its own, so that everything it has started is ended with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from asyncio.subprocess import SubprocessStreamProtocol
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter

from holdfast.agent.mcp.limits import LEAVE_S, MESSAGE_BYTES, STDERR_BYTES, STDERR_LINES, TERM_S
from holdfast.core.values import preview

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

HARMLESS = frozenset(["HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"])
"""Variables that a child inherits, beside those that begin with LC_. Anything else it needs is passed with env=."""

SECRET_CHARS = 8
"""Characters from which on the value of an env= variable is hidden in the child's stderr."""

_EDGE = 200  # where in a message its id is, at either end; what is between them may be large
_ID_FIRST = re.compile(rb'\s*\{\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*(\d{1,18})\s*,')
_ID_LAST = re.compile(rb'"id"\s*:\s*(\d{1,18})\s*\}\s*\Z')


class ChildSpec(msgspec.Struct, frozen=True):
    """How a child is started."""

    command: Sequence[str]
    env: Mapping[str, str]
    cwd: str | Path | None


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The environment of a child: harmless variables of ours, and those passed for it."""
    harmless = {
        name: value
        for name, value in os.environ.items()
        if (name in HARMLESS or name.startswith("LC_")) and not value.startswith("()")  # those are shell functions
    }
    return {**harmless, **variables}


class _Pipes(SubprocessStreamProtocol):
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit=MESSAGE_BYTES, loop=loop)
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        self.exited.set()


class StdioTransport:
    """The pipes of one child."""

    is_refused_as_http = False

    def __init__(self, launch: ChildSpec, over: asyncio.Event) -> None:
        self._launch = launch
        self._over = over
        self._transport: asyncio.SubprocessTransport | None = None
        self._exited: asyncio.Event | None = None
        self._stderr = b""
        self._garbage = 0
        self._first_garbage = ""

    # --- transport ------------------------------------------------------------------------------

    @asynccontextmanager
    async def streams(self) -> AsyncIterator[TransportStreams]:
        """Start the child, and end it."""
        loop = asyncio.get_running_loop()
        transport, pipes = await loop.subprocess_exec(
            lambda: _Pipes(loop),
            *self._launch.command,
            env=environment(self._launch.env),
            cwd=self._launch.cwd,
            start_new_session=True,
        )
        self._transport, self._exited = transport, pipes.exited
        assert pipes.stdin is not None
        to_client, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        outgoing, from_client = anyio.create_memory_object_stream[SessionMessage](0)
        tasks = [
            loop.create_task(self._read(pipes.stdout, to_client)),
            loop.create_task(self._write(pipes.stdin, from_client, to_client)),
            loop.create_task(self._read_stderr(pipes.stderr)),
        ]
        try:
            yield incoming, outgoing
        finally:
            pipes.stdin.close()
            try:
                await self._end()
            finally:
                self.kill()
                for task in tasks:
                    task.cancel()
                for stream in (to_client, incoming, outgoing, from_client):
                    stream.close()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def why(self) -> str:
        if self._exited is None or self._transport is None:
            return ""
        await _within(self._exited, 0.2)  # its output ends a moment before it does
        code = self._transport.get_returncode()
        if code is not None:
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            return f"its process {how}"
        if self._garbage:
            lines = f"{self._garbage} lines of its output were not messages, the first: {self._first_garbage}"
            return f"{lines}; a server must write nothing but messages to standard output"
        return ""

    @property
    def stderr(self) -> list[str]:
        text = self._stderr.decode(errors="replace")
        for name, value in self._launch.env.items():
            if len(value) >= SECRET_CHARS:
                text = text.replace(value, f"[{name}]")
        lines = [line.rstrip() for line in text.splitlines() if line.strip()]
        return lines[-STDERR_LINES:]

    def kill(self) -> None:
        if self._transport is not None:
            self._signal(signal.SIGKILL)  # also those that it has started
            self._transport.close()

    # --- the pipes ---------------------------------------------------------------------------------

    async def _read(
        self, stdout: asyncio.StreamReader | None, to_client: MemoryObjectSendStream[SessionMessage | Exception]
    ) -> None:
        assert stdout is not None
        try:
            while (line := await self._line(stdout)) is not None:
                if line.strip() and (message := self._parsed(line)) is not None:
                    await to_client.send(message)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, ConnectionError):
            pass
        finally:
            self._over.set()
            to_client.close()  # which ends all running requests

    async def _line(self, stdout: asyncio.StreamReader) -> bytes | None:
        """The next line, or None after the last. A line that is too long is replaced by an error for its request."""
        try:
            return await stdout.readuntil(b"\n")
        except asyncio.IncompleteReadError as rest:
            return rest.partial or None
        except asyncio.LimitOverrunError:
            return await self._replace_long_line(stdout)

    async def _replace_long_line(self, stdout: asyncio.StreamReader) -> bytes:
        size, head, tail = 0, b"", b""
        while True:
            try:
                piece, is_last = await stdout.readuntil(b"\n"), True
            except asyncio.LimitOverrunError as error:
                piece, is_last = await stdout.readexactly(error.consumed), False
            except asyncio.IncompleteReadError as rest:
                piece, is_last = rest.partial, True
            size += len(piece)
            head = head or piece[:_EDGE]
            tail = (tail + piece[-_EDGE:])[-_EDGE:]
            if is_last:
                break
        found = _ID_FIRST.match(head) or _ID_LAST.search(tail)
        if found is None:
            return head.replace(b"\n", b" ") + b"\n"
        message = f"its answer has {size:,} bytes; the limit is {MESSAGE_BYTES:,}: ask for less at a time"
        error_data = ErrorData(code=INTERNAL_ERROR, message=message)
        reply = JSONRPCError(jsonrpc="2.0", id=int(found[1]), error=error_data)
        return reply.model_dump_json(by_alias=True).encode() + b"\n"

    def _parsed(self, line: bytes) -> SessionMessage | None:
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError:
            self._garbage += 1
            self._first_garbage = self._first_garbage or preview(line[:_EDGE].decode(errors="replace").strip())
            return None

    async def _write(
        self,
        stdin: asyncio.StreamWriter,
        from_client: MemoryObjectReceiveStream[SessionMessage],
        to_client: MemoryObjectSendStream[SessionMessage | Exception],
    ) -> None:
        try:
            async for sent in from_client:
                stdin.write(sent.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                await stdin.drain()
        except (ConnectionError, RuntimeError):  # either end is closed
            self._over.set()
            to_client.close()

    async def _read_stderr(self, stderr: asyncio.StreamReader | None) -> None:
        assert stderr is not None
        while chunk := await stderr.read(STDERR_BYTES):
            self._stderr = (self._stderr + chunk)[-STDERR_BYTES:]

    # --- its end -----------------------------------------------------------------------------------

    async def _end(self) -> None:
        assert self._exited is not None
        if not await _within(self._exited, LEAVE_S):
            self._signal(signal.SIGTERM)
            if not await _within(self._exited, TERM_S):
                self._signal(signal.SIGKILL)
                await _within(self._exited, TERM_S)

    def _signal(self, number: signal.Signals) -> None:
        assert self._transport is not None
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._transport.get_pid(), number)


async def _within(event: asyncio.Event, seconds: float) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
