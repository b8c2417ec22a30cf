"""What the tests of tools share: calls as a model makes them, with what was answered and what was told meanwhile."""

from __future__ import annotations

from typing import Any, TypeVar

from holdfast.agent.live_events import LiveEvent, ToolFinishedEvent, ToolOutputEvent
from holdfast.agent.machine.conversation import tool_done
from holdfast.agent.machine.turn import ToolCallOutcome
from holdfast.agent.tools import Tool
from holdfast.agent.tools.runner import ModelCall, ToolRunner
from holdfast.core.queries import Failure, Value
from holdfast.engine.drivers import Attempt
from holdfast.testing.patience import soon

T = TypeVar("T")


class Model:
    """Calls tools as a turn does: under an id of its own, while somebody listens."""

    def __init__(self, *, allowed: list[str] | None = None) -> None:
        self.events: list[LiveEvent] = []
        self.runner = ToolRunner(about=self._about, emit=self._emit)
        self._allowed = allowed
        self._calls = 0

    async def answer(self, tool: Tool, **arguments: Any) -> Any:
        """The answer to the query, as the engine gets it."""
        self._calls += 1
        return await soon(self.runner.effect(tool)(attempt=Attempt("s-1", f"q-{self._calls}", 1), **arguments))

    async def call(self, tool: Tool, **arguments: Any) -> ToolCallOutcome:
        """What the turn learns of the call."""
        answer = await self.answer(tool, **arguments)
        return tool_done(answer if isinstance(answer, Failure) else Value(value=answer))

    async def error(self, tool: Tool, **arguments: Any) -> dict[str, Any]:
        """What the model is told of a call that failed."""
        done = await self.call(tool, **arguments)
        assert done.is_error, done
        assert isinstance(done.content, dict)
        return done.content

    @property
    def heard(self) -> str:
        """What tools have said so far."""
        return "".join(event.text for event in self.events if isinstance(event, ToolOutputEvent))

    @property
    def ended(self) -> list[ToolFinishedEvent]:
        return [event for event in self.events if isinstance(event, ToolFinishedEvent)]

    async def _about(self, attempt: Attempt) -> ModelCall:
        return ModelCall(turn="t-1", call_id=f"call-{attempt.query_id}", allowed=self._allowed)

    async def _emit(self, session_id: str, event: LiveEvent) -> None:
        assert session_id == "s-1"
        self.events.append(event)
