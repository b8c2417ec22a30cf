"""One store with the engine, the conversations and the live events of this process on it."""

from __future__ import annotations

from typing import Any

from holdfast.agent.conversations import Conversations, Residency
from holdfast.agent.live import Hub
from holdfast.core.events import Event
from holdfast.core.queries import Answer
from holdfast.engine.runtime import Holdfast
from holdfast.store.contract import Store


class Place:
    """Where sessions of a runtime live."""

    def __init__(self, store: Store, residency: Residency, **options: Any) -> None:
        self.store = store
        self.holdfast = Holdfast(store, **options)
        self.conversations = Conversations(store, residency)
        self.hub = Hub()
        self.holdfast.on_commit(self.conversations.committed)

    async def open(self) -> None:
        await self.holdfast.__aenter__()

    async def close(self) -> None:
        await self.holdfast.__aexit__(None, None, None)

    async def give(self, session_id: str, query: str, answer: Answer) -> Event:
        """Answer a query, and come back as soon as that is durable."""
        return await self.holdfast.feed(session_id, {query: answer}, wait=0)

    async def event(self, session_id: str) -> Event:
        """What a session says to a host now."""
        return await self.holdfast.event(session_id)
