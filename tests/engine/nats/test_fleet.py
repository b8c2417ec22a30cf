"""A fleet that takes its work from NATS: what workers, the servers and their disks may lose, and what goes on."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from nats.js.api import StreamConfig

from holdfast.core.records import CancelledRecord
from holdfast.engine.holdfast import open_holdfast
from holdfast.engine.nats.connection import CONSUMER, NatsConnection, stream_config
from holdfast.store.environment import Environment
from holdfast.testing.patience import soon, until
from tests.engine.helpers import of_type, quiet
from tests.engine.nats.fleet import Fleet
from tests.engine.process_child import called, sleeper

LONG_MS = 600_000
"""Milliseconds that an effect takes which is not to end by itself."""


async def test_another_process_picks_up_what_a_front_leaves(fleet: Fleet) -> None:
    worker = await fleet.worker()
    async with fleet.front() as front:
        await fleet.until_served()
        took = []
        for number in range(8):
            began = time.monotonic()
            await front.start(called, id=f"s-{number}", ctx={"ms": 0}, wait=0)
            assert await soon(front.result(f"s-{number}")) == f"done by {worker.pid}"
            took.append(time.monotonic() - began)
        await until(fleet.is_done)
    print("picked up and done after " + ", ".join(f"{1000 * each:.0f}" for each in sorted(took)) + " ms")


async def test_the_same_nudge_from_several_processes_is_one_message(fleet: Fleet) -> None:
    async with fleet.front() as front, fleet.front() as other:
        for each in (front, other):
            each.upkeep.dispatch.nudge("s", 7)
            each.upkeep.dispatch.nudge_at("s", front.now() + LONG_MS)
        front.upkeep.dispatch.nudge_at("s", front.now() + 2 * LONG_MS)
    report = await fleet.report()  # they have sent everything before they were closed
    assert (report.messages, report.scheduled) == (2, 1)


async def test_work_is_spread_over_the_workers(fleet: Fleet) -> None:
    await fleet.worker()
    await fleet.worker()
    async with fleet.front() as front:
        await fleet.until_served()
        await asyncio.gather(*(front.start(called, id=f"s-{each}", ctx={"ms": 200}, wait=0) for each in range(20)))
        await asyncio.gather(*(soon(front.result(f"s-{each}")) for each in range(20)))
    share = Counter(pid for _, _, pid in fleet.runs)
    assert len(share) == 2
    assert len(fleet.runs) == 20


async def test_a_worker_takes_no_more_than_it_has_room_for(fleet: Fleet) -> None:
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


async def test_what_a_killed_worker_was_at_is_begun_again_by_another(fleet: Fleet) -> None:
    await fleet.worker()
    await fleet.worker()
    async with fleet.front() as front:
        await fleet.until_served()
        await front.start(called, id="s", ctx={"ms": LONG_MS}, wait=0)
        await until(lambda: fleet.runs_of("s"))
        await fleet.kill(fleet.worker_of("s"))
        died = time.monotonic()
        await until(lambda: len(fleet.runs_of("s")) == 2)
        print(f"taken over after {time.monotonic() - died:.2f} s")
        (first, one), (second, other) = fleet.runs_of("s")
        assert (first, second) == (1, 2)
        assert one != other
        await front.cancel("s")


async def test_what_must_not_run_twice_is_not_begun_again(fleet: Fleet) -> None:
    await fleet.worker(recovery="never")
    await fleet.worker(recovery="never")
    async with fleet.front() as front:
        await fleet.until_served()
        await front.start(called, id="s", ctx={"ms": LONG_MS}, wait=0)
        await until(lambda: fleet.runs_of("s"))
        await fleet.kill(fleet.worker_of("s"))
        assert await soon(front.result("s")) == "unknown_outcome"
    assert len(fleet.runs_of("s")) == 1


async def test_timers_outlive_all_workers(fleet: Fleet) -> None:
    first = await fleet.worker()
    async with fleet.front() as front:
        await fleet.until_served()
        for number in range(10):
            await front.start(sleeper, id=f"s-{number}", ctx={"ms": 2_000}, wait=0)
        await fleet.kill(first)
        await until(lambda: _has_scheduled(fleet, 10))
        await fleet.worker()
        assert [await soon(front.result(f"s-{number}")) for number in range(10)] == ["woken"] * 10
        await until(lambda: _has_scheduled(fleet, 0))


async def _has_scheduled(fleet: Fleet, count: int) -> bool:
    return (await fleet.report()).scheduled == count


async def test_a_third_process_cancels_what_a_worker_is_at(fleet: Fleet) -> None:
    await fleet.worker()
    async with fleet.front() as front, fleet.front() as third:
        await fleet.until_served()
        await front.start(called, id="s", ctx={"ms": LONG_MS}, wait=0)
        await until(lambda: fleet.runs_of("s"))
        await soon(third.cancel("s", "enough"))
        assert await of_type(front.store, "s", CancelledRecord)
        assert (await front.store.session("s")).owner is None
        await until(fleet.is_done)


async def test_sessions_are_accepted_while_the_server_is_down_and_go_on_after_it(fleet: Fleet) -> None:
    worker = await fleet.worker()
    async with fleet.front() as front:
        await fleet.until_served()
        (server,) = fleet.servers
        await asyncio.to_thread(server.kill)
        for number in range(10):
            await soon(front.start(called, id=f"s-{number}", ctx={"ms": 0}, wait=0))
        await asyncio.to_thread(server.start)
        await asyncio.to_thread(server.wait)
        back = time.monotonic()
        results = [await soon(front.result(f"s-{number}")) for number in range(10)]
        print(f"done {time.monotonic() - back:.2f} s after the server has come back")
        await until(fleet.is_done)
    assert results == [f"done by {worker.pid}"] * 10
    assert len(fleet.runs) == 10


async def test_what_nobody_was_nudged_for_is_found_by_the_sweep(fleet: Fleet) -> None:
    worker = await fleet.worker()
    await fleet.until_served()
    async with quiet(fleet.url) as silent:
        began = time.monotonic()
        await silent.start(called, id="s", ctx={"ms": 0}, wait=0)
        await silent.start(sleeper, id="sleeps", ctx={"ms": 100}, wait=0)
        assert await soon(silent.result("s")) == f"done by {worker.pid}"
        assert await soon(silent.result("sleeps")) == "woken"
        print(f"swept up after {time.monotonic() - began:.1f} s")


async def test_nothing_is_lost_with_the_disk_of_the_server(fleet: Fleet) -> None:
    await fleet.worker()
    async with fleet.front() as front:
        await fleet.until_served()
        for number in range(5):
            await front.start(sleeper, id=f"sleeps-{number}", ctx={"ms": 1_000}, wait=0)
        await front.start(called, id="works", ctx={"ms": 500}, wait=0)
        await until(lambda: fleet.runs_of("works"))
        (server,) = fleet.servers
        await asyncio.to_thread(server.kill)
        server.throw_away()
        await asyncio.to_thread(server.start)
        await asyncio.to_thread(server.wait)
        assert [await soon(front.result(f"sleeps-{number}")) for number in range(5)] == ["woken"] * 5
        await soon(front.result("works"))
        await front.start(called, id="new", ctx={"ms": 0}, wait=0)
        await soon(front.result("new"))
    assert len(fleet.runs_of("works")) == 1


async def test_a_stream_that_somebody_has_removed_is_made_again(fleet: Fleet) -> None:
    await fleet.worker()
    async with fleet.front() as front:
        await fleet.until_served()
        connection = await NatsConnection.open(fleet.settings)
        await connection.jetstream.delete_stream(fleet.settings.stream)
        await connection.close()
        await front.start(called, id="s", ctx={"ms": 0}, wait=0)
        await soon(front.result("s"))
        await fleet.until_served()


async def test_a_stream_without_schedules_is_used_as_it_is(fleet: Fleet) -> None:
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


async def test_a_message_that_names_no_session_is_thrown_away(fleet: Fleet) -> None:
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


async def test_a_worker_that_is_closed_leaves_what_it_has_to_others(fleet: Fleet) -> None:
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


async def test_servers_whose_clock_is_ahead_bring_no_session_again_and_again(fleet: Fleet) -> None:
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


async def _has_workers(fleet: Fleet) -> bool:
    return bool((await fleet.report()).consumers)
