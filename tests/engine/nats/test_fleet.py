"""A fleet that takes its work from NATS: the queue, its schedules, and servers that are not as they should be."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from nats.js.api import StreamConfig

from holdfast.engine.fleet.sweep import AHEAD_MS
from holdfast.engine.holdfast import open_holdfast
from holdfast.engine.nats.connection import CONSUMER, NatsConnection, stream_config
from holdfast.store.environment import Environment
from holdfast.testing.patience import soon, until
from tests.engine.dispatchers.laws import LONG_MS, FleetLaws
from tests.engine.helpers import quiet
from tests.engine.nats.fleet import NatsFleet
from tests.engine.process_child import called, sleeper


class TestNatsFleet(FleetLaws):
    """The laws of all dispatchers."""


async def test_a_timer_is_one_scheduled_message(fleet: NatsFleet) -> None:
    await fleet.worker()
    async with fleet.front() as front:
        await fleet.until_served()
        for number in range(3):
            await front.start(sleeper, id=f"s-{number}", ctx={"ms": 2_000}, wait=0)
        await front.start(sleeper, id="sleeps-for-long", ctx={"ms": 2 * AHEAD_MS}, wait=0)
        await until(lambda: fleet.has_scheduled(3))
        assert [await soon(front.result(f"s-{number}")) for number in range(3)] == ["woken"] * 3
        await until(lambda: fleet.has_scheduled(0))


async def test_the_same_nudge_from_several_processes_is_one_message(fleet: NatsFleet) -> None:
    async with fleet.front() as front, fleet.front() as other:
        for each in (front, other):
            each.upkeep.dispatch.nudge("s", 7)
            each.upkeep.dispatch.nudge_at("s", front.now() + AHEAD_MS // 2)
        front.upkeep.dispatch.nudge_at("s", front.now() + AHEAD_MS)
    report = await fleet.report()  # they have sent everything before they were closed
    assert (report.messages, report.scheduled) == (2, 1)


async def test_work_is_spread_over_the_workers(fleet: NatsFleet) -> None:
    await fleet.worker()
    await fleet.worker()
    async with fleet.front() as front:
        await fleet.until_served()
        await asyncio.gather(*(front.start(called, id=f"s-{each}", ctx={"ms": 200}, wait=0) for each in range(20)))
        await asyncio.gather(*(soon(front.result(f"s-{each}")) for each in range(20)))
    share = Counter(pid for _, _, pid in fleet.runs)
    assert len(share) == 2
    assert len(fleet.runs) == 20


async def test_a_worker_takes_no_more_than_it_has_room_for(fleet: NatsFleet) -> None:
    await fleet.worker(pull=2)
    async with fleet.front() as front:
        await fleet.until_served()
        for number in range(4):
            await front.start(called, id=f"s-{number}", ctx={"ms": 500}, wait=0)
        await until(lambda: len(fleet.runs) == 2)
        (workers,) = (await fleet.report()).consumers
        assert workers.taken <= 2
        for number in range(4):
            await soon(front.result(f"s-{number}"))


async def test_a_stream_that_somebody_has_removed_is_made_again(fleet: NatsFleet) -> None:
    await fleet.worker()
    async with fleet.front() as front:
        await fleet.until_served()
        connection = await NatsConnection.open(fleet.settings)
        await connection.jetstream.delete_stream(fleet.settings.stream)
        await connection.close()
        await front.start(called, id="s", ctx={"ms": 0}, wait=0)
        await soon(front.result("s"))
        await fleet.until_served()


async def test_a_stream_without_schedules_is_used_as_it_is(fleet: NatsFleet) -> None:
    connection = await NatsConnection.open(fleet.settings)
    await connection.jetstream.delete_stream(fleet.settings.stream)
    plain: StreamConfig = stream_config(fleet.settings).evolve(allow_msg_schedules=None)
    await connection.jetstream.add_stream(plain)
    await connection.close()
    await fleet.worker()
    async with fleet.front() as front:
        await fleet.until_served()
        await front.start(sleeper, id="s", ctx={"ms": 500}, wait=0)
        assert await soon(front.result("s")) == "woken"
        report = await fleet.report()
    assert not report.has_schedules
    assert report.scheduled == 0


async def test_a_message_that_names_no_session_is_thrown_away(fleet: NatsFleet) -> None:
    await fleet.worker()
    await fleet.until_served()
    connection = await NatsConnection.open(fleet.settings)
    for payload in (b"\xff", b"", b"no-such-session", b"no session\n"):
        await connection.jetstream.publish(fleet.settings.subject("drive"), payload)
    await connection.close()
    await until(fleet.is_done)
    async with fleet.front() as front:
        await front.start(called, id="s", ctx={"ms": 0}, wait=0)
        await soon(front.result("s"))


async def test_a_worker_that_is_closed_leaves_what_it_has_to_others(fleet: NatsFleet) -> None:
    async with fleet.front() as front:
        async with open_holdfast(fleet.url, dispatch=f"{fleet.dispatch}&pull=5") as first:
            begun = asyncio.Event()

            async def work(ms: int) -> None:
                begun.set()
                await asyncio.sleep(ms)

            first.drive("work", work)
            await front.start(called, id="s", ctx={"ms": LONG_MS}, wait=0)
            await soon(begun.wait())
            (workers,) = (await fleet.report()).consumers
            assert workers.taken == 1
        (workers,) = (await fleet.report()).consumers
        assert workers.pending + workers.taken >= 1
        second = await fleet.worker()
        await until(lambda: fleet.runs_of("s"))
        assert fleet.worker_of("s") is second
        await front.cancel("s")


class LateClock:
    """A clock that the servers' is ahead of, and that does not agree with any other."""

    is_settled = True

    def now(self) -> int:
        return time.time_ns() // 1_000_000 - 3_000

    def monotonic(self) -> float:
        return time.monotonic()


async def test_servers_whose_clock_is_ahead_bring_no_session_again_and_again(fleet: NatsFleet) -> None:
    late = Environment(clock=LateClock())
    worker = open_holdfast(fleet.url, dispatch=f"{fleet.dispatch}&pull=5", environment=late)
    async with worker, quiet(fleet.url, dispatch=fleet.dispatch, environment=late) as front:
        await until(lambda: _has_workers(fleet))
        await front.start(sleeper, id="s", ctx={"ms": 3_000}, wait=0)
        assert await soon(front.result("s")) == "woken"
        connection = await NatsConnection.open(fleet.settings)
        workers = await connection.jetstream.consumer_info(fleet.settings.stream, CONSUMER)
        await connection.close()
    assert workers.delivered is not None
    assert workers.delivered.consumer_seq <= 4


async def _has_workers(fleet: NatsFleet) -> bool:
    return bool((await fleet.report()).consumers)
