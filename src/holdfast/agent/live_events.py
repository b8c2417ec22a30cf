"""Live events: what happens inside a turn, while it happens. They are not kept; the journal keeps the results."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import TypeAlias

import msgspec

from holdfast.agent.machine.queries import InputQuery
from holdfast.agent.machine.turn import TurnOutcome
from holdfast.core.queries import Query, Usage
from holdfast.core.records import Entry, PausedRecord
from holdfast.core.replay import ENDS
from holdfast.core.values import Json
from holdfast.store.contract import Store
from holdfast.store.limits import LIVE_BYTES


class _Live(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    turn: str
    id: int = 0
    """Unique within one stream of events."""


class ModelStartedEvent(_Live, frozen=True, tag="model_started"):
    """A model is called."""

    iteration: int
    model: str


class CompactionStartedEvent(_Live, frozen=True, tag="summing_up"):
    """A model is asked to summarize the conversation, to make room."""

    model: str


class CompactionFinishedEvent(_Live, frozen=True, tag="summed_up"):
    """The summary is there, or the attempt failed."""

    summary: str = ""
    error: str = ""


class TextDeltaEvent(_Live, frozen=True, tag="text"):
    """A piece of the model's answer."""

    text: str
    attempt: int = 1


class ReasoningDeltaEvent(_Live, frozen=True, tag="reasoning"):
    """A piece of the model's reasoning."""

    text: str
    attempt: int = 1


class RetractedEvent(_Live, frozen=True, tag="retracted"):
    """An attempt failed: discard all its deltas."""

    attempt: int


class RetryEvent(_Live, frozen=True, tag="retrying"):
    """An attempt failed, and the next one follows after a wait."""

    attempt: int
    why: str
    delay_s: float


class ToolStartedEvent(_Live, frozen=True, tag="tool_started"):
    """A tool call has started."""

    call: str
    name: str
    arguments: Json


class ToolOutputEvent(_Live, frozen=True, tag="tool_output"):
    """A piece of the output of a running tool."""

    call: str
    text: str


class ToolFinishedEvent(_Live, frozen=True, tag="tool_finished"):
    """A tool call has a result."""

    call: str
    name: str
    result: Json
    is_error: bool = False


class CellStartedEvent(_Live, frozen=True, tag="cell_started"):
    """A cell that the model has written is run. After a crash it may be said again of the same cell."""

    cell: int
    """Its number in the turn, from 1."""
    code: str


class CellPrintedEvent(_Live, frozen=True, tag="cell_printed"):
    """What a cell has printed since it was last said: whenever it waits, and at its end."""

    cell: int
    text: str


class CellFinishedEvent(_Live, frozen=True, tag="cell_finished"):
    """A cell has ended."""

    cell: int
    told: str
    """What the model is told: output, errors, and what became of variables."""


class UsageEvent(_Live, frozen=True, tag="usage"):
    """The usage of a model call."""

    model: str
    usage: Usage


class WaitingEvent(_Live, frozen=True, tag="waiting"):
    """The turn waits for answers from outside."""

    queries: list[Query]


class PluginFailedEvent(_Live, frozen=True, tag="plugin_failed"):
    """A hook of a plugin failed. The turn continues without it, or the call that it had to judge is denied."""

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
    | CellStartedEvent
    | CellPrintedEvent
    | CellFinishedEvent
    | UsageEvent
    | WaitingEvent
    | PluginFailedEvent
    | TurnFinishedEvent
)

Sink: TypeAlias = Callable[[LiveEvent], Awaitable[None]]
"""Takes events. It is awaited: a slow sink slows the turn down, and loses nothing."""


class CatchUpEvent(_Live, frozen=True, tag="so_far"):
    """Everything said so far in the present reply, for watchers who missed its beginning."""

    iteration: int = 0
    model: str = ""
    attempt: int = 1
    text: str = ""
    reasoning: str = ""
    outputs: dict[str, str] = {}
    """The output of running tools, by call; only the latest part if it is long."""


