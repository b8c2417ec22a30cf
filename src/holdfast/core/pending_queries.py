"""The queries of a session that wait for an answer, with what is often asked about all of them at hand.

A session may wait for thousands. So what they are and when they are due is counted as they come and go: nobody has to
look at each of them for every answer.
"""

from __future__ import annotations

from holdfast.core.queries import Query


class PendingQuery:
    """A query that waits for its answer."""

    __slots__ = ("asked_at", "attempts", "deaths", "due_at", "group", "query")

    def __init__(self, query: Query, asked_at: int, attempts: int = 0, deaths: int = 0) -> None:
        wait: int | None = getattr(query, query.wait_field)
        self.query = query
        self.group = query.group if query.is_grouped else query.kind
        self.asked_at = asked_at
        self.due_at = None if wait is None else asked_at + wait
        self.attempts = attempts
        self.deaths = deaths
        """How many attempts in a row their processes did not survive, if the latest is not under way."""

    @property
    def is_under_way(self) -> bool:
        """Whether a driver is at it, or was when its process died."""
        return self.attempts > 0 and self.deaths > 0


class PendingQueries(dict[str, PendingQuery]):
    """Those of one session, by id, in the order in which they were asked. Changed by these methods only."""

    __slots__ = ("_counts", "due_times", "groups")

    def __init__(self) -> None:
        super().__init__()
        self.groups: dict[str, Query] = {}
        """One query of each group: those of a group are answered by the same, and for the same reasons."""
        self._counts: dict[str, int] = {}
        self.due_times: dict[str, int] = {}
        """When those are due that ever are (unix ms)."""

    def add(self, pending: PendingQuery) -> None:
        """A query was asked."""
        query, group = pending.query, pending.group
        self[query.id] = pending
        if group in self._counts:
            self._counts[group] += 1
        else:
            self._counts[group] = 1
            self.groups[group] = query
        if pending.due_at is not None:
            self.due_times[query.id] = pending.due_at

    def count(self, group: str) -> int:
        """How many of a group there are."""
        return self._counts.get(group, 0)

    def remove(self, asked: str) -> PendingQuery | None:
        """A query was answered or withdrawn; None if it was not pending."""
        pending = self.pop(asked, None)
        if pending is None:
            return None
        group = pending.group
        left = self._counts[group] - 1
        if left:
            self._counts[group] = left
        else:
            del self._counts[group], self.groups[group]
        if pending.due_at is not None:
            del self.due_times[asked]
        return pending

    def remove_all(self) -> None:
        """The session has ended."""
        self.clear()
        self.groups.clear()
        self._counts.clear()
        self.due_times.clear()

    def due(self, now: int) -> list[PendingQuery]:
        """Those that are due, in the order in which they were asked."""
        return [self[asked] for asked, due in self.due_times.items() if due <= now]
