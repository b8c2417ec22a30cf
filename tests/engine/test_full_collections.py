"""No full collection of Python's garbage collector is made while a long journal is replayed."""

from __future__ import annotations

import gc
from pathlib import Path

from holdfast.engine.full_collections import LONG_RECORDS
from holdfast.engine.holdfast import open_holdfast
from holdfast.engine.upkeep import Upkeep
from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import strategy


@strategy(name="asks-on-for-ever")
async def asks_on(ctx: Context) -> None:
    while True:
        await ctx.llm("and then?")


async def test_no_full_collection_is_made_while_a_long_journal_is_replayed(tmp_path: Path) -> None:
    url, usual = f"sqlite:///{tmp_path}/long.db", gc.get_threshold()
    async with open_holdfast(url, upkeep=Upkeep(on=False)) as hf:
        await hf.start(asks_on, id="s", llm="host")
        for _ in range(LONG_RECORDS // 2):
            await hf.feed("s", "and then")
    async with open_holdfast(url, upkeep=Upkeep(on=False)) as hf:
        await hf.sessions()
        gc.collect()
        gc.freeze()
        gc.collect()  # nothing is old any more
        gc.set_threshold(50, 2, 2)  # a full one for every 200 lists that stay
        try:
            before = gc.get_stats()[2]["collections"]
            await hf.feed("s", "and then")
            made = gc.get_stats()[2]["collections"] - before
            assert gc.get_threshold() == (50, 2, 2)
        finally:
            gc.set_threshold(*usual)
            gc.unfreeze()
    assert made <= 3
