"""What the tests of RLM mode share: a session whose model writes these cells, and what it was told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from holdfast.agent.machine.fold import agent_fold
from holdfast.agent.machine.messages import TextBlock
from holdfast.agent.machine.records import BoundRecord
from holdfast.agent.providers.provider import ModelReply, ModelRequest, StreamItem
from holdfast.agent.results import TurnResult
from holdfast.agent.rlm.variables import VariableTable
from holdfast.agent.runtime import Runtime
from holdfast.agent.session import AgentSession
from holdfast.core.queries import Usage
from holdfast.store.contract import Store
from holdfast.testing.provider import ScriptedProvider


def cell(code: str, before: str = "") -> str:
    """A reply with a cell."""
    return f"{before}\n```python\n{code}\n```"


class CellModel:
    """A model that answers turns with these replies, and what cells ask with a function of the prompt."""

    id = "scripted"
    model = "m-1"

    def __init__(self, replies: Sequence[Any], answer: Callable[[str], str] = str.upper) -> None:
        self._script = ScriptedProvider(replies)
        self._answer = answer
        self.requests = self._script.requests
        self.asked: list[str] = []
        """The prompts of the cells."""

    def stream(self, request: ModelRequest) -> AsyncIterator[StreamItem]:
        return self._script.stream(request) if "# How you work" in request.system else self._answered(request)

    async def _answered(self, request: ModelRequest) -> AsyncIterator[StreamItem]:
        prompt = request.messages[0].text
        self.asked.append(prompt)
        used = Usage(prompt_tokens=len(prompt), completion_tokens=1)
        yield ModelReply(content=[TextBlock(self._answer(prompt))], usage=used)


class Rlm:
    """A session in RLM mode, on a store, whose model follows a script."""

    def __init__(self, runtime: Runtime, provider: CellModel, session: AgentSession) -> None:
        self.runtime = runtime
        self.provider = provider
        self.session = session

    @property
    def requests(self) -> list[ModelRequest]:
        return self.provider.requests

    async def turn(self, text: str = "Do it.", output: Any = None) -> TurnResult:
        turn = self.session.turn(text)
        return await (turn.output(output) if output is not None else turn).run()

    async def told(self) -> list[str]:
        """What the model was told after its cells, the oldest first."""
        conversation = await self.runtime.mount.conversations.get(self.session.session_id)
        return [message.text for message in conversation.messages if message.role == "signal"]

    async def bound(self) -> list[BoundRecord]:
        entries = await self.runtime.mount.store.entries(self.session.session_id)
        return [entry.record for entry in entries if isinstance(entry.record, BoundRecord)]

    async def table(self) -> VariableTable:
        from holdfast.engine.rebuild import fold

        entries = await self.runtime.mount.store.entries(self.session.session_id)
        tracker, _ = await fold(self.session.session_id, entries)
        return agent_fold(tracker.session).variables


@asynccontextmanager
async def rlm(
    *script: Any,
    store: str | Store = "memory:",
    answer: Callable[[str], str] = str.upper,
    tools: Any = (),
    bind: dict[str, Any] | None = None,
    build: Callable[[Any], Any] = lambda builder: builder,
    **options: Any,
) -> AsyncIterator[Rlm]:
    """A session whose model follows a script."""
    provider = CellModel(script, answer)
    async with Runtime(store, provider=provider, tools=tools, **options) as runtime:
        builder = build(runtime.session("s").rlm())
        for name, value in (bind or {}).items():
            builder = builder.bind(name, value)
        yield Rlm(runtime, provider, await builder.open())
