"""An owner that stood still, or whose store replied late: what it is about to begin may be somebody else's by now."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast import strategy
from holdfast.engine.drivers import Attempt, NotDone
from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.programs.native.ctx import Context
from holdfast.testing.patience import soon, until
from tests.engine.helpers import quiet, sqlite

LEASE_MS = 100


@strategy(name="late_payment")
async def late_payment(ctx: Context) -> Any:
    return await ctx.tool("pay")


def drive(hf: Holdfast, begun: list[tuple[str, int]], name: str) -> None:
    async def pay(attempt: Attempt) -> str:
        begun.append((name, attempt.number))
        return name

    hf.drive("pay", pay, recovery="confirm", probe=lambda attempt: NotDone())


@pytest.mark.parametrize("moment", ["after start", "before effect"])
async def test_an_owner_that_is_late_does_not_begin_an_effect_of_a_session_that_another_has(
    tmp_path: Path, moment: str
) -> None:
    begun: list[tuple[str, int]] = []
    is_late, goes_on = asyncio.Event(), asyncio.Event()

    async def seam(name: str) -> None:
        if name == moment:
            is_late.set()
            await goes_on.wait()

    async with (
        quiet(sqlite(tmp_path), lease_ms=LEASE_MS, seam=seam) as slow,
        open_holdfast(sqlite(tmp_path), lease_ms=LEASE_MS) as other,
    ):
        drive(slow, begun, "slow")
        starting = asyncio.create_task(slow.start(late_payment, id="s", wait=0))
        await soon(is_late.wait())
        if moment == "before effect":
            await until(starting.done)
            slow.engine.live("s")._keeper.stop()  # a process that stands still renews nothing
        drive(other, begun, "other")
        assert await soon(other.result("s")) == "other"
        goes_on.set()
        await soon(asyncio.wait([starting]))
        assert await soon(slow.result("s")) == "other"
        assert begun == [("other", 2)]


async def test_an_owner_that_is_late_renews_its_lease_and_begins_what_nobody_else_has(tmp_path: Path) -> None:
    begun: list[tuple[str, int]] = []
    seen: list[str] = []

    async def seam(name: str) -> None:
        seen.append(name)
        if name == "after start":
            await asyncio.sleep(2 * LEASE_MS / 1000)

    async with quiet(sqlite(tmp_path), lease_ms=LEASE_MS, seam=seam) as hf:
        drive(hf, begun, "slow")
        await soon(hf.start(late_payment, id="s", wait=0))
        assert await soon(hf.result("s")) == "slow"
    assert begun == [("slow", 1)]
    assert seen.index("after renew") < seen.index("after effect")
