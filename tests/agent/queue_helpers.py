"""What the tests of queues and workers share: models that say the same again, at once or when they are let."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.agent.providers.provider import ModelRequest
from holdfast.agent.queue import ItemOutcome
from holdfast.agent.session import AgentSession
from holdfast.testing.provider import ScriptStep
from tests.agent.helpers import Home


def echo(request: ModelRequest) -> ScriptStep:
    """A model that says the same again."""
    return f"re: {request.messages[-1].text}"


def echoes(home: Home, **options: Any) -> Any:
    return home.runtime(*[echo] * 200, **options)


class Gate:
    """A model that waits to be let go on, and counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.open = asyncio.Event()

    async def __call__(self, request: ModelRequest) -> ScriptStep:
        self.asked += 1
        await self.open.wait()
        return echo(request)


async def inputs(session: AgentSession) -> list[list[str]]:
    """The items of each turn, in the order of the turns."""
    return [turn.items for turn in (await session.conversation(fresh=True)).turns.values()]


def text_of(outcome: ItemOutcome) -> str:
    assert outcome.result is not None, outcome
    return outcome.result.text
