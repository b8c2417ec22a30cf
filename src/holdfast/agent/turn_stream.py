"""`TurnStream`: yields the live events of a turn while it runs, numbered."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

import msgspec

from holdfast.agent.live_events import LiveEvent, Sink, TurnFinishedEvent
from holdfast.agent.results import TurnResult

if TYPE_CHECKING:
    from holdfast.agent.turn_builder import TurnBuilder

STREAM_EVENTS = 256
"""Events that may wait for the reader of a stream. Beyond that, the turn waits for the reader."""


class TurnObserver:
    """Passes the events of one turn to a sink, one at a time, each with an id of its own.

    A sink that raises gets no more events, and `gave_up` is set; the turn itself continues.
    """

    def __init__(self, turn: str, sink: Sink) -> None:
        self._turn = turn
        self._sink = sink
        self._count = 0
        self._in_turn = asyncio.Lock()
        self.gave_up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.gave_up.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may ask for it

    async def __call__(self, event: LiveEvent) -> None:
        if event.turn != self._turn:
            return
        async with self._in_turn:  # tools emit events concurrently
            if self.gave_up.done():
                return
            self._count += 1
            try:
                await self._sink(msgspec.structs.replace(event, id=self._count))
            except Exception as error:
                self.gave_up.set_exception(error)

    def leave(self) -> None:
        """Stop passing events to the sink."""
        self.gave_up.cancel()


class TurnStream:
    """The events of a turn. If the reader leaves early, the turn continues."""

    def __init__(self, turn: TurnBuilder) -> None:
        self._turn = turn
        self._result: TurnResult | None = None

    async def __aiter__(self) -> AsyncGenerator[LiveEvent, None]:
        events: asyncio.Queue[LiveEvent] = asyncio.Queue(STREAM_EVENTS)
        following = asyncio.create_task(self._turn.stream_to(events.put))
        getting: asyncio.Task[LiveEvent] | None = None
        try:
            while True:
                getting = asyncio.create_task(events.get())
                await asyncio.wait({getting, following}, return_when=asyncio.FIRST_COMPLETED)
                if not getting.done():
                    following.result()  # it has failed, or its last event would have come first
                event = await getting
                if isinstance(event, TurnFinishedEvent):
                    self._result = await following
                yield event
                if isinstance(event, TurnFinishedEvent):
                    return
        finally:
            for task in (getting, following):
                if task is not None:
                    task.cancel()
            while not events.empty():  # unblock a sink that waits to put an event
                events.get_nowait()
            with contextlib.suppress(BaseException):
                await following

    async def result(self) -> TurnResult:
        """The result of the turn, even if its events were not read."""
        return self._result if self._result is not None else await self._turn.run()
