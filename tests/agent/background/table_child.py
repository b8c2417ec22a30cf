"""The processes of the crash table of background work: each does one thing under fixed ids, until that is over."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

from holdfast import Runtime, ToolContext, tool
from holdfast.agent.processes.processes import tool_call
from holdfast.agent.processes.terms import OutsideWork, RecoveryContract
from holdfast.agent.triggers.terms import EventSource, IntervalSource
from holdfast.store import open_store
from holdfast.testing.crash.seams import SeamObserver
from holdfast.testing.patience import HANG_S, until
from holdfast.testing.provider import ScriptedProvider
from tests.agent.background.jobs import Job

AHEAD_MS = 300
"""Milliseconds until the schedule is due, when it is registered; after that it is due in an hour."""

HOUR_MS = 3_600_000

PROCESS = "p-spawned"
SESSION = "chat"


def table_job(job: Job) -> None:
    job.run(_work)


async def _work(job: Job) -> None:
    @tool
    def note(ctx: ToolContext) -> str:
        """Note that something was done."""
        with job.ledger.open("a") as file:
            file.write(json.dumps(ctx.key) + "\n")
        return "done"

    seams = SeamObserver(job.trace, job.deadly)
    store = seams.guard(open_store(job.url))
    runtime = Runtime(store, provider=ScriptedProvider([]), model="m", tools=[note], seam=seams)
    async with asyncio.timeout(HANG_S), runtime:
        seams.step = "before"
        if job.scenario in ("wake", "spawn_rerunnable", "spawn_owner_bound"):
            await runtime.session(SESSION).open()
        else:
            await runtime.triggers.declare("order")
        if job.scenario == "emit":
            source = EventSource(type="order")
            await runtime.triggers.register("bill", source, OutsideWork(), recovery="external")
        seams.step = job.scenario
        await SCENARIOS[job.scenario](runtime, job)


async def _spawn(runtime: Runtime, contract: RecoveryContract, wake: str | None = None) -> None:
    work = tool_call("note")
    await runtime.processes.start(work, recovery=contract, owner=SESSION, wake=wake, id=PROCESS)
    await runtime.processes.wait(PROCESS)


async def spawn_rerunnable(runtime: Runtime, job: Job) -> None:
    await _spawn(runtime, "rerunnable")


async def spawn_owner_bound(runtime: Runtime, job: Job) -> None:
    await _spawn(runtime, "owner_bound")


async def wake(runtime: Runtime, job: Job) -> None:
    await _spawn(runtime, "rerunnable", SESSION)


async def emit(runtime: Runtime, job: Job) -> None:
    receipt = await runtime.triggers.emit("order", "o-1", idempotency_key="k")
    await runtime.processes.wait(receipt.occurrence)


async def fire(runtime: Runtime, job: Job) -> None:
    source = IntervalSource(every_ms=HOUR_MS, since=runtime.mount.holdfast.now() - HOUR_MS + AHEAD_MS)
    await runtime.triggers.register("clock", source, OutsideWork(), recovery="external")  # once: later it is the same

    async def has_fired() -> bool:
        return (await runtime.triggers.show("clock")).last is not None

    await until(has_fired)


SCENARIOS: dict[str, Callable[[Runtime, Job], Awaitable[None]]] = {
    "spawn_rerunnable": spawn_rerunnable,
    "spawn_owner_bound": spawn_owner_bound,
    "wake": wake,
    "emit": emit,
    "fire": fire,
}
