"""`AgentObserver`: follows one agent over many connections and lives; what it has seen is kept outside of them."""

from __future__ import annotations

import contextlib
from typing import Any, Literal, TypeAlias

from holdfast.agent.observed_events import ObservedEvent
from holdfast.agent.observer import Observer
from holdfast.agent.runtime import Runtime
from holdfast.agent.transcript import Transcript
from holdfast.core.errors import SessionNotFoundError
from holdfast.store.errors import StoreUnavailableError
from holdfast.testing.simulation.client import RECONNECTS, Client
from holdfast.testing.simulation.history import Sighting

Manner: TypeAlias = Literal["entries", "events", "transcript"]
"""What an observer keeps: the entries of the journal, the durable events, or a transcript of the conversation."""

MANNERS: tuple[Manner, ...] = ("entries", "events", "transcript")


class AgentObserver:
    """One who watches an agent, as a browser does: it remembers its cursor, and comes back with it."""

    def __init__(self, session_id: str, manner: Manner) -> None:
        self.session_id = session_id
        self._manner = manner
        self._cursor: str | None = None
        self._events: list[Any] = []
        self._transcript: Transcript | None = None

    async def follow(self, client: Client, runtime: Runtime) -> None:
        """Watch for as long as this life lasts."""
        observer = runtime.mount.observers.observe(self.session_id, entries=self._manner == "entries")
        while True:
            with contextlib.suppress(StoreUnavailableError, SessionNotFoundError):
                await self._connect(client, observer)
            await client.rest()

    async def _connect(self, client: Client, observer: Observer) -> None:
        if self._manner == "transcript" and self._transcript is None:
            observation = await observer.current()
            self._transcript, self._cursor = Transcript(observation), observation.cursor
        async with contextlib.aclosing(observer.subscribe_from(self._cursor)) as events:
            async for seen in events:
                self._see(client, seen)
                if client.process.random.random() < RECONNECTS:
                    return

    def _see(self, client: Client, seen: ObservedEvent) -> None:
        self._cursor = seen.cursor
        position: int | None = getattr(seen.event, "position", None)
        if self._transcript is not None:
            self._transcript.see(seen)
        elif self._manner == "events" and position is not None:
            self._events.append(seen.event)
        elif position is not None:
            entry = getattr(seen.event, "entry", None)
            sightings = client.history.watched.setdefault((client.process.name, self.session_id), [])
            sightings.append(Sighting(client.now_s(), position, entry))

    async def missing(self, client: Client, observer: Observer) -> str:
        """What it has not seen, or has seen otherwise than one who comes now; nothing if all is well."""
        if self._manner == "entries":
            seen = len(client.history.watched.get(("observer", self.session_id), []))
            position = (await client.hf.store.session(self.session_id)).position
            return "" if seen == position else f"an observer has seen {seen} of {position} entries"
        if self._transcript is not None:
            view = (await observer.current()).view
            if (self._transcript.messages, self._transcript.text) == (list(view.messages), ""):
                return ""
            return f"a transcript has {self._transcript.messages}, the session {view.messages}"
        events = [seen.event async for seen in observer.resume_from(None) if hasattr(seen.event, "position")]
        return "" if self._events == events else f"an observer saw {self._events}, and who comes now {events}"
