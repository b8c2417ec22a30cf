"""A process that serves schedules with a tool, and stays until all of them have run."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

from holdfast import Runtime, ToolContext, tool
from holdfast.testing.patience import HANG_S, until
from holdfast.testing.provider import ScriptedProvider


def racing_runtime(url: str, directory: Path) -> Runtime:
    @tool
    def note(ctx: ToolContext) -> str:
        """Note that something was done, and by which process."""
        with (directory / "ledger").open("a") as file:
            file.write(json.dumps([ctx.key, os.getpid()]) + "\n")
        return "done"

    return Runtime(url, provider=ScriptedProvider([]), model="m", tools=[note])


async def _race(url: str, directory: Path, count: int) -> None:
    async with asyncio.timeout(HANG_S), racing_runtime(url, directory) as runtime:
        (directory / f"ready-{os.getpid()}").touch()

        async def all_have_run() -> bool:
            handles = await runtime.processes.list(every=True)
            return len(handles) >= count and all(handle.is_over for handle in handles)

        await until(all_have_run)


def race_job(url: str, directory: Path, count: int) -> None:
    asyncio.run(_race(url, directory, count))
