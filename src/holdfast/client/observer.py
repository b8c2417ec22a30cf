"""`ObserverClient`: watches a session of a server, in the words of `Observer`."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator

from holdfast.agent.observed_events import Observation, ObservedEvent
from holdfast.client.api_client import ApiClient
from holdfast.client.wire import observation_of, seen_of


class ObserverClient:
    """Watches one session. With `entries`, the durable events are its journal entries as they are."""

    def __init__(self, client: ApiClient, session_id: str, entries: bool) -> None:
        self._client = client
        self.session_id = session_id
        self._view = "entries" if entries else "conversation"

    @property
    def _path(self) -> str:
        return f"/sessions/{self.session_id}/events"

    async def current(self) -> Observation:
        """The session as it is now."""
        return observation_of(await self._client.get(f"/sessions/{self.session_id}/observation"))

    async def resume_from(self, cursor: str | None) -> AsyncGenerator[ObservedEvent, None]:
        """The events after a cursor (None: from the beginning), up to now."""
        while True:
            page = await self._client.get(self._path, {"view": self._view, "after": cursor})
            for shown in page["data"]:
                yield seen_of(shown["event"], shown["cursor"], self.session_id)
            if not page["data"]:
                return
            cursor = page["next"]

    async def subscribe_from(self, cursor: str | None) -> AsyncGenerator[ObservedEvent, None]:
        """The events after a cursor, past and future, until the session ends. A broken connection is made anew."""
        events = self._client.stream("GET", self._path, after=cursor, params={"view": self._view})
        async with contextlib.aclosing(events) as coming:
            async for after, data in coming:
                if after is not None:
                    yield seen_of(data, after, self.session_id)
