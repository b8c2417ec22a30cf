"""Three workers on hosts of their own, with or without an engine, and a front beside the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from holdfast.core.records import AnsweredRecord
from holdfast.engine.holdfast import Holdfast
from holdfast.testing.patience import soon, until
from holdfast.testing.postgres_server import fresh_database
from holdfast.testing.restate_server import RestateServer
from tests.engine.helpers import of_type, quiet
from tests.fleet.child import effects
from tests.fleet.haproxy import haproxy
from tests.fleet.hosts import ADMIN_PORT, BALANCER_PORT, ENGINE, INGRESS_PORT, WORKER_PORT, Hosts
from tests.fleet.ledger import Ledger, Plan, problems
from tests.fleet.workers import Workers

WORKERS = 3


class Site:
    """The hosts, their workers and the front."""

    def __init__(self, hosts: Hosts, workers: Workers, front: Holdfast) -> None:
        self.hosts = hosts
        self.workers = workers
        self.front = front

    @property
    def ledger(self) -> Ledger:
        return self.workers.ledger

    async def start(self, session: str, tool: str, *ms: int) -> Plan:
        """Start a session that calls a tool several times, each for so many milliseconds."""
        await self.front.start(effects, id=session, ctx={"tool": tool, "ms": list(ms)}, wait=0)
        return Plan(session, tool, len(ms))

    async def worker_at(self, session: str) -> int:
        """Wait until a session's effect has begun; the number of who does it."""
        begun = await until(lambda: self.ledger.notes("begun", session))
        return self.workers.number(begun[-1].pid)

    async def check(self, *plans: Plan) -> None:
        """All sessions end; nothing is lost, nothing is done twice, and no attempt begins before the last is over."""
        for plan in plans:
            await soon(self.front.result(plan.session))
            assert len(await of_type(self.front.store, plan.session, AnsweredRecord)) == plan.calls
        assert await problems(self.front, self.ledger, plans) == []
        assert self.ledger.overlaps(self.workers.dead) == []


@asynccontextmanager
async def site(server: str, folder: Path, lease_ms: int) -> AsyncIterator[Site]:
    """On PostgreSQL alone."""
    hosts, database = Hosts(WORKERS), fresh_database(server)
    with hosts.on(database) as url:
        async with Workers.on(url, Ledger(folder / "ledger")) as workers, quiet(database) as front:
            starts = [workers.start(number, hosts.namespace(number), lease_ms=lease_ms) for number in range(WORKERS)]
            await asyncio.gather(*starts)
            yield Site(hosts, workers, front)


@asynccontextmanager
async def engine_site(server: str, engine: RestateServer, folder: Path, lease_ms: int) -> AsyncIterator[Site]:
    """With an engine, which brings work to the hosts through haproxy."""
    hosts, database, name = Hosts(WORKERS), fresh_database(server), f"hosts-{uuid4().hex[:12]}"
    async with AsyncExitStack() as opened:
        url = opened.enter_context(hosts.on(database))
        hosts.lead_to_engine(_port_of(f"http://{engine.ingress}"), _port_of(engine.admin))
        endpoints = [f"{hosts.address(number)}:{WORKER_PORT}" for number in range(WORKERS)]
        opened.enter_context(haproxy(folder, f"{ENGINE}:{BALANCER_PORT}", endpoints, hosts.hub))
        advertised = f"http://127.0.0.1:{hosts.lead_from_engine()}"
        workers = await opened.enter_async_context(Workers.on(url, Ledger(folder / "ledger")))
        there = f"restate+http://{ENGINE}:{INGRESS_PORT}?service={name}&advertise={advertised}"
        for number, endpoint in enumerate(endpoints):
            options: dict[str, Any] = {"lease_ms": lease_ms}
            options["dispatch"] = f"{there}&register=http://{ENGINE}:{ADMIN_PORT}&listen={endpoint}"
            await workers.start(number, hosts.namespace(number), **options)
        here = f"restate+http://{engine.ingress}?service={name}"
        front = await opened.enter_async_context(quiet(database, dispatch=here))
        await until(lambda: engine.query(f"select name from sys_service where name = '{name}'"))
        yield Site(hosts, workers, front)


def _port_of(url: str) -> int:
    port = urlsplit(url).port
    assert port is not None
    return port
