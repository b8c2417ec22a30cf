"""An effect that calls its own engine while that is closed: what became of the call is no outcome of the effect."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from holdfast import strategy
from holdfast.core.records import AnsweredRecord, InterruptedRecord
from holdfast.programs.native.ctx import Context
from holdfast.store import open_store
from holdfast.store.commits import Commit, CommitReceipt
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.patience import soon
from tests.engine.helpers import quiet, sqlite


@strategy(name="closing-teller")
async def teller(ctx: Context) -> Any:
    return await ctx.tool("tell")


@strategy(name="closing-listener")
async def listener(ctx: Context) -> Any:
    return await ctx.ask("Well?")


class StuckStore(SqliteStore):
    """A store that does not come to an end with what is fed to a session."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.is_stuck = asyncio.Event()

    async def append(self, commit: Commit) -> CommitReceipt:
        if commit.session_id == "listener" and commit.expected:
            self.is_stuck.set()
            await asyncio.Event().wait()
        return await super().append(commit)


async def test_an_effect_that_is_stopped_with_its_engine_has_no_answer(tmp_path: Path) -> None:
    store = StuckStore(str(tmp_path / "sessions.db"))
    async with quiet(store) as hf:

        async def tell() -> str:
            await hf.feed("listener", {"q-0": "yes"}, wait=0)
            return "told"

        hf.drive("tell", tell, recovery="idempotent")
        await hf.start(listener, id="listener", wait=0)
        await hf.start(teller, id="teller", wait=0)
        await soon(store.is_stuck.wait())
    async with open_store(sqlite(tmp_path)) as store_again:
        records = [entry.record for entry in await store_again.read("teller")]
    assert not any(isinstance(record, AnsweredRecord) for record in records)
    assert isinstance(records[-1], InterruptedRecord)
