"""What comes as a stream, without `await`: the events of a turn, and those that an observer sees."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Generator, Iterator
from typing import TypeVar

from holdfast.agent.live_events import LiveEvent
from holdfast.agent.observed_events import Observation, ObservedEvent
from holdfast.agent.observer import Observer, ToolState
from holdfast.agent.processes.handles import ProcessHandle, ProcessScope
from holdfast.agent.results import TurnResult
from holdfast.agent.subagents.tree import SessionNode
from holdfast.agent.turn_builder import TurnBuilder
from holdfast.core.values import Json
from holdfast.engine.loop_thread import LoopThread

T = TypeVar("T")


class SyncTurnStream:
    """The events of a turn. The turn waits for a slow reader; if the reader leaves early, it continues."""

    def __init__(self, turn: TurnBuilder, loop: LoopThread) -> None:
        self._inner = turn.stream()
        self._loop = loop

    def __iter__(self) -> Iterator[LiveEvent]:
        return self.events()

    def events(self, until: float | None = None) -> Generator[LiveEvent, None, None]:
        """The events; raises `TimeoutError` when the monotonic clock reaches `until`."""
        return each_event(self._loop, self._inner.__aiter__(), until)

    def result(self) -> TurnResult:
        """The result of the turn; call it after reading the events."""
        return self._loop.wait(self._inner.result())


class SyncObserver:
    """`Observer` without `await`. A loop over its events blocks; leave it with `break` or Ctrl-C."""

    def __init__(self, inner: Observer, loop: LoopThread) -> None:
        self._inner = inner
        self._loop = loop

    def current(self) -> Observation:
        return self._loop.wait(self._inner.current())

    def tree(self) -> SessionNode:
        return self._loop.wait(self._inner.tree())

    def tool_state(self) -> ToolState | None:
        return self._loop.wait(self._inner.tool_state())

    def active_tool_manifests(self) -> list[dict[str, Json]]:
        return self._loop.wait(self._inner.active_tool_manifests())

    def list_process_handles(self) -> list[ProcessHandle]:
        return self._loop.wait(self._inner.list_process_handles())

    def list_all_process_handles(self) -> list[ProcessHandle]:
        return self._loop.wait(self._inner.list_all_process_handles())

    def process_scope(self) -> ProcessScope:
        return self._loop.wait(self._inner.process_scope())

    def resume_from(self, cursor: str | None) -> Generator[ObservedEvent, None, None]:
        return each_event(self._loop, self._inner.resume_from(cursor))

    def subscribe_from(self, cursor: str | None) -> Generator[ObservedEvent, None, None]:
        return each_event(self._loop, self._inner.subscribe_from(cursor))

    @property
    def session_id(self) -> str:
        return self._inner.session_id


def each_event(
    loop: LoopThread, events: AsyncGenerator[T, None], until: float | None = None
) -> Generator[T, None, None]:
    """The items of a generator in the loop's thread; raises `TimeoutError` when the monotonic clock reaches `until`."""
    in_turn = asyncio.Lock()

    async def next_event() -> T | None:
        async with in_turn, asyncio.timeout(None if until is None else until - time.monotonic()):
            return await anext(events, None)

    async def leave() -> None:
        async with in_turn:  # after an interruption, what was waited for may still be on its way out
            await events.aclose()

    try:
        while (event := loop.wait(next_event())) is not None:
            yield event
    finally:
        loop.begin(leave())  # not waited for: this may be run by the loop's own thread, when it collects
