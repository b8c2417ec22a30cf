"""The conversation of an agent session, folded from its journal: an append-only tree of nodes with one active leaf.

Nothing is ever rewritten. A node is a message, or the opening of a frame, which is a fresh window: what stands before
it is not shown to the model. A conversation that begins anew has a new root; the nodes before stay, as a closed branch.
Node ids follow from positions in the journal, so every process, and every retry, gives a node the same id.

Any journal can be folded; one that is no agent's comes to nothing. What an agent did not understand and passed over (an
input, a reply in no known form) is passed over here as well.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import msgspec

from holdfast.core.messages import AgentMessage, ContentBlock, TextBlock, ToolResultBlock, ToolUseBlock
from holdfast.core.policy import Policy
from holdfast.core.queries import Answer, Failure, InputQuery, LlmQuery, Query, ToolQuery, Usage
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
    TurnRecord,
    type_of,
)
from holdfast.core.turn import FinishedMessage, FrameSwitch, Outcome, Stopped, ToolDone, reply_of
from holdfast.core.values import Json


class FrameOpen(msgspec.Struct, frozen=True):
    """A fresh window begins."""

    key: str
    reason: str
    task: str = ""


class Node(msgspec.Struct, frozen=True):
    """One thing that was said, and what it was said after."""

    id: str
    parent: str | None
    at: int
    payload: AgentMessage | FrameOpen


class Begin(msgspec.Struct, frozen=True, omit_defaults=True):
    """The conversation begins anew with this turn: from nothing, or from these messages."""

    messages: list[AgentMessage] = []


class TurnInput(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a turn begins with: the answer to an `InputQuery`."""

    turn: str
    """The turn's id. The same id again is the same turn."""
    content: list[ContentBlock]
    policy: Policy | None = None
    """In force from this turn on, where it is not the one before."""
    begin: Begin | None = None
    output: dict[str, Json] | None = None
    """JSON schema of the value that the turn is to come to, where it is to come to one."""


class CallState(msgspec.Struct):
    """A call of a tool, and what came of it."""

    call: ToolUseBlock
    done: ToolDone | None = None
    position: int = 0
    """Of the answer."""
    at: int = 0


class TurnState(msgspec.Struct, kw_only=True):
    """A turn as far as the journal tells of it."""

    id: str
    position: int
    """Of its input."""
    at: int
    content: list[ContentBlock]
    query: str
    """The `InputQuery` that it answers."""
    output: dict[str, Json] | None = None
    begins: bool = False
    """Whether the conversation began anew with it."""
    ended: Outcome | None = None
    """What it came to; None while it is under way."""
    ended_position: int = 0
    ended_at: int = 0
    messages: list[AgentMessage] = msgspec.field(default_factory=list)
    """What was said in it, the input first."""
    usage: list[tuple[str, str, Usage]] = msgspec.field(default_factory=list)
    """For every call of a model: what for, which model, and its usage."""
    asked: int = 0
    """How often a model was begun to be asked, in the attempts of all processes."""
    calls: list[CallState] = msgspec.field(default_factory=list)
    is_whole: bool = True
    """False if what was said in it was let go of."""


