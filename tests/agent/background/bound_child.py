"""A process that starts work under each contract, says so, and stays until it is killed."""

from __future__ import annotations

import asyncio
from pathlib import Path

from holdfast import Approval, Runtime, strategy, tool
from holdfast.agent.processes.processes import strategy as strategy_work
from holdfast.agent.processes.processes import tool_call
from holdfast.agent.processes.terms import TurnWork
from holdfast.agent.providers.provider import ModelRequest
from holdfast.programs.native.ctx import Context
from holdfast.testing.patience import until
from holdfast.testing.provider import ScriptedProvider, ScriptStep
from holdfast.testing.provider import tool_call as tool_call_step


@strategy
async def asks(ctx: Context) -> str:
    return f"they said {await ctx.ask('go on?')}"


def runtime_on(url: str, directory: Path, provider: ScriptedProvider | None = None) -> Runtime:
    """A runtime whose tool leaves a line, and stays at work as long as the file `hold` is there."""

    @tool
    async def stay(name: str) -> str:
        """Stay."""
        with (directory / name).open("a") as file:
            file.write("x\n")
        while (directory / "hold").exists():  # noqa: ASYNC110 - another process removes it
            await asyncio.sleep(0.01)
        return name

    return Runtime(url, provider=provider or ScriptedProvider([]), model="m", tools=[stay])


def asking_runtime(url: str, directory: Path) -> Runtime:
    """A runtime whose model calls the tool, and says "done" once that is over."""

    def says(request: ModelRequest) -> ScriptStep:
        return "done" if request.messages[-1].role == "tool" else tool_call_step("stay", name="approved")

    return runtime_on(url, directory, ScriptedProvider([says], loop=True))


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


def turn_job(url: str, directory: Path, name: str) -> None:
    """Let a turn in the background begin, say that its wait has, and stay until it is killed."""
    asyncio.run(_wait_for_turn(url, directory, name))


async def _wait_for_turn(url: str, directory: Path, name: str) -> None:
    async with asking_runtime(url, directory) as runtime, runtime.work():
        await runtime.session("chat").approval(Approval(default="confirm")).open()
        await runtime.processes.start(TurnWork(input="x", session="chat"), recovery="rerunnable", id="p-turn")

        async def has_begun() -> bool:
            holdfast = runtime.mount.holdfast
            if not any(each.query.kind == "human" for each in (await holdfast.session("chat")).pending.values()):
                return False
            return any(each.attempts > int(name) for each in (await holdfast.session("p-turn")).pending.values())

        await until(has_begun)
        (directory / name).touch()
        await asyncio.Event().wait()
