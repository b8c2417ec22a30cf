"""`MountedStore`: a store with the engine, the conversations and the live events of this process on it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from holdfast.agent.conversations import Conversations, Residency
from holdfast.agent.live_events import LiveEvent, LiveEvents
from holdfast.agent.observer import Observers
from holdfast.agent.processes.owner_ends import OwnerEnds
from holdfast.agent.result_type import ResultType
from holdfast.agent.triggers.triggers import Triggers
from holdfast.core.decide import GivenAnswer
from holdfast.core.events import Event
from holdfast.core.queries import Answer
from holdfast.engine.holdfast import Holdfast
from holdfast.store.contract import Store

if TYPE_CHECKING:
    from holdfast.agent.loaded_session import LoadedSessions
    from holdfast.agent.machine.program import AgentKind
    from holdfast.agent.runtime import Runtime


RESULT_TYPES = 1_000
"""Result types kept for running turns: as many as conversations. For older ones only the schema is checked."""


class MountedStore:
    """A store that sessions of a runtime live in."""

    loaded_sessions: LoadedSessions
    agent_kind: AgentKind
    """What runs the agents in it."""

    def __init__(self, runtime: Runtime, store: Store, residency: Residency, **options: Any) -> None:
        from holdfast.agent.loaded_session import LoadedSessions

        self.store = store
        self.holdfast = Holdfast(store, **options)
        self.engine = self.holdfast.engine
        self.conversations = Conversations(self.engine, residency)
        self.live_events = LiveEvents(store)
        self.observers = Observers(self.holdfast, self.live_events.remind)
        self.processes = self.observers.processes
        self.loaded_sessions = LoadedSessions(runtime, self)
        self.holdfast.on_commit(self.live_events.committed)
        self.result_types: dict[tuple[str, str], ResultType] = {}
        """By session and turn: the result types of turns that somebody here waits for."""
        self.triggers = Triggers(self.holdfast, self.processes)
        self.owner_ends = OwnerEnds(self.engine)
        self._publishing: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        await self.holdfast.__aenter__()
        self.owner_ends.start()

    async def close(self) -> None:
        try:
            await self.holdfast.__aexit__(None, None, None)
        finally:
            self.live_events.close()

    def expect(self, session_id: str, turn_id: str, wanted: ResultType) -> None:
        """Remember the result type of a turn that somebody waits for, so that more than its schema is checked."""
        self.result_types[session_id, turn_id] = wanted
        while len(self.result_types) > RESULT_TYPES:
            del self.result_types[next(iter(self.result_types))]

    def publish_soon(self, session_id: str, event: LiveEvent) -> None:
        """Give an event to all listeners, without waiting for them."""

        async def publish() -> None:
            with contextlib.suppress(Exception):
                await self.live_events.emit(session_id, event)

        task = asyncio.get_running_loop().create_task(publish())
        self._publishing.add(task)
        task.add_done_callback(self._publishing.discard)

    async def answer(self, session_id: str, query: str, answer: Answer) -> Event:
        """Answer a query, and return as soon as that is durable."""
        return await self.holdfast.feed(session_id, GivenAnswer(answer, query), wait=0)

    async def event(self, session_id: str) -> Event:
        """What the session tells its host now."""
        return await self.holdfast.event(session_id)
