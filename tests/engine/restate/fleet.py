"""A fleet for tests that Restate brings work to, through a balancer."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Self

from holdfast.testing.patience import until
from holdfast.testing.restate_server import RestateServer, free_ports
from tests.engine.dispatchers.fleet import Fleet
from tests.engine.processes import Process
from tests.engine.restate.balancer import Balancer


class RestateFleet(Fleet):
    """A fleet behind a balancer that these servers know."""

    servers: Sequence[RestateServer]
    workers: dict[Process, int]

    def __init__(self, url: str, servers: Sequence[RestateServer], balancer: Balancer, ledger: Path) -> None:
        super().__init__(url, ledger)
        self.servers = servers
        self.balancer = balancer
        self.workers = {}

    @classmethod
    @contextlib.asynccontextmanager
    async def on(cls, url: str, servers: Sequence[RestateServer], folder: Path) -> AsyncIterator[Self]:
        async with Balancer.open() as balancer:
            fleet = cls(url, servers, balancer, folder / "ledger")
            async with fleet._opened:
                yield fleet

    @property
    def dispatch(self) -> str:
        hosts = ",".join(server.ingress for server in self.servers)
        return f"restate+http://{hosts}?service={self.name}"

    @property
    def serving(self) -> str:
        return f"{self.dispatch}&listen=127.0.0.1:0&register={self.servers[0].admin}"

    async def worker(
        self, recovery: str = "safe", *, port: int = 0, advertise: str | None = None, **options: Any
    ) -> Process:
        """See `Fleet.worker`; it is at a port if one is named, and behind what `advertise` names."""
        port = port or free_ports(1)[0]
        where = f"&listen=127.0.0.1:{port}&advertise={advertise or self.balancer.url}&register={self.servers[0].admin}"
        process = await self._start(recovery, self.dispatch + where, **options)
        self.workers[process] = port
        self.balancer.backends.append(port)
        return process

    async def kill(self, worker: Process) -> None:
        self.leave_out(worker)
        del self.workers[worker]
        await worker.kill()

    def leave_out(self, worker: Process) -> None:
        """Let the balancer bring nothing to a worker."""
        self.balancer.backends.remove(self.workers[worker])

    def troubled(self) -> list[dict[str, Any]]:
        """Nudges of this fleet that are tried again and again, or are paused."""
        return self.servers[0].query(
            "select id, target, status, retry_count, last_failure from sys_invocation"
            f" where target_service_name like '{self.name}%' and status in ('backing-off', 'paused')"
        )

    def is_known(self) -> bool:
        """Whether the engine knows where the fleet is."""
        found = self.servers[0].query(f"select name from sys_service where name = '{self.name}'")
        return bool(found)

    async def until_served(self) -> None:
        await until(self.is_known)

    async def until_calm(self) -> None:
        if self.workers:  # without any, the sweep is tried again and again
            await until(lambda: not self.troubled())
