"""What readers get: the result of a turn, the view of a session, and the report of its usage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from holdfast.agent.machine.conversation import Conversation
from holdfast.agent.machine.delegated_usage import PROCESS, SUBAGENT
from holdfast.agent.machine.messages import AgentMessage, ContentBlock, TextBlock
from holdfast.agent.machine.policy import Policy
from holdfast.agent.machine.queries import ApprovalQuery
from holdfast.agent.machine.tree import Frame
from holdfast.agent.machine.turn import (
    CommandOutcome,
    MessageOutcome,
    StoppedOutcome,
    ToolValueOutcome,
    TurnOutcome,
    ValueOutcome,
)
from holdfast.agent.machine.turn_input import NewConversation
from holdfast.agent.machine.turn_state import CallState, TurnState
from holdfast.agent.result_type import ResultType
from holdfast.core.queries import Usage
from holdfast.core.values import Json


class TokenUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens by purpose, and their cost if prices are known."""

    input: int = 0
    """Prompt tokens that were neither read from a cache nor written to one."""
    output: int = 0
    """Reasoning included."""
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    """A part of the output."""
    cost: float = 0.0
    calls: int = 0

    def __add__(self, other: TokenUsage) -> TokenUsage:
        return TokenUsage(
            input=self.input + other.input,
            output=self.output + other.output,
            cache_read=self.cache_read + other.cache_read,
            cache_write=self.cache_write + other.cache_write,
            reasoning=self.reasoning + other.reasoning,
            cost=self.cost + other.cost,
            calls=self.calls + other.calls,
        )

    @property
    def total(self) -> int:
        """All tokens, in and out."""
        return self.input + self.cache_read + self.cache_write + self.output


def token_usage_of(usage: Usage) -> TokenUsage:
    """The usage of one call."""
    read, write = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
    return TokenUsage(
        input=max(0, (usage.prompt_tokens or 0) - read - write),
        output=usage.completion_tokens or 0,
        cache_read=read,
        cache_write=write,
        reasoning=usage.reasoning_tokens or 0,
        cost=usage.cost or 0.0,
        calls=1 if usage.llm_calls is None else usage.llm_calls,
    )


class UsageReport(msgspec.Struct, frozen=True, kw_only=True):
    """Usage in total, by source and by model."""

    total: TokenUsage
    by_source: dict[str, TokenUsage]
    """`turn` for the session's own calls, `compaction` for summaries, `subagent` for calls of its subagents, `process`
    for calls of its processes that are over."""
    by_model: dict[str, TokenUsage]
    calls: int
    """Calls whose usage is known, those of subagents and processes included."""
    unsettled: int
    """Calls whose usage is unknown: they are running, have failed, or their process died."""


def session_report(conversation: Conversation) -> UsageReport:
    """The usage of all turns of a session, and of its processes."""
    return report_of(conversation.turns.values(), conversation.background)


def report_of(turns: Iterable[TurnState], background: Mapping[str, Usage] | None = None) -> UsageReport:
    """The usage of some turns, and of processes, by model."""
    by_source: dict[str, TokenUsage] = {}
    by_model: dict[str, TokenUsage] = {}
    spent_in: list[tuple[str, str, Usage]] = []
    total, calls, asked, settled = _NO_USAGE, 0, 0, 0
    for turn in turns:
        asked += turn.asked
        spent_in += turn.usage
    for model, usage in background.items() if background else ():
        spent_in.append((PROCESS, model, usage))
    for source, model, usage in spent_in:
        spent = token_usage_of(usage)
        total = total + spent if calls else spent
        by_source[source] = by_source[source] + spent if source in by_source else spent
        by_model[model] = by_model[model] + spent if model in by_model else spent
        calls += spent.calls
        settled += source not in (SUBAGENT, PROCESS)
    unsettled = max(0, asked - settled)
    return UsageReport(total=total, by_source=by_source, by_model=by_model, calls=calls, unsettled=unsettled)


_NO_USAGE = TokenUsage()


class ToolCallResult(msgspec.Struct, frozen=True):
    """A tool call and its result."""

    id: str
    name: str
    arguments: Json
    """The arguments that it ran with, or was to run with."""
    result: Json = None
    is_error: bool = False


class TurnReceipt(msgspec.Struct, frozen=True):
    """Proof that a turn is durable."""

    turn: str
    position: int
    """Of the record that ended it."""
    replayed: bool = False
    """Whether the turn had ended before, and this is its recorded result."""


class TurnResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a turn that is over."""

    turn: str
    outcome: TurnOutcome
    messages: list[AgentMessage]
    """The messages of this turn, the input first."""
    usage: TokenUsage
    report: UsageReport
    tool_calls: list[ToolCallResult]
    started_at: int
    ended_at: int
    receipt: TurnReceipt
    output: Any = None
    """The result as a value of the type given to `TurnBuilder.output`, if there is one."""

    @property
    def text(self) -> str:
        """The last text of the model; empty if there is none."""
        return next((each.text for each in reversed(self.messages) if each.role == "assistant" and each.text), "")

    @property
    def value(self) -> Json:
        """The value that ended the turn, or None if it ended without one."""
        ended = self.outcome
        return ended.value if isinstance(ended, ValueOutcome | ToolValueOutcome | CommandOutcome) else None

    @property
    def is_success(self) -> bool:
        """Whether the turn finished, and was not stopped."""
        return isinstance(self.outcome, MessageOutcome | ValueOutcome | ToolValueOutcome | CommandOutcome)

    @property
    def stopped(self) -> StoppedOutcome | None:
        """Why the turn was stopped, or None if it was not."""
        return self.outcome if isinstance(self.outcome, StoppedOutcome) else None

    @property
    def duration_ms(self) -> int:
        return self.ended_at - self.started_at


class ViewMessage(msgspec.Struct, frozen=True):
    """A message as readers see it."""

    id: str
    """The id of its node; empty before it has one."""
    role: str
    content: list[ContentBlock]
    at: int
    """Unix milliseconds; 0 before it is in the journal."""

    @property
    def text(self) -> str:
        return "".join(block.text for block in self.content if isinstance(block, TextBlock))


class ViewFrame(msgspec.Struct, frozen=True, kw_only=True):
    """A frame of a conversation, as readers see it."""

    id: str
    """The id of its node."""
    key: str
    reason: str
    """`initial`; `continue_as` if a tool opened it; `threshold`, `overflow` or `manual` if a summary did."""
    task: str
    """The task that it begins with, if any."""
    summary: str
    """The summary that it begins with, if any."""
    begins: int
    """How many messages came before it."""
    kept: str | None
    """The first earlier message that the model still sees, or None if it sees none."""
    at: int


class ReadView(msgspec.Struct, frozen=True, kw_only=True):
    """A session as it is at a position of its journal."""

    session_id: str
    position: int
    messages: list[ViewMessage]
    """The messages on the active path, the oldest first."""
    frames: list[ViewFrame]
    """The frames in which the model saw them, the oldest first."""
    leaf: str | None
    generation: int
    policy: Policy
    running: str | None
    """The running turn, or None if there is none."""
    approvals: list[ApprovalQuery]
    """The tool calls that wait for approval; answer them with `AgentSession.answer`."""


def view_of(conversation: Conversation, begin: NewConversation | None = None) -> ReadView:
    """The view of a conversation; with `begin`, of what it will start over with."""
    if begin is not None:
        messages = [ViewMessage("", message.role, message.content, 0) for message in begin.messages]
    else:
        messages = [
            ViewMessage(node.id, node.payload.role, node.payload.content, node.at)
            for node in conversation.path()
            if isinstance(node.payload, AgentMessage)
        ]
    return ReadView(
        session_id=conversation.session_id,
        position=conversation.position,
        messages=messages,
        frames=[] if begin is not None else _frames(conversation),
        leaf=None if begin is not None else conversation.leaf,
        generation=conversation.generation + (begin is not None),
        policy=conversation.policy or Policy(),
        running=conversation.running.id if conversation.running else None,
        approvals=[each for each in conversation.asked.values() if isinstance(each, ApprovalQuery)],
    )


def _frames(conversation: Conversation) -> list[ViewFrame]:
    frames: list[ViewFrame] = []
    before = 0
    for node in conversation.path():
        match node.payload:
            case AgentMessage():
                before += 1
            case Frame(key=key, reason=reason, task=task, summary=summary, kept=kept):
                frame = ViewFrame(
                    id=node.id,
                    key=key,
                    reason=reason,
                    task=task,
                    summary=summary,
                    begins=before,
                    kept=kept,
                    at=node.at,
                )
                frames.append(frame)
    return frames


def result_of(turn: TurnState, *, replayed: bool, wanted: ResultType | None = None) -> TurnResult:
    """The result of a turn that is over. Raises `ResultInvalidError` if its value is not of the wanted type.

    That can only happen if another process ran the turn: it knows the schema of the type, but not the type.
    """
    assert turn.ended is not None
    output = wanted.parse(turn.ended.value) if wanted is not None and isinstance(turn.ended, ValueOutcome) else None
    report = report_of([turn])
    return TurnResult(
        turn=turn.id,
        outcome=turn.ended,
        messages=turn.messages,
        usage=report.total,
        report=report,
        tool_calls=list(map(_call, turn.calls)),
        started_at=turn.at,
        ended_at=turn.ended_at,
        receipt=TurnReceipt(turn.id, turn.ended_position, replayed),
        output=output,
    )


def _call(each: CallState) -> ToolCallResult:
    call, done = each.call, each.done
    arguments = call.input if each.edited is None else each.edited
    if done is None:
        return ToolCallResult(call.id, call.name, arguments)
    return ToolCallResult(call.id, call.name, arguments, done.content, done.is_error)
