"""Drains: which inboxes are worked through here, by a worker or by hand, and the turns that begin with them."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from holdfast.agent.machine.decide import decide_claim
from holdfast.agent.machine.fold import agent_fold
from holdfast.core.errors import HoldfastError
from holdfast.core.needs import missing_needs
from holdfast.core.records import Record
from holdfast.core.state import Session, State

if TYPE_CHECKING:
    from holdfast.agent.machine.fold import AgentFold
    from holdfast.agent.worker import Worker
    from holdfast.engine.engine import Engine
    from holdfast.engine.holdfast import Holdfast
    from holdfast.engine.owner import Owner


class HandDrain:
    """A drain of one inbox that somebody does by hand."""

    def __init__(self, turns: int | None = None, only: Collection[str] | None = None, id: str | None = None) -> None:
        self.left = turns
        """How many turns may still begin; None for any."""
        self.only = only
        """The items that may begin them; None for all."""
        self._id = id
        self._begun = 0

    def may_take(self, item_id: str) -> bool:
        """Whether an item may begin a turn."""
        return self.only is None or item_id in self.only

    def turn_id(self, planned: int) -> str | None:
        """The id of the turn that is the n-th of those that are planned; None if that is up to the agent."""
        return None if self._id is None else f"{self._id}-{self._begun + planned}"

    def began(self, turns: int) -> None:
        """So many turns have begun."""
        self._begun += turns
        if self.left is not None:
            self.left = max(0, self.left - turns)


def is_of_drain(turn: str, drain: str) -> bool:
    """Whether a turn is one that the drain of this name has begun."""
    number = turn.removeprefix(f"{drain}-")
    return number != turn and number.isdecimal()


class InboxDrains:
    """Which inboxes are drained in this process, and the turns that begin with them. An `Attendant` of an engine."""

    @classmethod
    def on(cls, engine: Engine) -> InboxDrains:
        """The instance of an engine, made when it is first needed."""
        found = next((each for each in engine.owner.attendants if isinstance(each, cls)), None)
        if found is None:
            found = cls(engine.owner)
            engine.owner.attendants.append(found)
        return found

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self.sessions: dict[str, HandDrain] = {}
        """Sessions that somebody drains by hand."""
        self.worker: Worker | None = None
        self._planned: Counter[str] = Counter()
        """Turns that begin with a commit that is not yet made, by session."""

    def records(self, session: Session, now: int) -> list[Record]:
        """Begin a turn with what waits in the inbox of an agent that is between turns, if it is drained here."""
        agent = agent_fold(session)
        if agent.turn is not None or not agent.inbox.waiting or session.state is not State.PAUSED:
            return []
        if not self._wants(session, agent, now):
            return []
        by_hand = self.sessions.get(session.id)
        if by_hand is None:
            return decide_claim(session, agent, now)
        return decide_claim(session, agent, now, by_hand.only, by_hand.turn_id(self._planned[session.id]))

    def _wants(self, session: Session, agent: AgentFold, now: int) -> bool:
        """Whether to begin a turn here with what waits in an inbox. If so, it is planned until `undone` is called."""
        hand = self.sessions.get(session.id)
        if not agent.inbox.claim(now, in_turn=False, only=None if hand is None else hand.only):
            return False
        if missing_needs(session, self._owner.offers):
            return False
        by_hand = hand is not None and (hand.left is None or hand.left > self._planned[session.id])
        if by_hand or (self.worker is not None and self.worker.admits(session)):
            self._planned[session.id] += 1
            return True
        return False

    def committed(self, session: Session, *, under_way: bool) -> None:
        """A commit of a session was made here."""
        planned = self._planned.pop(session.id, 0)
        if (by_hand := self.sessions.get(session.id)) is not None:
            by_hand.began(planned)
        if self.worker is not None:
            self.worker.begun += planned
            self.worker.saw(session, under_way=under_way)

    def undone(self, session_id: str) -> None:
        """A commit was refused or given up."""
        self._planned.pop(session_id, None)
        if self.worker is not None:
            self.worker.release(session_id)


@contextlib.contextmanager
def draining(holdfast: Holdfast, session_id: str, drain: HandDrain) -> Iterator[None]:
    """While this is open, begin turns of one session in this process with what waits in its inbox."""
    drained = InboxDrains.on(holdfast.engine).sessions
    if session_id in drained:
        raise HoldfastError(f"session '{session_id}' is being drained by this process already")
    drained[session_id] = drain
    try:
        yield
    finally:
        del drained[session_id]
