"""A simulated model: what it replies follows from the request alone; when, and whether at all, from the faults."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TypeAlias

import msgspec

from holdfast.agent.machine.messages import TextBlock, ToolResultBlock
from holdfast.agent.providers.provider import ModelReply, ModelRequest, ProviderError, StreamItem, TextDelta
from holdfast.testing.simulation.world import SimulatedProcess

HANGS_S = 1_000.0
"""Seconds for which a model that hangs says nothing: for ever, as far as a run is concerned."""

Replies: TypeAlias = Callable[[ModelRequest], ModelReply]
"""What a model replies. It keeps nothing: the same request gets the same reply, from any process."""


class SimulatedModel:
    """A provider in one process. It streams its replies word by word, and may be busy, break, hang, break off in the
    middle, end without a reply, or repeat itself. What a call costs is another figure each time."""

    def __init__(self, process: SimulatedProcess, replies: Replies) -> None:
        self.id = "simulated"
        self._process = process
        self._replies = replies

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamItem]:
        """See `Provider.stream`."""
        world, random = self._process.world, self._process.random
        reply = self._replies(request)
        await asyncio.sleep(random.expovariate(1 / 0.1))
        fails = world.strikes(world.faults.provider_faults, self._process.name, "model fails", random)
        fault = random.choice(("busy", "broken", "cut", "no reply", "hang")) if fails else ""
        repeats = world.strikes(world.faults.repeats, self._process.name, "model repeats itself", random)
        if fault == "busy":
            raise ProviderError("the service is busy", fault="overloaded")
        if fault == "broken":
            raise RuntimeError("the client of the service is broken")
        if fault == "hang":
            await asyncio.sleep(HANGS_S)
        for block in reply.content:
            if isinstance(block, TextBlock):
                for word in block.text.split():
                    yield TextDelta(f"{word} ")
                    await asyncio.sleep(0.001)
        if fault == "cut":
            raise ProviderError("the stream broke off", fault="network")
        if fault == "no reply":
            return
        reply = msgspec.structs.replace(reply, usage=world.outside.report(request.key, random))
        for _ in range(2 if repeats else 1):
            yield reply
            yield TextDelta("and more")


def last_input(request: ModelRequest) -> tuple[int, str]:
    """The input that a model is to answer, and where it is among the messages."""
    index = max(
        index
        for index, message in enumerate(request.messages)
        if message.role == "user" and not any(isinstance(b, ToolResultBlock) for b in message.content)
    )
    return index, "".join(b.text for b in request.messages[index].content if isinstance(b, TextBlock))
