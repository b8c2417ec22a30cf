"""Several OS processes serve the same schedules and events: each occurrence is worked by one of them, once."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest

from holdfast.agent.processes.processes import tool_call
from holdfast.agent.triggers.terms import EventSource, IntervalSource
from holdfast.testing.crash.processes import CrashProcess
from holdfast.testing.patience import until
from holdfast.testing.postgres_server import fresh_database
from tests.agent.background.race_child import race_job, racing_runtime

RACERS = 3
COUNT = 24
HOUR_MS = 3_600_000


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/race.db"
    return fresh_database(request.getfixturevalue("server"))


async def _until_over(racers: list[CrashProcess]) -> list[int | None]:
    await until(lambda: all(racer.exit_code is not None for racer in racers))
    return [racer.exit_code for racer in racers]


async def test_workers_that_race_for_one_occurrence_start_it_once(url: str, tmp_path: Path) -> None:
    async with racing_runtime(url, tmp_path) as runtime:
        began = time.monotonic()
        await runtime.triggers.declare("order")
        for number in range(COUNT // 2):
            await runtime.triggers.register(f"on-{number}", EventSource(type="order"), tool_call("note"))
        took_ms = round(1000 * (time.monotonic() - began))
        due = runtime.mount.holdfast.now() + 1_500 + 4 * took_ms  # when all of them are registered
        for number in range(COUNT // 2):
            source = IntervalSource(every_ms=HOUR_MS, since=due - HOUR_MS)  # all at the same moment
            await runtime.triggers.register(f"at-{number}", source, tool_call("note"))
    racers = [CrashProcess(race_job, url, tmp_path, COUNT + 1) for _ in range(RACERS)]
    try:
        await until(lambda: len(list(tmp_path.glob("ready-*"))) == RACERS)
        async with racing_runtime(url, tmp_path) as runtime:
            emitted = await asyncio.gather(
                *(runtime.triggers.emit("order", "o", idempotency_key="k") for _ in range(RACERS))
            )
            assert len({receipt.occurrence for receipt in emitted}) == 1
            assert await _until_over(racers) == [0] * RACERS
            histories = [await runtime.triggers.history(f"at-{number}") for number in range(COUNT // 2)]
            assert [len(history) for history in histories] == [1] * (COUNT // 2)
    finally:
        for racer in racers:
            racer.kill()
    keys = [json.loads(line)[0] for line in (tmp_path / "ledger").read_text().splitlines()]
    assert len(keys) == len(set(keys)) == COUNT
