"""Work in the background of one OS process, and its end."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.engine.errors import RuntimeClosedError
from holdfast.engine.owner import Owner
from holdfast.store.environment import Environment
from holdfast.store.memory import MemoryStore


@pytest.fixture
def owner() -> Owner:
    return Owner(MemoryStore(), 1_000, Environment())


async def test_work_that_is_stopped_before_the_first_step_of_its_task_is_cancelled(owner: Owner) -> None:
    asked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    seen: list[str] = []

    async def work() -> None:
        try:
            await asked
        except asyncio.CancelledError:
            seen.append("cancelled")
            await asyncio.sleep(0)
            seen.append("cleaned up")
            raise

    caller = asyncio.create_task(owner.shielded("s", work()))
    await asyncio.sleep(0)  # the work waits, and its task has not run yet
    owner.callers.close()
    await owner.stop()
    assert seen == ["cancelled", "cleaned up"]
    assert asked.cancelled()
    with pytest.raises(RuntimeClosedError):
        await caller
