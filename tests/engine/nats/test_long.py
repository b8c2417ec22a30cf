"""The long runs of fleets on NATS, for `make fleet`: each prints what it has measured."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import statistics
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.core.records import AnsweredRecord
from holdfast.engine.holdfast import Holdfast
from holdfast.testing.patience import soon, until
from holdfast.testing.postgres_server import fresh_database
from tests.engine.helpers import of_type, quiet
from tests.engine.nats.fleet import Fleet
from tests.engine.nats.server import nats_cluster
from tests.engine.process_child import called, sleeper

pytestmark = [
    pytest.mark.fleet,
    pytest.mark.skipif("HOLDFAST_FLEET" not in os.environ, reason="long; `make fleet` runs it"),
]

LONG_MS = 600_000


@pytest.fixture
async def three_nodes(nats_program: Path, server: str, tmp_path: Path) -> AsyncIterator[Fleet]:
    with nats_cluster(nats_program, tmp_path / "cluster", 3) as servers:
        async with Fleet.on(fresh_database(server), servers, tmp_path) as fleet:
            yield fleet


async def ended(front: Holdfast, sessions: list[str]) -> float:
    """Wait until all have ended; the longest time in which none did."""
    latest, longest = time.monotonic(), 0.0
    for done in asyncio.as_completed([soon(front.result(session)) for session in sessions]):
        await done
        longest, latest = max(longest, time.monotonic() - latest), time.monotonic()
    return longest


def begun_again(fleet: Fleet) -> int:
    return sum(attempt > 1 for _, attempt, _ in fleet.runs)


async def test_pick_up_by_another_process(fleet: Fleet) -> None:
    await fleet.worker()
    await fleet.worker()
    async with fleet.front() as front:
        await fleet.until_served()
        took = []
        for number in range(220):
            began = time.monotonic()
            await front.start(called, id=f"s-{number}", ctx={"ms": 0}, wait=0)
            await soon(front.result(f"s-{number}"))
            took.append(time.monotonic() - began)
    found = sorted(took[20:])
    print(
        f"pick-up: p50 {1000 * statistics.median(found):.0f} ms, p99 {1000 * found[int(0.99 * len(found))]:.0f} ms,"
        f" load {os.getloadavg()[0]:.1f}"
    )


async def test_twenty_workers_are_killed_in_mid_effect(fleet: Fleet) -> None:
    for _ in range(2):
        await fleet.worker()
    took = []
    async with fleet.front() as front:
        await fleet.until_served()
        for number in range(20):
            session = f"s-{number}"
            await front.start(called, id=session, ctx={"ms": LONG_MS}, wait=0)
            await until(lambda session=session: fleet.runs_of(session))  # type: ignore[misc]
            await fleet.kill(fleet.worker_of(session))
            died = time.monotonic()
            await until(lambda session=session: len(fleet.runs_of(session)) == 2)  # type: ignore[misc]
            took.append(time.monotonic() - died)
            await front.cancel(session)
            await fleet.worker()
    print(f"taken over after {min(took):.2f} to {max(took):.2f} s, median {statistics.median(took):.2f} s")
    assert begun_again(fleet) == 20


async def test_chaos_of_workers_and_the_server(fleet: Fleet) -> None:
    chance = random.Random(1)
    for _ in range(3):
        await fleet.worker()
    async with fleet.front() as front:
        await fleet.until_served()
        sessions = [f"s-{number}" for number in range(500)]

        async def start_all() -> None:
            for session in sessions:
                await front.start(called, id=session, ctx={"ms": chance.randrange(500, 3_000)}, wait=0)

        starting = asyncio.create_task(start_all())
        await until(lambda: len(fleet.runs) > 20)
        killed_pids = set()
        for round_ in range(5):
            await asyncio.sleep(1.5)
            if round_ == 2:
                await asyncio.to_thread(fleet.servers[0].kill)
                await asyncio.to_thread(fleet.servers[0].start)
                await asyncio.to_thread(fleet.servers[0].wait)
            else:
                victim = chance.choice(fleet.workers)
                killed_pids.add(victim.pid)
                await fleet.kill(victim)
                await fleet.worker()
        await starting
        longest = await ended(front, sessions)
        await until(fleet.is_done)
    firsts = {(session, attempt): pid for session, attempt, pid in fleet.runs}
    again = [(session, attempt) for session, attempt, _ in fleet.runs if attempt > 1]
    # Who is killed between the record of an attempt and its beginning leaves no line.
    unexplained = [each for each in again if firsts.get((each[0], each[1] - 1), -1) not in {*killed_pids, -1}]
    assert unexplained == []
    assert max(Counter((session, attempt) for session, attempt, _ in fleet.runs).values()) == 1
    print(f"chaos: 500 of 500 done, {len(again)} begun again, silence {longest:.1f} s")


async def test_each_of_three_nodes_is_killed_once(three_nodes: Fleet) -> None:
    fleet = three_nodes
    for _ in range(3):
        await fleet.worker()
    async with fleet.front() as front:
        await fleet.until_served()
        ends: list[float] = []
        took: list[float] = []
        is_over = False

        async def work(session: str) -> None:
            began = time.monotonic()
            await soon(front.start(called, id=session, ctx={"ms": 300}, wait=0))
            await soon(front.result(session))
            ends.append(time.monotonic())
            took.append(ends[-1] - began)

        async def load() -> int:
            async with asyncio.TaskGroup() as works:
                number = 0
                while number < 1_000 or not is_over:
                    works.create_task(work(f"s-{number}"))
                    number += 1
                    await asyncio.sleep(0.03)
            return number

        loading = asyncio.create_task(load())
        for node in fleet.servers:
            await asyncio.sleep(3)
            await asyncio.to_thread(node.kill)
            await asyncio.sleep(5)
            await asyncio.to_thread(node.start)
            await asyncio.to_thread(node.wait)
        await asyncio.sleep(3)
        over_at, is_over = time.monotonic(), True
        number = await loading
        under_load = [end for end in sorted(ends) if end <= over_at]
    silence = max(after - before for before, after in itertools.pairwise(under_load))
    print(
        f"three nodes: {len(ends)} of {number} done, {begun_again(fleet)} begun again, silence {silence:.1f} s,"
        f" the slowest took {max(took):.1f} s"
    )
    assert begun_again(fleet) == 0


async def test_timers_outlive_a_node_and_all_workers(three_nodes: Fleet) -> None:
    fleet = three_nodes
    workers = [await fleet.worker() for _ in range(2)]
    async with fleet.front() as front:
        await fleet.until_served()
        for number in range(50):
            await front.start(sleeper, id=f"s-{number}", ctx={"ms": 25_000}, wait=0)
        due = {f"s-{number}": (await front.session(f"s-{number}")).next_due() for number in range(50)}
        await asyncio.to_thread(fleet.servers[1].kill)
        for worker in workers:
            await fleet.kill(worker)
        for _ in range(2):
            await fleet.worker()
        back_s = (min(at or 0 for at in due.values()) - front.now()) / 1000
        late = []
        for session, at in due.items():
            assert await soon(front.result(session)) == "woken"
            entries = [entry async for entry in front.store.journal(session)]
            fired = next(entry for entry in entries if entry.position > 2 and at is not None and entry.at >= at - 600)
            late.append((fired.at - (at or 0)) / 1000)
    print(f"timers: 50 of 50, {max(late):.2f} s late at most; workers were back {back_s:.1f} s before the first")


async def test_a_stopped_owner_is_taken_over_from(fleet: Fleet) -> None:
    await fleet.worker()
    await fleet.worker()
    async with fleet.front() as front:
        await fleet.until_served()
        await front.start(called, id="s", ctx={"ms": 4_000}, wait=0)
        await until(lambda: fleet.runs_of("s"))
        stopped = fleet.worker_of("s")
        stopped.stop()
        began = time.monotonic()
        await until(lambda: len(fleet.runs_of("s")) == 2)
        took = time.monotonic() - began
        stopped.go_on()
        # The first to bring an outcome is believed; what the other one brings changes nothing.
        assert await soon(front.result("s")) in {f"done by {worker.pid}" for worker in fleet.workers}
        assert len(await of_type(front.store, "s", AnsweredRecord)) == 1
    print(f"stopped: taken over after {took:.1f} s")


@pytest.mark.parametrize("how", ["killed", "frozen"])
async def test_the_server_is_away_for_twenty_seconds(fleet: Fleet, how: str) -> None:
    await fleet.worker()
    async with fleet.front() as front:
        await fleet.until_served()
        (server,) = fleet.servers
        await asyncio.to_thread(server.kill if how == "killed" else server.stop)
        gone, number = time.monotonic(), 0
        while time.monotonic() - gone < 20:
            await soon(front.start(called, id=f"s-{number}", ctx={"ms": 0}, wait=0))
            number += 1
            await asyncio.sleep(0.2)
        await asyncio.to_thread(server.start if how == "killed" else server.go_on)
        await asyncio.to_thread(server.wait)
        back = time.monotonic()
        await ended(front, [f"s-{each}" for each in range(number)])
        print(f"{how}: {number} accepted meanwhile, all done {time.monotonic() - back:.1f} s after it came back")


async def test_every_nudge_of_a_hundred_sessions_is_lost(fleet: Fleet) -> None:
    await fleet.worker()
    await fleet.until_served()
    async with quiet(fleet.url) as silent:
        sessions = [f"s-{number}" for number in range(100)]
        for session in sessions:
            await silent.start(called, id=session, ctx={"ms": 0}, wait=0)
        began = time.monotonic()
        await ended(silent, sessions)
        print(f"every nudge lost: all done after {time.monotonic() - began:.1f} s")


async def test_sweeps_do_not_fill_the_queue_of_workers_that_are_behind(fleet: Fleet) -> None:
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


async def test_ten_thousand_sessions_sleep(fleet: Fleet) -> None:
    worker = await fleet.worker()
    async with fleet.front() as front:
        await fleet.until_served()
        (server,) = fleet.servers
        before = _resident(server.pid), _resident(worker.pid)
        for number in range(10_000):
            await front.start(sleeper, id=f"s-{number}", ctx={"ms": 3_600_000}, wait=0)
        await until(lambda: _has_scheduled(fleet, 10_000))
        after = _resident(server.pid), _resident(worker.pid)
    print(f"10,000 that sleep: server {after[0] - before[0]:+.0f} MB, worker {after[1] - before[1]:+.0f} MB")


async def _has_scheduled(fleet: Fleet, count: int) -> bool:
    return (await fleet.report()).scheduled >= count


def _resident(pid: int) -> float:
    """Megabytes of memory that a process has."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
