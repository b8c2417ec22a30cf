"""The conversation of an agent session, folded from its journal: an append-only tree of nodes with one active leaf.

Nothing is ever rewritten. A node is a message, or the opening of a frame. A frame is a fresh window: the model is not
shown what comes before it. A conversation that begins anew has a new root; the earlier nodes stay, as a closed branch.
Node ids follow from positions in the journal, so every process, and every retry, gives a node the same id.

Any journal can be folded; one of another kind yields an empty conversation. What an agent did not understand and
skipped (an input, a reply in an unknown form) is skipped here as well.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.agent.machine.archive import FORMAT, Archive, ArchivedNodes, ArchivedTurns, ConversationSegment, Part
from holdfast.agent.machine.delegated_usage import SUBAGENT, spent_by_model
from holdfast.agent.machine.delegation import outcome_of_delegation
from holdfast.agent.machine.folded_conversation import FoldedConversation, decode_folded_conversation
from holdfast.agent.machine.inbox import Item
from holdfast.agent.machine.messages import AgentMessage, TextBlock, ToolResultBlock
from holdfast.agent.machine.policy import Policy, PolicyState, policy_of
from holdfast.agent.machine.queries import CallQuery, DelegateQuery, InputQuery, ReplyQuery, SummaryQuery
from holdfast.agent.machine.records import (
    BoundRecord,
    CallRecord,
    ConfiguredRecord,
    DequeuedRecord,
    EnqueuedRecord,
    FrameRecord,
    JoinedRecord,
    SpentRecord,
    TurnRecord,
)
from holdfast.agent.machine.tree import NO_FRAME, Frame, Node, Tree
from holdfast.agent.machine.turn import (
    FrameSwitchOutcome,
    MessageOutcome,
    RecordedReply,
    StoppedOutcome,
    ToolCallOutcome,
    TurnOutcome,
    reply_of,
)
from holdfast.agent.machine.turn_input import TurnInput, input_of
from holdfast.agent.machine.turn_state import CallState, TurnState
from holdfast.core.queries import Answer, Failure, LlmQuery, Query, Usage, is_own
from holdfast.core.records import (
    AnsweredRecord,
    AttemptedRecord,
    CancelledRecord,
    CompletedRecord,
    Entry,
    ExpiredRecord,
    FailedRecord,
    PausedRecord,
    Program,
    StartedRecord,
    type_of,
)
from holdfast.core.values import Json, encode


class Conversation:
    """What was said in a session; if not `keep_all`, only what was said since it last began anew."""

    def __init__(self, session_id: str, *, keep_all: bool = True) -> None:
        self.session_id = session_id
        self.position = 0
        self._policies: PolicyState | None = None
        self.parent: str | None = None
        """The session on whose behalf this one runs."""
        self.ended: str | None = None
        """How the session ended, if it did. It then takes no more turns."""
        self.background: dict[str, Usage] = {}
        """What its processes have spent, by model."""
        self._archive = Archive(keep_all=keep_all)
        """All nodes and turns. The earlier ones may be in segments that were not decoded yet."""
        self.nodes: ArchivedNodes = self._archive.nodes
        self.turns: ArchivedTurns = self._archive.turns
        self._gained = Part()
        """What is not in any segment yet."""
        self._segmented = 0
        """The last position that the segments cover."""
        self.tree = Tree(self._archive.nodes)
        self.generation = 0
        """How often the conversation has begun anew."""
        self.running: TurnState | None = None
        self.input: str | None = None
        """The `InputQuery` that waits, between turns."""
        self.asked: dict[str, Query] = {}
        """Queries without an answer, by id."""
        self.keeps_all = keep_all
        self._numbers: dict[str, int] = {}
        """Where those items were accepted, by id."""
        self._items: dict[str, Item] = {}
        """Items of the inbox that are in no turn, by id."""
        self._joined: dict[str, tuple[str, int, Item]] = {}
        """Items that entered the turn but were not yet shown to the model, each with its node and time of arrival."""
        self._batch: list[CallState] = []  # the calls of the last reply, until their results are in the conversation
        self._called: dict[str, CallState] = {}  # those among them that were asked and have no answer, by query

    def apply(self, entry: Entry) -> None:
        """Fold one more entry."""
        match entry.record:
            case StartedRecord(program=Program(kind="agent"), ctx=dict() as ctx, parent=parent):
                policy = policy_of(ctx)
                self._policies = PolicyState(policy) if policy is not None else None
                self.parent = parent.session_id if parent is not None else ctx.get("parent")
                self._open_frame(entry, NO_FRAME)
            case PausedRecord(queries=queries, withdrawn=withdrawn, attempted=attempted):
                for gone in withdrawn:
                    self.asked.pop(gone, None)
                for query in queries:
                    self.asked[query.id] = query
                    self._on_asked(entry, query)
                    if attempted and self.running is not None and isinstance(query, LlmQuery):
                        self.running.asked += 1
            case AttemptedRecord(query_id=asked):
                if self.running is not None and isinstance(self.asked.get(asked), LlmQuery):
                    self.running.asked += 1
            case AnsweredRecord(query_id=asked, answer=answer, usage=usage):
                self._on_answer(entry, self.asked.pop(asked, None), answer, usage)
            case CallRecord(call_id=call_id, done=done):
                if (call := self._call(call_id)) is not None:
                    self._on_done(entry, call, done)
            case FrameRecord(key=key, reason=reason, summary=summary):
                said = self.running.messages if self.running is not None else []
                self._open_frame(entry, self.tree.opened(key, reason, summary, said))
            case BoundRecord(remark=remark, end=end):
                if remark:
                    self._append(f"n-{entry.position}.0", entry.at, AgentMessage("signal", [TextBlock(remark)]))
                if end.frame is not None:
                    self._open_frame(entry, Frame(end.frame.frame, "continue_as", end.frame.task))
            case TurnRecord(outcome=outcome):
                self._on_end(entry, outcome)
            case EnqueuedRecord(item=item):
                self._items[item.id] = item
                self._numbers[item.id] = entry.position
            case JoinedRecord(items=ids):
                self._on_joined(entry, ids)
            case DequeuedRecord(item_id=item_id):
                self._items.pop(item_id, None)
                self._joined.pop(item_id, None)
                self._numbers.pop(item_id, None)
            case ConfiguredRecord(change=change) if self._policies is not None:
                self._policies.configure(change, in_turn=self.running is not None)
            case SpentRecord(usage=usage):
                self.background = spent_by_model(self.background, usage)
            case CancelledRecord(reason=reason):
                self._on_session_end(entry, StoppedOutcome("cancelled", f"the session was cancelled: {reason}"))
            case FailedRecord(error=error):
                self._on_session_end(entry, StoppedOutcome("runtime_error", f"the session failed: {error}"))
            case ExpiredRecord(reason=reason):
                self._on_session_end(entry, StoppedOutcome("incomplete", f"the session expired: {reason}"))
            case CompletedRecord():
                self._on_session_end(entry, StoppedOutcome("incomplete", "the session ended"))
            case _:
                pass
        self.position = entry.position

    # --- checkpoints -------------------------------------------------------------------------------

    def segment(self) -> ConversationSegment | None:
        """What it gained since the last segment, once; None while a turn is under way, or if that is nothing.

        What is in earlier segments is in memory no longer as nodes and turns, but packed.
        The segments, in their order, and the latest `dump` are enough to restore it. Whoever loses a segment has to
        fold the journal again.
        """
        if self.running is not None or not self._gained.node_count:
            return None
        gained, self._gained = self._gained, Part()
        segment = ConversationSegment(self._segmented, self.position, self._archive.put_away(gained))
        self._segmented = self.position
        return segment

    def dump(self) -> bytes | None:
        """All that is in no segment, for a checkpoint; None while a turn is under way."""
        if self.running is not None:
            return None
        archive, tree = self._archive, self.tree
        return encode(
            FoldedConversation(
                format=FORMAT,
                position=self.position,
                policy=self.policy,
                parent=self.parent,
                ended=self.ended,
                generation=self.generation,
                input=self.input,
                asked=list(self.asked.values()),
                items=[(self._numbers[item_id], item) for item_id, item in self._items.items()],
                leaf=tree.leaf,
                frame=tree.frame,
                summed=tree.being_summed,
                segmented=self._segmented,
                in_segments=(archive.node_count, archive.turn_count),
                closed=(archive.closed_nodes, archive.closed_turns),
                gained=self._gained,
                background=self.background,
            )
        )

    @classmethod
    def restore(
        cls, session_id: str, state: bytes, segments: Sequence[bytes], *, keep_all: bool = True
    ) -> Conversation | None:
        """The conversation that `dump` was called on; None if a segment is missing, or another version wrote them."""
        try:
            folded = decode_folded_conversation(state)
            if folded.format != FORMAT:
                return None
            conversation = cls(session_id, keep_all=keep_all)
            conversation._take_over(folded, segments)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None
        archive = conversation._archive
        return conversation if (archive.node_count, archive.turn_count) == folded.in_segments else None

    def _take_over(self, folded: FoldedConversation, segments: Sequence[bytes]) -> None:
        archive = self._archive
        for segment in segments:
            archive.add_segment(segment)
        archive.restore(folded.closed, folded.gained)
        self._gained, self._segmented = folded.gained, folded.segmented
        self.position, self.parent = folded.position, folded.parent
        self._policies = PolicyState(folded.policy) if folded.policy is not None else None
        self.ended, self.generation, self.input = folded.ended, folded.generation, folded.input
        self.background = folded.background
        self.asked = {query.id: query for query in folded.asked}
        self._items = {item.id: item for _, item in folded.items}
        self._numbers = {item.id: position for position, item in folded.items}
        self.tree.restore(folded.leaf, folded.frame, folded.summed)

    # --- reading -----------------------------------------------------------------------------------

    @property
    def policy(self) -> Policy | None:
        """The policy of the running turn, or of the next one if none is running; None if this is no agent's."""
        return self._policies.current if self._policies is not None else None

    @property
    def next_policy(self) -> Policy | None:
        """The policy of the next turn; None if this is no agent's."""
        policies = self._policies
        return None if policies is None else policies.following or policies.current

    @property
    def messages(self) -> list[AgentMessage]:
        """Everything that was said on the active path, frames included."""
        return [node.payload for node in self.path() if isinstance(node.payload, AgentMessage)]

    @property
    def window(self) -> list[AgentMessage]:
        """What the model is shown: the messages of the active frame, the oldest first."""
        return self.tree.window

    @property
    def leaf(self) -> str | None:
        return self.tree.leaf

    @property
    def queue(self) -> dict[str, Item]:
        """The items of the inbox that no turn has taken, by id, in the order in which they were accepted."""
        return self._items

    @property
    def is_sound(self) -> bool:
        """Whether the active leaf is there: if not all is kept, too much may have been forgotten."""
        return self.keeps_all or self.leaf is None or self.leaf in self.nodes

    def path(self) -> list[Node]:
        """The nodes from the root to the active leaf."""
        return self.tree.path()

    # --- folding -----------------------------------------------------------------------------------

    def _on_asked(self, entry: Entry, query: Query) -> None:
        match query:
            case InputQuery():
                self._on_end(entry, MessageOutcome())
                self.input = query.id
            case SummaryQuery(keep=keep):
                self.tree.sum_up(keep, self.running.messages if self.running is not None else ())
            case ReplyQuery(remark=remark):
                if self._joined:
                    self._show_joined()
                if remark:
                    self._append(f"n-{entry.position}", entry.at, AgentMessage("signal", [TextBlock(remark)]))
            case CallQuery(call_id=call_id) if not is_own(query):
                self._on_called(query.id, call_id, query.arguments if query.edited else None)
            case DelegateQuery(call_id=call_id) if call_id:
                edited = {"agent": query.program, "task": query.task, "seed": query.seed} if query.edited else None
                self._on_called(query.id, call_id, edited)
            case _:
                pass

    def _on_called(self, asked: str, call_id: str, edited: dict[str, Json] | None) -> None:
        if (call := self._call(call_id)) is not None:
            self._called[asked], call.query, call.edited = call, asked, edited

    def _call(self, call_id: str) -> CallState | None:
        """The call of the last reply with this id. If a model used the id twice: the first that is still open."""
        running = list(self._called.values())
        there = (each for each in self._batch if each.call.id == call_id and each.done is None)
        return next((each for each in there if not any(each is other for other in running)), None)

    def _on_done(self, entry: Entry, call: CallState, done: ToolCallOutcome) -> None:
        call.done, call.position, call.at = done, entry.position, entry.at
        if all(each.done is not None for each in self._batch):
            self._append_results(entry)

    def _on_answer(self, entry: Entry, query: Query | None, answer: Answer, usage: Usage | None) -> None:
        match query:
            case InputQuery():
                try:
                    brought = input_of(answer)
                except ValueError:
                    return  # the program does not understand it either, and asks again
                self._on_input(entry, query.id, brought)
            case SummaryQuery():
                if usage is not None and self.running is not None:
                    self.running.usage.append(("compaction", self._model_of(_reply_in(answer)), usage))
            case ReplyQuery() if self.running is not None:
                self._on_reply(entry, answer, usage)
            case LlmQuery() if self.running is not None:
                if usage is not None and self._policies is not None:
                    by_model = usage.by_model or {self._policies.current.model: usage}
                    self.running.usage += [("cell", model, spent) for model, spent in by_model.items()]
            case CallQuery() if (call := self._called.pop(query.id, None)) is not None:
                self._on_done(entry, call, tool_done(answer))
            case DelegateQuery():
                self._on_delegated(entry, query, answer, usage)
            case _:
                pass

    def _on_delegated(self, entry: Entry, query: DelegateQuery, answer: Answer, usage: Usage | None) -> None:
        if usage is not None and self.running is not None:
            by_model = usage.by_model or {"": usage}
            self.running.usage += [(SUBAGENT, model, spent) for model, spent in by_model.items()]
        if (call := self._called.pop(query.id, None)) is not None:
            self._on_done(entry, call, outcome_of_delegation(answer, query.id))

    def _on_input(self, entry: Entry, query: str, given: TurnInput) -> None:
        self.input = None
        if given.begin is not None:
            if given.begin.policy is not None:
                self._policies = PolicyState(given.begin.policy)
            self.generation += 1
            self.tree.begin_anew()
            self._archive.close_branch(self._gained)
            for number, message in enumerate(given.begin.messages):
                self._append(f"n-{entry.position}.{number}", entry.at, message)
        if given.spec is not None and (policies := self._policies) is not None:
            policies.begin_turn(given.spec)
        turn = TurnState(
            id=given.turn,
            position=entry.position,
            at=entry.at,
            content=given.content,
            query=query,
            output=given.output,
            command=given.command,
            prompt=given.prompt,
            items=list(given.items),
            begins=given.begin is not None,
            spec=given.spec,
        )
        self.running = turn
        if not self.turns.add(turn):
            self._gained.repeated += 1
        for item_id in given.items:
            self._items.pop(item_id, None)
            self._numbers.pop(item_id, None)
        if given.command is None:
            self._append(f"n-{entry.position}", entry.at, AgentMessage("user", given.content))

    def _on_joined(self, entry: Entry, ids: list[str]) -> None:
        for number, item_id in enumerate(ids):
            item = self._items.pop(item_id, None)
            if item is not None:
                self._joined[item_id] = (f"n-{entry.position}.{number}", entry.at, item)

    def _show_joined(self) -> None:
        """Append the items that entered the turn: before the model is asked, and after the results it waits for."""
        for item_id, (node, at, item) in self._joined.items():
            self._append(node, at, AgentMessage("user", item.content))
            self._numbers.pop(item_id, None)
            if self.running is not None:
                self.running.items.append(item_id)
        self._joined = {}

    def _on_reply(self, entry: Entry, answer: Answer, usage: Usage | None) -> None:
        assert self.running is not None
        reply = _reply_in(answer)
        if usage is not None:
            self.running.usage.append(("turn", self._model_of(reply), usage))
        if reply is None:
            return
        if reply.says_something:
            self._append(f"n-{entry.position}", entry.at, AgentMessage("assistant", reply.content))
        self._batch = list(map(CallState, reply.calls))
        self.running.calls += self._batch

    def _model_of(self, reply: RecordedReply | None) -> str:
        if reply is None or reply.model:
            return "" if reply is None else reply.model
        return self._policies.current.model if self._policies is not None else ""

    def _append_results(self, entry: Entry) -> None:
        """Append the results of the calls, in their order. Providers require one for each, even if it did not run."""
        for number, each in enumerate(self._batch):
            if each.done is None:
                node, at, done = f"n-{entry.position}.{number}", entry.at, _NOT_RUN
            else:
                node, at, done = f"n-{each.position}", each.at, each.done
            if each.edited is not None:  # else the model would attribute the result to its own arguments
                fields = done.content if done.is_error and isinstance(done.content, dict) else {"result": done.content}
                note = {"note": "the call was approved with changed arguments", "arguments": each.edited}
                done = msgspec.structs.replace(done, content={**fields, **note})
            block = ToolResultBlock(each.call.id, done.content, is_error=done.is_error)
            self._append(node, at, AgentMessage("tool", [block]))
        self._batch, self._called = [], {}

    def _on_end(self, entry: Entry, outcome: TurnOutcome) -> None:
        """End the running turn, if there is one."""
        turn = self.running
        if turn is None:
            return
        if self._joined:  # what the model was not shown waits again, at its old place
            back = {item_id: item for item_id, (_, _, item) in self._joined.items()}
            self._items = dict(sorted({**self._items, **back}.items(), key=lambda each: self._numbers[each[0]]))
        self._joined = {}
        turn.ended, turn.ended_position, turn.ended_at = outcome, entry.position, entry.at
        if self._batch:
            self._append_results(entry)
        match outcome:
            case StoppedOutcome(reason="max_turns", detail=detail):
                note = AgentMessage("system", [TextBlock(f"The turn was stopped: {detail}.")])
                self._append(f"n-{entry.position}", entry.at, note)
            case FrameSwitchOutcome(frame=key, task=task):
                self._open_frame(entry, Frame(key, "continue_as", task))
            case _:
                pass
        self.running = None
        if self._policies is not None and self._policies.following is not None:
            self._policies.turn_over()
        self._gained.add_turn(turn)

    def _on_session_end(self, entry: Entry, outcome: StoppedOutcome) -> None:
        """A turn that is under way ends with its session."""
        self._on_end(entry, outcome)
        self.ended = type_of(entry.record)
        self.input, self.asked = None, {}

    def _open_frame(self, entry: Entry, frame: Frame) -> None:
        self._gained.add_frame(self.tree.open(f"n-{entry.position}", entry.at, frame))

    def _append(self, node_id: str, at: int, message: AgentMessage) -> None:
        self._gained.messages.append(self.tree.append(node_id, at, message))
        if self.running is not None:
            self.running.messages.append(message)


