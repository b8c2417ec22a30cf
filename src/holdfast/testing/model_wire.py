"""The chat-completions wire format of OpenAI, from the server's side: requests are read, scripted replies written."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import msgspec

from holdfast.agent.machine.messages import (
    AgentMessage,
    ContentBlock,
    ImageBlock,
    ImageSource,
    ReasoningBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from holdfast.agent.providers.arguments import read_arguments
from holdfast.agent.providers.provider import Fault, ModelRequest, Stop, ToolSpec
from holdfast.core.queries import Usage
from holdfast.core.values import Json
from holdfast.testing.provider import (
    ScriptedFailure,
    ScriptedReasoningBlock,
    ScriptedReply,
    ScriptedStream,
    ScriptedToolCall,
    arguments_text,
    content_of,
    stop_of,
)

_FINISH: dict[Stop, str] = {
    "end": "stop",
    "tool_use": "tool_calls",
    "length": "length",
    "refusal": "content_filter",
    "other": "other",
}

_STATUS: dict[Fault, tuple[int, str]] = {
    "rate_limit": (429, "rate_limit_exceeded"),
    "overloaded": (503, "overloaded_error"),
    "auth": (401, "invalid_api_key"),
    "invalid_request": (400, "invalid_request_error"),
    "context_length": (400, "context_length_exceeded"),
    "timeout": (408, "timeout"),
    "network": (502, "server_error"),
    "bad_stream": (500, "server_error"),
    "other": (400, "invalid_request_error"),
}


def refusal_of(step: ScriptedFailure) -> tuple[int, dict[str, Json]]:
    """The status and the body of a refusal."""
    status, code = _STATUS[step.fault]
    return step.status or status, {"error": {"message": step.message, "type": code, "code": code, "param": None}}


# --- requests ------------------------------------------------------------------------------------------


def read_request(body: dict[str, Json], key: str) -> ModelRequest:
    """The request that a client encoded in this body, as far as the wire format keeps it."""
    messages = list(body["messages"])
    system = messages.pop(0)["content"] if messages and messages[0]["role"] == "system" else ""
    own = ("model", "messages", "tools", "stream", "stream_options")
    return ModelRequest(
        model=body["model"],
        messages=[AgentMessage(message["role"], _blocks(message)) for message in messages],
        system=system,
        tools=[
            ToolSpec(tool["function"]["name"], tool["function"]["description"], tool["function"]["parameters"])
            for tool in body.get("tools", [])
        ],
        params={name: value for name, value in body.items() if name not in own},
        key=key,
    )


def _blocks(message: dict[str, Json]) -> list[ContentBlock]:
    content = message.get("content")
    if message["role"] == "tool":
        return [ToolResultBlock(message["tool_call_id"], content)]
    blocks: list[ContentBlock] = []
    if message.get("reasoning_content"):
        blocks.append(ReasoningBlock(message["reasoning_content"]))
    if isinstance(content, str):
        blocks.append(TextBlock(content))
    for part in content if isinstance(content, list) else []:
        if part["type"] == "text":
            blocks.append(TextBlock(part["text"]))
        else:
            media_type, _, data = part["image_url"]["url"].removeprefix("data:").partition(";base64,")
            blocks.append(ImageBlock(ImageSource(media_type, base64.b64decode(data, validate=True))))
    for call in message.get("tool_calls", []):
        arguments = read_arguments(call["function"]["arguments"])
        blocks.append(ToolUseBlock(call["id"], call["function"]["name"], arguments))
    return blocks


# --- replies -------------------------------------------------------------------------------------------


def chunk(delta: dict[str, Json], model: str, finish: str | None = None) -> dict[str, Json]:
    """One chunk of a stream."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
    return {
        "id": "chatcmpl-scripted",
        "object": "chat.completion.chunk",
        "created": 1700000000,
        "model": model,
        "choices": [choice],
        "usage": None,
    }


def chunks_of(
    reply: ScriptedReply, request: ModelRequest, *, with_usage: bool
) -> Iterator[tuple[dict[str, Json], float]]:
    """A reply as the chunks of a stream, each with its delay in seconds."""
    model = reply.model or request.model
    yield chunk({"role": "assistant", "content": ""}, model), reply.delay_s
    ids = [block.id for block in content_of(reply, request) if isinstance(block, ToolUseBlock)]
    index = 0
    for part in reply.parts:
        match part:
            case str():
                yield chunk({"content": part}, model), 0.0
            case ScriptedStream(deltas=deltas, every_s=every_s):
                for delta in deltas:
                    yield chunk({"content": delta}, model), every_s
            case ScriptedReasoningBlock(text=text):
                yield chunk({"reasoning_content": text}, model), 0.0
            case ScriptedToolCall():
                for piece in _call_pieces(part, ids[index], index):
                    yield chunk({"tool_calls": [piece]}, model), 0.0
                index += 1
    yield chunk({}, model, _FINISH[stop_of(reply)]), 0.0
    if with_usage and reply.usage is not None:
        yield {**chunk({}, model), "choices": [], "usage": usage_of(reply.usage)}, 0.0


def _call_pieces(call: ScriptedToolCall, call_id: str, index: int) -> Iterator[dict[str, Json]]:
    text = arguments_text(call)
    middle = len(text) // 2
    function = {"name": call.name, "arguments": ""}
    yield {"index": index, "id": call_id, "type": "function", "function": function}
    for piece in (text[:middle], text[middle:]):
        yield {"index": index, "function": {"arguments": piece}}


def completion_of(reply: ScriptedReply, request: ModelRequest) -> dict[str, Json]:
    """A reply in one piece, as servers send it that do not stream."""
    content = content_of(reply, request)
    calls = [block for block in content if isinstance(block, ToolUseBlock)]
    written = [part for part in reply.parts if isinstance(part, ScriptedToolCall)]
    message: dict[str, Json] = {"role": "assistant", "content": AgentMessage("assistant", content).text or None}
    reasoning = "".join(block.text for block in content if isinstance(block, ReasoningBlock))
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = [
            {"id": block.id, "type": "function", "function": {"name": block.name, "arguments": arguments_text(call)}}
            for block, call in zip(calls, written, strict=True)
        ]
    completion: dict[str, Json] = {
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "created": 1700000000,
        "model": reply.model or request.model,
        "choices": [{"index": 0, "message": message, "finish_reason": _FINISH[stop_of(reply)]}],
    }
    if reply.usage is not None:
        completion["usage"] = usage_of(reply.usage)
    return completion


def usage_of(usage: Usage) -> dict[str, Json]:
    """Usage under the names of the wire format."""
    prompt, completion = usage.prompt_tokens or 0, usage.completion_tokens or 0
    counts: dict[str, Json] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": _known(
            cached_tokens=usage.cache_read_tokens, cache_write_tokens=usage.cache_write_tokens
        ),
        "completion_tokens_details": _known(reasoning_tokens=usage.reasoning_tokens),
    }
    return counts if usage.cost is None else {**counts, "cost": usage.cost}


def _known(**counts: int | None) -> dict[str, Json]:
    return {name: count for name, count in counts.items() if count is not None}


def event(data: Json, newline: bytes) -> bytes:
    """A value as a server-sent event."""
    return b"data: " + msgspec.json.encode(data) + newline * 2
