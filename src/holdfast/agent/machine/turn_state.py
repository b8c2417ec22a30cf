"""`TurnState` and `CallState`: a turn and its tool calls, as far as the journal records them."""

from __future__ import annotations

import msgspec

from holdfast.agent.machine.inbox import Command
from holdfast.agent.machine.messages import AgentMessage, ContentBlock, ToolUseBlock
from holdfast.agent.machine.policy import Spec
from holdfast.agent.machine.prompt import PromptLayer
from holdfast.agent.machine.turn import ToolCallOutcome, TurnOutcome
from holdfast.core.queries import Usage
from holdfast.core.values import Json


class CallState(msgspec.Struct, omit_defaults=True):
    """A tool call and its result."""

    call: ToolUseBlock
    query: str = ""
    """The query that ran the tool."""
    done: ToolCallOutcome | None = None
    position: int = 0
    """The position of the answer."""
    at: int = 0
    edited: dict[str, Json] | None = None
    """The arguments that it ran with, if whoever approved it changed them."""


class TurnState(msgspec.Struct, kw_only=True, omit_defaults=True, array_like=True, gc=False):
    """A turn, as far as the journal records it. What most turns have comes first: the rest is left out in segments."""

    id: str
    position: int
    """The position of its input."""
    at: int
    query: str
    """The `InputQuery` that it answers."""
    ended_position: int = 0
    ended_at: int = 0
    ended: TurnOutcome | None = None
    """Its outcome; None while it is under way."""
    asked: int = 0
    """How many model calls were attempted, by all processes."""
    usage: list[tuple[str, str, Usage]] = msgspec.field(default_factory=list)
    """For every model call: its purpose, the model, and the usage."""
    calls: list[CallState] = msgspec.field(default_factory=list)
    items: list[str] = msgspec.field(default_factory=list)
    """Items of the inbox that it took."""
    content: list[ContentBlock] = msgspec.field(default_factory=list)
    output: dict[str, Json] | None = None
    command: Command | None = None
    prompt: PromptLayer | None = None
    begins: bool = False
    """Whether the conversation began anew with it."""
    messages: list[AgentMessage] = msgspec.field(default_factory=list)
    """What was said in it, the input first."""
    is_whole: bool = True
    """False if its messages were forgotten; the journal still has them."""
    spec: Spec | None = None
    """Where the policy differs for this turn alone."""
