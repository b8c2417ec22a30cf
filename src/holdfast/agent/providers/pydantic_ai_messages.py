"""Messages in pydantic-ai's form, both ways.

Services give marks along with the parts of a reply (signatures, ids, details) and want them back with those parts; a
reply without them is refused by some. Our blocks have one place for that, the signature of a reasoning block. So it
holds all the marks of a part, and whose they are: those of a thought are in its own block, those of a text or a call
in a block without text right before it. They go back to the service they came from only, as does reasoning: another
one cannot read the marks, and would take the thoughts for something that was said.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from pydantic_ai import messages as theirs

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
from holdfast.agent.providers.provider import ModelRequest
from holdfast.core.values import Json


class _Marks(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a service wants back with a part of its reply."""

    of: Literal["thinking", "text", "call"]
    provider: str
    id: str | None = None
    signature: str | None = None
    details: dict[str, Json] | None = None


# --- to them -------------------------------------------------------------------------------------------


def to_theirs(request: ModelRequest, service: str) -> list[theirs.ModelMessage]:
    """The conversation of a request, for the service of this name."""
    messages: list[theirs.ModelMessage] = []
    tools: dict[str, str] = {}
    waiting: list[theirs.ModelRequestPart] = []
    for message in request.messages:
        if message.role != "assistant":
            waiting += _of_others(message, tools)
            continue
        messages += _request(waiting)
        waiting = []
        tools |= {block.id: block.name for block in message.content if isinstance(block, ToolUseBlock)}
        parts = _of_assistant(message, service)
        messages += [theirs.ModelResponse(parts=parts, provider_name=service)] if parts else []
    messages += _request(waiting, request.system)
    return messages


def _request(parts: list[theirs.ModelRequestPart], instructions: str | None = None) -> list[theirs.ModelMessage]:
    """Everything that follows a reply as one message: services want the results of its calls there, and first."""
    ordered = sorted(parts, key=lambda part: not isinstance(part, theirs.ToolReturnPart))
    return [theirs.ModelRequest(parts=ordered, instructions=instructions or None)] if parts or instructions else []


def _of_others(message: AgentMessage, tools: dict[str, str]) -> list[theirs.ModelRequestPart]:
    parts: list[theirs.ModelRequestPart] = []
    content: list[theirs.UserContent] = []
    for block in message.content:
        if isinstance(block, ToolResultBlock):
            name, outcome = tools.get(block.tool_use_id, "unknown"), "failed" if block.is_error else "success"
            parts.append(theirs.ToolReturnPart(name, block.content, block.tool_use_id, outcome=outcome))  # type: ignore[arg-type]
        elif isinstance(block, TextBlock):
            content.append(block.text)
        elif isinstance(block, ImageBlock):
            content.append(theirs.BinaryContent(block.image.data, media_type=block.image.media_type))
    if message.role == "system":
        parts.append(theirs.SystemPromptPart(message.text))
    elif content:
        has_pictures = any(isinstance(block, ImageBlock) for block in message.content)
        parts.append(theirs.UserPromptPart(content if has_pictures else message.text))
    return parts


def _of_assistant(message: AgentMessage, service: str) -> list[theirs.ModelResponsePart]:
    parts: list[theirs.ModelResponsePart] = []
    marks: _Marks | None = None
    for block in message.content:
        before, marks = marks, None
        if isinstance(block, ReasoningBlock):
            marks = _read(block.signature, service)
            if marks is not None and marks.of == "thinking":
                own: dict[str, Any] = {"signature": marks.signature, **_mark_fields(marks, "thinking")}
                parts.append(theirs.ThinkingPart(block.text, **own))
        elif isinstance(block, TextBlock) and block.text:
            parts.append(theirs.TextPart(block.text, **_mark_fields(before, "text")))
        elif isinstance(block, ToolUseBlock):
            arguments = block.input if isinstance(block.input, dict) else msgspec.json.encode(block.input).decode()
            parts.append(theirs.ToolCallPart(block.name, arguments, block.id, **_mark_fields(before, "call")))
        elif isinstance(block, ImageBlock):
            image = theirs.BinaryContent(block.image.data, media_type=block.image.media_type)
            parts.append(theirs.FilePart(image))
    return parts


def _read(signature: str | None, service: str) -> _Marks | None:
    """The marks in a signature, if they are of this service. Signatures of other providers are no such JSON."""
    try:
        marks = msgspec.json.decode(signature or "", type=_Marks)
    except (msgspec.DecodeError, UnicodeError):
        return None
    return marks if marks.provider == service else None


def _mark_fields(marks: _Marks | None, of: str) -> dict[str, Any]:
    if marks is None or marks.of != of:
        return {}
    return {"id": marks.id, "provider_name": marks.provider, "provider_details": marks.details}


# --- from them -----------------------------------------------------------------------------------------


def from_theirs(response: theirs.ModelResponse) -> list[ContentBlock]:
    """The parts of a reply, in order. Tools that a service ran by itself are left out: it was not asked to."""
    content: list[ContentBlock] = []
    for part in response.parts:
        if isinstance(part, theirs.ThinkingPart):
            signature = _mark(part, "thinking", part.signature)
            if part.content or signature:
                content.append(ReasoningBlock(part.content, signature))
        elif isinstance(part, theirs.TextPart) and part.content:
            content += [*_before(part, "text"), TextBlock(part.content)]
        elif isinstance(part, theirs.ToolCallPart):
            content += [*_before(part, "call"), ToolUseBlock(part.tool_call_id, part.tool_name, _arguments(part))]
        elif isinstance(part, theirs.FilePart) and part.content.is_image:
            content.append(ImageBlock(ImageSource(part.content.media_type, part.content.data)))
    return content


def _arguments(part: theirs.ToolCallPart) -> dict[str, Json]:
    arguments = part.args
    return read_arguments(arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode())


def _before(part: theirs.TextPart | theirs.ToolCallPart, of: Literal["text", "call"]) -> list[ContentBlock]:
    signature = _mark(part, of)
    return [ReasoningBlock("", signature)] if signature is not None else []


def _mark(
    part: theirs.TextPart | theirs.ToolCallPart | theirs.ThinkingPart,
    of: Literal["thinking", "text", "call"],
    signature: str | None = None,
) -> str | None:
    if not (part.id or part.provider_details or signature) or part.provider_name is None:
        return None
    marks = _Marks(
        of=of, provider=part.provider_name, id=part.id, signature=signature, details=part.provider_details or None
    )
    try:
        return msgspec.json.encode(marks).decode()
    except (TypeError, ValueError):  # details that JSON has no form for
        return msgspec.json.encode(msgspec.structs.replace(marks, details=None)).decode()
