"""How soon a process notices what another has committed, and that it does not look all the time to do so."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import pytest

from holdfast.core.records import LoggedRecord
from holdfast.store import open_store
from holdfast.store.limits import NOTIFY_POLL_MS
from holdfast.testing.patience import HANG_S
from tests.store.pg_fixtures import database, postgres_url

__all__ = ["database", "postgres_url"]

COMMITS = 60

_WRITER = f"""
import asyncio, sys, time
from holdfast.store import open_store
from holdfast.testing.sessions import begin

async def main():
    async with open_store(sys.argv[1]) as store:
        task = await begin(store, "s-afar")
        for number in range({COMMITS}):
            await asyncio.sleep(0.01 + number % 7 / 500)
            await task.log(str(time.monotonic()))

asyncio.run(main())
"""


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_a_commit_of_another_process_is_noticed_within_50_ms(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    url = f"sqlite:///{tmp_path}/store.db" if kind == "sqlite" else request.getfixturevalue("database")
    took: list[float] = []
    async with open_store(url) as store:
        with store.watch("s-afar") as watch:
            writer = await asyncio.create_subprocess_exec(sys.executable, "-c", _WRITER, url)
            while "s-afar" not in [row.session_id for row in (await store.sessions()).rows]:
                assert await watch.changed(HANG_S)
            seen = 0
            while len(took) < COMMITS:
                assert await watch.changed(HANG_S), f"nobody said that there is more than {seen} entries"
                noticed = time.monotonic()
                for entry in await store.read("s-afar", after=seen):
                    seen = entry.position
                    if isinstance(entry.record, LoggedRecord):
                        took.append(noticed - float(entry.record.message))
            assert await writer.wait() == 0
        with store.watch("s-quiet"):
            await asyncio.sleep(0.2)
            used = time.process_time()
            await asyncio.sleep(1)
            used = time.process_time() - used
    took.sort()
    p10, p50, p99 = took[COMMITS // 10], took[COMMITS // 2], took[COMMITS * 99 // 100]
    print(f"{kind}: p50 {p50 * 1000:.1f} ms, p99 {p99 * 1000:.1f} ms; {used * 1000:.1f} ms of CPU in a quiet second")
    assert p10 < 0.05  # on a machine that has other things to do only some are as quick
    assert p50 < NOTIFY_POLL_MS / 1000 / 2
    assert used < 0.1
