"""Decisions about agents: what a message or the clock does to an inbox and a turn, as the records to append.

Every function here is pure, as in `core.decide`: it validates first, and its records can be appended as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from holdfast.agent.machine.errors import InboxFullError, ItemConflictError, NoInboxError
from holdfast.agent.machine.inbox import INBOX, MAX_WAITING, Item, claim, is_same_item
from holdfast.agent.machine.mailbox import ConfigureMessage, EnqueueMessage, SpentMessage, StopMessage, WithdrawMessage
from holdfast.agent.machine.policy import resolve
from holdfast.agent.machine.queries import InputQuery
from holdfast.agent.machine.records import (
    ConfiguredRecord,
    DequeuedRecord,
    EnqueuedRecord,
    JoinedRecord,
    SpentRecord,
    StopRecord,
)
from holdfast.agent.machine.turn_input import input_from
from holdfast.core.decide import Decision, Repeats
from holdfast.core.errors import InvalidValueError
from holdfast.core.ids import check_id
from holdfast.core.queries import Failure
from holdfast.core.records import AnsweredRecord, Entry, Record
from holdfast.core.state import Session, State
from holdfast.core.values import checked

if TYPE_CHECKING:
    from holdfast.agent.machine.fold import AgentFold


def repeats_of(agent: AgentFold, message: EnqueueMessage) -> Repeats | None:
    """The item that a message may send again; None if it is new."""
    known = agent.inbox.accepted.get(message.item.id)
    return None if known is None else Repeats({message.item.id: known.position}, _item_accepted_in)


def _item_accepted_in(record: Record) -> str | None:
    return record.item.id if type(record) is EnqueuedRecord else None


def decide_enqueue(
    session: Session, agent: AgentFold, message: EnqueueMessage, now: int, recorded: Mapping[str, Entry]
) -> Decision:
    """Accept an item. The same again is a replay; another one under the same id is a conflict."""
    item = message.item
    check_id(item.id, "item id")
    checked(message, "item")
    before = recorded.get(item.id)
    if before is not None:
        assert isinstance(before.record, EnqueuedRecord)
        if not is_same_item(before.record.item, item):
            raise ItemConflictError(session.id, item.id)
        return Decision([], replayed=[session.position])
    if session.is_terminal:
        raise NoInboxError(session.id, f"it is {session.state}; fork it, or open another one")
    if not item.content and item.command is None:
        raise InvalidValueError("item", "it is empty; add some content")
    if item.output is not None and (item.slot != "exclusive" or item.delivery != "after_turn"):
        raise InvalidValueError(
            "item", "an item that wants a value needs a turn of its own: delivery after_turn, slot exclusive"
        )
    if len(agent.inbox.waiting) >= MAX_WAITING:
        raise InboxFullError(session.id, len(agent.inbox.waiting))
    joined = decide_join(session, agent, now, item)
    return Decision.of(EnqueuedRecord(item=item, by=message.by), *joined)


def decide_withdraw(session: Session, agent: AgentFold, message: WithdrawMessage) -> Decision:
    """Take an item out of the inbox, or out of a turn that has not yet shown it to the model; otherwise do nothing."""
    checked(message, "cancellation")
    # A program that was resumed has counted what entered its turn, and must find the same in a replay.
    is_late = message.item_id in agent.inbox.unseen and session.state is not State.PAUSED
    if session.is_terminal or is_late or not agent.inbox.can_withdraw(message.item_id):
        return Decision([])
    return Decision.of(DequeuedRecord(item_id=message.item_id, reason=message.reason, by=message.by))


def decide_stop(session: Session, agent: AgentFold, message: StopMessage) -> Decision:
    """Stop the turn under way: everything it waits for fails, which ends it. Any other turn is not affected.

    One that has not begun is stopped in advance, if that was asked for.
    """
    checked(message, "cancellation")
    check_id(message.turn, "turn id")
    is_new = agent.turn != message.turn and message.turn not in agent.stopped_ahead
    if message.ahead and is_new and session.state is State.PAUSED:
        return Decision.of(StopRecord(turn=message.turn, reason=message.reason, by=message.by))
    return Decision.of(*_stopped(session, agent, message))


def decide_expire(session: Session, agent: AgentFold, reason: str) -> list[Record]:
    """Stop a turn that has waited too long; nothing between turns, as a conversation does not expire."""
    return [] if agent.turn is None else _stopped(session, agent, StopMessage(agent.turn, reason, by="clock"))


def _stopped(session: Session, agent: AgentFold, message: StopMessage) -> list[Record]:
    if agent.turn != message.turn or session.state is not State.PAUSED or agent.stop is not None:
        return []
    stop = StopRecord(turn=message.turn, reason=message.reason, by=message.by)
    failure = Failure(message.reason or "somebody stopped it", "cancelled")
    waits = list(session.pending) if session.wake == "all" else list(session.pending)[:1]
    return [stop, *(AnsweredRecord(query_id=asked, answer=failure, by=message.by) for asked in waits)]


def decide_configure(session: Session, agent: AgentFold, message: ConfigureMessage) -> Decision:
    """Change the policy from the next turn on; nothing to do if it says so already."""
    checked(message, "configuration")
    record = ConfiguredRecord(change=message.change, by=message.by)
    session.check(record)
    before = agent.policies.next
    return Decision([]) if resolve(message.change, before) == before else Decision.of(record)


def decide_spent(session: Session, agent: AgentFold, message: SpentMessage) -> Decision:
    """Count what a process has spent, once; nothing to do for a session that is over."""
    check_id(message.process, "process id")
    checked(message, "usage of a process")
    if session.is_terminal or message.process in agent.spenders:
        return Decision([], replayed=[session.position])
    return Decision.of(SpentRecord(process=message.process, usage=message.usage))


def decide_join(session: Session, agent: AgentFold, now: int, arriving: Item | None = None) -> list[Record]:
    """Let items enter the turn under way, if their delivery says so: some that wait, or one that is arriving."""
    # Only while the program waits: when it is resumed it must know everything that has entered, in a replay as well.
    if agent.turn is None or session.state is not State.PAUSED or agent.inbox.unseen or agent.stop is not None:
        return []
    waiting = agent.inbox.waiting.values()
    items = claim(waiting if arriving is None else [*waiting, arriving], now, in_turn=True)
    return [JoinedRecord(turn=agent.turn, items=[item.id for item in items])] if items else []


def decide_claim(
    session: Session, agent: AgentFold, now: int, only: Collection[str] | None = None, turn: str | None = None
) -> list[Record]:
    """If an agent is between turns, begin a turn with what waits in its inbox; otherwise do nothing.

    `only` are the items that may begin it, and `turn` is its id; None for all, and for one that is made.
    """
    asked = next((asked for asked, p in session.pending.items() if isinstance(p.query, InputQuery)), None)
    if asked is None or session.state is not State.PAUSED:
        return []
    items = agent.inbox.claim(now, in_turn=False, only=only)
    if not items:
        return []
    brought = input_from(turn or f"inbox-{session.position + 1}", items)
    return [AnsweredRecord(query_id=asked, answer=brought.to_answer(), by=INBOX)]
