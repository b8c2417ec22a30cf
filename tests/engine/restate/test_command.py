"""`holdfast worker --dispatch` and `holdfast dispatch`, as an operator uses them."""

from __future__ import annotations

import asyncio
import signal
from urllib.request import Request, urlopen

from holdfast.core.errors import ExitCode
from holdfast.engine.holdfast import Holdfast
from holdfast.testing.patience import HANG_S, soon, until
from holdfast.testing.restate_server import free_ports
from tests.engine.dispatchers.steps import steps
from tests.engine.restate.commands import dispatch, is_brought_to, worker
from tests.engine.restate.fleet import RestateFleet


async def has_troubles(fleet: RestateFleet) -> bool:
    return bool((await dispatch(fleet, "status"))["troubled"])


async def has_none(fleet: RestateFleet) -> bool:
    return not await has_troubles(fleet)


async def test_an_upgrade_drains_the_old_worker_and_leaves_nothing_bound_to_it(fleet: RestateFleet) -> None:
    old_port, new_port = free_ports(2)
    async with fleet.front() as front:
        with worker(fleet, old_port) as old:
            await until(fleet.is_known)
            await front.start(steps, id="s", ctx={"count": 1, "ms": 2_000}, wait=0)
            await until(lambda: _is_held(front, "s"))
            with worker(fleet, new_port) as new:
                await until(lambda: is_brought_to(fleet, new_port))
                await front.start(steps, id="new", wait=0)
                assert await soon(front.result("new")) == [new.pid]
                old.send_signal(signal.SIGTERM)
                assert await asyncio.to_thread(old.wait, HANG_S) == ExitCode.OK
                assert await soon(front.result("s")) == [old.pid]
                await front.start(steps, id="after", ctx={"count": 3}, wait=0)
                assert await soon(front.result("after")) == [new.pid] * 3
                await until(lambda: has_none(fleet))
                assert await dispatch(fleet, "move") == {"moved": []}


async def test_what_a_dead_worker_had_goes_on_with_the_latest_ones_and_what_was_paused_is_moved(
    fleet: RestateFleet,
) -> None:
    old_port, new_port = free_ports(2)
    async with fleet.front() as front:
        with worker(fleet, old_port) as old:
            await until(fleet.is_known)
            await front.start(steps, id="s", ctx={"ms": 0}, wait=0)
            assert await soon(front.result("s")) == [old.pid]
        await front.start(steps, id="left", wait=0)
        (stuck,) = await until(lambda: [each for each in fleet.troubled() if "/left/" in each["target"]])
        await asyncio.to_thread(pause, fleet, stuck["id"])
        await until(lambda: has_status(fleet, "paused"))
        with worker(fleet, new_port) as new:
            await until(lambda: is_brought_to(fleet, new_port))
            assert "left" in (await dispatch(fleet, "move"))["moved"]
            assert await soon(front.result("left")) == [new.pid]
            await until(lambda: has_none(fleet))


def pause(fleet: RestateFleet, invocation: str) -> None:
    request = Request(f"{fleet.servers[0].admin}/invocations/{invocation}/pause", method="PATCH")
    with urlopen(request, timeout=HANG_S) as reply:
        assert reply.status < 300


async def has_status(fleet: RestateFleet, status: str) -> bool:
    return any(each["status"] == status for each in (await dispatch(fleet, "status"))["troubled"])


async def _is_held(front: Holdfast, session_id: str) -> bool:
    return (await front.store.session(session_id)).owner is not None
