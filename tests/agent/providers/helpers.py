"""For the tests of providers: requests, and all that comes of a call."""

from __future__ import annotations

from holdfast.agent.machine.messages import AgentMessage, ContentBlock, TextBlock
from holdfast.agent.providers.provider import ModelReply, ModelRequest, Provider, ReasoningDelta, TextDelta, ToolSpec
from holdfast.core.values import Json

ADD = ToolSpec(
    "add",
    "Add two numbers.",
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]},
)


def user(*content: ContentBlock | str) -> AgentMessage:
    return AgentMessage("user", [TextBlock(block) if isinstance(block, str) else block for block in content])


def assistant(*content: ContentBlock | str) -> AgentMessage:
    return AgentMessage("assistant", [TextBlock(block) if isinstance(block, str) else block for block in content])


def tool(*content: ContentBlock) -> AgentMessage:
    return AgentMessage("tool", list(content))


def ask(
    *messages: AgentMessage | str,
    model: str = "m",
    system: str = "",
    tools: list[ToolSpec] | None = None,
    params: dict[str, Json] | None = None,
    key: str = "",
) -> ModelRequest:
    told = [user(message) if isinstance(message, str) else message for message in messages or ("Hello",)]
    return ModelRequest(model=model, messages=told, system=system, tools=tools or [], params=params or {}, key=key)


class Heard:
    """All that came of one call."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self.replies: list[ModelReply] = []

    @property
    def reply(self) -> ModelReply:
        (reply,) = self.replies
        return reply


async def hear(provider: Provider, request: ModelRequest | None = None, into: Heard | None = None) -> Heard:
    """Call once, to the end. What came before an error is in `into`."""
    heard = into or Heard()
    async for item in provider.stream(request or ask()):
        match item:
            case TextDelta(text=text):
                heard.text.append(text)
            case ReasoningDelta(text=text):
                heard.reasoning.append(text)
            case ModelReply():
                heard.replies.append(item)
    return heard
