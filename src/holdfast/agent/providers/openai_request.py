"""The JSON body of an OpenAI chat-completions request. `openai` sends it."""

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
"""Fields that a request sets itself, and that its params may not set."""


def request_body(request: ModelRequest, *, max_tokens: str, reasoning: str | None) -> dict[str, Json]:
    """The JSON to post.

    `max_tokens` is the service's name for that limit. `reasoning` is the field in which it wants the model's earlier
    reasoning back, or None if it does not. A param that is None removes a default, such as `stream_options` for
    services that refuse it.
    """
    taken = RESERVED & request.params.keys()
    if taken:
        raise ProviderError(f"params cannot set {', '.join(sorted(taken))}", fault="invalid_request")
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
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def _messages(request: ModelRequest, reasoning: str | None) -> list[dict[str, Json]]:
    messages: list[dict[str, Json]] = [{"role": "system", "content": request.system}] if request.system else []
    images: list[ContentBlock] = []
    for message in request.messages:
        if message.role != "tool" and images:
            messages.append({"role": "user", "content": _parts(images)})
            images = []
        if message.role == "assistant":
            messages += _of_assistant(message, reasoning)
        elif message.role == "tool":
            # Results must directly follow their calls, and hold only text: their images come after the last one.
            messages += [_result(block) for block in message.content if isinstance(block, ToolResultBlock)]
            images += [block for block in message.content if isinstance(block, ImageBlock)]
        else:
            role = "system" if message.role == "system" else "user"
            messages.append({"role": role, "content": _parts(message.content)})
    if images:
        messages.append({"role": "user", "content": _parts(images)})
    return messages


def _parts(content: list[ContentBlock]) -> Json:
    """Plain text if there are no images: every service accepts that, and some accept no lists."""
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
    """A message of the model. An empty one is left out, because services refuse it."""
    body: dict[str, Json] = {"role": "assistant", "content": message.text or None}
    calls = [_call(block) for block in message.content if isinstance(block, ToolUseBlock)]
    if calls:
        body["tool_calls"] = calls
    if reasoning is not None:
        thought = "".join(block.text for block in message.content if isinstance(block, ReasoningBlock))
        if thought:
            body[reasoning] = thought
    return [body] if len(body) > 2 or message.text else []


def _call(block: ToolUseBlock) -> dict[str, Json]:
    return {
        "id": block.id,
        "type": "function",
        "function": {"name": block.name, "arguments": encode(block.input).decode()},
    }


def _result(block: ToolResultBlock) -> dict[str, Json]:
    text = block.content if isinstance(block.content, str) else encode(block.content).decode()
    # The format has no field for it, and a model must know that its call failed.
    return {"role": "tool", "tool_call_id": block.tool_use_id, "content": f"Error: {text}" if block.is_error else text}
