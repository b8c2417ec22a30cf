"""An owner that is paused past its lease is refused when it wakes, and what was sent to it is not lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.records import Entry
from holdfast.engine.holdfast import open_holdfast
from holdfast.engine.upkeep import Upkeep
from holdfast.store import open_store
from holdfast.testing.crash.processes import CrashProcess
from holdfast.testing.patience import HANG_S, until
from tests.engine.kill.child import own_job
from tests.engine.kill.host import Host
from tests.engine.kill.leases import LEASE_MS
from tests.engine.kill.ledger import Ledger, read_ledger
from tests.engine.kill.places import Place, postgres_places, sqlite_places
from tests.engine.kill.tools import World, did


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return sqlite_places(tmp_path)("paused")
    return postgres_places(request.getfixturevalue("server"), tmp_path)("paused")


@contextlib.asynccontextmanager
async def paused_owner(place: Place, session: str) -> AsyncIterator[CrashProcess]:
    """A process that owns a session, and does not know that time passes."""
    owner = CrashProcess(own_job, place.url, place.directory, session)
    try:
        async with asyncio.timeout(HANG_S):
            await until(lambda: owner.exit_code is not None or bool(seen(place, "owning")))
            assert owner.exit_code is None, place.errors()
            owner.pause()
            yield owner
    finally:
        owner.kill()


@pytest.mark.parametrize("session", ["busy", "slow"])
async def test_a_paused_owner_that_wakes_after_its_lease_ran_out_is_refused(place: Place, session: str) -> None:
    async with paused_owner(place, session) as owner:
        result = await finish_for(place, session)
        before = await journal_of(place, session)
        (place.directory / "go").touch()
        owner.resume()
        await until(lambda: owner.exit_code is not None)
        assert owner.exit_code == 0, place.errors()
    assert "lease_lost" in [line["error"] for line in seen(place, "refused")]
    assert [line["content"] for line in seen(place, "result")] == [result]
    assert await journal_of(place, session) == before


async def test_an_answer_sent_to_an_owner_that_died_is_taken_by_whoever_comes_next(place: Place) -> None:
    sender = open_holdfast(place.url, lease_ms=LEASE_MS, upkeep=Upkeep(on=False))
    async with paused_owner(place, "busy"), sender:
        event = await sender.feed("busy", {"q-1": "an answer that was accepted"}, wait=0)
        assert event.status == "running"
    async with open_holdfast(place.url, lease_ms=LEASE_MS) as hf:
        World(place.directory, Ledger(place.directory, "successor")).drive(hf)
        assert await hf.result("busy", timeout=HANG_S) == [did("held", "on"), "an answer that was accepted"]


async def finish_for(place: Place, session: str) -> Any:
    """Take the session over as soon as the lease of its owner has run out, and bring it to its end."""
    ledger = Ledger(place.directory, "successor")
    async with open_holdfast(place.url, lease_ms=LEASE_MS) as hf:
        World(place.directory, ledger).drive(hf)
        host = Host(hf, ledger)
        await host.feed(session, await host.asked(session))
        return await hf.result(session)


def seen(place: Place, what: str) -> list[dict[str, Any]]:
    return [line for line in read_ledger(place.directory) if line["what"] == what]


async def journal_of(place: Place, session: str) -> list[Entry]:
    async with open_store(place.url) as store:
        return [entry async for entry in store.journal(session)]
