"""Sessions with many records, or many open queries: what they cost, and that they hold up no others."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from holdfast.core.events import PausedEvent
from holdfast.engine.holdfast import Holdfast
from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import strategy
from holdfast.testing.loop_meter import LoopMeter
from holdfast.testing.patience import patience
from tests.engine.helpers import quiet, sqlite

MOST_MS = patience(50.0)
"""How long a session may hold the event loop, in CPU time."""

FEEDS = 20


@strategy(name="long-sessions-wide")
async def wide(ctx: Context) -> int:
    """Asks many questions at once."""
    return len(await ctx.llm_batch([f"question {number}" for number in range(ctx["count"])]))


@strategy(name="long-sessions-long")
async def long(ctx: Context) -> None:
    """Asks one question after the other."""
    while True:
        await ctx.llm("and then?")


async def calls_of_feeds(hf: Holdfast, count: int) -> int:
    """Calls of Python functions that some answers to a session with so many open queries take."""
    session_id = (await hf.start(wide, ctx={"count": count}, llm="host")).session_id
    await hf.feed(session_id, {"q-0": "yes"})
    calls = 0

    def note(frame: object, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(note)
    try:
        for number in range(1, 1 + FEEDS):
            await hf.feed(session_id, {f"q-{number}": "yes"})
    finally:
        sys.setprofile(None)
    return calls


async def test_an_answer_costs_the_same_however_many_queries_are_open(tmp_path: Path) -> None:
    async with quiet(sqlite(tmp_path)) as hf:
        few = await calls_of_feeds(hf, 2 * FEEDS)
        many = await calls_of_feeds(hf, 2_000)
    assert many <= 1.2 * few


async def test_the_first_answer_to_a_long_session_does_not_hold_the_loop(tmp_path: Path) -> None:
    async with quiet(sqlite(tmp_path)) as hf:
        event = await hf.start(long, id="s", llm="host")
        for _ in range(1_000):
            event = await hf.feed("s", "and then")
    async with quiet(sqlite(tmp_path)) as hf:
        with LoopMeter.running() as meter:
            event = await hf.feed("s", "and then")
        assert isinstance(event, PausedEvent)
        assert meter.longest_ms < MOST_MS, meter.what
