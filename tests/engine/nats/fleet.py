"""A fleet for tests: a PostgreSQL database, NATS servers, and workers in processes of their own."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any
from uuid import uuid4

from holdfast.engine.holdfast import Holdfast
from holdfast.engine.nats.report import QueueReport, queue_report
from holdfast.engine.nats.settings import NatsSettings
from holdfast.testing.patience import until
from tests.engine.helpers import quiet
from tests.engine.nats.server import NatsServer
from tests.engine.processes import Process


class Fleet:
    """Who serves the sessions of one database. Its name keeps it apart from other fleets of the same servers."""

    def __init__(self, url: str, servers: Sequence[NatsServer], ledger: Path) -> None:
        self.url = url
        self.servers = servers
        self.ledger = ledger
        self.name = f"fleet-{uuid4().hex[:12]}"
        self.workers: list[Process] = []
        self._opened = contextlib.AsyncExitStack()

    @classmethod
    @contextlib.asynccontextmanager
    async def on(cls, url: str, servers: Sequence[NatsServer], folder: Path) -> AsyncIterator[Fleet]:
        fleet = cls(url, servers, folder / "ledger")
        async with fleet._opened:
            yield fleet

    @property
    def dispatch(self) -> str:
        replicas = min(3, len(self.servers))
        return f"nats://{','.join(each.address for each in self.servers)}?service={self.name}&replicas={replicas}"

    @property
    def settings(self) -> NatsSettings:
        return NatsSettings.parse(self.dispatch)

    def front(self) -> AbstractAsyncContextManager[Holdfast]:
        """An engine here that only does what it is told, and nudges the fleet."""
        return quiet(self.url, dispatch=self.dispatch)

    async def worker(self, recovery: str = "safe", *, pull: int = 100, **options: Any) -> Process:
        """Start a worker that drives the tool `work`."""
        opened = Process.on(self.url, self.ledger, dispatch=f"{self.dispatch}&pull={pull}", **options)
        process = await self._opened.enter_async_context(opened)
        await process.do("drive", what="work", recovery=recovery, concurrency=100)
        self.workers.append(process)
        return process

    async def kill(self, worker: Process) -> None:
        self.workers.remove(worker)
        await worker.kill()

    async def report(self) -> QueueReport:
        return await queue_report(self.settings)

    async def is_served(self) -> bool:
        """Whether all workers wait for nudges."""
        return sum(each.waiting for each in (await self.report()).consumers) >= len(self.workers)

    async def is_done(self) -> bool:
        """Whether nothing is left in the queue, but for what waits for its time."""
        report = await self.report()
        return not any(each.pending or each.taken for each in report.consumers)

    async def until_served(self) -> None:
        await until(self.is_served)

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
