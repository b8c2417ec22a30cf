"""What a model service sends, changed: an error of the provider, or a reply that can be stored and sent back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator, Sequence
from itertools import pairwise
from typing import Any

import hypothesis.strategies as st
import msgspec

from holdfast.agent.machine.messages import AgentMessage, TextBlock
from holdfast.agent.providers.openai import OpenAIProvider
from holdfast.agent.providers.openai_request import request_body
from holdfast.agent.providers.provider import ModelReply, ProviderError, TextDelta
from holdfast.agent.providers.sse import MAX_EVENT_BYTES, ServerEvent, ServerEventReader, TooLargeError
from holdfast.agent.results import TurnResult
from holdfast.core.values import Json, check_value, encode
from holdfast.testing.model_server import ModelServer
from holdfast.testing.provider import RawReply
from tests.agent.helpers import Home
from tests.agent.providers.helpers import ask
from tests.fuzz.fuzzer import Fuzzer, assert_is_declared
from tests.fuzz.generation import Draw, changed_bytes, changed_json, encoded


def chunk(finish: str | None = None, **delta: Json) -> Json:
    return {
        "id": "c",
        "model": "m-1",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        "usage": None,
    }


def piece(index: int, arguments: str, **more: Json) -> Json:
    return {
        "index": index,
        "type": "function",
        **more,
        "function": {"arguments": arguments, **more.pop("function", {})},
    }


USAGE: Json = {
    "prompt_tokens": 10,
    "completion_tokens": 5,
    "total_tokens": 15,
    "prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 1},
    "completion_tokens_details": {"reasoning_tokens": 2},
    "cost": 0.25,
}

STREAMS: list[Json] = [
    [
        chunk(role="assistant", content=""),
        chunk(reasoning_content="Hm"),
        chunk(content="Hel"),
        chunk(content="lo 😀"),
        chunk("stop"),
        {"choices": [], "usage": USAGE},
    ],
    [
        chunk(content=[{"type": "thinking", "thinking": [{"text": "Hm"}]}, {"type": "text", "text": "Yes"}]),
        chunk(tool_calls=[piece(0, "", id="c-1", function={"name": "add"})]),
        chunk(tool_calls=[piece(0, '{"a": 2, '), piece(1, "{}", id="c-2", function={"name": "now"})]),
        chunk(tool_calls=[piece(0, '"b": 40}')]),
        chunk("tool_calls"),
    ],
    [chunk(refusal="I will not."), chunk("stop")],
    [chunk(content="Hel"), {"error": {"message": "overloaded", "code": 503, "type": "server_error"}}],
]

WHOLE: list[Json] = [
    {
        "model": "m-1",
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls",
                "message": {
                    "role": "assistant",
                    "content": "Yes.",
                    "reasoning_content": "Hm.",
                    "tool_calls": [{"id": "c-1", "function": {"name": "add", "arguments": '{"a": 2}'}}],
                },
            }
        ],
        "usage": USAGE,
    },
    {"error": {"message": "The context length is 8192", "type": "invalid_request_error", "code": "x", "param": None}},
    [{"error": {"message": "quota", "status": "RESOURCE_EXHAUSTED", "code": 429}}],
    {"detail": "no such model"},
]


def as_events(chunks: Sequence[Json], newline: bytes = b"\n") -> bytes:
    events = [b"data: " + encoded(each, ascii_only=False) for each in chunks]
    return b"".join(event + newline * 2 for event in [*events, b"data: [DONE]"])


FINE = RawReply(body=as_events([chunk(content="Fine."), chunk("stop")]))


KNOWN = [
    RawReply(body=body, status=status)
    for status, body in [
        (200, b'{"choices":[{"delta":{"tool_calls":[{"id":"c\\ud800","function":{"name":"a\\ud800"}}]}}]}'),
        (200, b'{"model":"\\ud800","choices":[{"delta":{"content":"x"}}]}'),
        (200, b'{"choices":[{"delta":{"content":"x"}}],"usage":{"prompt_tokens":18446744073709551616}}'),
        (200, b'{"choices":[{"delta":{"content":"\xed\xa0\x80"}}]}'),
        (200, b'{"error":"\\ud800"}'),
        (200, b'{"error":{"code":1,"x":"\\ud800"}}'),
        (429, b'{"error":"\xed\xa0\x80"}'),
    ]
]
"""Responses that once were no provider error: halves of characters, bytes that are not UTF-8, counts past 64 bits."""


@st.composite
def responses(draw: Draw) -> RawReply:
    """A response with something changed in its chunks, its events or its status."""
    if draw(st.integers(0, 2)):
        chunks = draw(changed_json(STREAMS))
        ascii_only = draw(st.booleans())
        written = [encoded(each, ascii_only=ascii_only) for each in (chunks if isinstance(chunks, list) else [chunks])]
        newline = draw(st.sampled_from([b"\n", b"\r\n", b"\r"]))
        name = draw(st.sampled_from([b"", b"", b"event: error" + newline]))
        body = b"".join(name + b"data: " + each + newline * 2 for each in [*written, b"[DONE]"])
    else:
        body = encoded(draw(changed_json(WHOLE)), ascii_only=draw(st.booleans()))
    if draw(st.integers(0, 3)) == 0:
        body = draw(changed_bytes([body], words=[b"data: ", b"\n\ndata: ", b"event: error\n", b": x\n", b"[DONE]"]))
    status = draw(st.sampled_from([200, 200, 200, 200, 204, 302, 400, 413, 429, 500, 599]))
    headers = {"retry-after": draw(st.sampled_from(["1", "-1", "nan", "1e400", "Wed, 99 Foo", "9" * 400, "é"]))}
    return RawReply(
        body=body,
        status=status,
        headers=headers if status >= 300 else {},
        content_type=draw(st.sampled_from(["text/event-stream", "application/json", "text/html", "x/y; charset=zzz"])),
        ending=draw(st.sampled_from(["end", "end", "end", "cut"])),
    )


def test_a_changed_response_is_a_provider_error_or_a_reply_that_can_be_kept(fuzzer: Fuzzer) -> None:
    async def call(provider: OpenAIProvider) -> None:
        try:
            items = [item async for item in provider.stream(ask())]
        except ProviderError as error:
            assert_is_declared(error)
        else:
            _assert_can_be_kept(items)

    with serving() as served:
        fuzzer.run(lambda response: served.answer(call, response), responses(), examples=125, known=KNOWN)


class Served:
    """A server on an event loop of its own, and a provider that calls it."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self.run = runner.run
        self.responses: list[RawReply] = []
        self.server = ModelServer([lambda request: self.responses.pop(0) if self.responses else FINE], loop=True)

    async def open(self) -> None:
        await self.server.__aenter__()
        self.provider = OpenAIProvider(self.server.url)

    async def close(self) -> None:
        await self.provider.aclose()
        await self.server.__aexit__(None, None, None)

    def answer(self, call: Callable[[OpenAIProvider], Coroutine[Any, Any, None]], response: RawReply) -> None:
        """Make a call whose first response is this one."""
        self.responses[:] = [response]
        self.run(call(self.provider))


