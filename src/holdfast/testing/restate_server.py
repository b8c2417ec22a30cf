"""A real Restate server for tests: private, on free ports of this machine, from the npm package of its makers.

A server takes about a second to start. Give each test a service name of its own (`?service=…`), so that the tests of
one process can share a server.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

from holdfast.store.patience import patience

VARIABLE = "HOLDFAST_RESTATE_SERVER"
"""The environment variable that names the server's program."""

READY_S = patience(60.0)
"""Seconds after which a server that is not ready will not be."""

_CONFIG = """
cluster-name = "{cluster}"
node-name = "{name}"
base-dir = "{directory}"
listen-mode = "tcp"
auto-provision = {provisions}
bind-address = "127.0.0.1:{fabric}"
advertised-address = "http://127.0.0.1:{fabric}"
default-num-partitions = {partitions}
default-replication = {replication}
gossip-failure-threshold = 5
rocksdb-total-memory-size = "64 MiB"
disable-telemetry = true
log-filter = "warn"
log-disable-ansi-codes = true

[metadata-client]
addresses = [{peers}]

[metadata-server]
raft-election-tick = 5

[ingress]
bind-address = "127.0.0.1:{ingress}"
advertised-address = "http://127.0.0.1:{ingress}"

[admin]
bind-address = "127.0.0.1:{admin}"
advertised-address = "http://127.0.0.1:{admin}"
"""

PARTITIONS = 4
"""Partitions of a cluster: as many as there may be nodes and cores to test with."""


def find_restate(*directories: Path) -> Path | None:
    """The server's program: as the environment names it, or from the npm package in one of these directories."""
    if named := os.environ.get(VARIABLE):
        return Path(named)
    found = [
        path
        for each in directories
        for path in each.glob("node_modules/@restatedev/restate-server-*/bin/restate-server")
    ]
    return found[0] if found else None


class RestateServer:
    """One node, which can be killed and started again on its data."""

    def __init__(self, program: Path, directory: Path, name: str = "n1", fabric_ports: Sequence[int] = ()) -> None:
        self._program = program
        self._directory = directory / name
        self._name = name
        self._cluster = directory.name
        ports = free_ports(3)
        self._nodes = list(fabric_ports) or [ports[0]]
        self._fabric = self._nodes[int(name.removeprefix("n")) - 1]
        self._ingress, self._admin = ports[1:]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def ingress(self) -> str:
        """Where it is called, without the scheme."""
        return f"127.0.0.1:{self._ingress}"

    @property
    def admin(self) -> str:
        """The URL of its admin API."""
        return f"http://127.0.0.1:{self._admin}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it on its data; it is ready some time later."""
        self._directory.mkdir(parents=True, exist_ok=True)
        peers = ", ".join(f'"http://127.0.0.1:{port}"' for port in self._nodes)
        config = self._directory / "restate.toml"
        config.write_text(
            _CONFIG.format(
                cluster=self._cluster,
                name=self._name,
                directory=self._directory / "data",
                provisions="true" if self._fabric == self._nodes[0] else "false",
                fabric=self._fabric,
                ingress=self._ingress,
                admin=self._admin,
                partitions=PARTITIONS,
                replication=min(2, len(self._nodes)),
                peers=peers,
            )
        )
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._program, "--config-file", config],
                stdout=log,
                stderr=log,
                env={**os.environ, "DO_NOT_TRACK": "1"},
                start_new_session=True,  # it must not die with a test's process group
            )

    def wait(self) -> None:
        """Wait until it is ready."""
        deadline = time.monotonic() + READY_S
        while not (_answers(f"http://{self.ingress}/restate/health") and _answers(f"{self.admin}/health")):
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the Restate server is not ready:\n{(self._directory / 'log').read_text()[-4000:]}")
            time.sleep(0.05)

    def kill(self) -> None:
        """End it at once, as a power failure would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """Freeze it."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def throw_away(self) -> None:
        """Remove its disk. It must not be running."""
        shutil.rmtree(self._directory)

    def query(self, statement: str) -> list[dict[str, Any]]:
        """The rows that a statement finds in the engine's tables."""
        headers = {"content-type": "application/json", "accept": "application/json"}
        request = Request(f"{self.admin}/query", json.dumps({"query": statement}).encode(), headers)
        with urlopen(request, timeout=READY_S) as reply:
            rows: list[dict[str, Any]] = json.load(reply)["rows"]
            return rows


@contextlib.contextmanager
def restate_server(program: Path, directory: Path) -> Iterator[RestateServer]:
    """Run one server that is ready, with its data below `directory`, and end it."""
    with restate_cluster(program, directory, 1) as (server,):
        yield server


@contextlib.contextmanager
def restate_cluster(program: Path, directory: Path, nodes: int) -> Iterator[list[RestateServer]]:
    """Run a cluster of so many nodes that are ready, each with two replicas where there are several, and end it."""
    fabric = free_ports(nodes)
    servers = [RestateServer(program, directory, f"n{number}", fabric) for number in range(1, nodes + 1)]
    try:
        for server in servers:
            server.start()
        for server in servers:
            server.wait()
        yield servers
    finally:
        for server in servers:
            server.kill()


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on now."""
    with contextlib.ExitStack() as opened:
        sockets = [opened.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=2) as reply:
            return bool(reply.status == 200)
    except (URLError, OSError):
        return False
