"""Many subagents of many parents while their workers are killed: each is started once, every result is delivered once,
and usage adds up exactly.

The default run is a small slice. With `HOLDFAST_SOAK` set, it is 1,000 children of 50 parents for a minute.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from holdfast.agent.machine.delegation import subagent_result
from holdfast.agent.results import TokenUsage
from holdfast.core.records import AnsweredRecord, StartedRecord
from holdfast.core.state import State
from holdfast.store import Store
from holdfast.store.session_rows import SessionFilter
from holdfast.testing.crash.processes import CrashProcess
from holdfast.testing.patience import HANG_S
from holdfast.testing.postgres_server import fresh_database
from tests.agent.subagents.family_worker import runtime, work
from tests.agent.subagents.helpers import CHILD_USED

SEED = int(os.environ.get("HOLDFAST_SEED", "8"))
WORKERS = 2

soak = pytest.mark.skipif("HOLDFAST_SOAK" not in os.environ, reason="long; `make soak` runs it")


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/soak.db"
    return fresh_database(request.getfixturevalue("server"))


async def _run(url: str, parents: int, children: int, seconds: float) -> int:
    """Let workers work all turns, and kill one about every second for so long; gives how many were killed."""
    names = [f"p-{number}" for number in range(parents)]
    chance, kills = random.Random(SEED), 0
    async with runtime(url) as client:
        sessions = [await client.session(name).open() for name in names]
        for session in sessions:
            await session.enqueue(str(children)).id("the-item")
        workers = [CrashProcess(work, url) for _ in range(WORKERS)]
        try:
            until = asyncio.get_running_loop().time() + seconds
            while asyncio.get_running_loop().time() < until:
                await asyncio.sleep(chance.uniform(0.6, 1.2))
                number = chance.randrange(WORKERS)
                workers[number].kill()
                kills += 1
                workers[number] = CrashProcess(work, url)
            for session in sessions:
                found = await session.wait_for("the-item", timeout=HANG_S)
                assert found.result is not None
                assert found.result.text == ",".join(str(number) for number in range(children)), found.result
        finally:
            for worker in workers:
                worker.kill()
        for session in sessions:
            report = await session.usage_report()
            assert report.by_source["turn"] == TokenUsage(input=20, output=10, calls=2)
            assert report.by_source["subagent"] == TokenUsage(input=7 * children, output=3 * children, calls=children)
            assert report.by_model["m-leaf"] == report.by_source["subagent"]
            await _check_family(session.mount.store, session.session_id, children)
    return kills


async def _check_family(store: Store, parent: str, children: int) -> None:
    own = [entry.record async for entry in store.journal(parent)]
    answers = [record for record in own if isinstance(record, AnsweredRecord)]
    assert set(Counter(record.query_id for record in answers).values()) == {1}
    delivered = {record.query_id: record for record in answers}
    rows = await store.all_sessions(SessionFilter(parent=parent))
    assert {row.session_id for row in rows} == {f"{parent}.q-{number + 2}" for number in range(children)}
    assert {row.summary.state for row in rows} == {State.COMPLETED}
    for number in range(children):
        asked = f"q-{number + 2}"
        records = [entry.record async for entry in store.journal(f"{parent}.{asked}")]
        assert sum(isinstance(record, StartedRecord) for record in records) == 1
        spent = [record.usage for record in records if isinstance(record, AnsweredRecord) and record.usage is not None]
        assert spent == [CHILD_USED]
        told = delivered[asked]
        assert subagent_result(told.answer).text == str(number)
        assert told.usage is not None
        assert told.usage.by_model == {"m-leaf": msgspec.structs.replace(CHILD_USED, llm_calls=1)}


async def test_each_child_is_started_once_and_told_once_while_workers_are_killed(url: str) -> None:
    assert await _run(url, parents=4, children=6, seconds=3.0)


@soak
@pytest.mark.soak
async def test_a_thousand_children_of_fifty_parents(url: str) -> None:
    assert await _run(url, parents=50, children=20, seconds=60.0) > 30
