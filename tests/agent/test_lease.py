"""Leases of agents: who works on a turn, for how long, and what becomes of those who stood still."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any

import pytest

from holdfast.agent.providers.provider import ModelRequest
from holdfast.agent.runtime import Runtime
from holdfast.core.errors import InvalidValueError
from holdfast.core.records import AttemptedRecord
from holdfast.engine.holdfast import open_holdfast
from holdfast.engine.keeper import RENEWALS
from holdfast.engine.upkeep import Upkeep
from holdfast.store.commits import Commit
from holdfast.store.errors import LeaseHeldError, LeaseLostError
from holdfast.store.session_rows import SessionRow
from holdfast.testing.patience import soon, until
from holdfast.testing.provider import ScriptStep
from holdfast.testing.sessions import claim
from tests.agent.helpers import Home, journal
from tests.tables import each_row


async def hangs(request: ModelRequest) -> ScriptStep:
    await asyncio.Event().wait()
    raise AssertionError


async def row(runtime: Runtime) -> SessionRow:
    return await runtime.mount.store.session("s")


async def at_work(runtime: Runtime, session_id: str = "s") -> asyncio.Task[Any]:
    """A turn that hangs, with its process as the owner."""
    session = await runtime.session(session_id).open()
    work = asyncio.create_task(session.turn("Hi").id("t-1").run())
    provider: Any = runtime.providers["scripted"]
    await until(lambda: provider.requests)
    return work


async def test_a_lease_that_was_not_renewed_expires_and_another_process_goes_on(any_home: Home) -> None:
    """The owner is not dead: it stands still, and nobody can tell but by its lease."""
    idle = Upkeep(on=False)
    async with any_home.runtime(hangs, lease_ms=300) as runtime, any_home.runtime("Hello", upkeep=idle) as other:
        work = await at_work(runtime)
        runtime.mount.holdfast._engine.live("s")._keeper.stop()  # it renews no more
        session = await other.session("s").open()
        again = session.turn("Hi").id("t-1")

        async def is_free() -> bool:
            return (await row(other)).owner is None

        assert not await is_free()
        await until(is_free)
        assert (await soon(again.run())).text == "Hello"
        work.cancel()


async def test_a_lease_is_renewed_for_as_long_as_the_turn_takes(any_home: Home) -> None:
    async with any_home.runtime(hangs, lease_ms=400) as runtime, any_home.runtime("never") as other:
        work = await at_work(runtime)
        first = await row(runtime)
        assert (first.owner, first.lease_until is not None) == (runtime.mount.holdfast._engine.owner.name, True)
        await asyncio.sleep(1.0)  # two and a half times its time
        later = await row(other)
        assert (later.owner, later.epoch) == (first.owner, first.epoch)
        assert (later.lease_until or 0) > (first.lease_until or 0) + 400
        work.cancel()


async def test_every_new_owner_has_a_higher_epoch(any_home: Home) -> None:
    epochs = []
    for number in range(3):
        async with any_home.runtime("Hello") as runtime:
            session = await runtime.session("s").open()
            await soon(session.turn("Hi").id(f"t-{number}").run())
            epochs.append((await row(runtime)).epoch)
    assert epochs == sorted(set(epochs))


async def test_a_stale_writer_is_refused_and_has_written_nothing(any_home: Home) -> None:
    async with any_home.runtime(hangs) as runtime:
        work = await at_work(runtime)
        store = runtime.mount.store
        live = runtime.mount.holdfast._engine.live("s")
        lease = live.lease
        assert lease is not None
        await store.release(lease)
        await claim(store, "s", "somebody-else", 60_000)
        session = await runtime.session("s").open()
        before = await journal(session)
        current = await row(runtime)
        entry = before[-1].__class__(len(before) + 1, before[-1].at, AttemptedRecord(query_id="q-1", driver="llm"))
        with pytest.raises(LeaseLostError):
            await store.append(
                Commit(
                    session_id="s",
                    expected=len(before),
                    entries=[entry],
                    summary=current.summary,
                    owner=lease.owner,
                    epoch=lease.epoch,
                )
            )
        assert await journal(session) == before
        work.cancel()


async def test_only_the_very_same_owner_comes_back_into_its_lease(any_home: Home) -> None:
    """A restarted process, or another runtime of the same one, is another owner and has to wait."""
    async with any_home.runtime(hangs) as runtime, any_home.runtime("Hello") as other:
        work = await at_work(runtime)
        ours, theirs = runtime.mount.holdfast.engine.owner.name, other.mount.holdfast.engine.owner.name
        assert ours != theirs
        with pytest.raises(LeaseHeldError) as refused:
            await claim(other.mount.store, "s", theirs)
        assert refused.value.owner == ours
        before = await row(runtime)
        lease = await claim(runtime.mount.store, "s", ours)
        assert (lease.owner, lease.epoch) == (ours, before.epoch + 1)
        work.cancel()


async def test_a_lease_is_renewed_three_times_before_it_would_run_out(home: Home) -> None:
    """How often follows from how long it lasts, so the two cannot contradict each other."""
    lease_ms = 900
    async with home.runtime(hangs, lease_ms=lease_ms) as runtime:
        work = await at_work(runtime)
        renewed: list[float] = []
        store = runtime.mount.store
        append = store.append

        async def noting(commit: Commit) -> Any:
            renewed.append(time.monotonic())
            return await append(commit)

        store.append = noting  # type: ignore[method-assign]
        await until(lambda: len(renewed) >= 4)
        shortest = min(later - earlier for earlier, later in itertools.pairwise(renewed))  # what a busy machine delays
        assert lease_ms / 1000 / (RENEWALS + 1) < shortest < lease_ms / 1000 / (RENEWALS - 1)
        work.cancel()


@each_row("lease_ms", [0, -1, 29])
def test_a_lease_that_is_too_short_to_be_renewed_is_refused(lease_ms: int) -> None:
    with pytest.raises(InvalidValueError, match="lease_ms"):
        open_holdfast("memory:", lease_ms=lease_ms)
