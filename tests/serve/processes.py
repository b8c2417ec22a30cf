"""`holdfast mcp` as a process that tests talk to, kill and start again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from holdfast.testing.patience import HANG_S, until
from tests.forks.popen import PID_FILE
from tests.serve.calls import Host

ECHO = "return alc.llm('first?') .. ' ' .. alc.llm('second?')"
"""A strategy of two questions, whose result is the two answers."""

SLOW = "local sum = 0 for i = 1, ctx.steps do sum = sum + i end return 'slow'"


class Place:
    """A folder with a store and a home, in which servers are started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"sqlite:///{folder / 'sessions.db'}"
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("HOLDFAST_", "ALC_"))}
        self.env = kept | {"HOLDFAST_HOME": str(folder / "home"), "HOLDFAST_STORE": self.url}

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "holdfast.cli", "mcp", *args]

    def start(self, *args: str, **options: Any) -> subprocess.Popen[bytes]:
        """A server whose three streams are the test's."""
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        return subprocess.Popen(self.command(*args), env=self.env, cwd=self.folder, **{**pipes, **options})

    def ends(self, *args: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """A server that ends by itself."""
        return subprocess.run(
            self.command(*args),
            env=self.env,
            cwd=self.folder,
            input=stdin,
            capture_output=True,
            timeout=HANG_S,
            check=False,
        )

    @contextlib.asynccontextmanager
    async def host(self, era: str = "2026-07-28", *args: str, **options: Any) -> AsyncIterator[StdioHost]:
        """A host that has started a server of its own, over stdio."""
        pid = self.folder / f"pid-{time.monotonic_ns()}"
        command, *arguments = self.command("--tools", "all", *args)
        env = self.env | {PID_FILE: str(pid)}
        server = StdioServerParameters(command=command, args=arguments, env=env, cwd=self.folder)
        with (self.folder / "stderr").open("a") as errors:
            async with Client(stdio_client(server, errors), mode=era, **options) as client:
                yield StdioHost(client, pid)

    @contextlib.contextmanager
    def http(self, *args: str) -> Iterator[HttpServer]:
        """A server over HTTP, which can be killed and comes back on the same port."""
        server = HttpServer(self, *args)
        try:
            server.start()
            yield server
        finally:
            server.kill()


async def break_off(host: Host) -> str:
    """Begin a run that does not end, cancel the call of it, and wait; how the session ends."""
    running = asyncio.create_task(host.client.call_tool("alc_run", {"code": SLOW, "ctx": {"steps": 10**12}}))
    while not (active := (await host.call("alc_status"))["sessions"]):
        pass
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    async def outcome() -> Any:
        return (await host.call("alc_status", session_id=active[0]["session_id"])).get("outcome")

    return str((await until(outcome))["status"])


class StdioHost(Host):
    """A host, and the process of its server."""

    def __init__(self, client: Client, pid: Path) -> None:
        super().__init__(client)
        self._pid = pid

    async def kill(self) -> None:
        """End the server as no server expects it, and wait until it is gone."""
        pid = int(self._pid.read_text())
        os.kill(pid, signal.SIGKILL)
        await asyncio.to_thread(_until_gone, pid)


class HttpServer:
    """A server on a port."""

    def __init__(self, place: Place, *args: str) -> None:
        self._place = place
        self._args = args
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def authorization(self) -> dict[str, str]:
        """The header that clients have to send."""
        named = self._place.env.get("HOLDFAST_MCP_TOKEN")
        token = named or (self._place.folder / "home" / "mcp.token").read_text().strip()
        return {"Authorization": f"Bearer {token}"}

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def start(self) -> None:
        """Start, and wait until requests are taken."""
        self.kill()
        command = ["--http", "--tools", "all", "--port", str(self.port), *self._args]
        self._process = self._place.start(*command, stdin=subprocess.DEVNULL)
        assert self.process.stderr is not None
        said = b""
        while found := self.process.stderr.readline():
            said += found
            if told := re.search(rb"serving MCP on http://\S+:(\d+)/mcp", found):
                self.port = int(told[1])
                return
        raise AssertionError(f"the server did not start: {said.decode()}")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for stream in (self._process.stdout, self._process.stderr):
                if stream is not None:
                    stream.close()
            self._process = None

    def restart(self) -> None:
        """Kill it, and start another one in its place."""
        self.start()

    @contextlib.asynccontextmanager
    async def host(self, era: str = "2026-07-28", **options: Any) -> AsyncIterator[Host]:
        """A host that is connected to it."""
        async with httpx2.AsyncClient(headers=self.authorization, timeout=HANG_S) as http:
            transport = streamable_http_client(self.url, http_client=http)
            async with Client(transport, mode=era, **options) as client:
                yield Host(client)


def _until_gone(pid: int) -> None:
    while _runs(pid):
        time.sleep(0.01)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
