"""A fleet for tests that takes its work from NATS."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Self

from holdfast.engine.dispatch import DispatchError
from holdfast.engine.nats.report import QueueReport, queue_report
from holdfast.engine.nats.settings import NatsSettings
from holdfast.testing.patience import until
from tests.engine.dispatchers.fleet import Fleet
from tests.engine.nats.server import NatsServer
from tests.engine.processes import Process


class NatsFleet(Fleet):
    """A fleet whose queue is on these servers."""

    servers: Sequence[NatsServer]
    workers: list[Process]

    def __init__(self, url: str, servers: Sequence[NatsServer], ledger: Path) -> None:
        super().__init__(url, ledger)
        self.servers = servers
        self.workers = []

    @classmethod
    @contextlib.asynccontextmanager
    async def on(cls, url: str, servers: Sequence[NatsServer], folder: Path) -> AsyncIterator[Self]:
        fleet = cls(url, servers, folder / "ledger")
        async with fleet._opened:
            yield fleet

    @property
    def dispatch(self) -> str:
        replicas = min(3, len(self.servers))
        return f"nats://{','.join(each.address for each in self.servers)}?service={self.name}&replicas={replicas}"

    @property
    def serving(self) -> str:
        return f"{self.dispatch}&pull=1"

    @property
    def settings(self) -> NatsSettings:
        return NatsSettings.parse(self.dispatch)

    async def worker(self, recovery: str = "safe", *, pull: int = 100, **options: Any) -> Process:
        """See `Fleet.worker`; it takes so many sessions at a time."""
        process = await self._start(recovery, f"{self.dispatch}&pull={pull}", **options)
        self.workers.append(process)
        return process

    async def kill(self, worker: Process) -> None:
        self.workers.remove(worker)
        await worker.kill()

    async def report(self) -> QueueReport:
        return await queue_report(self.settings)

    async def is_served(self) -> bool:
        """Whether all workers wait for nudges. While the nodes elect a leader, nobody can say."""
        try:
            report = await self.report()
        except DispatchError:
            return False
        return sum(each.waiting for each in report.consumers) >= len(self.workers)

    async def is_done(self) -> bool:
        """Whether nothing is left in the queue, but for what waits for its time."""
        report = await self.report()
        return not any(each.pending or each.taken for each in report.consumers)

    async def until_served(self) -> None:
        await until(self.is_served)

    async def until_calm(self) -> None:
        await until(self.is_done)

    async def has_scheduled(self, count: int) -> bool:
        """Whether the queue has so many messages for later."""
        return (await self.report()).scheduled == count
