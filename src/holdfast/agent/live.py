"""Live events: what happens inside a turn while it happens. They are not kept; the journal tells what came of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from holdfast.core.queries import Query, Usage
from holdfast.core.turn import Outcome
from holdfast.core.values import Json


class _Live(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    turn: str
    id: int = 0
    """Counted in each stream: no two events of it have the same."""


class ModelStarted(_Live, frozen=True, tag="model_started"):
    """A model is asked."""

    iteration: int
    model: str


class TextDelta(_Live, frozen=True, tag="text"):
    """A piece of what the model says."""

    text: str
    attempt: int = 1


class ReasoningDelta(_Live, frozen=True, tag="reasoning"):
    """A piece of what it thinks aloud."""

    text: str
    attempt: int = 1


class Retracted(_Live, frozen=True, tag="retracted"):
    """An attempt failed: all that it has said is to be taken back."""

    attempt: int


class Retrying(_Live, frozen=True, tag="retrying"):
    """An attempt failed, and another one is made after a wait."""

    attempt: int
    why: str
    delay_s: float


class ToolStarted(_Live, frozen=True, tag="tool_started"):
    """A tool runs."""

    call: str
    name: str
    arguments: Json


class ToolOutput(_Live, frozen=True, tag="tool_output"):
    """A piece of what a tool says while it runs."""

    call: str
    text: str


class ToolFinished(_Live, frozen=True, tag="tool_finished"):
    """A tool has come to something."""

    call: str
    name: str
    result: Json
    is_error: bool = False


class UsageEvent(_Live, frozen=True, tag="usage"):
    """What a call of a model cost."""

    model: str
    usage: Usage


class Waiting(_Live, frozen=True, tag="waiting"):
    """The turn waits for answers that nothing here gives."""

    queries: list[Query]


class TurnFinished(_Live, frozen=True, tag="finished"):
    """The turn is over, and durable."""

    outcome: Outcome


LiveEvent: TypeAlias = (
    ModelStarted
    | TextDelta
    | ReasoningDelta
    | Retracted
    | Retrying
    | ToolStarted
    | ToolOutput
    | ToolFinished
    | UsageEvent
    | Waiting
    | TurnFinished
)

Sink: TypeAlias = Callable[[LiveEvent], Awaitable[None]]
"""Takes events. It is awaited: a sink that takes its time slows the turn down, and loses nothing."""


class Hub:
    """Brings the events of this process to whoever listens to the session."""

    def __init__(self) -> None:
        self._sinks: dict[str, list[Sink]] = {}

    def listen(self, session_id: str, sink: Sink) -> Callable[[], None]:
        """Give a sink the events of a session from now on; the result ends that."""
        sinks = self._sinks.setdefault(session_id, [])
        sinks.append(sink)

        def stop() -> None:
            if sink in sinks:
                sinks.remove(sink)
            if not sinks and self._sinks.get(session_id) is sinks:
                del self._sinks[session_id]

        return stop

    async def emit(self, session_id: str, event: LiveEvent) -> None:
        """Give an event to all sinks, and wait until they have taken it."""
        for sink in list(self._sinks.get(session_id, ())):
            await sink(event)
