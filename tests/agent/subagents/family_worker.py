"""The workers of the soak test of subagents: they work turns that delegate, until they are killed."""

from __future__ import annotations

import asyncio

from holdfast.agent.providers.provider import ModelRequest
from holdfast.agent.runtime import Runtime
from holdfast.store import open_store
from holdfast.testing.provider import ScriptedProvider, ScriptStep, reply, tool_call
from tests.agent.subagents.helpers import CHILD_USED, PARENT_USED, agent, results

LEASE_MS = 1_000

MAX_DEATHS = 1_000
"""Here processes die by themselves, and not because of what they do: no call is to be given up for it."""


def play(request: ModelRequest) -> ScriptStep:
    """The parent is told how many subagents to ask; each of those says its number."""
    if request.system == "leaf":
        return reply(request.messages[0].text, usage=CHILD_USED, delay_s=0.05)
    if got := results(request):
        return reply(",".join(map(str, got)), usage=PARENT_USED)
    count = int(request.messages[-1].text)
    return reply(*(tool_call("delegate", agent="leaf", task=str(n)) for n in range(count)), usage=PARENT_USED)


def runtime(url: str) -> Runtime:
    model = ScriptedProvider([play], loop=True)
    agents = [agent("leaf", model="m-leaf")]
    store = open_store(url)
    return Runtime(store, provider=model, model="m-1", agents=agents, lease_ms=LEASE_MS, max_deaths=MAX_DEATHS)


async def _work(url: str) -> None:
    async with runtime(url) as made:
        await made.work().run()


def work(url: str) -> None:
    asyncio.run(_work(url))
