"""The events that a watcher of a session sees: those made from the journal, and those that replace missed ones.

Durable events follow from the journal alone: every fold of it yields the same events at the same positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Literal, TypeAlias, TypeVar

import msgspec

from holdfast.agent.live_events import LiveEvent
from holdfast.agent.machine.conversation import Conversation
from holdfast.agent.machine.inbox import Item
from holdfast.agent.machine.messages import AgentMessage, ToolUseBlock
from holdfast.agent.machine.policy import Policy
from holdfast.agent.machine.queries import CallQuery, InputQuery
from holdfast.agent.machine.records import DequeuedRecord, JoinedRecord
from holdfast.agent.machine.tree import Frame
from holdfast.agent.machine.turn import TurnOutcome
from holdfast.agent.machine.turn_state import CallState, TurnState
from holdfast.agent.results import ReadView, TokenUsage, UsageReport, ViewMessage, report_of, session_report, view_of
from holdfast.core.cursors import Cursor, cursor_text
from holdfast.core.queries import ChildQuery, HumanQuery, LlmQuery, Query, is_own
from holdfast.core.records import AnsweredRecord, AttemptedRecord, Entry, PausedRecord
from holdfast.core.values import Json

T = TypeVar("T")


class _Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    position: int
    """Of the entry that it follows from."""
    at: int
    """When that entry was written (unix ms)."""


class TurnBeganEvent(_Event, frozen=True, tag="turn_began"):
    """A turn has received its input."""

    turn: str
    items: list[str] = []
    """The inbox items that it was made from, if any."""
    begins_anew: bool = False
    """Whether the conversation starts over: what was said before is no longer part of it."""


class MessageEvent(_Event, frozen=True, tag="message"):
    """A settled message. It replaces the deltas that were shown of it before."""

    message: ViewMessage
    turn: str | None = None


class CallAskedEvent(_Event, frozen=True, tag="call_asked"):
    """A tool call was made; if nothing here runs the tool, it waits for someone who does."""

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
    """A tool call has a result."""

    turn: str | None
    call: str
    name: str
    result: Json
    is_error: bool = False


class AskedEvent(_Event, frozen=True, tag="asked"):
    """The session waits for a person, to answer or to approve a call, or for another session."""

    query: Query


class AnsweredEvent(_Event, frozen=True, tag="answered"):
    """The person or the other session has answered."""

    query: str
    by: str | None = None


class FrameEvent(_Event, frozen=True, tag="frame"):
    """The model sees a new frame from here on."""

    node: str
    frame: Frame


class QueueEvent(_Event, frozen=True, tag="queue"):
    """The waiting items of the inbox have changed."""

    added: list[Item] = []
    removed: list[str] = []
    waiting: int = 0
    """How many items wait now."""


class PolicyEvent(_Event, frozen=True, tag="policy"):
    """The policy has changed from here on."""

    policy: Policy


class TurnEndedEvent(_Event, frozen=True, tag="turn_ended"):
    """A turn is over."""

    turn: str
    outcome: TurnOutcome
    usage: TokenUsage


class SessionEndedEvent(_Event, frozen=True, tag="session_ended"):
    """The session has ended and takes no more turns."""

    how: str


class EntryEvent(_Event, frozen=True, tag="entry"):
    """A journal entry as it is: for sessions that are not agents, and for `observe(…, entries=True)`."""

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
    """What a model or a running tool has said so far. A durable event settles it."""

    turn: str
    call: str = ""
    """The tool call, if it is a tool's output."""
    text: str = ""
    reasoning: str = ""
    iteration: int = 0
    model: str = ""
    attempt: int = 1


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """A session as it is at a cursor."""

    view: ReadView
    cursor: str
    """`resume_from` and `subscribe_from` yield what came after this."""
    usage: UsageReport
    calls: list[ToolUseBlock]
    """Tool calls that have no result yet."""
    waiting: list[Query]
    """What the session waits for, except models and its next input: tools, people, other sessions."""
    queue: list[Item]
    """What waits in its inbox."""
    drafts: list[Draft]
    """What models and tools are saying now, as far as it is known here."""
    ended: str | None
    """How the session ended, or None if it has not."""

    @property
    def running(self) -> str | None:
        """The running turn, or None if there is none."""
        return self.view.running


class GapEvent(msgspec.Struct, frozen=True, tag="gap", tag_field="type"):
    """Events after the cursor are lost: this id now belongs to another session, which is shown instead."""

    reason: Literal["unavailable"]
    observation: Observation


class RedrawEvent(msgspec.Struct, frozen=True, tag="redraw", tag_field="type"):
    """Some live events were missed: replace the drafts that were shown. No durable event was missed."""

    observation: Observation


ObservableEvent: TypeAlias = DurableEvent | LiveEvent | RedrawEvent | GapEvent