class PublishedEvent(msgspec.Struct, frozen=True, array_like=True):
    """An event as a process publishes it to the watchers of a session."""

    call: str
    """Identifies the model call that a delta belongs to: two processes may believe that they own a session."""
    event: LiveEvent | CatchUpEvent


published_decoder = msgspec.msgpack.Decoder(PublishedEvent)

DRAFT_CHARS = 1024 * 1024
"""Characters of one reply that are kept until it is settled: far more than models write at once."""

OUTPUT_CHARS = 64 * 1024
"""Characters kept of the output of a running tool, the latest ones."""

REMIND_S = 1.0
"""Seconds between two `CatchUpEvent`s while a model speaks: a watcher in another process waits no longer for the
beginning of a reply. While nothing is said, each of these times is twice the former one."""

MOST_REMIND_S = 30.0
"""The longest of those times."""

REMIND_CHARS = 12 * 1024
"""Characters of a reply up to which they are sent: for a longer one they would be most of the traffic."""


MAX_DRAFTS = 1_000
"""Sessions whose present reply is kept: more than have a running turn. A session that another process has taken over
may stay among them."""

_JOURNALLED = frozenset({ToolStartedEvent, ToolFinishedEvent, UsageEvent, WaitingEvent, TurnFinishedEvent})
"""Events that watchers learn from the journal instead."""


