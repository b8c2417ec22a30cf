"""What a model sends through pydantic-ai, changed: an error of the provider, or a reply that can be kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import hypothesis.strategies as st
import msgspec
from pydantic_ai import messages as theirs
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.usage import RequestUsage

from holdfast.agent.machine.messages import AgentMessage
from holdfast.agent.providers.provider import ModelReply, ProviderError
from holdfast.agent.providers.pydantic_ai import PydanticAIProvider
from holdfast.agent.providers.pydantic_ai_messages import from_theirs, to_theirs
from holdfast.core.values import Json, check_value, encode
from tests.agent.providers.helpers import ask
from tests.fuzz.fuzzer import Fuzzer, assert_is_declared
from tests.fuzz.generation import Draw, changed_json

STREAMS: list[Json] = [
    ["Hel", "lo 😀"],
    [
        {"thought": "Hm.", "signature": "abc"},
        "Yes.",
        {"call": 0, "name": "add", "arguments": '{"a": 2, ', "id": "c-1"},
        {"call": 1, "name": "now", "arguments": "{}", "id": "c-2"},
        {"call": 0, "arguments": '"b": 40}'},
    ],
]

PARTS: list[Json] = [
    [
        {"part": "thinking", "content": "Hm.", "id": "t-1", "signature": "abc", "details": {"a": [1, None]}},
        {"part": "text", "content": "Yes.", "id": "x-1", "details": {"b": 2}},
        {"part": "call", "name": "add", "arguments": {"a": 2, "b": [None, 1.5]}, "id": "c-1", "details": {}},
        {"part": "call", "name": "add", "arguments": '{"a": 2}', "id": "c-2", "details": None},
        {"part": "image", "data": "iVBORw==", "media": "image/png"},
    ]
]

USAGE = {"input_tokens": 10, "output_tokens": 5, "cache_read_tokens": 3, "cache_write_tokens": 1}


def delta(piece: Any) -> Any:
    """A piece of a stream, in the library's form."""
    if isinstance(piece, dict) and "call" in piece:
        return {piece["call"]: DeltaToolCall(piece.get("name"), piece.get("arguments"), tool_call_id=piece.get("id"))}
    if isinstance(piece, dict) and "thought" in piece:
        return {0: DeltaThinkingPart(content=piece["thought"], signature=piece.get("signature"))}
    return piece


async def stream(pieces: Json) -> None:
    """Call a model that sends these pieces."""

    async def send(messages: list[theirs.ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        for piece in pieces if isinstance(pieces, list) else [pieces]:
            yield delta(piece)

    provider = PydanticAIProvider(FunctionModel(stream_function=send, model_name="f-1"))
    try:
        items = [item async for item in provider.stream(ask(model="f-1"))]
    except ProviderError as error:
        assert_is_declared(error)
        return
    for item in items:
        check_value(msgspec.to_builtins(item), "item of a stream")
    reply = items[-1]
    assert isinstance(reply, ModelReply)
    assert msgspec.json.decode(encode(reply), type=ModelReply) == reply


def test_a_changed_stream_is_a_provider_error_or_a_reply_that_can_be_kept(fuzzer: Fuzzer) -> None:
    fuzzer.run(lambda pieces: asyncio.run(stream(pieces)), changed_json(STREAMS), examples=60)


def _part(said: Any) -> Any:
    """A part of a response, in the library's form; None if it can be none."""
    if not isinstance(said, dict):
        return None
    marks: dict[str, Any] = {"provider_name": "x", "provider_details": said.get("details")}
    content, call = said.get("content"), said.get("id")
    match said.get("part"):
        case "thinking" if isinstance(content, str):
            return theirs.ThinkingPart(content, id=call, signature=said.get("signature"), **marks)
        case "text" if isinstance(content, str):
            return theirs.TextPart(content, id=call, **marks)
        case "call" if isinstance(said.get("name"), str) and isinstance(call, str):
            return theirs.ToolCallPart(said["name"], said.get("arguments"), call, **marks)
        case "image" if isinstance(said.get("media"), str):
            return theirs.FilePart(theirs.BinaryContent(b"\x89PNG", media_type=said["media"]))
        case _:
            return None


@st.composite
def responses(draw: Draw) -> theirs.ModelResponse:
    """A response of the library, of which something was changed that a service decides."""
    said = draw(changed_json(PARTS))
    parts = [part for each in (said if isinstance(said, list) else [said]) if (part := _part(each)) is not None]
    usage = draw(changed_json([USAGE], most=1))
    known = {name: usage[name] for name in USAGE if isinstance(usage, dict) and isinstance(usage.get(name), int)}
    ends: dict[str, Any] = {"finish_reason": draw(st.sampled_from(["stop", "tool_call", None]))}
    model = draw(st.sampled_from(["m-1", "", "\ud800", None]))
    return theirs.ModelResponse(parts=parts, usage=RequestUsage(**known), model_name=model, **ends)


KNOWN = [theirs.ModelResponse(parts=[], model_name="\ud800")]
"""A response that once was no provider error."""


def test_a_changed_response_is_kept_and_sent_back(fuzzer: Fuzzer) -> None:
    provider = PydanticAIProvider(FunctionModel(lambda messages, info: theirs.ModelResponse([]), model_name="f-1"))

    def check(response: theirs.ModelResponse) -> None:
        try:
            reply = provider._reply(response, provider._model("f-1"))
        except Exception as error:  # as `stream` does
            assert_is_declared(provider._error(error))
            return
        check_value(msgspec.to_builtins(reply), "reply")
        assert msgspec.json.decode(encode(reply), type=ModelReply) == reply
        assert from_theirs(response) == reply.content
        to_theirs(ask(AgentMessage("assistant", reply.content)), "x")

    fuzzer.run(check, responses(), examples=75, known=KNOWN)
