"""A worker of a fleet: `python -m tests.fleet.child URL LEDGER OPTIONS [NETWORK_NAMESPACE]`.

It serves sessions until its input ends. Its tools write to the ledger when they begin, are told to stop, and have
ended: see `ledger`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import holdfast
from holdfast import Attempt, Context, QueryFailedError
from tests.fleet.network import inside

SAFE, ONCE = "fleet-safe", "fleet-once"
"""A tool that may be run again, and one that must not."""


@holdfast.strategy(name="fleet-effects")
async def effects(ctx: Context) -> Any:
    """Calls one tool several times; the outcome of each call: who did it, or why nobody knows."""
    outcomes: list[Any] = []
    for ms in ctx.get("ms", []):
        try:
            outcomes.append(await ctx.tool(ctx.get("tool", SAFE), ms=ms))
        except QueryFailedError as error:
            outcomes.append(error.code)
    return outcomes


class Tools:
    """What a worker drives."""

    def __init__(self, ledger: Path) -> None:
        self._ledger = os.open(ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def work(self, ms: int, attempt: Attempt) -> int:
        """Take a while; says which process did."""
        self._note("begun", attempt)
        try:
            await asyncio.sleep(ms / 1000)
        except asyncio.CancelledError:
            self._note("stopped", attempt)
            raise
        self._note("done", attempt)
        return os.getpid()

    def _note(self, what: str, attempt: Attempt) -> None:
        line = f"{time.monotonic()} {what} {attempt.session_id} {attempt.query_id} {attempt.number} {os.getpid()}\n"
        os.write(self._ledger, line.encode())


async def serve(url: str, ledger: Path, options: dict[str, Any]) -> None:
    tools = Tools(ledger)
    async with holdfast.open(url, **options) as hf:
        hf.drive(SAFE, tools.work, recovery="safe", concurrency=100)
        hf.drive(ONCE, tools.work, recovery="never", concurrency=100)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    with inside(sys.argv[4] if len(sys.argv) > 4 else None):
        asyncio.run(serve(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])))
