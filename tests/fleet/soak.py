"""`python -m tests.fleet.soak`: a minute of kills for two fleets, one on PostgreSQL alone and one with Restate.

Three workers have a thousand sessions to do, while workers, connections of the store and nodes of the engine are killed
at random. Then all is calm: every session has to end, with nothing lost and nothing done twice.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from uuid import uuid4

from holdfast.engine.holdfast import Holdfast
from holdfast.store.errors import StoreUnavailableError
from holdfast.testing.patience import soon, until
from holdfast.testing.restate_server import RestateServer, find_restate, free_ports, restate_cluster
from tests.engine.helpers import quiet
from tests.engine.restate.balancer import Balancer
from tests.fleet.child import ONCE, SAFE, effects
from tests.fleet.ledger import Ledger, Plan, problems
from tests.fleet.workers import Workers
from tests.paths import REPO
from tests.store.postgres.helpers import execute

WORKERS = 3
DROP = """
select pg_terminate_backend(pid, 5000) from pg_stat_activity
 where datname = current_database() and pid <> pg_backend_pid() and random() < 0.4
"""


class Engine:
    """A Restate cluster that brings work to a fleet, and the balancer before the workers."""

    def __init__(self, servers: Sequence[RestateServer], balancer: Balancer) -> None:
        self.servers = servers
        self.balancer = balancer
        self._name = f"soak-{uuid4().hex[:12]}"

    @property
    def dispatch(self) -> str:
        return f"restate+http://{','.join(server.ingress for server in self.servers)}?service={self._name}"

    def dispatch_to(self, port: int) -> str:
        """The dispatcher of a worker that listens on a port."""
        where = f"&listen=127.0.0.1:{port}&advertise={self.balancer.url}&register={self.servers[0].admin}"
        return self.dispatch + where

    async def is_known(self) -> bool:
        asked = f"select name from sys_service where name = '{self._name}'"
        return bool(await asyncio.to_thread(self.servers[0].query, asked))

    async def is_untroubled(self) -> bool:
        """Whether nothing is tried again and again, or is paused. A node that is back may not know yet."""
        asked = f"select id from sys_invocation where target_service_name like '{self._name}%'"
        try:
            return not await asyncio.to_thread(
                self.servers[0].query, f"{asked} and status in ('backing-off', 'paused')"
            )
        except HTTPError as error:
            if error.code < 500:
                raise
            return False

    async def kill_a_node(self, chance: random.Random) -> None:
        node = chance.choice(self.servers)
        await asyncio.to_thread(node.kill)
        await asyncio.sleep(chance.uniform(0.5, 3.0))
        await asyncio.to_thread(node.start)
        await asyncio.to_thread(node.wait)


class Soak:
    """One run of one fleet."""

    def __init__(self, front: Holdfast, url: str, workers: Workers, engine: Engine | None, seed: int) -> None:
        self.faults: Counter[str] = Counter()
        self.plans: list[Plan] = []
        self.calm_s = 0.0
        """Seconds from the last fault until every session had ended."""
        self._front = front
        self._url = url
        self._workers = workers
        self._engine = engine
        self._chance = random.Random(seed)
        self._ports: dict[int, int] = {}
        self._drops: list[float] = []

    @classmethod
    @contextlib.asynccontextmanager
    async def on(cls, url: str, folder: Path, engine: Engine | None, seed: int) -> AsyncIterator[Soak]:
        dispatch = {"dispatch": engine.dispatch} if engine else {}
        async with Workers.on(url, Ledger(folder / "ledger")) as workers, quiet(url, **dispatch) as front:
            soak = cls(front, url, workers, engine, seed)
            await asyncio.gather(*(soak._start_worker(number) for number in range(WORKERS)))
            if engine is not None:
                await until(engine.is_known)
            yield soak

    async def run(self, sessions: int, seconds: float) -> list[str]:
        """Start as many sessions as asked for while faults happen; gives what is wrong once all of them have ended."""
        starting = asyncio.create_task(self._start_sessions(sessions, 0.8 * seconds))
        faults: list[Callable[[], Awaitable[None]]] = [self._kill_worker, self._drop_connections]
        if self._engine is not None:
            faults.append(self._kill_node)
        over_at = time.monotonic() + seconds
        while time.monotonic() < over_at:
            await asyncio.sleep(self._chance.uniform(0.5, 1.5))
            fault = self._chance.choice(faults)
            self.faults[getattr(fault, "__name__", "").strip("_")] += 1
            await fault()
        calm = time.monotonic()
        await starting
        for plan in self.plans:
            await soon(self._front.result(plan.session))
        self.calm_s = time.monotonic() - calm
        if self._engine is not None:
            await until(self._engine.is_untroubled)
        ledger = self._workers.ledger
        overlaps = ledger.overlaps(self._workers.dead, self._drops)
        return [*await problems(self._front, ledger, self.plans), *overlaps]

    async def summary(self) -> str:
        ledger = self._workers.ledger
        outcomes = [outcome for plan in self.plans for outcome in await self._front.result(plan.session, 0)]
        unknown = sum(not isinstance(each, int) for each in outcomes)
        at_once = len(ledger.overlaps(self._workers.dead))
        again = f"{ledger.begun_again()} begun again ({at_once} while who had lost a connection was still at it)"
        return (
            f"{len(self.plans)} sessions, {len(outcomes)} effects, {again}, {unknown} of unknown outcome, all ended"
            f" {self.calm_s:.1f} s after the last of {dict(self.faults)}, load {os.getloadavg()[0]:.1f}"
        )

    async def _start_sessions(self, sessions: int, seconds: float) -> None:
        began = time.monotonic()
        for number in range(sessions):
            tool = ONCE if self._chance.random() < 0.3 else SAFE
            ms = [self._chance.randrange(0, 1_000) for _ in range(self._chance.randrange(1, 4))]
            plan = Plan(f"s-{number}", tool, len(ms))
            await self._insist(self._front.start, effects, id=plan.session, ctx={"tool": tool, "ms": ms}, wait=0)
            self.plans.append(plan)
            await asyncio.sleep(max(0.0, began + seconds * number / sessions - time.monotonic()))

    @staticmethod
    async def _insist(call: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any) -> None:
        while True:
            try:
                await call(*args, **kwargs)
                return
            except StoreUnavailableError:
                await asyncio.sleep(0.05)

    async def _start_worker(self, number: int) -> None:
        if self._engine is None:
            await self._workers.start(number)
            return
        (port,) = free_ports(1)
        await self._workers.start(number, dispatch=self._engine.dispatch_to(port))
        self._ports[number] = port
        self._engine.balancer.backends.append(port)

    async def _kill_worker(self) -> None:
        number = self._chance.randrange(WORKERS)
        if self._engine is not None:
            self._engine.balancer.backends.remove(self._ports.pop(number))
        await self._workers.kill(number)
        await self._start_worker(number)

    async def _drop_connections(self) -> None:
        self._drops.append(time.monotonic())
        await execute(self._url, DROP)

    async def _kill_node(self) -> None:
        assert self._engine is not None
        await self._engine.kill_a_node(self._chance)


async def soak(url: str, folder: Path, servers: Sequence[RestateServer], plan: argparse.Namespace) -> list[str]:
    async with contextlib.AsyncExitStack() as opened:
        engine = Engine(servers, await opened.enter_async_context(Balancer.open())) if servers else None
        run = await opened.enter_async_context(Soak.on(url, folder, engine, plan.seed))
        found = await run.run(plan.sessions, plan.seconds)
        print(
            f"{'with Restate' if servers else 'PostgreSQL alone'}, seed {plan.seed}: {await run.summary()}", flush=True
        )
        return found


def main() -> int:
    from holdfast.testing.postgres_server import fresh_database, postgres_server

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--sessions", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fleet", choices=["alone", "restate"], action="append", help="only this one")
    options = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as home, postgres_server(home, durable=True) as server:
        for fleet in options.fleet or ["alone", "restate"]:
            folder = Path(home) / fleet
            folder.mkdir()
            with contextlib.ExitStack() as opened:
                servers: list[RestateServer] = []
                if fleet == "restate":
                    program = find_restate(REPO / "build" / "restate")
                    assert program is not None, "`make restate` installs a server from npm"
                    servers = opened.enter_context(restate_cluster(program, folder / "cluster", 3))
                found = asyncio.run(soak(fresh_database(server), folder, servers, options))
            for problem in found:
                print(f"  {problem}")
            failed += bool(found)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
