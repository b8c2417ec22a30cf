"""What the tests of observation share: watchers, what they have seen, and a model that waits."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

from holdfast.agent import live_events as live
from holdfast.agent.live_events import ModelStartedEvent, RetractedEvent, TextDeltaEvent
from holdfast.agent.machine.messages import TextBlock
from holdfast.agent.observed_events import (
    GapEvent,
    MessageEvent,
    ObservableEvent,
    ObservedEvent,
    RedrawEvent,
)
from holdfast.agent.observer import Observer
from holdfast.agent.providers import provider as protocol
from holdfast.agent.providers.provider import ModelReply, ModelRequest, StreamItem
from holdfast.agent.transcript import Transcript
from holdfast.testing.patience import HANG_S, until


class Watcher:
    """Watches on its own, and keeps what it has seen."""

    def __init__(self, observer: Observer, cursor: str | None) -> None:
        self.seen: list[ObservedEvent] = []
        self.task = asyncio.create_task(self._watch(observer, cursor))

    async def _watch(self, observer: Observer, cursor: str | None) -> None:
        async for seen in observer.subscribe_from(cursor):
            self.seen.append(seen)

    @property
    def events(self) -> list[ObservableEvent]:
        return [seen.event for seen in self.seen]

    def has(self, kind: type[Any]) -> bool:
        return any(isinstance(event, kind) for event in self.events)

    async def until(self, is_so: Callable[[Watcher], bool]) -> None:
        await until(lambda: is_so(self) or self.task.done())
        assert is_so(self), self.events


@contextlib.asynccontextmanager
async def watching(observer: Observer, cursor: str | None) -> AsyncIterator[Watcher]:
    watcher = Watcher(observer, cursor)
    try:
        yield watcher
    finally:
        watcher.task.cancel()
        await asyncio.wait([watcher.task])


async def resumed(observer: Observer, cursor: str | None) -> list[ObservedEvent]:
    async with asyncio.timeout(HANG_S):
        return [seen async for seen in observer.resume_from(cursor)]


def durable(events: list[ObservableEvent]) -> list[ObservableEvent]:
    return [event for event in events if not isinstance(event, live.LiveEvent | RedrawEvent | GapEvent)]


def texts(transcript: Transcript) -> list[str]:
    return [message.text for message in transcript.messages]


class Paused:
    """A model that says pieces of a text, and waits for the events between them."""

    def __init__(self, *said: str | asyncio.Event) -> None:
        self.id = "scripted"
        self._said = said

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem, None]:
        whole = "".join(piece for piece in self._said if isinstance(piece, str))
        for piece in self._said:
            if isinstance(piece, asyncio.Event):
                await piece.wait()
            else:
                yield protocol.TextDelta(piece)
        yield ModelReply(content=[TextBlock(whole)])


class Hesitant:
    """A model that says a few pieces at once, and then a dot whenever `next_word` is set, until `is_done`."""

    def __init__(self, *said: str) -> None:
        self.id = "scripted"
        self.next_word = asyncio.Event()
        self.is_done = False
        self._said = said

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem, None]:
        for piece in self._said:
            yield protocol.TextDelta(piece)
        dots = 0
        while not self.is_done:
            await self.next_word.wait()
            self.next_word.clear()
            dots += 1
            yield protocol.TextDelta(".")
        yield ModelReply(content=[TextBlock("".join(self._said) + "." * dots)])


def said_in(seen: list[ObservedEvent]) -> str:
    """The text that stands there for who has seen this."""
    text = ""
    for each in seen:
        match each.event:
            case ModelStartedEvent() | RetractedEvent() | MessageEvent():
                text = ""
            case TextDeltaEvent(text=piece):
                text += piece
            case RedrawEvent(observation=observation):
                text = "".join(draft.text for draft in observation.drafts)
            case _:
                pass
    return text
