"""Hosts in network namespaces: each worker and the database has an address of its own, and links that can be cut.

The server listens on a Unix socket, which namespaces do not separate; so a relay in the database's namespace passes TCP
connections on to it:

    python -m tests.engine.hosts ADDRESS PORT SOCKET
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

from tests.paths import REPO

DATABASE = "10.77.0.1"
PORT = 5432
NETWORK_BITS = 24


def cannot_make_hosts() -> str:
    """Why there can be no network namespaces here; empty if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    name = f"hf-{uuid4().hex[:6]}"
    try:
        subprocess.run(["ip", "netns", "add", name], check=True, capture_output=True)
        subprocess.run(["ip", "netns", "del", name], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"network namespaces cannot be made here: {error}"
    return ""


class Hosts:
    """A database and some workers on one network."""

    def __init__(self, workers: int) -> None:
        self._prefix = f"hf-{uuid4().hex[:6]}"
        self._workers = workers

    def command(self, worker: int) -> tuple[str, ...]:
        """What a command begins with that runs on the host of a worker."""
        return ("ip", "netns", "exec", self._name(f"w{worker}"))

    def cut(self, worker: int) -> None:
        """Nothing gets from a worker to the database any more, or back."""
        _ip("-n", self._name("db"), "link", "set", f"p{worker}", "down")

    def heal(self, worker: int) -> None:
        _ip("-n", self._name("db"), "link", "set", f"p{worker}", "up")

    def _name(self, host: str) -> str:
        return f"{self._prefix}-{host}"

    def _make(self) -> None:
        database = self._name("db")
        _ip("netns", "add", database)
        _ip("-n", database, "link", "add", "bridge", "type", "bridge")
        _ip("-n", database, "addr", "add", f"{DATABASE}/{NETWORK_BITS}", "dev", "bridge")
        _ip("-n", database, "link", "set", "bridge", "up")
        for worker in range(self._workers):
            host = self._name(f"w{worker}")
            _ip("netns", "add", host)
            _ip("-n", host, "link", "set", "lo", "up")
            _ip("-n", host, "link", "add", "eth0", "type", "veth", "peer", "name", f"p{worker}", "netns", database)
            _ip("-n", host, "addr", "add", f"10.77.0.{10 + worker}/{NETWORK_BITS}", "dev", "eth0")
            _ip("-n", host, "link", "set", "eth0", "up")
            _ip("-n", database, "link", "set", f"p{worker}", "master", "bridge", "up")

    def _remove(self) -> None:
        for host in ("db", *(f"w{worker}" for worker in range(self._workers))):
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "del", self._name(host))

    @contextlib.contextmanager
    def on(self, database: str) -> Iterator[str]:
        """Make them; the URL of a database of the test server as workers see it."""
        url = urlsplit(database)
        socket = f"{parse_qs(url.query)['host'][0]}/.s.PGSQL.5432"
        relay = None
        try:
            self._make()
            command = ("ip", "netns", "exec", self._name("db"), sys.executable, "-m", "tests.engine.hosts")
            relay = subprocess.Popen([*command, DATABASE, str(PORT), socket], cwd=REPO, stdout=subprocess.PIPE)
            assert relay.stdout is not None
            assert relay.stdout.readline() == b"ready\n"
            yield f"postgresql://postgres@{DATABASE}:{PORT}{url.path}"
        finally:
            if relay is not None:
                relay.kill()
                relay.communicate()
            self._remove()


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


async def _relay(address: str, port: int, socket: str) -> None:
    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(socket)
        await asyncio.gather(pass_on(reader, back), pass_on(there, writer))

    async with await asyncio.start_server(serve, address, port) as server:
        print("ready", flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_relay(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