def _reply_in(answer: Answer) -> RecordedReply | None:
    """The reply that an answer brings, or None if it brings none."""
    try:
        return None if isinstance(answer, Failure) else reply_of(answer.value)
    except msgspec.ValidationError:
        return None


def tool_done(answer: Answer) -> ToolCallOutcome:
    """The outcome of a call, from the answer to its query. A host that answers from outside may send any value."""
    if isinstance(answer, Failure):
        executed = answer.code not in ("unknown_tool", "invalid_arguments")
        return ToolCallOutcome(content={"error": answer.message, "code": answer.code}, is_error=True, executed=executed)
    value = answer.value
    if isinstance(value, dict) and set(value) == {TOOL_MARK}:
        return msgspec.convert(value[TOOL_MARK], ToolCallOutcome)
    return ToolCallOutcome(content=value)


def tool_answer(done: ToolCallOutcome) -> Json:
    """The answer that carries the whole outcome, not only what the model is shown."""
    return {TOOL_MARK: msgspec.to_builtins(done)}


_NOT_RUN = ToolCallOutcome(content={"error": "not run: the turn was stopped", "code": "not_run"}, is_error=True)

TOOL_MARK = "$tool"
"""The key of an answer that carries more than its content."""

FULL = "full"
"""Beneath it, the key of a tool's whole result, if its content is only a part of that."""
