"""What a watcher of a session sees: events made of the journal, and what stands for those that it cannot be shown.

Durable events follow from the journal alone: whoever folds it, wherever and whenever, gets the same at the same place.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Literal, TypeAlias, TypeVar

import msgspec

from holdfast.agent.live_events import LiveEvent
from holdfast.agent.machine.conversation import CallState, Conversation, TurnState
from holdfast.agent.machine.inbox import Item
from holdfast.agent.machine.messages import AgentMessage, ToolUseBlock
from holdfast.agent.machine.policy import Policy
from holdfast.agent.machine.queries import CallQuery, InputQuery
from holdfast.agent.machine.records import DequeuedRecord, JoinedRecord
from holdfast.agent.machine.tree import Frame
from holdfast.agent.machine.turn import TurnOutcome
from holdfast.agent.results import ReadView, TokenUsage, UsageReport, ViewMessage, report_of, view_of
from holdfast.core.cursors import Cursor, cursor_text
from holdfast.core.queries import ChildQuery, HumanQuery, LlmQuery, Query, is_own
from holdfast.core.records import AnsweredRecord, AttemptedRecord, Entry, PausedRecord
from holdfast.core.values import Json

T = TypeVar("T")


class _Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    position: int
    """Of the entry that it follows from."""
    at: int
    """When that was written (unix ms)."""


class TurnBeganEvent(_Event, frozen=True, tag="turn_began"):
    """A turn has its input."""

    turn: str
    items: list[str] = []
    """The items of the inbox that it is made of, where it is."""
    begins_anew: bool = False
    """Whether what was said before is no part of the conversation any more."""


class MessageEvent(_Event, frozen=True, tag="message"):
    """Something was said, and stays so. What was shown of it before, piece by piece, is replaced by this."""

    message: ViewMessage
    turn: str | None = None


class CallAskedEvent(_Event, frozen=True, tag="call_asked"):
    """A tool is to be run; where nothing here runs it, whoever can is waited for."""

    turn: str | None
    call: str
    name: str
    arguments: Json
    query: str


class CallStartedEvent(_Event, frozen=True, tag="call_started"):
    """A tool is about to run."""

    turn: str | None
    call: str
    name: str


class CallSettledEvent(_Event, frozen=True, tag="call_settled"):
    """A call has come to something."""

    turn: str | None
    call: str
    name: str
    result: Json
    is_error: bool = False


class AskedEvent(_Event, frozen=True, tag="asked"):
    """Somebody is waited for: a person, to answer or to approve a call; or another session."""

    query: Query


class AnsweredEvent(_Event, frozen=True, tag="answered"):
    """They have answered."""

    query: str
    by: str | None = None


class FrameEvent(_Event, frozen=True, tag="frame"):
    """The model has a fresh window from here on."""

    node: str
    frame: Frame


class QueueEvent(_Event, frozen=True, tag="queue"):
    """What waits in the inbox is another than before."""

    added: list[Item] = []
    removed: list[str] = []
    waiting: int = 0
    """How many wait now."""


class PolicyEvent(_Event, frozen=True, tag="policy"):
    """Turns are run otherwise from here on."""

    policy: Policy


class TurnEndedEvent(_Event, frozen=True, tag="turn_ended"):
    """A turn is over."""

    turn: str
    outcome: TurnOutcome
    usage: TokenUsage


class SessionEndedEvent(_Event, frozen=True, tag="session_ended"):
    """The session takes no more turns."""

    how: str


class EntryEvent(_Event, frozen=True, tag="entry"):
    """An entry of the journal, as it is: for sessions that are no agents, and for whoever wants it so."""

    entry: Entry


DurableEvent: TypeAlias = (
    TurnBeganEvent
    | MessageEvent
    | CallAskedEvent
    | CallStartedEvent
    | CallSettledEvent
    | AskedEvent
    | AnsweredEvent
    | FrameEvent
    | QueueEvent
    | PolicyEvent
    | TurnEndedEvent
    | SessionEndedEvent
    | EntryEvent
)


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """What a model is about to say, or a tool says while it runs. It is settled by what the journal tells."""

    turn: str
    call: str = ""
    """The call, of a tool."""
    text: str = ""
    reasoning: str = ""
    iteration: int = 0
    model: str = ""
    attempt: int = 1


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """A session as it is at a cursor."""

    view: ReadView
    cursor: str
    """What came after this is had with `resume_from` and `subscribe_from`."""
    usage: UsageReport
    calls: list[ToolUseBlock]
    """Calls of tools that have not come to something."""
    waiting: list[Query]
    """What the session waits for, but for models and its next input: tools, people, other sessions."""
    queue: list[Item]
    """What waits in its inbox."""
    drafts: list[Draft]
    """What is said at the moment, as far as it is known here."""
    ended: str | None
    """How the session ended, if it did."""

    @property
    def running(self) -> str | None:
        """The turn that is under way."""
        return self.view.running


class GapEvent(msgspec.Struct, frozen=True, tag="gap", tag_field="type"):
    """What came after the cursor cannot be had: the session under this id is another one by now. This is what it is."""

    reason: Literal["unavailable"]
    observation: Observation


class RedrawEvent(msgspec.Struct, frozen=True, tag="redraw", tag_field="type"):
    """Some of what is said meanwhile was missed: what was shown of it is to be replaced. Nothing durable was missed."""

    observation: Observation


ObservableEvent: TypeAlias = DurableEvent | LiveEvent | RedrawEvent | GapEvent


class ObservedEvent(msgspec.Struct, frozen=True):
    """An event, and where the watcher is after it."""

    event: ObservableEvent
    place: Cursor

    @property
    def cursor(self) -> str:
        """To come back with."""
        return cursor_text(self.place)


def observation_of(conversation: Conversation, cursor: Cursor, drafts: list[Draft]) -> Observation:
    """A session as it is at a cursor."""
    running = conversation.running
    return Observation(
        view=view_of(conversation),
        cursor=cursor_text(cursor),
        usage=report_of(conversation.turns.values()),
        calls=[each.call for each in running.calls if each.done is None] if running is not None else [],
        waiting=[each for each in conversation.asked.values() if not isinstance(each, LlmQuery | InputQuery)],
        queue=list(conversation.queue.values()),
        drafts=drafts,
        ended=conversation.ended,
    )


def events_of(conversation: Conversation, entry: Entry) -> list[DurableEvent]:
    """Fold one more entry, and tell what that means."""
    before = _Before(conversation)
    asked = _asked_in(conversation, entry)
    conversation.apply(entry)
    if conversation.policy is None:
        return [EntryEvent(position=entry.position, at=entry.at, entry=entry)]
    return [*_told(before, conversation, entry, asked)]


class _Before:
    """What a conversation was before an entry, as far as it is compared with what it is after."""

    def __init__(self, conversation: Conversation) -> None:
        self.nodes = len(conversation.nodes)
        self.policy = conversation.policy
        self.generation = conversation.generation
        self.running = conversation.running
        self.ended = conversation.ended
        self.queue = len(conversation.queue)
        self.open = [call for call in self.running.calls if call.done is None] if self.running is not None else []


def _asked_in(conversation: Conversation, entry: Entry) -> Query | None:
    """The query that an entry is about, which may be gone after it."""
    record = entry.record
    return conversation.asked.get(record.query_id) if isinstance(record, AnsweredRecord | AttemptedRecord) else None


def _told(before: _Before, now: Conversation, entry: Entry, asked: Query | None) -> Iterator[DurableEvent]:
    place = {"position": entry.position, "at": entry.at}
    turn = before.running or now.running
    turn_id = turn.id if turn is not None else None
    if now.policy is not None and now.policy != before.policy:
        yield PolicyEvent(**place, policy=now.policy)
    if now.running is not None and now.running is not before.running:
        anew = now.generation != before.generation
        yield TurnBeganEvent(**place, turn=now.running.id, items=list(now.running.items), begins_anew=anew)
    if len(now.queue) != before.queue:
        yield _queue(before, now, entry)
    yield from _told_of_queries(entry, asked, turn_id)
    for call in before.open:
        if call.done is not None:
            yield _settled(call, entry, turn_id)
    for node in _latest(now.nodes, len(now.nodes) - before.nodes):
        if isinstance(node.payload, AgentMessage):
            message = ViewMessage(node.id, node.payload.role, node.payload.content, node.at)
            yield MessageEvent(**place, message=message, turn=turn_id)
        else:
            yield FrameEvent(**place, node=node.id, frame=node.payload)
    if before.running is not None and before.running.ended is not None:
        yield _ended(before.running, entry)
    if now.ended is not None and before.ended is None:
        yield SessionEndedEvent(**place, how=now.ended)


def _told_of_queries(entry: Entry, asked: Query | None, turn: str | None) -> Iterator[DurableEvent]:
    place = {"position": entry.position, "at": entry.at}
    match entry.record:
        case PausedRecord(queries=queries):
            for query in queries:
                match query:
                    case CallQuery(call_id=call, name=name, arguments=arguments) if not is_own(query):
                        told = CallAskedEvent(
                            **place, turn=turn, call=call, name=name, arguments=arguments, query=query.id
                        )
                        yield told
                    case HumanQuery() | ChildQuery():
                        yield AskedEvent(**place, query=query)
        case AttemptedRecord():
            if isinstance(asked, CallQuery) and not is_own(asked):
                yield CallStartedEvent(**place, turn=turn, call=asked.call_id, name=asked.name)
        case AnsweredRecord(by=by) if isinstance(asked, HumanQuery | ChildQuery):
            yield AnsweredEvent(**place, query=asked.id, by=by)
        case _:
            pass


def _queue(before: _Before, now: Conversation, entry: Entry) -> QueueEvent:
    added = [*_latest(now.queue, len(now.queue) - before.queue)]
    removed: list[str] = []
    if not added:
        match entry.record:
            case DequeuedRecord(item_id=item_id):
                removed = [item_id]
            case JoinedRecord(items=items):
                removed = items
            case _:
                removed = list(now.running.items) if now.running is not None else []
    return QueueEvent(position=entry.position, at=entry.at, added=added, removed=removed, waiting=len(now.queue))


def _latest(values: dict[str, T], count: int) -> list[T]:
    """The last few of many, in their order."""
    return [*islice(reversed(values.values()), max(0, count))][::-1]


def _settled(call: CallState, entry: Entry, turn: str | None) -> CallSettledEvent:
    assert call.done is not None
    return CallSettledEvent(
        position=entry.position,
        at=entry.at,
        turn=turn,
        call=call.call.id,
        name=call.call.name,
        result=call.done.content,
        is_error=call.done.is_error,
    )


def _ended(turn: TurnState, entry: Entry) -> TurnEndedEvent:
    assert turn.ended is not None
    usage = report_of([turn]).total
    return TurnEndedEvent(position=entry.position, at=entry.at, turn=turn.id, outcome=turn.ended, usage=usage)