class Conversation:
    """What was said in a session; with `keep_all` False, what was said since it last began anew."""

    def __init__(self, session_id: str, *, keep_all: bool = True) -> None:
        self.session_id = session_id
        self.position = 0
        self.policy: Policy | None = None
        self.parent: str | None = None
        """The session on whose behalf this one is."""
        self.ended: str | None = None
        """How the session ended, if it did: it takes no more turns then."""
        self.nodes: dict[str, Node] = {}
        self.leaf: str | None = None
        self.generation = 0
        """How often the conversation has begun anew."""
        self.turns: dict[str, TurnState] = {}
        self.running: TurnState | None = None
        self.input: str | None = None
        """The `InputQuery` that waits, between turns."""
        self.window: list[AgentMessage] = []
        """What the model is shown: the messages of the active frame, the oldest first."""
        self.asked: dict[str, Query] = {}
        """Queries without an answer, by id."""
        self.keeps_all = keep_all
        self._batch: list[CallState] = []
        """The calls of the last reply, until their results are told."""
        self._called: dict[str, CallState] = {}
        """Those of them that were asked and have no answer, by query."""

    def apply(self, entry: Entry) -> None:
        """Fold one more entry."""
        match entry.record:
            case StartedRecord(program=Program(kind="agent"), ctx=dict() as ctx):
                self.policy = policy_of(ctx)
                self.parent = ctx.get("parent")
                self._open_frame(entry, FrameOpen("main", "initial"))
            case PausedRecord(queries=queries, withdrawn=withdrawn):
                for gone in withdrawn:
                    self.asked.pop(gone, None)
                for query in queries:
                    self.asked[query.id] = query
                    if isinstance(query, InputQuery):
                        self._on_end(entry, FinishedMessage())
                        self.input = query.id
                calls = [query.id for query in queries if isinstance(query, ToolQuery)]
                self._called = dict(zip(calls, self._batch, strict=False))
            case AttemptedRecord(query_id=asked):
                if self.running is not None and isinstance(self.asked.get(asked), LlmQuery):
                    self.running.asked += 1
            case AnsweredRecord(query_id=asked, answer=answer, usage=usage):
                self._on_answer(entry, self.asked.pop(asked, None), answer, usage)
            case TurnRecord(outcome=outcome):
                self._on_end(entry, outcome)
            case CancelledRecord(reason=reason):
                self._on_session_end(entry, Stopped("cancelled", f"the session was cancelled: {reason}"))
            case FailedRecord(error=error):
                self._on_session_end(entry, Stopped("runtime_error", f"the session failed: {error}"))
            case ExpiredRecord(reason=reason):
                self._on_session_end(entry, Stopped("incomplete", f"the session expired: {reason}"))
            case CompletedRecord():
                self._on_session_end(entry, Stopped("incomplete", "the session ended"))
            case _:
                pass
        self.position = entry.position

    # --- reading -----------------------------------------------------------------------------------

    @property
    def messages(self) -> list[AgentMessage]:
        """Everything that was said on the active path, frames included."""
        return [node.payload for node in self.path() if isinstance(node.payload, AgentMessage)]

    def path(self) -> list[Node]:
        """The nodes from the root to the active leaf."""
        return [*self._upwards(self.leaf)][::-1]

    def _upwards(self, leaf: str | None) -> Iterator[Node]:
        while leaf is not None:
            node = self.nodes[leaf]
            yield node
            leaf = node.parent

    # --- folding -----------------------------------------------------------------------------------

    def _on_answer(self, entry: Entry, query: Query | None, answer: Answer, usage: Usage | None) -> None:
        match query:
            case InputQuery():
                with contextlib.suppress(ValueError):
                    self._on_input(entry, query.id, input_of(answer))
            case LlmQuery(iteration=int()) if self.running is not None:
                self._on_reply(entry, answer, usage)
            case ToolQuery() if (call := self._called.pop(query.id, None)) is not None:
                call.done, call.position, call.at = tool_done(answer), entry.position, entry.at
                if not self._called:
                    self._append_results(entry)
            case _:
                pass

    def _on_input(self, entry: Entry, query: str, given: TurnInput) -> None:
        self.input = None
        if given.policy is not None:
            self.policy = given.policy
        if given.begin is not None:
            self.generation += 1
            self.leaf, self.window = None, []
            if not self.keeps_all:
                self._let_go()
            for number, message in enumerate(given.begin.messages):
                self._append(f"n-{entry.position}.{number}", entry.at, message)
        turn = TurnState(
            id=given.turn,
            position=entry.position,
            at=entry.at,
            content=given.content,
            query=query,
            output=given.output,
            begins=given.begin is not None,
        )
        self.turns[given.turn] = self.running = turn
        self._append(f"n-{entry.position}", entry.at, AgentMessage("user", given.content))

    def _on_reply(self, entry: Entry, answer: Answer, usage: Usage | None) -> None:
        assert self.running is not None
        try:
            reply = None if isinstance(answer, Failure) else reply_of(answer.value)
        except msgspec.ValidationError:
            reply = None
        if usage is not None:
            self.running.usage.append(("turn", reply.model if reply is not None else "", usage))
        if reply is None:
            return
        if reply.says_something:
            self._append(f"n-{entry.position}", entry.at, AgentMessage("assistant", reply.content))
        self._batch = [CallState(call) for call in reply.calls]
        self.running.calls += self._batch

    def _append_results(self, entry: Entry) -> None:
        """Tell what came of the calls, in their order. Providers want a result for each, also where there is none."""
        for number, each in enumerate(self._batch):
            if each.done is None:
                node, at, done = f"n-{entry.position}.{number}", entry.at, _NOT_RUN
            else:
                node, at, done = f"n-{each.position}", each.at, each.done
            block = ToolResultBlock(each.call.id, done.content, is_error=done.is_error)
            self._append(node, at, AgentMessage("tool", [block]))
        self._batch, self._called = [], {}

    def _on_end(self, entry: Entry, outcome: Outcome) -> None:
        """The running turn is over, if there is one that is not yet."""
        turn = self.running
        if turn is None:
            return
        turn.ended, turn.ended_position, turn.ended_at = outcome, entry.position, entry.at
        self._append_results(entry)
        match outcome:
            case Stopped(reason="max_turns", detail=detail):
                note = AgentMessage("system", [TextBlock(f"The turn was stopped: {detail}.")])
                self._append(f"n-{entry.position}", entry.at, note)
            case FrameSwitch(frame=key, task=task):
                self._open_frame(entry, FrameOpen(key, "continue_as", task))
            case _:
                pass
        self.running = None

    def _on_session_end(self, entry: Entry, outcome: Stopped) -> None:
        """A turn that is under way ends with its session."""
        self._on_end(entry, outcome)
        self.ended = type_of(entry.record)
        self.input, self.asked = None, {}

    def _let_go(self) -> None:
        """Forget the closed branch; the journal has it."""
        self.nodes = {}
        for turn in self.turns.values():
            turn.messages, turn.calls, turn.is_whole = [], [], False

    def _open_frame(self, entry: Entry, frame: FrameOpen) -> None:
        node = Node(f"n-{entry.position}", self.leaf, entry.at, frame)
        self.nodes[node.id] = node
        self.leaf = node.id
        self.window = [AgentMessage("user", [TextBlock(frame.task)])] if frame.task else []

    def _append(self, node_id: str, at: int, message: AgentMessage) -> None:
        self.nodes[node_id] = Node(node_id, self.leaf, at, message)
        self.leaf = node_id
        self.window.append(message)
        if self.running is not None:
            self.running.messages.append(message)


