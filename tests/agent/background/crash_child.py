"""The process of the crash tests of background work: spawns, emits and schedules under fixed ids, until all is over.

The schedule is handed over before it fires, and a strategy spends something on behalf of the session.
"""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

from holdfast import Runtime, ToolContext, strategy, tool
from holdfast.agent.processes.processes import strategy as strategy_work
from holdfast.agent.processes.processes import tool_call
from holdfast.agent.triggers import machine
from holdfast.agent.triggers.terms import EventSource
from holdfast.agent.triggers.triggers import Triggers
from holdfast.core.errors import InvalidValueError
from holdfast.core.queries import Usage
from holdfast.programs.native.ctx import Context
from holdfast.store import open_store
from holdfast.testing.crash.seams import SeamObserver
from holdfast.testing.patience import HANG_S, until
from holdfast.testing.provider import ScriptedProvider, reply
from tests.agent.background.jobs import Job

AHEAD_S = 0.3
"""Seconds until the schedule is due, when it is registered."""


FEW_RECORDS = 5
"""Records after which the schedule is handed over: it has looked at the clock once by then."""

USED = Usage(prompt_tokens=10, completion_tokens=5)


@strategy
async def thinks(ctx: Context) -> str:
    return str(await ctx.llm("think"))


def background_job(job: Job) -> None:
    machine.MAX_RECORDS = FEW_RECORDS
    job.run(_work)


async def _work(job: Job) -> None:
    @tool
    def note(ctx: ToolContext, what: str) -> str:
        """Note that something was done."""
        with job.ledger.open("a") as file:
            file.write(json.dumps({"what": what, "key": ctx.key}) + "\n")
        return what

    seams = SeamObserver(job.trace, job.deadly)
    seams.step = job.scenario
    store = seams.guard(open_store(job.url))
    model = ScriptedProvider([reply("hm", usage=USED)], loop=True)
    runtime = Runtime(store, provider=model, model="m", tools=[note], seam=seams)
    async with asyncio.timeout(HANG_S), runtime:
        session = await runtime.session("chat").open()
        await runtime.triggers.declare("order")
        await runtime.triggers.register("bill", EventSource(type="order"), tool_call("note", {"what": "$key"}))
        spawned = tool_call("note", {"what": "spawned"})
        await session.processes().start(spawned, recovery="rerunnable", wake=True, id="p-spawned")
        await session.processes().start(strategy_work(thinks), recovery="rerunnable", id="p-thinks")
        receipt = await runtime.triggers.emit("order", "emitted", idempotency_key="k")
        await _schedule(runtime.triggers, job.directory / "at")
        for process in ("p-spawned", "p-thinks", receipt.occurrence, *receipt.processes.values()):
            await runtime.processes.wait(process)

        async def has_fired() -> bool:
            return any(run.status == "completed" for run in await runtime.triggers.history("clock"))

        await until(has_fired)


async def _schedule(triggers: Triggers, kept: Path) -> None:
    """Schedule one run. The time is the same in every process that tries, unless it passed before it was recorded."""
    while True:
        at = float(kept.read_text()) if kept.exists() else time.time() + AHEAD_S
        kept.write_text(str(at))
        try:
            await triggers.schedule("clock", tool_call("note", {"what": "fired"}), at=at)
            return
        except InvalidValueError:
            kept.unlink()
