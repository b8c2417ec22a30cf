"""A request in the chat-completions form of OpenAI, as JSON. Sending it is done elsewhere."""

from __future__ import annotations

import base64

from holdfast.agent.machine.messages import (
    AgentMessage,
    ContentBlock,
    ImageBlock,
    ReasoningBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from holdfast.agent.providers.provider import ModelRequest, ProviderError, ToolSpec
from holdfast.core.values import Json, encode

RESERVED = frozenset(["model", "messages", "tools", "stream", "n"])
"""What a request says in other ways than by its params."""


def request_body(request: ModelRequest, *, max_tokens: str, reasoning: str | None) -> dict[str, Json]:
    """The JSON to post.

    `max_tokens` is what the service calls that limit. `reasoning` is the field in which it wants the model's earlier
    reasoning back, None if it does not. A param that is None takes out what would be sent by default, such as
    `stream_options` for services that refuse it.
    """
    taken = RESERVED & request.params.keys()
    if taken:
        raise ProviderError(f"params cannot hold {', '.join(sorted(taken))}", fault="invalid_request")
    body: dict[str, Json] = {
        "model": request.model,
        "messages": _messages(request, reasoning),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
    for name, value in request.params.items():
        body[max_tokens if name == "max_tokens" else name] = value
    return {name: value for name, value in body.items() if value is not None}


def _tool(tool: ToolSpec) -> dict[str, Json]:
    told = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": told}


def _messages(request: ModelRequest, reasoning: str | None) -> list[dict[str, Json]]:
    told: list[dict[str, Json]] = [{"role": "system", "content": request.system}] if request.system else []
    pictures: list[ContentBlock] = []
    for message in request.messages:
        if message.role != "tool" and pictures:
            told.append({"role": "user", "content": _parts(pictures)})
            pictures = []
        if message.role == "assistant":
            told += _of_assistant(message, reasoning)
        elif message.role == "tool":
            # All results must follow their calls at once, and hold text only: their pictures come after the last one.
            told += [_result(block) for block in message.content if isinstance(block, ToolResultBlock)]
            pictures += [block for block in message.content if isinstance(block, ImageBlock)]
        else:
            role = "system" if message.role == "system" else "user"
            told.append({"role": role, "content": _parts(message.content)})
    if pictures:
        told.append({"role": "user", "content": _parts(pictures)})
    return told


def _parts(content: list[ContentBlock]) -> Json:
    """Plain text where there is nothing else: every service takes that, and not every one takes lists."""
    if not any(isinstance(block, ImageBlock) for block in content):
        return "".join(block.text for block in content if isinstance(block, TextBlock))
    parts: list[Json] = []
    for block in content:
        if isinstance(block, TextBlock):
            parts.append({"type": "text", "text": block.text})
        elif isinstance(block, ImageBlock):
            data = base64.b64encode(block.image.data).decode()
            parts.append({"type": "image_url", "image_url": {"url": f"data:{block.image.media_type};base64,{data}"}})
    return parts


def _of_assistant(message: AgentMessage, reasoning: str | None) -> list[dict[str, Json]]:
    """What the model said. A message that said nothing is left out: services refuse empty ones."""
    told: dict[str, Json] = {"role": "assistant", "content": message.text or None}
    calls = [_call(block) for block in message.content if isinstance(block, ToolUseBlock)]
    if calls:
        told["tool_calls"] = calls
    if reasoning is not None:
        thought = "".join(block.text for block in message.content if isinstance(block, ReasoningBlock))
        if thought:
            told[reasoning] = thought
    return [told] if len(told) > 2 or message.text else []


def _call(block: ToolUseBlock) -> dict[str, Json]:
    return {
        "id": block.id,
        "type": "function",
        "function": {"name": block.name, "arguments": encode(block.input).decode()},
    }


def _result(block: ToolResultBlock) -> dict[str, Json]:
    text = block.content if isinstance(block.content, str) else encode(block.content).decode()
    # The form has no field for it, and a model must know that its call failed.
    return {"role": "tool", "tool_call_id": block.tool_use_id, "content": f"Error: {text}" if block.is_error else text}
