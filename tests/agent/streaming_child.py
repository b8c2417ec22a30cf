"""A process that works one turn of a session, slowly, so that others can follow it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from holdfast.agent.providers.provider import ModelRequest
from holdfast.agent.runtime import Runtime
from holdfast.store import open_store
from holdfast.testing.provider import ScriptedProvider, ScriptStep, reply, stream, tool_call
from tests.agent.helpers import USED, add

PIECES = [f"piece {number} " for number in range(12)]
SESSION, TURN, TEXT = "chat", "t-1", "go"


async def _work(url: str, go: str) -> None:
    async def play(request: ModelRequest) -> ScriptStep:
        if request.messages[-1].role == "tool":
            return reply(stream(*PIECES, every_s=0.25), usage=USED)
        while not Path(go).exists():  # noqa: ASYNC110 - it is made by another process
            await asyncio.sleep(0.01)
        return reply(tool_call("add", a=2, b=3), usage=USED)

    async with Runtime(
        open_store(url), provider=ScriptedProvider([play], loop=True), model="m-1", tools=[add]
    ) as runtime:
        await (await runtime.session(SESSION).open()).turn(TEXT).id(TURN).run()


def work(url: str, go: str) -> None:
    asyncio.run(_work(url, go))
