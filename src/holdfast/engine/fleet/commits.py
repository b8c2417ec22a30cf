"""`CommitNudges`: which commits of this process are followed by a nudge, and by what kind.

A session that something is under way of is looked after here: by the clock of this process, for as long as it is. One
that the engine has brought here is driven, and the drive says at its end what is left. For all others, somebody is
nudged now if a process can move them on, and at the time when something is due in them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container, Sequence
from functools import partial

from holdfast.core.errors import HoldfastError
from holdfast.core.needs import parse_needs
from holdfast.core.queries import ChildQuery
from holdfast.core.records import Record
from holdfast.core.state import IMPORTED, Session
from holdfast.core.summary import summarize
from holdfast.engine.dispatch import Dispatch
from holdfast.engine.engine import Engine

log = logging.getLogger("holdfast.dispatch")


class CommitNudges:
    """An `Attendant` that adds nothing to sessions, and nudges somebody about what it sees."""

    def __init__(self, engine: Engine, dispatch: Dispatch, driven: Container[str]) -> None:
        self._engine = engine
        self._dispatch = dispatch
        self._driven = driven
        """Sessions that the engine has brought here."""
        self._alarms: dict[str, tuple[int, asyncio.TimerHandle]] = {}
        """When something is due in sessions that something is under way of here."""

    def records(self, session: Session, now: int) -> Sequence[Record]:
        return ()

    def undone(self, session_id: str) -> None:
        """What was to be committed was not, so nobody has to hear of it."""

    def committed(self, session: Session, *, under_way: bool) -> None:
        due = due_of(session)
        if under_way:
            self._set_alarm(session.id, due)
            return
        if self._alarms:
            self._set_alarm(session.id, None)
        if session.id not in self._driven:
            if due is not None:
                self._dispatch.nudge_at(session.id, due)
            if is_left_to_processes(session, self._engine):
                self._dispatch.nudge(session.id, session.position)

    def stop(self) -> None:
        """Let the alarms be."""
        for session_id in list(self._alarms):
            self._set_alarm(session_id, None)

    def _set_alarm(self, session_id: str, due: int | None) -> None:
        kept = self._alarms.get(session_id)
        if kept is not None:
            if kept[0] == due:
                return
            kept[1].cancel()
            del self._alarms[session_id]
        if due is not None:
            delay_s = max(0, due - self._engine.owner.now()) / 1000
            alarm = asyncio.get_running_loop().call_later(delay_s, partial(self._ring, session_id))
            self._alarms[session_id] = due, alarm

    def _ring(self, session_id: str) -> None:
        self._alarms.pop(session_id, None)
        self._engine.owner.spawn(self._wake(session_id))

    async def _wake(self, session_id: str) -> None:
        try:
            await self._engine.wake(session_id)
        except HoldfastError as error:
            log.warning("session '%s' could not be woken here, and is left to others: %s", session_id, error)
            self._dispatch.nudge(session_id)


def due_of(session: Session) -> int | None:
    """When the clock has to look at a session next (unix ms)."""
    return None if session.is_terminal or session.state is IMPORTED else session.next_due()


def is_left_to_processes(session: Session, engine: Engine) -> bool:
    """Whether a session of which nothing is under way here can be moved on by some process, as far as its row says."""
    needs = summarize(session).needs
    if not needs:
        return False
    row = parse_needs(needs)
    if row.named or row.words - {"child", "human"}:  # people answer nearly always; a process that does is swept for
        return True
    asked = [each.query for each in session.pending.values() if isinstance(each.query, ChildQuery)]
    return not all(engine.owner.attends(session, query, 0) for query in asked)
