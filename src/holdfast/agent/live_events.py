"""Live events: what happens inside a turn while it happens. They are not kept; the journal tells what came of it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import msgspec

from holdfast.agent.machine.queries import InputQuery
from holdfast.agent.machine.turn import TurnOutcome
from holdfast.core.queries import Query, Usage
from holdfast.core.records import Entry, PausedRecord
from holdfast.core.replay import ENDS
from holdfast.core.values import Json
from holdfast.store.limits import LIVE_BYTES


class _Live(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    turn: str
    id: int = 0
    """Counted in each stream: no two events of it have the same."""


class ModelStartedEvent(_Live, frozen=True, tag="model_started"):
    """A model is asked."""

    iteration: int
    model: str


class CompactionStartedEvent(_Live, frozen=True, tag="summing_up"):
    """A model is asked to sum up what was said before, to make room."""

    model: str


class CompactionFinishedEvent(_Live, frozen=True, tag="summed_up"):
    """It has done so; or it has not, and why."""

    summary: str = ""
    error: str = ""


class TextDeltaEvent(_Live, frozen=True, tag="text"):
    """A piece of what the model says."""

    text: str
    attempt: int = 1


class ReasoningDeltaEvent(_Live, frozen=True, tag="reasoning"):
    """A piece of what it thinks aloud."""

    text: str
    attempt: int = 1


class RetractedEvent(_Live, frozen=True, tag="retracted"):
    """An attempt failed: all that it has said is to be taken back."""

    attempt: int


class RetryEvent(_Live, frozen=True, tag="retrying"):
    """An attempt failed, and another one is made after a wait."""

    attempt: int
    why: str
    delay_s: float


class ToolStartedEvent(_Live, frozen=True, tag="tool_started"):
    """A tool runs."""

    call: str
    name: str
    arguments: Json


class ToolOutputEvent(_Live, frozen=True, tag="tool_output"):
    """A piece of what a tool says while it runs."""

    call: str
    text: str


class ToolFinishedEvent(_Live, frozen=True, tag="tool_finished"):
    """A tool has come to something."""

    call: str
    name: str
    result: Json
    is_error: bool = False


class UsageEvent(_Live, frozen=True, tag="usage"):
    """What a call of a model cost."""

    model: str
    usage: Usage


class WaitingEvent(_Live, frozen=True, tag="waiting"):
    """The turn waits for answers that nothing here gives."""

    queries: list[Query]


class PluginFailedEvent(_Live, frozen=True, tag="plugin_failed"):
    """A hook of a plugin has failed. The turn goes on without it, or the call that it was to judge is denied."""

    plugin: str
    hook: str
    error: str


class TurnFinishedEvent(_Live, frozen=True, tag="finished"):
    """The turn is over, and durable."""

    outcome: TurnOutcome


LiveEvent: TypeAlias = (
    ModelStartedEvent
    | CompactionStartedEvent
    | CompactionFinishedEvent
    | TextDeltaEvent
    | ReasoningDeltaEvent
    | RetractedEvent
    | RetryEvent
    | ToolStartedEvent
    | ToolOutputEvent
    | ToolFinishedEvent
    | UsageEvent
    | WaitingEvent
    | PluginFailedEvent
    | TurnFinishedEvent
)

Sink: TypeAlias = Callable[[LiveEvent], Awaitable[None]]
"""Takes events. It is awaited: a sink that takes its time slows the turn down, and loses nothing."""


class CatchUpEvent(_Live, frozen=True, tag="so_far"):
    """All that is said at the moment, for whoever has not heard how it began."""

    iteration: int = 0
    model: str = ""
    attempt: int = 1
    text: str = ""
    reasoning: str = ""
    outputs: dict[str, str] = {}
    """What tools have said that run now, by call; of much, the latest."""


class PublishedEvent(msgspec.Struct, frozen=True, array_like=True):
    """What a process tells the watchers of a session."""

    call: str
    """The call of a model that its pieces are of: two processes may think that they own a session."""
    event: LiveEvent | CatchUpEvent


published_decoder = msgspec.msgpack.Decoder(PublishedEvent)

DRAFT_CHARS = 1024 * 1024
"""Characters of one reply that are kept until it is settled: far above what models say at once."""

OUTPUT_CHARS = 64 * 1024
"""Characters of what a running tool says that are kept; of more, the latest."""

REMIND_S = 1.0
"""Seconds after which all that was said so far is told again: so late does a watcher in another process come in."""

REMIND_CHARS = 12 * 1024
"""Characters up to which it is told again by itself: a longer text would be most of what is sent."""


MOST_SAYING = 1_000
"""Sessions of which that is kept: more than have a turn under way. Nobody says so when another process took one."""

_JOURNALLED = (ToolStartedEvent, ToolFinishedEvent, UsageEvent, WaitingEvent, TurnFinishedEvent)
"""What watchers are told by the journal."""


class _Saying:
    """What is said in a session at the moment, by this process."""

    def __init__(self, turn: str) -> None:
        self.call = secrets.token_hex(4)
        self.started = ModelStartedEvent(turn=turn, iteration=0, model="")
        self.attempt = 1
        self.pieces: list[tuple[bool, str]] = []
        """Whether it is reasoning, and the text."""
        self.chars = 0
        self.outputs: dict[str, str] = {}
        self.reminded = time.monotonic()

    def take(self, event: LiveEvent) -> None:
        match event:
            case ModelStartedEvent():
                self.call, self.started, self.attempt = secrets.token_hex(4), event, 1
                self.pieces, self.chars, self.reminded = [], 0, time.monotonic()
            case TextDeltaEvent(text=text) | ReasoningDeltaEvent(text=text):
                self.attempt = event.attempt
                self.chars += len(text)
                if self.chars <= DRAFT_CHARS:
                    self.pieces.append((isinstance(event, ReasoningDeltaEvent), text))
            case RetractedEvent():
                self.pieces, self.chars = [], 0
            case ToolOutputEvent(call=call, text=text):
                self.outputs[call] = (self.outputs.get(call, "") + text)[-OUTPUT_CHARS:]
            case ToolFinishedEvent(call=call):
                self.outputs.pop(call, None)
            case _:
                pass

    @property
    def so_far(self) -> CatchUpEvent | None:
        """All of it; None if it is nothing, or too much."""
        if self.chars > DRAFT_CHARS or not (self.started.iteration or self.outputs):
            return None
        return CatchUpEvent(
            turn=self.started.turn,
            iteration=self.started.iteration,
            model=self.started.model,
            attempt=self.attempt,
            text="".join(text for is_reasoning, text in self.pieces if not is_reasoning),
            reasoning="".join(text for is_reasoning, text in self.pieces if is_reasoning),
            outputs=dict(self.outputs),
        )


class LiveEvents:
    """Brings the events of this process to whoever listens to the session.

    There are two kinds of them. Sinks are those of a turn's own caller: they are awaited. Watchers hear what is
    published through the store; nobody waits for them, and what is said at the moment is kept for those who come late.
    """

    def __init__(self, publish: Callable[[str, bytes], None]) -> None:
        self._sinks: dict[str, list[Sink]] = {}
        self._publish = publish
        self._saying: dict[str, _Saying] = {}

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
        """Tell watchers, give an event to all sinks, and wait until those have taken it."""
        self._tell(session_id, event)
        for sink in list(self._sinks.get(session_id, ())):
            await sink(event)

    def _tell(self, session_id: str, event: LiveEvent) -> None:
        saying = self._saying.get(session_id)
        if saying is None:
            saying = self._saying[session_id] = _Saying(event.turn)
            while len(self._saying) > MOST_SAYING:
                del self._saying[next(iter(self._saying))]
        saying.take(event)
        if isinstance(event, _JOURNALLED):
            return
        self._publish(session_id, msgspec.msgpack.encode(PublishedEvent(saying.call, event)))
        if time.monotonic() - saying.reminded > REMIND_S:
            saying.reminded = time.monotonic()
            if saying.chars + sum(map(len, saying.outputs.values())) <= REMIND_CHARS:
                self.remind(session_id)

    def remind(self, session_id: str) -> bool:
        """Tell watchers all that is said at the moment. False if it is nothing, or too much for one message."""
        saying = self._saying.get(session_id)
        so_far = saying.so_far if saying is not None else None
        if saying is None or so_far is None:
            return False
        payload = msgspec.msgpack.encode(PublishedEvent(saying.call, so_far))
        if len(payload) > LIVE_BYTES:
            return False
        self._publish(session_id, payload)
        return True

    def committed(self, session_id: str, entries: Sequence[Entry]) -> None:
        """Entries that have just become durable, by this process: a turn that is over says nothing more."""
        if session_id in self._saying and any(ends_turn(entry) for entry in entries):
            del self._saying[session_id]


def ends_turn(entry: Entry) -> bool:
    """Whether a turn may be over with an entry: the session waits for the next, or has ended."""
    record = entry.record
    if isinstance(record, PausedRecord):
        return any(isinstance(query, InputQuery) for query in record.queries)
    return isinstance(record, ENDS)
