"""Observation: any session, from any process. What it is now, what came after a cursor, and what comes.

Durable events have no gaps. What is said meanwhile is shown as well as it can be, and is settled by a durable event;
who has missed some of it is told to draw anew. A watcher is never waited for.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterator

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
from holdfast.agent.watched_session import WatchedSession
from holdfast.core.cursors import Cursor, InvalidCursorError, read_cursor
from holdfast.store.contract import Store

KEPT_CHANNELS = 256
"""Sessions kept folded that nobody watches just now: who asks for their state again and again does not have the journal
read each time."""


class Observers:
    """The sessions of one store that are watched through this process. Each is folded once, for all its watchers."""

    def __init__(self, store: Store, remind: Callable[[str], bool] = lambda _: False) -> None:
        self._store = store
        self._remind = remind
        self._channels: OrderedDict[str, WatchedSession] = OrderedDict()

    def observe(self, session_id: str, *, entries: bool = False) -> Observer:
        """A way to look at a session. Nothing is read before it is used."""
        return Observer(self, session_id, entries)

    def channel(self, session_id: str) -> WatchedSession:
        channel = self._channels.get(session_id)
        if channel is None:
            channel = self._channels[session_id] = WatchedSession(self._store, session_id, self._remind)
        self._channels.move_to_end(session_id)
        if len(self._channels) > KEPT_CHANNELS:
            idle = next((each for each in self._channels.values() if not each.watchers and each is not channel), None)
            if idle is not None:
                del self._channels[idle.session_id]
        return channel

    def close(self) -> None:
        """Let all watchers go."""
        channels, self._channels = [*self._channels.values()], OrderedDict()
        for channel in channels:
            channel.close()


class Observer:
    """Looks at one session. With `entries`, the durable events are the entries of its journal, as they are."""

    def __init__(self, observers: Observers, session_id: str, entries: bool) -> None:
        self._observers = observers
        self.session_id = session_id
        self._entries = entries

    @property
    def drafts(self) -> list[Draft]:
        """What is said at the moment, as far as it was heard here; nothing, as long as nobody here is subscribed."""
        return self._observers.channel(self.session_id).drafts

    async def current(self) -> Observation:
        """The session as it is now. The same object as before, if nothing has changed since."""
        channel = self._observers.channel(self.session_id)
        if not channel.position or await channel.store.position(self.session_id) != channel.position:
            await channel.read_on()
        return channel.observation()

    def resume_from(self, cursor: str | None) -> AsyncGenerator[ObservedEvent, None]:
        """What came after a cursor (None: the beginning), up to now."""
        return self._seen(cursor, stays=False)

    def subscribe_from(self, cursor: str | None) -> AsyncGenerator[ObservedEvent, None]:
        """What came after a cursor (None: the beginning), and what comes, until the session ends.

        Raises `SessionDeletedError` when the session is deleted meanwhile, and what the store raises when it is away:
        the cursor of what was seen last stays good.
        """
        return self._seen(cursor, stays=True)

    async def _seen(self, text: str | None, *, stays: bool) -> AsyncGenerator[ObservedEvent, None]:
        cursor = read_cursor(text, self.session_id) if text is not None else None
        channel = self._observers.channel(self.session_id)
        await channel.read_on()
        if cursor is not None and cursor.born != channel.born:
            observation = channel.observation()
            cursor = read_cursor(observation.cursor, self.session_id)
            yield ObservedEvent(GapEvent("unavailable", observation), cursor)
        cursor = cursor or Cursor(self.session_id, channel.born)
        self._check(channel, cursor)
        watcher = _Watcher(channel, cursor, entries=self._entries)
        if not stays:
            async for seen in watcher.missed():
                yield seen
            for seen in watcher.new():
                yield seen
            return
        channel.enter()
        try:
            while not watcher.is_done:
                if watcher.is_far_behind:
                    async for seen in watcher.missed():
                        yield seen
                for seen in watcher.new():
                    yield seen
                await watcher.rest()
        finally:
            channel.leave()

    def _check(self, channel: WatchedSession, cursor: Cursor) -> None:
        if cursor.position + (cursor.part > 0) > channel.position:
            told = f"the cursor is at {cursor.position}, and its journal ends at {channel.position}"
            raise InvalidCursorError(self.session_id, "future", told)
        if cursor.ring == channel.ring_id and cursor.live > channel.next_live:
            raise InvalidCursorError(self.session_id, "future", "the cursor is ahead of what was said so far")


class _Watcher:
    """Where one watcher is. It reads from the channel at its own pace."""

    def __init__(self, channel: WatchedSession, cursor: Cursor, *, entries: bool) -> None:
        self._channel = channel
        self._entries = entries
        self._position, self._part = cursor.position, cursor.part
        self._ring, self._live = cursor.ring, cursor.live

    @property
    def is_done(self) -> bool:
        """Whether the session has ended, and all of it was seen."""
        return self._channel.is_over and self._position == self._channel.position

    @property
    def is_far_behind(self) -> bool:
        """Whether what comes next for it has to be read."""
        channel = self._channel
        return self._position < channel.position and (self._entries or channel.after(self._position) is None)

    async def rest(self) -> None:
        """Wait until there is more to see. Raises what went wrong with the channel."""
        channel = self._channel
        if self.is_done or self._position < channel.position or self._live < channel.next_live:
            return
        if channel.failure is not None:
            raise channel.failure.with_traceback(None)
        await channel.changed()

    async def missed(self) -> AsyncGenerator[ObservedEvent, None]:
        """What has to be read; nothing, if what it has not seen is at hand."""
        if not self.is_far_behind:
            return
        channel, until = self._channel, self._channel.position
        read = self._read(until) if self._entries else channel.from_journal(self._position, until)
        async for events in read:
            for seen in self._steps(events):
                yield seen
        self._position, self._part = until, 0

    async def _read(self, until: int) -> AsyncGenerator[list[DurableEvent], None]:
        channel = self._channel
        async for entry in channel.store.journal(channel.session_id, self._position):
            if entry.position <= until:
                yield [EntryEvent(position=entry.position, at=entry.at, entry=entry)]

    def new(self) -> Iterator[ObservedEvent]:
        """What is at hand: the durable first. What was said before is settled by it, or is still there to be read."""
        channel, until = self._channel, self._channel.position
        if self._position < until:
            kept = None if self._entries else channel.after(self._position)
            if kept is None:
                return
            for events in kept:
                yield from self._steps(events)
            self._position, self._part = until, 0  # also where nothing follows from the last entries
        if self._position == channel.position:
            yield from self._said()

    def _steps(self, events: list[DurableEvent]) -> Iterator[ObservedEvent]:
        """What follows from one entry, but for what was seen."""
        for number, event in enumerate(events, 1):
            if event.position == self._position + 1 and number <= self._part:
                continue
            is_last = number == len(events)
            self._position, self._part = (event.position, 0) if is_last else (event.position - 1, number)
            yield ObservedEvent(event, self._place())

    def _said(self) -> Iterator[ObservedEvent]:
        """What is said meanwhile, and was not seen."""
        channel = self._channel
        seen, is_known = self._live, self._ring == channel.ring_id
        is_first = not self._ring
        self._ring, self._live = channel.ring_id, channel.next_live
        if is_first:
            events = channel.so_far()
            for number, event in enumerate(events, 1):
                yield ObservedEvent(event, self._place() if number == len(events) else self._place(is_drawn=False))
        elif not is_known or seen < channel.lost_before:
            yield ObservedEvent(RedrawEvent(channel.observation()), self._place())
        else:
            place = self._place()
            for live, event in channel.live_after(seen):
                yield ObservedEvent(event, msgspec.structs.replace(place, live=live) if place.ring else place)

    def _place(self, *, is_drawn: bool = True) -> Cursor:
        """Where it is now. Where nothing is being said, it does not matter by whom it would be told of it."""
        channel = self._channel
        ring, live = (self._ring, self._live) if is_drawn and channel.drafts else ("", 0)
        return Cursor(channel.session_id, channel.born, self._position, self._part, ring, live)