@contextlib.contextmanager
def serving() -> Iterator[Served]:
    with asyncio.Runner() as runner:
        served = Served(runner)
        runner.run(served.open())
        try:
            yield served
        finally:
            runner.run(served.close())


def _assert_can_be_kept(items: Sequence[msgspec.Struct]) -> None:
    *deltas, reply = items
    assert isinstance(reply, ModelReply)
    for item in items:
        check_value(msgspec.to_builtins(item), "item of a stream")
    assert msgspec.json.decode(encode(reply), type=ModelReply) == reply
    streamed = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    assert streamed == "".join(block.text for block in reply.content if isinstance(block, TextBlock))
    encode(request_body(ask(AgentMessage("assistant", reply.content)), max_tokens="max_tokens", reasoning="reasoning"))


def test_a_turn_on_changed_responses_ends_and_its_session_goes_on(fuzzer: Fuzzer) -> None:
    async def turn(provider: OpenAIProvider) -> None:
        async with Home("memory:").runtime(provider=provider) as runtime:
            session = await runtime.session("s-1").open()
            first = await session.turn("Go.").run()
            assert isinstance(first, TurnResult)
            assert (await session.turn("Again.").run()).text == "Fine."

    with serving() as served:
        fuzzer.run(lambda response: served.answer(turn, response), responses(), examples=30)


def test_events_are_the_same_however_their_bytes_arrive(fuzzer: Fuzzer) -> None:
    def read(pieces: Sequence[bytes]) -> list[ServerEvent] | None:
        reader = ServerEventReader(max_event_bytes=4_096)
        found: list[ServerEvent] = []
        with contextlib.suppress(TooLargeError):
            for each in pieces:
                found += reader.feed(each)
            last = reader.close()
            return [*found, last] if last else found
        return None

    def check(split: tuple[bytes, list[int]]) -> None:
        body, places = split
        marks = [0, *sorted(place % (len(body) + 1) for place in places), len(body)]
        assert read([body[a:b] for a, b in pairwise(marks)]) == read([body])

    bodies = changed_bytes([as_events(each) for each in STREAMS[:2]], words=[b"data:", b"event: x", b"\r", b"\n\n"])
    fuzzer.run(check, st.tuples(bodies, st.lists(st.integers(0, 4_000), max_size=6)), examples=100)
    assert MAX_EVENT_BYTES > 4_096
