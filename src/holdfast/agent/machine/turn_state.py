"""`TurnState` and `CallState`: a turn and its tool calls, as far as the journal records them."""

from __future__ import annotations

import msgspec

from holdfast.agent.machine.inbox import Command
from holdfast.agent.machine.messages import AgentMessage, ContentBlock, ToolUseBlock
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


class TurnState(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A turn, as far as the journal records it."""

    id: str
    position: int
    """The position of its input."""
    at: int
    content: list[ContentBlock] = msgspec.field(default_factory=list)
    query: str
    """The `InputQuery` that it answers."""
    output: dict[str, Json] | None = None
    command: Command | None = None
    prompt: PromptLayer | None = None
    items: list[str] = msgspec.field(default_factory=list)
    """Items of the inbox that it took."""
    begins: bool = False
    """Whether the conversation began anew with it."""
    ended: TurnOutcome | None = None
    """Its outcome; None while it is under way."""
    ended_position: int = 0
    ended_at: int = 0
    messages: list[AgentMessage] = msgspec.field(default_factory=list)
    """What was said in it, the input first."""
    usage: list[tuple[str, str, Usage]] = msgspec.field(default_factory=list)
    """For every model call: its purpose, the model, and the usage."""
    asked: int = 0
    """How many model calls were attempted, by all processes."""
    calls: list[CallState] = msgspec.field(default_factory=list)
    is_whole: bool = True
    """False if its messages were forgotten; the journal still has them."""
