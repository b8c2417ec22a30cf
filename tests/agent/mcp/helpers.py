"""What the tests of MCP servers share: the servers, catalogs with them, and calls as a model makes them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.agent.live_events import LiveEvent
from holdfast.agent.machine.conversation import tool_done
from holdfast.agent.machine.turn import ToolCallOutcome
from holdfast.agent.mcp.client import McpClient
from holdfast.agent.tools import Catalog, Tool
from holdfast.agent.tools.runner import ModelCall, ToolRunner
from holdfast.core.queries import Failure, Value
from holdfast.engine.drivers import Attempt
from holdfast.testing.patience import HANG_S, soon, until_so

SERVERS = Path(__file__).parent / "servers"


def script(name: str, *arguments: object) -> list[str]:
    """The command of a server of ours."""
    return [sys.executable, str(SERVERS / f"{name}.py"), *map(str, arguments)]


class Friendly(NamedTuple):
    """The friendly server, and the folder where it notes what it was called for."""

    server: McpClient
    folder: Path


class Host:
    """A catalog with one server, and a model that calls its tools."""

    def __init__(self, server: McpClient, catalog: Catalog) -> None:
        self.server = server
        self.catalog = catalog
        self.events: list[LiveEvent] = []
        self._runner = ToolRunner(about=self._about, emit=self._emit)
        self._calls = 0

    @property
    def names(self) -> list[str]:
        return [entry.name for entry in self.catalog]

    def tool(self, name: str) -> Tool:
        found = self.catalog.get(name)
        assert isinstance(found, Tool), f"{name} is none of {self.names}"
        return found

    async def done(self, name: str, /, **arguments: Any) -> ToolCallOutcome:
        """What a turn learns of a call."""
        self._calls += 1
        running = self._runner.run(self.tool(name), Attempt("s-1", f"q-{self._calls}", 1), arguments)
        answer = await soon(running)
        return tool_done(answer if isinstance(answer, Failure) else Value(value=answer))

    async def call(self, name: str, /, **arguments: Any) -> Any:
        """What a call that goes well comes to."""
        done = await self.done(name, **arguments)
        assert not done.is_error, done.content
        return done.content

    async def error(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        """What a model is told of a call that fails."""
        done = await self.done(name, **arguments)
        assert done.is_error, done.content
        assert isinstance(done.content, dict)
        return done.content

    async def _about(self, attempt: Attempt) -> ModelCall:
        return ModelCall(turn="t-1", call_id=f"call-{attempt.query_id}")

    async def _emit(self, _: str, event: LiveEvent) -> None:
        self.events.append(event)


@asynccontextmanager
async def hosting(server: McpClient, **settings: Any) -> AsyncIterator[Host]:
    """A server whose tools are offered, until the end."""
    catalog = Catalog()
    try:
        async with asyncio.timeout(HANG_S):
            await catalog.add_provider(server, **settings)
        yield Host(server, catalog)
    finally:
        await catalog.aclose()
        await server.aclose()


def is_alive(pid: int) -> bool:
    """Whether there is such a process, and it is no zombie."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def children() -> set[int]:
    """The processes that this one has started and that live."""
    found = set()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            pid = int(entry.name)
            if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == os.getpid() and is_alive(pid):
                found.add(pid)
    return found


class HttpProcess:
    """A server on a port, which can be ended and comes back on the same port."""

    def __init__(self, name: str, *arguments: object) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._command = script(name, *arguments, self.port)
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, path: str = "mcp") -> str:
        return f"http://127.0.0.1:{self.port}/{path}"

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        until_so(self._takes_connections)

    def _takes_connections(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, "the server did not start"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), HANG_S):
            return True
        return False

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def over_http(name: str, *arguments: object) -> Iterator[HttpProcess]:
    served = HttpProcess(name, *arguments)
    try:
        served.start()
        yield served
    finally:
        served.kill()