class ObservedEvent(msgspec.Struct, frozen=True):
    """An event, and the watcher's cursor after it."""

    event: ObservableEvent
    after: Cursor

    @property
    def cursor(self) -> str:
        """The cursor to resume from, as text."""
        return cursor_text(self.after)


def observation_of(conversation: Conversation, cursor: Cursor, drafts: list[Draft]) -> Observation:
    """A session as it is at a cursor."""
    running = conversation.running
    return Observation(
        view=view_of(conversation),
        cursor=cursor_text(cursor),
        usage=session_report(conversation),
        calls=[each.call for each in running.calls if each.done is None] if running is not None else [],
        waiting=[each for each in conversation.asked.values() if not isinstance(each, LlmQuery | InputQuery)],
        queue=list(conversation.queue.values()),
        drafts=drafts,
        ended=conversation.ended,
    )


def events_of(conversation: Conversation, entry: Entry) -> list[DurableEvent]:
    """Fold one more entry, and return the events that follow from it."""
    events = events_after(conversation, entry)
    conversation.apply(entry)
    return events()


def events_after(conversation: Conversation, entry: Entry) -> Callable[[], list[DurableEvent]]:
    """A function that returns the events that follow from an entry, once that is folded into the conversation."""
    before = _Before(conversation)
    asked = _asked_in(conversation, entry)

    def events() -> list[DurableEvent]:
        if conversation.policy is None:
            return [EntryEvent(position=entry.position, at=entry.at, entry=entry)]
        return [*_changes(before, conversation, entry, asked)]

    return events


class _Before:
    """What a conversation was before an entry, to be compared with what it is after."""

    def __init__(self, conversation: Conversation) -> None:
        self.nodes = len(conversation.nodes)
        self.policy = conversation.policy
        self.generation = conversation.generation
        self.running = conversation.running
        self.ended = conversation.ended
        self.queue = len(conversation.queue)
        self.open = [call for call in self.running.calls if call.done is None] if self.running is not None else []


def _asked_in(conversation: Conversation, entry: Entry) -> Query | None:
    """The query that an entry is about; it may be settled by it."""
    record = entry.record
    return conversation.asked.get(record.query_id) if isinstance(record, AnsweredRecord | AttemptedRecord) else None


def _changes(before: _Before, now: Conversation, entry: Entry, asked: Query | None) -> Iterator[DurableEvent]:
    at_entry = {"position": entry.position, "at": entry.at}
    turn = before.running or now.running
    turn_id = turn.id if turn is not None else None
    if now.policy is not None and now.policy != before.policy:
        yield PolicyEvent(**at_entry, policy=now.policy)
    if now.running is not None and now.running is not before.running:
        anew = now.generation != before.generation
        yield TurnBeganEvent(**at_entry, turn=now.running.id, items=list(now.running.items), begins_anew=anew)
    if len(now.queue) != before.queue:
        yield _queue(before, now, entry)
    yield from _query_events(entry, asked, turn_id)
    for call in before.open:
        if call.done is not None:
            yield _settled(call, entry, turn_id)
    for node in now.nodes.after(before.nodes):
        if isinstance(node.payload, AgentMessage):
            message = ViewMessage(node.id, node.payload.role, node.payload.content, node.at)
            yield MessageEvent(**at_entry, message=message, turn=turn_id)
        else:
            yield FrameEvent(**at_entry, node=node.id, frame=node.payload)
    if before.running is not None and before.running.ended is not None:
        yield _ended(before.running, entry)
    if now.ended is not None and before.ended is None:
        yield SessionEndedEvent(**at_entry, how=now.ended)


def _query_events(entry: Entry, asked: Query | None, turn: str | None) -> Iterator[DurableEvent]:
    at_entry = {"position": entry.position, "at": entry.at}
    match entry.record:
        case PausedRecord(queries=queries, attempted=attempted):
            for query in queries:
                match query:
                    case CallQuery(call_id=call, name=name, arguments=arguments) if not is_own(query):
                        yield CallAskedEvent(
                            **at_entry, turn=turn, call=call, name=name, arguments=arguments, query=query.id
                        )
                        if attempted:
                            yield CallStartedEvent(**at_entry, turn=turn, call=call, name=name)
                    case HumanQuery() | ChildQuery():
                        yield AskedEvent(**at_entry, query=query)
                    case _:
                        pass  # the runtime's own business
        case AttemptedRecord():
            if isinstance(asked, CallQuery) and not is_own(asked):
                yield CallStartedEvent(**at_entry, turn=turn, call=asked.call_id, name=asked.name)
        case AnsweredRecord(by=by) if isinstance(asked, HumanQuery | ChildQuery):
            yield AnsweredEvent(**at_entry, query=asked.id, by=by)
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
