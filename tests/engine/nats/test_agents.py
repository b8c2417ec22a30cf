"""Agents of a fleet on NATS: their turns begin where their nudges are taken, and no worker looks for them."""

from __future__ import annotations

import asyncio

from holdfast.agent.providers.provider import ModelRequest
from holdfast.agent.runtime import Runtime
from holdfast.engine.upkeep import Upkeep
from holdfast.testing.patience import soon, until
from holdfast.testing.provider import ScriptedProvider, ScriptedReply, ScriptStep
from tests.engine.nats.fleet import Fleet


def echo(request: ModelRequest) -> ScriptStep:
    return ScriptedReply(parts=[f"You said {request.messages[-1].text}."])


async def test_turns_begin_where_nudges_are_taken(fleet: Fleet) -> None:
    working = Runtime(
        fleet.url, provider=ScriptedProvider([echo], loop=True), model="m", dispatch=f"{fleet.dispatch}&pull=1"
    )
    front = Runtime(
        fleet.url, provider=ScriptedProvider([]), model="m", dispatch=fleet.dispatch, upkeep=Upkeep(on=False)
    )
    async with working, working.work(turns=1) as worker, front:
        assert working.mount.holdfast.upkeep.dispatch.is_serving
        sessions = [await front.session(f"chat-{number}").open() for number in range(3)]
        for session in sessions:
            for item in range(2):
                await session.enqueue(f"word {item}").id(f"i-{item}")
        done = [session.wait_for(f"i-{item}") for session in sessions for item in range(2)]
        await soon(asyncio.gather(*done))
        assert worker.begun == 6
        await until(fleet.is_done)
