"""Observers watch any session from any process: its present state, the events after a cursor, and those to come.

Durable events have no gaps. Live events are best effort, and a durable event settles them; a watcher that has missed
some gets a `RedrawEvent`. Nothing ever waits for a watcher.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from typing import TypeAlias

import msgspec

from holdfast.agent.observed_events import (
    Draft,
    DurableEvent,
    EntryEvent,
    GapEvent,
    Observation,
    ObservedEvent,
    RedrawEvent,
)
from holdfast.agent.processes.handles import ProcessHandle, ProcessScope
from holdfast.agent.processes.processes import Processes
from holdfast.agent.subagents.tree import SessionNode, session_tree
from holdfast.agent.tools.session_catalog import SessionCatalog
from holdfast.agent.watched_session import WatchedSession
from holdfast.core.cursors import Cursor, InvalidCursorError, read_cursor
from holdfast.core.values import Json
from holdfast.engine.holdfast import Holdfast
from holdfast.store.contract import Store


class ToolState(msgspec.Struct, frozen=True, kw_only=True):
    """The tools that a model has."""

    names: list[str]
    tokens: int
    """About how many tokens their descriptions take."""


FindCatalog: TypeAlias = Callable[[], Awaitable[SessionCatalog]]
"""Finds the tools of a session, as its model has them now."""


class Observers:
    """The observers of the sessions of one engine. Nothing is kept here: what they share hangs on the live session."""

    def __init__(
        self,
        holdfast: Holdfast,
        remind: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._engine = engine = holdfast.engine
        self.processes = Processes(holdfast)
        engine.owner.attachments[WatchedSession] = lambda session_id: WatchedSession(engine, session_id, remind)

    def observe(self, session_id: str, *, entries: bool = False, tools: FindCatalog | None = None) -> Observer:
        """An observer of a session. Nothing is read until it is used. `tools` finds the tools that its model has."""
        return Observer(self, session_id, entries, tools)

    @property
    def store(self) -> Store:
        """The store of the sessions."""
        return self._engine.owner.store

    def watched(self, session_id: str) -> WatchedSession:
        """What all observers of a session share."""
        return self._engine.live(session_id).attachments.get(WatchedSession)


class Observer:
    """Watches one session. With `entries`, the durable events are its journal entries as they are."""

    def __init__(self, observers: Observers, session_id: str, entries: bool, tools: FindCatalog | None = None) -> None:
        self._observers = observers
        self._tools = tools
        self.session_id = session_id
        self._entries = entries

    async def tree(self) -> SessionNode:
        """The session with its children, of any depth, as they are now."""
        return await session_tree(self._observers.store, self.session_id)

    async def tool_state(self) -> ToolState | None:
        """The tools that the model has in this process; None for a session that is observed without its runtime."""
        catalog = await self._tools() if self._tools is not None else None
        return None if catalog is None else ToolState(names=sorted(catalog.names), tokens=catalog.tokens)

    async def active_tool_manifests(self) -> list[dict[str, Json]]:
        """Those tools as a model is shown them: name, description and parameters; empty if they are not known."""
        return (await self._tools()).json if self._tools is not None else []

    @property
    def drafts(self) -> list[Draft]:
        """Unsettled text, as far as it was received here; empty while nobody here is subscribed."""
        return self._observers.watched(self.session_id).drafts

    async def list_process_handles(self) -> list[ProcessHandle]:
        """The processes of the session that are not over, and those that it observes."""
        return await self._observers.processes.list(owner=self.session_id)

    async def list_all_process_handles(self) -> list[ProcessHandle]:
        """The same, with those that are over."""
        return await self._observers.processes.list(owner=self.session_id, every=True)

    async def process_scope(self) -> ProcessScope:
        """Whose processes these are: the session, and the service that they belong to."""
        row = await self._observers.watched(self.session_id).store.session(self.session_id)
        return ProcessScope(session_id=self.session_id, service=row.summary.service)

    async def current(self) -> Observation:
        """The session as it is now; the same object until something changes."""
        watched = self._observers.watched(self.session_id)
        if not watched.position or await watched.store.position(self.session_id) != watched.position:
            await watched.read_on()
        return watched.observation()

    def resume_from(self, cursor: str | None) -> AsyncGenerator[ObservedEvent, None]:
        """The events after a cursor (None: from the beginning), up to now."""
        return self._seen(cursor, stays=False)

    def subscribe_from(self, cursor: str | None) -> AsyncGenerator[ObservedEvent, None]:
        """The events after a cursor (None: from the beginning), past and future, until the session ends.

        Raises `SessionDeletedError` if the session is deleted, and the store's own error if it is unavailable; the last
        cursor stays valid.
        """
        return self._seen(cursor, stays=True)

    async def _seen(self, text: str | None, *, stays: bool) -> AsyncGenerator[ObservedEvent, None]:
        cursor = read_cursor(text, self.session_id) if text is not None else None
        watched = self._observers.watched(self.session_id)
        await watched.read_on()
        if cursor is not None and cursor.born != watched.born:
            observation = watched.observation()
            cursor = read_cursor(observation.cursor, self.session_id)
            yield ObservedEvent(GapEvent("unavailable", observation), cursor)
        cursor = cursor or Cursor(self.session_id, watched.born)
        self._check(watched, cursor)
        watcher = _Watcher(watched, cursor, entries=self._entries)
        if not stays:
            async for seen in watcher.missed():
                yield seen
            for seen in watcher.new():
                yield seen
            return
        watched.enter()
        try:
            while not watcher.is_done:
                if watcher.is_far_behind:
                    async for seen in watcher.missed():
                        yield seen
                for seen in watcher.new():
                    yield seen
                await watcher.rest()
        finally:
            watched.leave()

    def _check(self, watched: WatchedSession, cursor: Cursor) -> None:
        if cursor.position + (cursor.part > 0) > watched.position:
            reason = f"the cursor is at {cursor.position}, but the journal ends at {watched.position}"
            raise InvalidCursorError(self.session_id, "future", reason)
        if cursor.ring == watched.ring_id and cursor.live > watched.next_live:
            raise InvalidCursorError(self.session_id, "future", "the cursor is ahead of the latest live event")


class _Watcher:
    """The position of one watcher. It reads at its own pace."""

    def __init__(self, watched: WatchedSession, cursor: Cursor, *, entries: bool) -> None:
        self._watched = watched
        self._entries = entries
        self._position, self._part = cursor.position, cursor.part
        self._ring, self._live = cursor.ring, cursor.live

    @property
    def is_done(self) -> bool:
        """Whether the session has ended, and the watcher has seen all of it."""
        return self._watched.is_over and self._position == self._watched.position

    @property
    def is_far_behind(self) -> bool:
        """Whether the next events have to be read from the journal."""
        watched = self._watched
        return self._position < watched.position and (self._entries or watched.after(self._position) is None)

    async def rest(self) -> None:
        """Wait until there is more to see. Raises the error that ended the watch."""
        watched = self._watched
        if self.is_done or self._position < watched.position or self._live < watched.next_live:
            return
        if watched.failure is not None:
            raise watched.failure.with_traceback(None)
        await watched.changed()

    async def missed(self) -> AsyncGenerator[ObservedEvent, None]:
        """Events that have to be read from the journal; none if all unseen ones are in memory."""
        if not self.is_far_behind:
            return
        if not self._entries:
            await self._watched.find_earlier()
            if not self.is_far_behind:
                return
        watched, until = self._watched, self._watched.position
        read = self._read(until) if self._entries else watched.from_journal(self._position, until)
        async for events in read:
            for seen in self._steps(events):
                yield seen
        self._position, self._part = until, 0

    async def _read(self, until: int) -> AsyncGenerator[list[DurableEvent], None]:
        watched = self._watched
        async for entry in watched.store.journal(watched.session_id, self._position):
            if entry.position <= until:
                yield [EntryEvent(position=entry.position, at=entry.at, entry=entry)]

    def new(self) -> Iterator[ObservedEvent]:
        """Events in memory, durable ones first: they settle earlier live events, or leave them to be read."""
        watched, until = self._watched, self._watched.position
        if self._position < until:
            kept = None if self._entries else watched.after(self._position)
            if kept is None:
                return
            for events in kept:
                yield from self._steps(events)
            self._position, self._part = until, 0  # also if no event follows from the last entries
        if self._position == watched.position:
            yield from self._live_events()

    def _steps(self, events: list[DurableEvent]) -> Iterator[ObservedEvent]:
        """The events of one entry that were not seen yet."""
        for number, event in enumerate(events, 1):
            if event.position == self._position + 1 and number <= self._part:
                continue
            is_last = number == len(events)
            self._position, self._part = (event.position, 0) if is_last else (event.position - 1, number)
            yield ObservedEvent(event, self._cursor())

    def _live_events(self) -> Iterator[ObservedEvent]:
        """The live events that were not seen yet."""
        watched = self._watched
        seen, is_known = self._live, self._ring == watched.ring_id
        is_first = not self._ring
        self._ring, self._live = watched.ring_id, watched.next_live
        if is_first:
            events = watched.draft_events()
            for number, event in enumerate(events, 1):
                yield ObservedEvent(event, self._cursor() if number == len(events) else self._cursor(is_drawn=False))
        elif not is_known or seen < watched.lost_before:
            yield ObservedEvent(RedrawEvent(watched.observation()), self._cursor())
        else:
            cursor = self._cursor()
            for live, event in watched.live_after(seen):
                yield ObservedEvent(event, msgspec.structs.replace(cursor, live=live) if cursor.ring else cursor)

    def _cursor(self, *, is_drawn: bool = True) -> Cursor:
        """The present cursor. While there are no drafts, it does not depend on the process that would report them."""
        watched = self._watched
        ring, live = (self._ring, self._live) if is_drawn and watched.drafts else ("", 0)
        return Cursor(watched.session_id, watched.born, self._position, self._part, ring, live)
