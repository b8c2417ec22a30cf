"""A fleet that Restate brings work to: what workers, the engine and its disk may lose, and what goes on despite it."""

from __future__ import annotations

import asyncio
import time

from holdfast.core.records import CancelledRecord
from holdfast.testing.patience import soon, until
from tests.engine.helpers import of_type, quiet
from tests.engine.process_child import called, sleeper
from tests.engine.restate.fleet import Fleet

LONG_MS = 600_000
"""Milliseconds that an effect takes which is not to end by itself."""


async def test_another_process_picks_up_what_a_front_leaves(fleet: Fleet) -> None:
    worker = await fleet.worker()
    async with fleet.front() as front:
        await until(fleet.is_known)
        took = []
        for number in range(8):
            began = time.monotonic()
            await front.start(called, id=f"s-{number}", ctx={"ms": 0}, wait=0)
            assert await soon(front.result(f"s-{number}")) == f"done by {worker.pid}"
            took.append(time.monotonic() - began)
    print("picked up and done after " + ", ".join(f"{1000 * each:.0f}" for each in sorted(took)) + " ms")


async def test_the_engine_keeps_nothing_of_a_session_but_its_id(fleet: Fleet) -> None:
    await fleet.worker()
    async with fleet.front() as front:
        await until(fleet.is_known)
        await front.start(called, id="s", ctx={"ms": 1_000}, wait=0)
        journal = "select j.entry_type from sys_journal j join sys_invocation i on i.id = j.id"
        found = await until(lambda: fleet.servers[0].query(f"{journal} where i.target_service_key = 's'"))
        await soon(front.result("s"))
    assert {row["entry_type"].rpartition(":")[2].strip().lower() for row in found} <= {"input", "output"}


async def test_what_a_killed_worker_was_at_is_begun_again_by_another(fleet: Fleet) -> None:
    await fleet.worker()
    await fleet.worker()
    async with fleet.front() as front:
        await until(fleet.is_known)
        await front.start(called, id="s", ctx={"ms": LONG_MS}, wait=0)
        await until(lambda: fleet.runs_of("s"))
        killed = fleet.worker_of("s")
        await fleet.kill(killed)
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
        await until(fleet.is_known)
        await front.start(called, id="s", ctx={"ms": LONG_MS}, wait=0)
        await until(lambda: fleet.runs_of("s"))
        await fleet.kill(fleet.worker_of("s"))
        assert await soon(front.result("s")) == "unknown_outcome"
    assert len(fleet.runs_of("s")) == 1


async def test_timers_outlive_all_workers(fleet: Fleet) -> None:
    first = await fleet.worker()
    async with fleet.front() as front:
        await until(fleet.is_known)
        for number in range(10):
            await front.start(sleeper, id=f"s-{number}", ctx={"ms": 2_000}, wait=0)
        await fleet.kill(first)
        await fleet.worker()
        assert [await soon(front.result(f"s-{number}")) for number in range(10)] == ["woken"] * 10


async def test_a_third_process_cancels_what_a_worker_is_at(fleet: Fleet) -> None:
    await fleet.worker()
    async with fleet.front() as front, fleet.front() as third:
        await until(fleet.is_known)
        await front.start(called, id="s", ctx={"ms": LONG_MS}, wait=0)
        await until(lambda: fleet.runs_of("s"))
        began = time.monotonic()
        await soon(third.cancel("s", "enough"))
        print(f"cancelled after {time.monotonic() - began:.2f} s")
        assert await of_type(front.store, "s", CancelledRecord)
        assert (await front.store.session("s")).owner is None


async def test_sessions_are_accepted_while_the_engine_is_down_and_go_on_after_it(fleet: Fleet) -> None:
    worker = await fleet.worker()
    async with fleet.front() as front:
        await until(fleet.is_known)
        (engine,) = fleet.servers
        await asyncio.to_thread(engine.kill)
        for number in range(10):
            await soon(front.start(called, id=f"s-{number}", ctx={"ms": 0}, wait=0))
        await asyncio.to_thread(engine.start)
        await asyncio.to_thread(engine.wait)
        back = time.monotonic()
        results = [await soon(front.result(f"s-{number}")) for number in range(10)]
        print(f"done {time.monotonic() - back:.2f} s after the engine has come back")
    assert results == [f"done by {worker.pid}"] * 10
    assert len(fleet.runs) == 10


async def test_what_nobody_was_nudged_for_is_found_by_the_sweep(fleet: Fleet) -> None:
    worker = await fleet.worker()
    await until(fleet.is_known)
    async with quiet(fleet.url) as silent:
        began = time.monotonic()
        await silent.start(called, id="s", ctx={"ms": 0}, wait=0)
        await silent.start(sleeper, id="sleeps", ctx={"ms": 100}, wait=0)
        assert await soon(silent.result("s")) == f"done by {worker.pid}"
        assert await soon(silent.result("sleeps")) == "woken"
        print(f"swept up after {time.monotonic() - began:.1f} s")


async def test_nothing_is_lost_with_the_disk_of_the_engine(fleet: Fleet) -> None:
    await fleet.worker()
    async with fleet.front() as front:
        await until(fleet.is_known)
        for number in range(5):
            await front.start(sleeper, id=f"sleeps-{number}", ctx={"ms": 1_000}, wait=0)
        await front.start(called, id="works", ctx={"ms": 500}, wait=0)
        await until(lambda: fleet.runs_of("works"))
        (engine,) = fleet.servers
        await asyncio.to_thread(engine.kill)
        engine.throw_away()
        await asyncio.to_thread(engine.start)
        await asyncio.to_thread(engine.wait)
        assert [await soon(front.result(f"sleeps-{number}")) for number in range(5)] == ["woken"] * 5
        await soon(front.result("works"))
        await until(fleet.is_known)
        await front.start(called, id="new", ctx={"ms": 0}, wait=0)
        await soon(front.result("new"))
    assert len(fleet.runs_of("works")) == 1
