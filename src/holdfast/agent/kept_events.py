"""`KeptEvents`: the latest durable events of a session, for watchers that come back or are a little behind."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterable
from itertools import groupby, takewhile

from holdfast.agent.observed_events import DurableEvent

KEPT_EVENTS = 4_096
"""Durable events kept for watchers that come back; after a longer absence the journal is read again."""


class KeptEvents:
    """The events of the last entries of a journal, in order."""

    def __init__(self, since: int = 0) -> None:
        self.since = since
        """All events of entries after this position are kept."""
        self.is_complete = not since
        """Whether the events before were looked for: there may be more than are kept."""
        self._events: deque[DurableEvent] = deque()
        self._asked_last: tuple[tuple[int, int], list[list[DurableEvent]]] = ((0, 0), [])

    def add(self, events: Iterable[DurableEvent]) -> None:
        """Add the events of the next entry."""
        self._events.extend(events)
        while len(self._events) > KEPT_EVENTS:
            self.since = self._events.popleft().position

    def after(self, position: int, until: int) -> list[list[DurableEvent]] | None:
        """The events of each entry after a position, or None if they are not kept; `until` is the last position."""
        if position < self.since:
            return None
        asked = (position, until)
        if self._asked_last[0] != asked:
            later = [*takewhile(lambda event: event.position > position, reversed(self._events))][::-1]
            by_entry = groupby(later, key=lambda event: event.position)
            self._asked_last = (asked, [[*events] for _, events in by_entry])
        return self._asked_last[1]

    async def add_earlier(self, earlier: AsyncIterator[list[DurableEvent]]) -> None:
        """Add the events of all entries up to `since`, as far as there is room for them."""
        until, since = self.since, 0
        found: deque[DurableEvent] = deque(maxlen=KEPT_EVENTS - len(self._events))
        async for events in earlier:
            for event in events:
                if found.maxlen == len(found):
                    since = found[0].position if found else event.position
                found.append(event)
        if self.since == until:  # else there is no room left
            self._events.extendleft(reversed(found))
            self.since, self.is_complete = since, True
