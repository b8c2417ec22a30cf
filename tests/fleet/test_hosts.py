"""Several hosts: what a worker does that is cut off, in one way only too, and what goes on elsewhere meanwhile."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from holdfast.testing.patience import soon, until
from holdfast.testing.restate_server import RestateServer
from tests.fleet import haproxy
from tests.fleet.child import ONCE, SAFE
from tests.fleet.hosts import BOTH, ENGINE, STORE, Way, cannot_make_hosts
from tests.fleet.ledger import Plan
from tests.fleet.site import WORKERS, Site, engine_site, site

WHY_NOT = cannot_make_hosts()

pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "there are hosts")

LEASE_MS = 3_000
WAYS: dict[str, tuple[Way, ...]] = {"both ways": BOTH, "what it sends": ("out",), "what it hears": ("in",)}


@pytest.mark.parametrize("ways", WAYS.values(), ids=WAYS.keys())
async def test_a_worker_that_is_cut_off_stops_what_it_may_not_finish_and_others_do_it(
    server: str, tmp_path: Path, ways: tuple[Way, ...]
) -> None:
    async with site(server, tmp_path, LEASE_MS) as here:
        acknowledged = await here.start("before", SAFE, 0)
        await soon(here.front.result("before"))
        plan = await here.start("s", SAFE, 2 * LEASE_MS)
        once = await here.start("once", ONCE, 2 * LEASE_MS)
        cut_off = await here.worker_at("s")
        here.hosts.cut(cut_off, ways)
        first, second = await until(lambda: len(begun := here.ledger.notes("begun", "s")) == 2 and begun)
        (stopped,) = here.ledger.notes("stopped", "s")
        assert stopped.pid == first.pid
        assert stopped.at < second.at
        assert second.pid != first.pid
        others = [await here.start(f"meanwhile-{number}", SAFE, 0) for number in range(4)]
        await here.check(acknowledged, plan, once, *others)
        here.hosts.heal(cut_off)
        for number in {0, 1, 2} - {cut_off}:
            await here.workers.kill(number)
        await here.check(await here.start("afterwards", SAFE, 0, 0))
        assert {note.pid for note in here.ledger.notes("begun", "afterwards")} == {first.pid}


async def test_what_ends_before_the_lease_is_recorded_once_although_the_worker_was_away(
    server: str, tmp_path: Path
) -> None:
    """Its replies are lost, so it cannot know what it has written: it asks again, and writes nothing twice."""
    async with site(server, tmp_path, lease_ms=20_000) as here:
        plans = [await here.start(f"s-{number}", ONCE, *[400] * 4) for number in range(6)]
        cut_off = await here.worker_at("s-0")
        for ways in (("in",), ("out",), BOTH):
            here.hosts.cut(cut_off, ways)
            await asyncio.sleep(0.7)
            here.hosts.heal(cut_off)
            await asyncio.sleep(0.3)
        await here.check(*plans)
        assert here.ledger.begun_again() == 0
        for plan in plans:
            assert "unknown_outcome" not in await here.front.result(plan.session, 0)


async def test_slow_narrow_and_lossy_links_cost_time_and_nothing_else(server: str, tmp_path: Path) -> None:
    async with site(server, tmp_path, lease_ms=20_000) as here:
        for worker in range(3):
            here.hosts.worsen(worker, delay_ms=30, loss=0.03, bytes_per_s=100_000)
        plans = [await here.start(f"s-{number}", ONCE if number % 2 else SAFE, 50, 50) for number in range(24)]
        await here.check(*plans)
        assert here.ledger.begun_again() == 0
        assert not here.ledger.notes("stopped")


@pytest.mark.skipif(bool(haproxy.WHY_NOT), reason=haproxy.WHY_NOT or "there is haproxy")
async def test_a_worker_that_only_the_engine_cannot_reach_finishes_its_work_and_gets_no_more(
    server: str, restate: RestateServer, tmp_path: Path
) -> None:
    async with engine_site(server, restate, tmp_path, LEASE_MS) as here:
        plan = await here.start("s", ONCE, 2 * LEASE_MS)
        cut_off = await here.worker_at("s")
        here.hosts.cut(cut_off, peer=ENGINE)
        others = [await here.start(f"meanwhile-{number}", SAFE, 0) for number in range(6)]
        await here.check(plan, *others)
        assert [note.pid for note in here.ledger.notes("done", "s")] == [here.workers.pid(cut_off)]
        assert here.ledger.begun_again() == 0
        here.hosts.heal(cut_off)
        for number in {0, 1, 2} - {cut_off}:
            await here.workers.kill(number)
        await here.check(await here.start("afterwards", SAFE, 0, 0))


@pytest.mark.skipif(bool(haproxy.WHY_NOT), reason=haproxy.WHY_NOT or "there is haproxy")
async def test_a_worker_that_the_engine_reaches_but_that_has_lost_the_store_holds_up_nothing(
    server: str, restate: RestateServer, tmp_path: Path
) -> None:
    async with engine_site(server, restate, tmp_path, LEASE_MS) as here:
        plan = await here.start("s", SAFE, 2 * LEASE_MS)
        cut_off = await here.worker_at("s")
        here.hosts.cut(cut_off, peer=STORE)
        others = [await here.start(f"meanwhile-{number}", SAFE, 0) for number in range(6)]
        await here.check(plan, *others)
        stopped = here.ledger.notes("stopped", "s")
        assert [note.pid for note in stopped] == [here.workers.pid(cut_off)]


async def trouble(here: Site, seconds: float, sessions: int, chance: random.Random) -> list[Plan]:
    """Start sessions while links are cut, in one way only too, worsened and healed at random; all are healed then."""
    plans: list[Plan] = []
    faults: Counter[str] = Counter()

    async def start_all() -> None:
        for number in range(sessions):
            tool, ms = (ONCE if number % 3 == 0 else SAFE), [chance.randrange(1_000) for _ in range(2)]
            plans.append(await here.start(f"s-{number}", tool, *ms))
            await asyncio.sleep(0.8 * seconds / sessions)

    starting = asyncio.create_task(start_all())
    over_at = time.monotonic() + seconds
    while time.monotonic() < over_at:
        worker, fault = chance.randrange(WORKERS), chance.choice(["cut", "out", "in", "slow", "lossy"])
        faults[fault] += 1
        if fault in ("slow", "lossy"):
            bad = {"delay_ms": 100.0, "bytes_per_s": 50_000.0} if fault == "slow" else {"loss": 0.1}
            here.hosts.worsen(worker, BOTH, **bad)
        else:
            here.hosts.cut(
                worker, BOTH if fault == "cut" else WAYS[f"what it {'sends' if fault == 'out' else 'hears'}"]
            )
        await asyncio.sleep(chance.uniform(0.5, 6.0))
        here.hosts.heal(worker)
        await asyncio.sleep(chance.uniform(0.2, 1.0))
    await starting
    print(f"hosts: {sessions} sessions, {dict(faults)}, {here.ledger.begun_again()} effects begun again")
    return plans


async def test_links_that_come_and_go_lose_nothing(server: str, tmp_path: Path) -> None:
    async with site(server, tmp_path, LEASE_MS) as here:
        await here.check(*await trouble(here, 8, 30, random.Random(1)))


@pytest.mark.fleet
@pytest.mark.skipif("HOLDFAST_FLEET" not in os.environ, reason="long; `make fleet` runs it")
@pytest.mark.parametrize("seed", [1, 2])
async def test_a_minute_of_links_that_come_and_go_loses_nothing(server: str, tmp_path: Path, seed: int) -> None:
    async with site(server, tmp_path, LEASE_MS) as here:
        plans = await trouble(here, 60, 300, random.Random(seed))
        calm = time.monotonic()
        await here.check(*plans)
        print(f"hosts: all ended {time.monotonic() - calm:.1f} s after the last fault")
