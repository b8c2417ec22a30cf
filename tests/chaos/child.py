"""A process of a chaos run: `python -m tests.chaos.child URL CLOCK`. It serves sessions until it is killed.

Its clock of day is wrong by as many milliseconds as the file CLOCK says.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from pathlib import Path

from holdfast.engine.holdfast import open_holdfast
from holdfast.store.environment import Environment, SystemClock
from tests.chaos import programs  # noqa: F401 - registers them

LEASE_MS = 3_000


async def work(n: int) -> int:
    await asyncio.sleep(0.05)
    return n


async def serve(url: str, clock: Path) -> None:
    wrong_by = 0
    environment = Environment(clock=SystemClock(lambda: time.time_ns() + wrong_by * 1_000_000))
    async with open_holdfast(url, lease_ms=LEASE_MS, environment=environment) as hf:
        hf.drive("work", work, recovery="safe")
        print("ready", flush=True)
        while True:
            wrong_by = int(clock.read_text() or 0) if clock.exists() else 0
            await asyncio.sleep(0.1)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(serve(sys.argv[1], Path(sys.argv[2])))