def policy_of(ctx: Json) -> Policy | None:
    """The policy that an agent was started with; None if it cannot be read."""
    try:
        return msgspec.convert(ctx["policy"], Policy)
    except (KeyError, TypeError, msgspec.ValidationError):
        return None


def input_of(answer: Answer) -> TurnInput:
    """The input that an answer brings. Raises `ValueError` if it brings none."""
    if isinstance(answer, Failure):
        raise ValueError(answer.message)
    return msgspec.convert(answer.value, TurnInput)


def tool_done(answer: Answer) -> ToolDone:
    """What came of a call, from the answer to its query. Whoever answers from outside may give any value."""
    if isinstance(answer, Failure):
        executed = answer.code not in ("unknown_tool", "invalid_arguments")
        return ToolDone(content={"error": answer.message, "code": answer.code}, is_error=True, executed=executed)
    value = answer.value
    if isinstance(value, dict) and set(value) == {TOOL_MARK}:
        return msgspec.convert(value[TOOL_MARK], ToolDone)
    return ToolDone(content=value)


def tool_answer(done: ToolDone) -> Json:
    """The answer that says all this, and not only what the model is told."""
    return {TOOL_MARK: msgspec.to_builtins(done)}


_NOT_RUN = ToolDone(content={"error": "not run: the turn was stopped", "code": "not_run"}, is_error=True)

TOOL_MARK = "$tool"
"""The key of an answer that says more than its content."""
