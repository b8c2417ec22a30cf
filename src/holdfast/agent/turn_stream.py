"""Following a turn while it is worked on: its live events, numbered, and given to whoever listens."""

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
"""Events that wait for the reader of a stream. Past that, the turn waits for the reader."""


class TurnObserver:
    """Gives a sink the events of one turn, one after the other and each with an id of its own.

    A sink that raises is given nothing more, and `gave_up` is done: the turn itself is not its business.
    """

    def __init__(self, turn: str, sink: Sink) -> None:
        self._turn = turn
        self._sink = sink
        self._count = 0
        self._in_turn = asyncio.Lock()
        self.gave_up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.gave_up.add_done_callback(lambda done: done.cancelled() or done.exception())  # perhaps nobody asks

    async def __call__(self, event: LiveEvent) -> None:
        if event.turn != self._turn:
            return
        async with self._in_turn:  # tools speak at the same time
            if self.gave_up.done():
                return
            self._count += 1
            try:
                await self._sink(msgspec.structs.replace(event, id=self._count))
            except Exception as error:
                self.gave_up.set_exception(error)

    def leave(self) -> None:
        """Give the sink nothing more."""
        self.gave_up.cancel()


class TurnStream:
    """The events of a turn. When it is left before its end, the turn goes on."""

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
                    following.result()  # raises what went wrong: the last event is the last thing that happens
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
            while not events.empty():  # whoever waits to put one in goes on
                events.get_nowait()
            with contextlib.suppress(BaseException):
                await following

    async def result(self) -> TurnResult:
        """What the turn came to, also if its events were not waited for."""
        return self._result if self._result is not None else await self._turn.run()
