"""Draining inboxes: by hand, and by workers, of which there may be several; and owners that were superseded."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from holdfast.agent import worker as worker_module
from holdfast.agent.providers.provider import ModelRequest
from holdfast.engine.errors import StaleError, WorkerExistsError
from holdfast.store.errors import LeaseLostError, PositionConflictError
from holdfast.testing.patience import soon, until
from holdfast.testing.provider import ScriptStep
from holdfast.testing.sessions import claim
from tests.agent.helpers import Home, journal
from tests.agent.queue_helpers import Gate, echo, echoes, inputs, text_of

# --- draining ------------------------------------------------------------------------------------------


async def test_draining_by_hand_works_no_more_turns_than_it_may(any_home: Home) -> None:
    async with echoes(any_home) as runtime:
        session = await runtime.session("s").open()
        for name in "abc":
            await session.enqueue(name).id(name)
        assert len(await soon(session.queued_turn().run(limit=2))) == 2
        assert [item.id for item in await session.queued_work()] == ["c"]
        assert len(await soon(session.queued_turn().run(limit=2))) == 1


async def test_a_refused_commit_does_not_count_against_the_limit(shared_home: Home) -> None:
    """What two processes write at the same time, one of them decides again."""
    async with echoes(shared_home) as runtime, echoes(shared_home) as other:
        session = await runtime.session("s").open()
        theirs = await other.session("s").open()
        await session.enqueue("a").id("a")
        await theirs.enqueue("b").id("b")  # the first one knows nothing of it
        assert len(await soon(session.queued_turn().run(limit=2))) == 2
        assert await inputs(session) == [["a"], ["b"]]


async def test_a_worker_drains_all_sessions_each_in_order(any_home: Home) -> None:
    async with echoes(any_home) as runtime:
        sessions = [await runtime.session(f"s{number}").open() for number in range(6)]
        for name in "abc":
            for session in sessions:
                await session.enqueue(name).id(name)
        async with runtime.work(turns=2) as worker:
            for session in sessions:
                await soon(session.wait_for("c"))
        assert worker.begun == 18
        for session in sessions:
            assert await inputs(session) == [["a"], ["b"], ["c"]]


async def test_a_worker_has_no_more_turns_under_way_than_it_may(home: Home) -> None:
    now, most = 0, 0

    async def slow(request: ModelRequest) -> ScriptStep:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.02)
        now -= 1
        return "ok"

    async with home.runtime(*[slow] * 20) as runtime:
        sessions = [await runtime.session(f"s{number}").open() for number in range(10)]
        async with runtime.work(turns=3):
            await asyncio.gather(*(session.enqueue("a").id("a") for session in sessions))
            for session in sessions:
                await soon(session.wait_for("a"))
    assert most == 3


@pytest.mark.parametrize(("slice_s", "stay", "most"), [(0.0, 0, 1), (1000.0, 0, 10), (0.0, 10**9, 10)])
async def test_a_busy_session_keeps_the_others_waiting_for_a_turn_or_a_moment(
    home: Home, monkeypatch: pytest.MonkeyPatch, slice_s: float, stay: int, most: int
) -> None:
    """Which is a second, or as many times as long as it took to get there as a worker lets it stay."""
    monkeypatch.setattr(worker_module, "SLICE_S", slice_s)
    monkeypatch.setattr(worker_module, "STAY", stay)
    order: list[str] = []

    def note(request: ModelRequest) -> ScriptStep:
        order.append(request.messages[-1].text)
        return "ok"

    async with home.runtime(*[note] * 12) as runtime:
        busy, quiet = await runtime.session("busy").open(), await runtime.session("quiet").open()
        for _ in range(10):
            await busy.enqueue("busy")
        await quiet.enqueue("quiet").id("q")
        async with runtime.work(turns=1):
            await soon(quiet.wait_for("q"))
    assert order.index("quiet") in (0, most)  # whichever of the two is the first


async def test_a_stopped_worker_ends_its_turns_and_begins_no_more(home: Home) -> None:
    gate = Gate()
    async with home.runtime(gate, echo) as runtime:
        session = await runtime.session("s").open()
        for name in "ab":
            await session.enqueue(name).id(name)
        worker = runtime.work()
        working = asyncio.create_task(worker.run())
        await until(lambda: gate.asked)
        worker.stop()
        await asyncio.sleep(0.02)
        assert not working.done()
        gate.open.set()
        await soon(working)
        assert [(await session.outcome(name)).status for name in "ab"] == ["done", "waiting"]


async def test_a_worker_that_is_out_of_time_leaves_its_turns_to_others(shared_home: Home) -> None:
    gate = Gate()
    async with shared_home.runtime(gate) as runtime:
        session = await runtime.session("s").open()
        await session.enqueue("a").id("a")
        async with runtime.work(drain_s=0.05):
            await until(lambda: gate.asked)
    async with echoes(shared_home) as runtime:
        session = await runtime.session("s").open()
        assert text_of(await soon(session.wait_for("a"))) == "re: a"


async def test_a_runtime_has_one_worker(home: Home) -> None:
    async with echoes(home) as runtime, runtime.work():
        with pytest.raises(WorkerExistsError):
            await runtime.work().run()
        with pytest.raises(ValueError, match="at least one turn"):
            runtime.work(turns=0)


async def test_a_place_of_a_worker_is_not_lost_when_somebody_else_is_quicker(shared_home: Home) -> None:
    """An item that is sent where a worker is, for a session that another process holds, costs no place."""
    gate = Gate()
    async with shared_home.runtime(gate, echo, echo) as holder, echoes(shared_home) as runtime:
        theirs = await holder.session("held").open()
        work = asyncio.create_task(theirs.turn("first").run())
        await until(lambda: gate.asked)
        held, free = await runtime.session("held").open(), await runtime.session("free").open()
        async with runtime.work(turns=1) as worker:
            await soon(held.enqueue("a").id("a"))
            await free.enqueue("b").id("b")
            assert text_of(await soon(free.wait_for("b"))) == "re: b"
            gate.open.set()
            await soon(work)
            await soon(held.wait_for("a"))
        assert worker.active == {}


async def test_a_worker_does_not_call_sessions_that_others_have_taken(
    shared_home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pause in ("FRESH_S", "QUIET_S", "SHARE"):
        monkeypatch.setattr(worker_module, pause, 0.0)
    ours, theirs, called = Gate(), Gate(), list[str]()
    async with shared_home.runtime(ours, echo) as runtime, shared_home.runtime(theirs, echo) as other:
        names = ["first", "taken", "left"]
        sessions = {name: await runtime.session(name).open() for name in names}
        await sessions["first"].enqueue("a").id("a")
        async with runtime.work(turns=1) as worker:
            attend = worker._engine.attend

            def noted(session_id: str, *, insists: bool = True) -> Coroutine[Any, Any, bool]:
                called.append(session_id)
                return attend(session_id, insists=insists)

            monkeypatch.setattr(worker._engine, "attend", noted)
            await until(lambda: ours.asked)
            for name in names[1:]:
                await sessions[name].enqueue(name).id(name)
                assert worker.is_in_line(name)
            taking = asyncio.create_task((await other.session("taken").open()).queued_turn().run())
            await until(lambda: theirs.asked)
            ours.open.set()
            await soon(sessions["left"].wait_for("left"))
            assert not worker.is_in_line("taken")
            theirs.open.set()
            await soon(taking)
    assert "taken" not in called


# --- owners --------------------------------------------------------------------------------------------


async def test_a_superseded_owner_commits_nothing_of_the_turn(any_home: Home) -> None:
    """The lease of a process that stood still runs out; its turn is worked by another, and what it says is refused."""
    gate = Gate()
    async with any_home.runtime(gate, lease_ms=60_000) as runtime:
        session = await runtime.session("s").open()
        await session.enqueue("a").id("a")
        work = asyncio.create_task(session.queued_turn().run())
        await until(lambda: gate.asked)
        store = runtime.mount.store
        row = await store.session("s")
        live = runtime.mount.holdfast._engine.live("s")
        assert live.lease is not None
        assert row.owner == runtime.mount.holdfast._engine.owner.name
        # As if it had run out: somebody else has claimed the session.
        await store.release(live.lease)
        await claim(store, "s", "somebody-else", 60_000)
        before = await journal(session)
        with pytest.raises(StaleError) as refused:
            await live.renew()
        assert isinstance(refused.value.__cause__, LeaseLostError | PositionConflictError)
        gate.open.set()
        await asyncio.sleep(0.05)
        assert await journal(session) == before
        work.cancel()
