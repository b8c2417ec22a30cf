"""A fleet for tests: a PostgreSQL database, a Restate server, a balancer, and workers in processes of their own."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any
from uuid import uuid4

from holdfast.engine.holdfast import Holdfast
from holdfast.testing.restate_server import RestateServer, free_ports
from tests.engine.helpers import quiet
from tests.engine.processes import Process
from tests.engine.restate.balancer import Balancer


class Fleet:
    """Who serves the sessions of one database. Its name keeps it apart from other fleets of the same engine."""

    def __init__(self, url: str, servers: Sequence[RestateServer], balancer: Balancer, ledger: Path) -> None:
        self.url = url
        self.servers = servers
        self.balancer = balancer
        self.ledger = ledger
        self.name = f"fleet-{uuid4().hex[:12]}"
        self.workers: dict[Process, int] = {}
        self._opened = contextlib.AsyncExitStack()

    @classmethod
    @contextlib.asynccontextmanager
    async def on(cls, url: str, servers: Sequence[RestateServer], folder: Path) -> AsyncIterator[Fleet]:
        async with Balancer.open() as balancer:
            fleet = cls(url, servers, balancer, folder / "ledger")
            async with fleet._opened:
                yield fleet

    @property
    def dispatch(self) -> str:
        hosts = ",".join(server.ingress for server in self.servers)
        return f"restate+http://{hosts}?service={self.name}"

    def front(self) -> AbstractAsyncContextManager[Holdfast]:
        """An engine here that only does what it is told, and nudges the fleet."""
        return quiet(self.url, dispatch=self.dispatch)

    async def worker(
        self, recovery: str = "safe", *, port: int = 0, advertise: str | None = None, **options: Any
    ) -> Process:
        """Start a worker that drives the tool `work`; at a port if one is named, and behind what `advertise` names."""
        port = port or free_ports(1)[0]
        where = f"&listen=127.0.0.1:{port}&advertise={advertise or self.balancer.url}&register={self.servers[0].admin}"
        opened = Process.on(self.url, self.ledger, dispatch=self.dispatch + where, **options)
        process = await self._opened.enter_async_context(opened)
        await process.do("drive", what="work", recovery=recovery, concurrency=100)
        self.workers[process] = port
        self.balancer.backends.append(port)
        return process

    async def kill(self, worker: Process) -> None:
        self.balancer.backends.remove(self.workers.pop(worker))
        await worker.kill()

    @property
    def runs(self) -> list[tuple[str, int, int]]:
        """The effects that were begun so far: session, attempt, process."""
        lines = self.ledger.read_text().splitlines() if self.ledger.exists() else []
        return [(line.split()[0], int(line.split()[2]), int(line.split()[3])) for line in lines]

    def runs_of(self, session: str) -> list[tuple[int, int]]:
        """The attempts of one session's effect, with their processes."""
        return [(attempt, pid) for each, attempt, pid in self.runs if each == session]

    def worker_of(self, session: str) -> Process:
        """The worker that began the latest attempt."""
        pid = self.runs_of(session)[-1][1]
        return next(worker for worker in self.workers if worker.pid == pid)

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
