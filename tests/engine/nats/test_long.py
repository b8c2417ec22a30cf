"""The long runs of fleets on NATS, for `make fleet`: each prints what it has measured."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.testing.patience import soon
from holdfast.testing.postgres_server import fresh_database
from tests.engine.dispatchers.long_laws import LONG, LongFleetLaws, ended, resident_mb
from tests.engine.nats.fleet import NatsFleet
from tests.engine.nats.server import nats_cluster
from tests.engine.process_child import called, sleeper

pytestmark = LONG


@pytest.fixture
async def three_nodes(nats_program: Path, server: str, tmp_path: Path) -> AsyncIterator[NatsFleet]:
    with nats_cluster(nats_program, tmp_path / "cluster", 3) as servers:
        async with NatsFleet.on(fresh_database(server), servers, tmp_path) as fleet:
            yield fleet


class TestLongRuns(LongFleetLaws):
    """The laws of all dispatchers."""


async def test_the_server_is_frozen_for_twenty_seconds(fleet: NatsFleet) -> None:
    await fleet.worker()
    async with fleet.front() as front:
        await fleet.until_served()
        (server,) = fleet.servers
        await asyncio.to_thread(server.stop)
        gone, number = time.monotonic(), 0
        while time.monotonic() - gone < 20:
            await soon(front.start(called, id=f"s-{number}", ctx={"ms": 0}, wait=0))
            number += 1
            await asyncio.sleep(0.2)
        await asyncio.to_thread(server.go_on)
        await asyncio.to_thread(server.wait)
        back = time.monotonic()
        await ended(front, [f"s-{each}" for each in range(number)])
        print(f"frozen: {number} accepted meanwhile, all done {time.monotonic() - back:.1f} s after it came back")


async def test_sweeps_do_not_fill_the_queue_of_workers_that_are_behind(fleet: NatsFleet) -> None:
    await fleet.worker(pull=5)
    async with fleet.front() as front:
        await fleet.until_served()
        sessions = [f"s-{number}" for number in range(300)]
        for session in sessions:
            await front.start(called, id=session, ctx={"ms": 500}, wait=0)
        ending = asyncio.create_task(ended(front, sessions))
        most = 0
        while not ending.done():
            most = max(most, (await fleet.report()).messages)
            await asyncio.sleep(0.5)
        await ending
    print(f"behind: at most {most} messages for 300 sessions")
    assert most <= 700


async def test_ten_thousand_sessions_sleep(fleet: NatsFleet) -> None:
    worker = await fleet.worker()
    async with fleet.front() as front:
        await fleet.until_served()
        (server,) = fleet.servers
        before = resident_mb(server.pid), resident_mb(worker.pid)
        for number in range(10_000):
            await front.start(sleeper, id=f"s-{number}", ctx={"ms": 3_600_000}, wait=0)
        after = resident_mb(server.pid), resident_mb(worker.pid)
    print(f"10,000 that sleep: server {after[0] - before[0]:+.0f} MB, worker {after[1] - before[1]:+.0f} MB")
