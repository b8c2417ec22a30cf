"""One store with the engine, the conversations and the live events of this process on it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from holdfast.agent.conversation_cache import ConversationCache, Residency
from holdfast.agent.live_events import LiveEvent, LiveEvents
from holdfast.agent.observer import Observers
from holdfast.agent.result_type import ResultType
from holdfast.core.events import Event
from holdfast.core.queries import Answer
from holdfast.engine.holdfast import Holdfast
from holdfast.store.contract import Store

if TYPE_CHECKING:
    from holdfast.agent.loaded_session import LoadedSessions
    from holdfast.agent.runtime import Runtime


RESULT_TYPES = 1_000
"""Types that are kept for turns under way: as many as conversations are. Of the oldest, only the schema counts then."""


class MountedStore:
    """Where sessions of a runtime live."""

    loaded_sessions: LoadedSessions

    def __init__(self, runtime: Runtime, store: Store, residency: Residency, **options: Any) -> None:
        from holdfast.agent.loaded_session import LoadedSessions

        self.store = store
        self.holdfast = Holdfast(store, **options)
        self.conversations = ConversationCache(store, residency)
        self.live_events = LiveEvents(store.publish)
        self.observers = Observers(store, self.live_events.remind)
        self.loaded_sessions = LoadedSessions(runtime, self)
        self.holdfast.on_commit(self.conversations.committed)
        self.holdfast.on_commit(self.live_events.committed)
        self.holdfast.on_commit(self.loaded_sessions.committed)  # what it tells of is in the conversations by then
        self.holdfast.on_close(self.loaded_sessions.close)
        self.result_types: dict[tuple[str, str], ResultType] = {}
        """By session and turn: what turns that are waited for here are to come to, where that is a type."""
        self._telling: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        await self.holdfast.__aenter__()

    async def close(self) -> None:
        self.observers.close()
        await self.holdfast.__aexit__(None, None, None)

    def expect(self, session_id: str, turn_id: str, wanted: ResultType | None) -> None:
        """A turn is waited for that is to come to a value of a type. It can be checked by more than the schema then."""
        if wanted is not None:
            self.result_types[session_id, turn_id] = wanted
        while len(self.result_types) > RESULT_TYPES:
            del self.result_types[next(iter(self.result_types))]

    def tell_soon(self, session_id: str, event: LiveEvent) -> None:
        """Give an event to whoever listens, without waiting for them."""

        async def tell() -> None:
            with contextlib.suppress(Exception):
                await self.live_events.emit(session_id, event)

        task = asyncio.get_running_loop().create_task(tell())
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def give(self, session_id: str, query: str, answer: Answer) -> Event:
        """Answer a query, and come back as soon as that is durable."""
        return await self.holdfast.feed(session_id, {query: answer}, wait=0)

    async def event(self, session_id: str) -> Event:
        """What a session says to a host now."""
        return await self.holdfast.event(session_id)