class _LiveDraft:
    """The reply and the tool output that this process is producing in a session now."""

    def __init__(self, started: ModelStartedEvent, call: str, outputs: dict[str, str]) -> None:
        self.call = call
        self.started = started
        self.attempt = 1
        self.pieces: list[tuple[bool, str]] = []
        """Each with whether it is reasoning."""
        self.chars = 0
        self.outputs = outputs
        self.is_growing = False
        """Whether anything was published since late watchers were reminded of all of it last."""
        self.rest_s = REMIND_S
        """Seconds until they are reminded again if nothing more is said."""
        self.remind_at = 0.0
        """When that is."""

    def take(self, event: LiveEvent) -> None:
        if type(event) is TextDeltaEvent or type(event) is ReasoningDeltaEvent:
            self.attempt = event.attempt
            self.chars += len(event.text)
            if self.chars <= DRAFT_CHARS:
                self.pieces.append((type(event) is ReasoningDeltaEvent, event.text))
        elif type(event) is RetractedEvent:
            self.pieces, self.chars = [], 0
        elif type(event) is ToolOutputEvent:
            self.outputs[event.call] = (self.outputs.get(event.call, "") + event.text)[-OUTPUT_CHARS:]
        elif type(event) is ToolFinishedEvent:
            self.outputs.pop(event.call, None)

    @property
    def size(self) -> int:
        """Its characters, with those of tools."""
        return self.chars + sum(map(len, self.outputs.values()))

    @property
    def catch_up(self) -> CatchUpEvent | None:
        """All of it as one event, or None if there is nothing, or too much."""
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
    """Brings the events of this process to the listeners of a session.

    There are two kinds of listeners. Sinks belong to the caller of a turn, and are awaited. Watchers receive what is
    published through the store; nobody waits for them, and the present reply is kept for those who join late.
    """

    def __init__(self, store: Store) -> None:
        self._sinks: dict[str, list[Sink]] = {}
        self._publish, self._may_be_heard = store.publish, store.may_be_heard
        self._drafts: dict[str, _LiveDraft] = {}
        self._reminding: asyncio.TimerHandle | None = None
        self._process = secrets.token_hex(4)
        self._calls = count()

    def is_own(self, call: str) -> bool:
        """Whether a model call, as it is published, is one of this process."""
        return call.startswith(f"{self._process}-")

    def listen(self, session_id: str, sink: Sink) -> Callable[[], None]:
        """Pass the events of a session to a sink from now on. Call the returned function to stop."""
        sinks = self._sinks.setdefault(session_id, [])
        sinks.append(sink)

        def stop() -> None:
            if sink in sinks:
                sinks.remove(sink)
            if not sinks and self._sinks.get(session_id) is sinks:
                del self._sinks[session_id]

        return stop

    async def emit(self, session_id: str, event: LiveEvent) -> None:
        """Publish an event to watchers, pass it to all sinks, and wait until those have taken it."""
        taking = self.take(session_id, event)
        if taking is not None:
            await taking

    def take(self, session_id: str, event: LiveEvent) -> Awaitable[None] | None:
        """Draft an event, publish it to watchers, and give back what passes it to all sinks; None if there is none."""
        draft, sinks = self._drafts.get(session_id), self._sinks.get(session_id)
        if draft is None or type(event) is ModelStartedEvent:
            draft = self._begin(session_id, event, draft)
        if type(event) is not ModelStartedEvent and type(event) is not UsageEvent:  # of which nothing is drafted
            draft.take(event)
        if type(event) not in _JOURNALLED and self._may_be_heard(session_id):
            self._publish_event(session_id, event, draft)
        return _pass_on(event, list(sinks)) if sinks else None

    def _begin(self, session_id: str, event: LiveEvent, former: _LiveDraft | None) -> _LiveDraft:
        """A new draft. The tools whose output is in the former one may still be running."""
        no_model = ModelStartedEvent(turn=event.turn, iteration=0, model="")
        started = event if isinstance(event, ModelStartedEvent) else no_model
        outputs = former.outputs if former is not None else {}
        draft = _LiveDraft(started, f"{self._process}-{next(self._calls)}", outputs)
        self._drafts[session_id] = draft
        while len(self._drafts) > MAX_DRAFTS:
            del self._drafts[next(iter(self._drafts))]
        if self._reminding is None:
            self._reminding = asyncio.get_running_loop().call_later(REMIND_S, self._remind_all)
        return draft

    def _publish_event(self, session_id: str, event: LiveEvent, draft: _LiveDraft) -> None:
        self._publish(session_id, msgspec.msgpack.encode(PublishedEvent(draft.call, event)))
        draft.is_growing = True

    def _remind_all(self) -> None:
        """Remind late watchers of the drafts that are not over, nor too long: of those that do not grow, more seldom.

        One timer serves all drafts, as most are over before it comes.
        """
        loop = asyncio.get_running_loop()
        now = loop.time()
        for session_id, draft in self._drafts.items():
            if draft.size > REMIND_CHARS or not self._may_be_heard(session_id):
                draft.rest_s, draft.remind_at = REMIND_S, 0.0
            elif draft.is_growing or now >= draft.remind_at:
                self.remind(session_id)
                draft.rest_s = REMIND_S if draft.is_growing else min(2 * draft.rest_s, MOST_REMIND_S)
                draft.remind_at, draft.is_growing = now + draft.rest_s, False
        self._reminding = loop.call_later(REMIND_S, self._remind_all) if self._drafts else None

    def remind(self, session_id: str) -> bool:
        """Publish a `CatchUpEvent`. Returns False if there is nothing to say, or too much for one message."""
        draft = self._drafts.get(session_id)
        catch_up = draft.catch_up if draft is not None else None
        if draft is None or catch_up is None:
            return False
        payload = msgspec.msgpack.encode(PublishedEvent(draft.call, catch_up))
        if len(payload) > LIVE_BYTES:
            return False
        self._publish(session_id, payload)
        return True

    def close(self) -> None:
        """Remind nobody from now on."""
        if self._reminding is not None:
            self._reminding.cancel()
        self._drafts, self._reminding = {}, None

    def committed(self, session_id: str, entries: Sequence[Entry]) -> None:
        """Forget the draft of a turn that entries, which this process has just made durable, have ended."""
        if session_id in self._drafts and any(map(ends_turn, reversed(entries))):
            del self._drafts[session_id]


async def _pass_on(event: LiveEvent, sinks: Sequence[Sink]) -> None:
    for sink in sinks:
        await sink(event)


_ENDS = frozenset(ENDS)


def ends_turn(entry: Entry) -> bool:
    """Whether an entry may end a turn: the session waits for the next input, or has ended."""
    record = entry.record
    if type(record) is not PausedRecord:
        return type(record) in _ENDS
    return bool(record.queries) and type(record.queries[0]) is InputQuery  # which is always asked alone
