"""What is under way here for the queries of one session: the effects of drivers, and its children."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from holdfast.core.queries import ChildQuery, Query
from holdfast.core.records import AttemptedRecord, PausedRecord, Record
from holdfast.core.replay import ENDS
from holdfast.core.state import PendingQuery, Session
from holdfast.engine.drivers import Driver

if TYPE_CHECKING:
    from holdfast.engine.engine import Engine
    from holdfast.engine.live_session import LiveSession


class Effects:
    """The effects of one session. They are planned with a commit, and begin once that is durable."""

    def __init__(self, engine: Engine, live: LiveSession) -> None:
        self._engine = engine
        self._actor = live
        self.running: dict[str, asyncio.Task[None]] = {}
        """Those under way, by query."""
        self.slotted: dict[str, Driver] = {}
        """Queries for which a driver's slot is taken."""
        self.recovering: set[str] = set()
        """Queries that a process which is gone has attempted."""
        self._planned: list[Query] = []
        self._dropped: list[str] = []
        """Child queries that nobody waits for any more."""

    def plan(self, queries: Sequence[Query], pending: Mapping[str, PendingQuery]) -> list[Record]:
        """Plan what is answered here. Where a slot is free, the attempt is recorded together with the pause."""
        attempts: list[Record] = []
        for query in queries:
            if query.kind == "child":
                self._planned.append(query)
            elif (driver := self._engine.drivers.find(self._actor.id, query)) is not None and query.id in pending:
                self._planned.append(query)
                if driver.slots.try_take():
                    self.slotted[query.id] = driver
                    attempts.append(AttemptedRecord(query_id=query.id, driver=driver.name))
        return attempts

    def plan_orphans(self, pending: Mapping[str, PendingQuery]) -> None:
        """Plan what should be under way here, and is not."""
        orphans = [
            each
            for asked, each in pending.items()
            if self._engine.attends(self._actor.id, each.query, each.attempts)
            and asked not in self.running
            and asked not in self.slotted
        ]
        self.recovering |= {each.query.id for each in orphans if each.attempts}
        self._planned += [each.query for each in orphans if each.query not in self._planned]

    def drop_withdrawn(self, waited_for: Sequence[str], session: Session) -> None:
        """Note which of the children that were waited for are not any more."""
        self._dropped += [asked for asked in waited_for if asked not in session.pending]

    def holds(self, pending: Mapping[str, PendingQuery]) -> bool:
        """Whether others must keep out of the session, because effects are under way or about to be."""
        if not self.running and not self._planned:
            return False
        return any(asked in pending for asked in self.running) or any(query.id in pending for query in self._driven)

    @property
    def is_planned(self) -> bool:
        """Whether effects wait for a commit. Children need none: whoever finds one missing starts it."""
        return bool(self._planned and self._driven)

    @property
    def _driven(self) -> list[Query]:
        return [query for query in self._planned if not isinstance(query, ChildQuery)]

    def begin(self, session: Session) -> None:
        """Begin what was planned and has become durable; stop what is not waited for any more."""
        if not self._planned and not self.running and not self._dropped:
            return
        planned, self._planned = self._planned, []
        pending = session.pending
        for query in planned:
            if query.id not in pending:
                if query.id in self.slotted and query.id not in self.running:
                    self.slotted.pop(query.id).slots.give_back()
            elif isinstance(query, ChildQuery):
                self._engine.children.take_up(session.id, query)
            elif query.id not in self.running:
                self.running[query.id] = asyncio.create_task(self._engine.execute(self._actor, query))
        for asked, task in list(self.running.items()):
            if asked not in pending and task is not asyncio.current_task():
                task.cancel()
                del self.running[asked]
        dropped, self._dropped = self._dropped, []
        for asked in dropped:
            self._engine.children.drop(session, asked)

    def unplan(self) -> None:
        """Forget what was planned. What is under way continues."""
        for asked in [asked for asked in self.slotted if asked not in self.running]:
            self.slotted.pop(asked).slots.give_back()
        self._planned, self._dropped = [], []

    def stop(self) -> None:
        """Stop what is under way."""
        for task in self.running.values():
            if task is not asyncio.current_task():
                task.cancel()
        self.running, self.recovering = {}, set()


_ENDS = frozenset(ENDS)


def children_before(session: Session, record: Record) -> list[str]:
    """The child queries that wait before a record after which some may not."""
    if not (record.withdrawn if type(record) is PausedRecord else type(record) in _ENDS):
        return []
    return [asked for asked, pending in session.pending.items() if isinstance(pending.query, ChildQuery)]
