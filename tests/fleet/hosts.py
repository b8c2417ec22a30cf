"""Hosts in network namespaces: workers, a store and an engine with addresses of their own, on links that can be bad.

The servers themselves run on this machine. Ports at the addresses of the store and of the engine lead to them, so all
that a worker sends or hears goes through its link; see `network`.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

from tests.paths import REPO

STORE, ENGINE = "10.77.0.1", "10.77.0.2"
STORE_PORT, INGRESS_PORT, ADMIN_PORT, WORKER_PORT, BALANCER_PORT = 5432, 8080, 9070, 9080, 9000
NETWORK_BITS = 24

Way = Literal["out", "in"]
"""What a worker sends, or what it gets."""

BOTH: tuple[Way, ...] = ("out", "in")


def cannot_make_hosts() -> str:
    """Why there can be no hosts here; empty if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    name = f"hf-{uuid4().hex[:6]}"
    try:
        _ip("netns", "add", name)
        try:
            _ip("-n", name, "tuntap", "add", "dev", "eth0", "mode", "tap")
        finally:
            _ip("netns", "del", name)
    except (OSError, subprocess.CalledProcessError) as error:
        why = error.stderr.decode().strip() if isinstance(error, subprocess.CalledProcessError) else error
        return f"network namespaces with TAP devices cannot be made here: {why}"
    return "" if Path("/dev/net/tun").exists() else "there is no /dev/net/tun"


class Hosts:
    """A hub, which has the addresses of the store and of the engine, and some workers on one network."""

    def __init__(self, workers: int) -> None:
        prefix = f"hf-{uuid4().hex[:6]}"
        self._hub = f"{prefix}-hub"
        self._workers = [f"{prefix}-w{worker}" for worker in range(workers)]
        self._network: subprocess.Popen[bytes] | None = None

    @contextlib.contextmanager
    def on(self, database: str) -> Iterator[str]:
        """Make them; the URL of a database of the test server as workers see it."""
        url = urlsplit(database)
        socket = f"{parse_qs(url.query)['host'][0]}/.s.PGSQL.5432"
        try:
            self._make()
            self._lead(namespace=self._hub, address=STORE, port=STORE_PORT, path=socket)
            yield f"postgresql://postgres@{STORE}:{STORE_PORT}{url.path}"
        finally:
            self._remove()

    def lead_to_engine(self, ingress: int, admin: int) -> None:
        """Let workers reach a Restate server, which listens on these ports of the machine, at `ENGINE`."""
        for port, to_port in ((INGRESS_PORT, ingress), (ADMIN_PORT, admin)):
            here: dict[str, Any] = {"to_namespace": None, "to_address": "127.0.0.1", "to_port": to_port}
            self._lead(namespace=self._hub, address=ENGINE, port=port, **here)

    def lead_from_engine(self) -> int:
        """A port of the machine that leads to `BALANCER_PORT` at `ENGINE`."""
        there: dict[str, Any] = {"to_namespace": self._hub, "to_address": ENGINE, "to_port": BALANCER_PORT}
        return self._lead(namespace=None, address="127.0.0.1", port=0, **there)

    @property
    def hub(self) -> tuple[str, ...]:
        """What a command begins with that runs where the store and the engine are."""
        return ("ip", "netns", "exec", self._hub)

    def address(self, worker: int) -> str:
        return f"10.77.0.{10 + worker}"

    def namespace(self, worker: int) -> str:
        """The name of the network namespace that is the host of a worker."""
        return self._workers[worker]

    def cut(self, worker: int, ways: Sequence[Way] = BOTH, *, peer: str | None = None) -> None:
        """No packet gets through any more: in these ways, and of this peer if one is named."""
        self._set(worker, ways, peer, loss=1)

    def worsen(self, worker: int, ways: Sequence[Way] = BOTH, **condition: float) -> None:
        """Delay packets (`delay_ms`), lose some (`loss`), or make the link narrow (`bytes_per_s`)."""
        self._set(worker, ways, None, **condition)

    def heal(self, worker: int) -> None:
        self._set(worker, BOTH, None)

    def _set(self, worker: int, ways: Sequence[Way], peer: str | None, **condition: float) -> None:
        self._ask({"link": worker, "ways": list(ways), "peer": peer, "condition": condition})

    def _lead(self, **port: Any) -> int:
        number: int = self._ask({"lead": port})
        return number

    def _ask(self, command: dict[str, Any]) -> Any:
        assert self._network is not None
        assert self._network.stdin is not None
        self._network.stdin.write(json.dumps(command).encode() + b"\n")
        self._network.stdin.flush()
        return self._reply()

    def _reply(self) -> Any:
        assert self._network is not None
        assert self._network.stdout is not None
        line = self._network.stdout.readline()
        assert line, "the network has broken down"
        return json.loads(line)

    def _make(self) -> None:
        for host in (self._hub, *self._workers):
            _ip("netns", "add", host)
            _ip("-n", host, "link", "set", "lo", "up")
        spec = json.dumps({"hub": self._hub, "hosts": self._workers})
        command = [sys.executable, "-m", "tests.fleet.network", spec]
        self._network = subprocess.Popen(command, cwd=REPO, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._reply() == "made"
        _ip("-n", self._hub, "link", "add", "bridge", "type", "bridge")
        for address in (STORE, ENGINE):
            _ip("-n", self._hub, "addr", "add", f"{address}/{NETWORK_BITS}", "dev", "bridge")
        _ip("-n", self._hub, "link", "set", "bridge", "up")
        for worker, host in enumerate(self._workers):
            _ip("-n", self._hub, "link", "set", f"p{worker}", "master", "bridge", "up")
            _ip("-n", host, "addr", "add", f"{self.address(worker)}/{NETWORK_BITS}", "dev", "eth0")
            _ip("-n", host, "link", "set", "eth0", "up")

    def _remove(self) -> None:
        if self._network is not None:
            self._network.kill()
            self._network.communicate()
        for host in (self._hub, *self._workers):
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "del", host)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
