"""Clocks that jump, or are wrong: timers are met, live holders keep their sessions, and nothing ends for good."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from holdfast.core.state import State
from holdfast.engine.holdfast import open_holdfast
from holdfast.engine.upkeep import Upkeep
from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import strategy
from holdfast.store.environment import Environment, SystemClock
from holdfast.store.sqlite import statements
from holdfast.testing.patience import patience, soon
from holdfast.testing.postgres_server import fresh_database
from tests.engine.helpers import sqlite
from tests.tables import each_row

HOUR = 3_600_000
DAY = 24 * HOUR


class StepClock(SystemClock):
    """The computer's clock, which can be set."""

    def __init__(self, wrong_by: int = 0) -> None:
        self.wrong_by = wrong_by
        super().__init__(lambda: time.time_ns() + self.wrong_by * 1_000_000)


@strategy(name="clock-sleeper")
async def sleeper(ctx: Context) -> str:
    await ctx.sleep(float(str(ctx["seconds"])))
    return "awake"


@strategy(name="clock-asker")
async def asker(ctx: Context) -> str:
    return str(await ctx.llm("anybody?"))


@strategy(name="clock-worker")
async def worker(ctx: Context) -> str:
    return str(await ctx.tool("work"))


@each_row("step", [HOUR, 8 * DAY, -HOUR])
async def test_timers_are_met_while_the_clock_jumps(tmp_path: Path, step: int) -> None:
    clock = StepClock()
    async with open_holdfast(sqlite(tmp_path), environment=Environment(clock=clock)) as hf:
        await hf.start(sleeper, ctx={"seconds": 1200}, id=f"long{step}", wait=0)
        await hf.start(sleeper, ctx={"seconds": 0.5}, id=f"before{step}", wait=0)
        clock.wrong_by = step
        await hf.start(sleeper, ctx={"seconds": 0.5}, id=f"meanwhile{step}", wait=0)
        assert await hf.result(f"before{step}", timeout=patience(20)) == "awake"
        clock.wrong_by = 0
        assert await hf.result(f"meanwhile{step}", timeout=patience(20)) == "awake"
        assert (await hf.session(f"long{step}")).state is State.PAUSED


async def test_nothing_expires_or_is_deleted_on_the_word_of_a_clock_that_has_jumped(tmp_path: Path) -> None:
    clock = StepClock()
    upkeep = Upkeep(idle_ttl_ms=HOUR, keep_ended_ms=DAY)
    async with open_holdfast(sqlite(tmp_path), environment=Environment(clock=clock), upkeep=upkeep) as hf:
        await hf.start(asker, id="s")
        await hf.start(asker, id="ended")
        await hf.cancel("ended")
        clock.wrong_by = 8 * DAY
        assert await hf.clean() == ([], [])
        clock.wrong_by = 0
        await hf.feed("s", "yes")
        assert await hf.result("s") == "yes"
        assert (await hf.session("ended")).state is State.CANCELLED


async def test_a_live_holder_keeps_its_session_while_the_clock_jumps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = StepClock()
    monkeypatch.setattr(statements, "_clock", clock)
    begun: list[float] = []
    may_end = asyncio.Event()

    async def work() -> str:
        begun.append(time.monotonic())
        await may_end.wait()
        return "done"

    async with open_holdfast(sqlite(tmp_path)) as hf, open_holdfast(sqlite(tmp_path)) as other:
        hf.drive("work", work, recovery="safe")
        await hf.start(worker, id="s", wait=0)
        other.drive("work", work, recovery="safe")
        clock.wrong_by = 60_000
        row = await other.store.session("s")
        assert row.owner == hf.engine.owner.name
        await asyncio.sleep(patience(1))
        may_end.set()
        assert await hf.result("s", timeout=patience(20)) == "done"
        assert len(begun) == 1


async def test_processes_whose_clocks_disagree_judge_timers_by_the_clock_of_the_store(server: str) -> None:
    database = fresh_database(server)
    ahead = Environment(clock=StepClock(HOUR))
    async with open_holdfast(database) as hf, open_holdfast(database, environment=ahead) as wrong:
        await hf.start(sleeper, ctx={"seconds": 1200}, id="long", wait=0)
        await wrong.start(sleeper, ctx={"seconds": 0.5}, id="short", wait=0)
        assert await soon(wrong.result("short")) == "awake"
        assert abs(wrong.now() - hf.now()) < 2_000
        await asyncio.sleep(1.5)  # looks of both
        assert (await hf.session("long")).state is State.PAUSED
