"""The long runs of fleets on Restate, for `make fleet`: each prints what it has measured."""

from __future__ import annotations

import asyncio
import itertools
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.core.errors import ExitCode
from holdfast.testing.patience import HANG_S, soon, until
from holdfast.testing.postgres_server import fresh_database
from holdfast.testing.restate_server import RestateServer, free_ports, restate_cluster
from tests.engine.dispatchers.long_laws import LONG, LongFleetLaws, resident_mb
from tests.engine.dispatchers.steps import steps
from tests.engine.process_child import called, sleeper
from tests.engine.processes import Process
from tests.engine.restate.commands import dispatch, is_brought_to, worker
from tests.engine.restate.fleet import RestateFleet
from tests.fleet import haproxy

pytestmark = LONG


@pytest.fixture
async def three_nodes(restate_program: Path, server: str, tmp_path: Path) -> AsyncIterator[RestateFleet]:
    with restate_cluster(restate_program, tmp_path / "cluster", 3) as servers:
        async with RestateFleet.on(fresh_database(server), servers, tmp_path) as fleet:
            yield fleet


class TestLongRuns(LongFleetLaws):
    """The laws of all dispatchers."""


@pytest.mark.skipif(bool(haproxy.WHY_NOT), reason=haproxy.WHY_NOT or "there is haproxy")
async def test_a_worker_that_is_added_gets_its_share(fleet: RestateFleet, tmp_path: Path) -> None:
    *ports, balanced = free_ports(3)
    with haproxy.haproxy(tmp_path, f"127.0.0.1:{balanced}", [f"127.0.0.1:{port}" for port in ports]):
        at = f"http://127.0.0.1:{balanced}"
        first = await fleet.worker(port=ports[0], advertise=at)
        async with fleet.front() as front:
            await fleet.until_served()
            running = True
            numbers = itertools.count()

            async def load() -> None:
                while running:
                    number = next(numbers)
                    await front.start(called, id=f"s-{number}", ctx={"ms": 200}, wait=0)
                    await soon(front.result(f"s-{number}"))

            loads = [asyncio.create_task(load()) for _ in range(30)]
            await asyncio.sleep(4)
            second = await fleet.worker(port=ports[1], advertise=at)
            await asyncio.sleep(5)
            before = len(fleet.runs)
            await asyncio.sleep(5)
            share = Counter(pid for _, _, pid in fleet.runs[before:])
            await fleet.kill(first)
            await asyncio.sleep(2)
            running = False
            await asyncio.gather(*loads)
            await until(lambda: not fleet.troubled())
            await fleet.kill(second)  # before its balancer, without which there would be trouble again
    part = share[second.pid] / sum(share.values())
    print(f"added: its share is {part:.2f} of {sum(share.values())} effects")
    assert 0.4 <= part <= 0.6


async def test_a_release_is_replaced_under_load(fleet: RestateFleet) -> None:
    old_port, new_port = free_ports(2)
    async with fleet.front() as front:
        with worker(fleet, old_port) as old:
            await fleet.until_served()
            running, done = True, Counter[int]()
            numbers = itertools.count()

            async def load() -> None:
                while running:
                    number = next(numbers)
                    await front.start(steps, id=f"s-{number}", ctx={"count": 3, "ms": 200}, wait=0)
                    done.update(await soon(front.result(f"s-{number}")))

            loads = [asyncio.create_task(load()) for _ in range(10)]
            await until(lambda: done[old.pid] > 50)
            with worker(fleet, new_port) as new:
                await until(lambda: is_brought_to(fleet, new_port))
                old.send_signal(signal.SIGTERM)
                assert await asyncio.to_thread(old.wait, HANG_S) == ExitCode.OK
                ended = time.monotonic()
                await until(lambda: done[new.pid] > 50)
                running = False
                await asyncio.gather(*loads)
                await until(lambda: not fleet.troubled())
                calm = time.monotonic() - ended
                assert await dispatch(fleet, "move") == {"moved": []}
    steps_done = sum(done.values())
    print(
        f"replaced: {steps_done} steps in {steps_done // 3} sessions, 0 errors, nothing bound to v1 after {calm:.1f} s"
    )


async def test_ten_thousand_sessions_sleep(fleet: RestateFleet) -> None:
    worker = await fleet.worker()
    async with fleet.front() as front:
        await fleet.until_served()
        (engine,) = fleet.servers
        await asyncio.sleep(3)
        before = _memory(engine, worker)
        for number in range(10_000):
            await front.start(sleeper, id=f"s-{number}", ctx={"ms": 3_600_000}, wait=0)
        await asyncio.sleep(3)
        after = _memory(engine, worker)
        asked = f"select count(*) as n from sys_invocation where target_service_name = '{fleet.name}'"
        assert engine.query(asked)[0]["n"] == 0
    engine_mb, worker_mb = after[0] - before[0], after[1] - before[1]
    print(f"10,000 that sleep: engine {engine_mb:+.0f} MB, worker {worker_mb:+.0f} MB")


def _memory(engine: RestateServer, worker: Process) -> tuple[float, float]:
    return resident_mb(engine.pid), resident_mb(worker.pid)
