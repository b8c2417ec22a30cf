"""A process of one service, or a bystander of both: `python -m tests.agent.services.child PART URL LEDGER`.

It says `ready` and works until it is stopped or killed. Every model call and every run of a tool is a line of the
ledger, written before anything else: who did what, for which session.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

from holdfast.agent.providers.provider import ModelRequest
from holdfast.agent.runtime import Runtime
from holdfast.agent.tools import Tool, ToolContext
from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import strategy
from holdfast.testing.provider import ScriptedProvider, ScriptStep, reply, tool_call

SERVICES = ("mail", "billing")

BYSTANDER = "bystander"
"""Serves both services, with a model of its own, and has neither the providers nor the tools of their sessions."""

LEASE_MS = 1_000
"""Short, so that sessions change hands often."""

MAX_DEATHS = 1_000
"""Processes are killed so often here that one call may meet many of them."""

DELAY_S = 0.02
"""Seconds that models and tools take, so that some are under way when their process dies."""


@strategy(name="services:asks")
async def asks(ctx: Context) -> Any:
    """Asks whoever its sessions are assigned to."""
    return [await ctx.llm("First?"), await ctx.llm("Second?")]


def tool_of(service: str) -> str:
    """The name of the tool that only one service has."""
    return f"{service}_stamp"


async def work(part: str, url: str, path: str) -> None:
    ledger = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(*words: str) -> None:
        os.write(ledger, (" ".join((part, *words)) + "\n").encode())

    def answer(request: ModelRequest) -> ScriptStep:
        last = request.messages[-1]
        note("model", last.text or "a result")
        if last.role == "user" and last.text.startswith("stamp"):
            return reply(tool_call(tool_of(part), item=last.text), delay_s=DELAY_S)
        return reply(f"{part} says so", delay_s=DELAY_S)

    async def stamp(ctx: ToolContext, item: str) -> str:
        """Stamp an item, once and no more."""
        note("stamp", item)
        await asyncio.sleep(DELAY_S)
        return "stamped"

    tools = [] if part == BYSTANDER else [Tool.of(stamp, name=tool_of(part), recovery="never")]
    runtime = Runtime(
        url,
        service=SERVICES if part == BYSTANDER else part,
        provider=ScriptedProvider([answer], loop=True, id=part),
        model="m",
        tools=tools,
        lease_ms=LEASE_MS,
        max_deaths=MAX_DEATHS,
    )
    async with runtime:
        working = runtime.work()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, working.stop)
        print("ready", flush=True)
        await working.run()


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:]))
