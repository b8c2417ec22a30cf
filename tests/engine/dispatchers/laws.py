"""What holds for every dispatcher of a fleet: what workers, the engine and its disk may lose, and what goes on."""

from __future__ import annotations

import asyncio
import time

from holdfast.agent.providers.provider import ModelRequest
from holdfast.agent.runtime import Runtime
from holdfast.core.records import CancelledRecord
from holdfast.engine.upkeep import Upkeep
from holdfast.testing.patience import soon, until
from holdfast.testing.provider import ScriptedProvider, ScriptedReply, ScriptStep
from tests.engine.dispatchers.fleet import Fleet
from tests.engine.helpers import of_type, quiet
from tests.engine.process_child import called, sleeper

LONG_MS = 600_000
"""Milliseconds that an effect takes which is not to end by itself."""


def echo(request: ModelRequest) -> ScriptStep:
    return ScriptedReply(parts=[f"You said {request.messages[-1].text}."])


class FleetLaws:
    """Tests with a `fleet` of the dispatcher at hand."""

    async def test_another_process_picks_up_what_a_front_leaves(self, fleet: Fleet) -> None:
        worker = await fleet.worker()
        async with fleet.front() as front:
            await fleet.until_served()
            took = []
            for number in range(8):
                began = time.monotonic()
                await front.start(called, id=f"s-{number}", ctx={"ms": 0}, wait=0)
                assert await soon(front.result(f"s-{number}")) == f"done by {worker.pid}"
                took.append(time.monotonic() - began)
        print("picked up and done after " + ", ".join(f"{1000 * each:.0f}" for each in sorted(took)) + " ms")

    async def test_what_a_killed_worker_was_at_is_begun_again_by_another(self, fleet: Fleet) -> None:
        await fleet.worker()
        await fleet.worker()
        async with fleet.front() as front:
            await fleet.until_served()
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

    async def test_what_must_not_run_twice_is_not_begun_again(self, fleet: Fleet) -> None:
        await fleet.worker(recovery="never")
        await fleet.worker(recovery="never")
        async with fleet.front() as front:
            await fleet.until_served()
            await front.start(called, id="s", ctx={"ms": LONG_MS}, wait=0)
            await until(lambda: fleet.runs_of("s"))
            await fleet.kill(fleet.worker_of("s"))
            assert await soon(front.result("s")) == "unknown_outcome"
        assert len(fleet.runs_of("s")) == 1

    async def test_timers_outlive_all_workers(self, fleet: Fleet) -> None:
        first = await fleet.worker()
        async with fleet.front() as front:
            await fleet.until_served()
            for number in range(10):
                await front.start(sleeper, id=f"s-{number}", ctx={"ms": 2_000}, wait=0)
            await fleet.kill(first)
            await fleet.worker()
            assert [await soon(front.result(f"s-{number}")) for number in range(10)] == ["woken"] * 10

    async def test_a_third_process_cancels_what_a_worker_is_at(self, fleet: Fleet) -> None:
        await fleet.worker()
        async with fleet.front() as front, fleet.front() as third:
            await fleet.until_served()
            await front.start(called, id="s", ctx={"ms": LONG_MS}, wait=0)
            await until(lambda: fleet.runs_of("s"))
            began = time.monotonic()
            await soon(third.cancel("s", "enough"))
            print(f"cancelled after {time.monotonic() - began:.2f} s")
            assert await of_type(front.store, "s", CancelledRecord)
            assert (await front.store.session("s")).owner is None

    async def test_sessions_are_accepted_while_the_engine_is_down_and_go_on_after_it(self, fleet: Fleet) -> None:
        worker = await fleet.worker()
        async with fleet.front() as front:
            await fleet.until_served()
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

    async def test_what_nobody_was_nudged_for_is_found_by_the_sweep(self, fleet: Fleet) -> None:
        worker = await fleet.worker()
        await fleet.until_served()
        async with quiet(fleet.url) as silent:
            began = time.monotonic()
            await silent.start(called, id="s", ctx={"ms": 0}, wait=0)
            await silent.start(sleeper, id="sleeps", ctx={"ms": 100}, wait=0)
            assert await soon(silent.result("s")) == f"done by {worker.pid}"
            assert await soon(silent.result("sleeps")) == "woken"
            print(f"swept up after {time.monotonic() - began:.1f} s")

    async def test_nothing_is_lost_with_the_disk_of_the_engine(self, fleet: Fleet) -> None:
        await fleet.worker()
        async with fleet.front() as front:
            await fleet.until_served()
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
            await fleet.until_served()
            await front.start(called, id="new", ctx={"ms": 0}, wait=0)
            await soon(front.result("new"))
        assert len(fleet.runs_of("works")) == 1

    async def test_turns_begin_where_the_engine_brings_them(self, fleet: Fleet) -> None:
        working = Runtime(fleet.url, provider=ScriptedProvider([echo], loop=True), model="m", dispatch=fleet.serving)
        front = Runtime(
            fleet.url, provider=ScriptedProvider([]), model="m", dispatch=fleet.dispatch, upkeep=Upkeep(on=False)
        )
        async with working, working.work(turns=1) as worker, front:
            assert working.mount.holdfast.upkeep.dispatch.is_serving
            await fleet.until_served()
            sessions = [await front.session(f"chat-{number}").open() for number in range(3)]
            for session in sessions:
                for item in range(2):
                    await session.enqueue(f"word {item}").id(f"i-{item}")
            done = [session.wait_for(f"i-{item}") for session in sessions for item in range(2)]
            await soon(asyncio.gather(*done))
            assert worker.begun == 6
            await fleet.until_calm()
