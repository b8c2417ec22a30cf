"""A process that starts work under each contract, says so, and stays until it is killed."""

from __future__ import annotations

import asyncio
from pathlib import Path

from holdfast import Runtime, strategy, tool
from holdfast.agent.processes.processes import strategy as strategy_work
from holdfast.agent.processes.processes import tool_call
from holdfast.programs.native.ctx import Context
from holdfast.testing.patience import until
from holdfast.testing.provider import ScriptedProvider


@strategy
async def asks(ctx: Context) -> str:
    return f"they said {await ctx.ask('go on?')}"


def runtime_on(url: str, directory: Path) -> Runtime:
    """A runtime whose tool leaves a line, and stays at work as long as the file `hold` is there."""

    @tool
    async def stay(name: str) -> str:
        """Stay."""
        with (directory / name).open("a") as file:
            file.write("x\n")
        while (directory / "hold").exists():  # noqa: ASYNC110 - another process removes it
            await asyncio.sleep(0.01)
        return name

    return Runtime(url, provider=ScriptedProvider([]), model="m", tools=[stay])


def bound_job(url: str, directory: Path) -> None:
    asyncio.run(_work(url, directory))


async def _work(url: str, directory: Path) -> None:
    async with runtime_on(url, directory) as runtime:
        processes = runtime.processes
        for contract in ("rerunnable", "owner_bound"):
            recovery = contract
            await processes.start(tool_call("stay", {"name": contract}), recovery=recovery, id=f"p-tool-{contract}")  # type: ignore[arg-type]
            await processes.start(strategy_work(asks), recovery=recovery, id=f"p-run-{contract}")  # type: ignore[arg-type]

        async def are_at_work() -> bool:
            waiting = [each for each in await processes.list() if each.status == "waiting"]
            return len(waiting) == 2 and (directory / "rerunnable").exists() and (directory / "owner_bound").exists()

        await until(are_at_work)
        (directory / "ready").touch()
        await asyncio.Event().wait()
