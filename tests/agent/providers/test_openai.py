"""An OpenAI-compatible endpoint over real sockets: the good, and all that a line and a service can do to a call."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from holdfast.agent.machine.messages import (
    ImageBlock,
    ImageSource,
    ReasoningBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from holdfast.agent.providers import openai
from holdfast.agent.providers.openai import OpenAIProvider
from holdfast.agent.providers.provider import ModelRequest, Provider, ProviderError, TextDelta
from holdfast.core.errors import InvalidValueError
from holdfast.core.queries import Usage
from holdfast.testing.model_server import ModelServer, WireOptions
from holdfast.testing.patience import HANG_S, until
from holdfast.testing.provider import RawReply, ScriptedToolCall, fault, reasoning, reply, stream, tool_call
from tests.agent.providers.helpers import ADD, Heard, ask, assistant, hear, tool, user
from tests.tables import each_row

USAGE = Usage(prompt_tokens=9, completion_tokens=5, cache_read_tokens=4, reasoning_tokens=3)
FULL = reply(
    reasoning("Hm… 🤔"),
    stream("Größe ", "😀 ", "und\nmehr"),
    tool_call("add", a=2, b=40),
    tool_call("say", text="ünïcödé \n\r\u2028"),
    usage=USAGE,
    model="m-2",
)


@asynccontextmanager
async def endpoint(
    *script: Any, wire: WireOptions | None = None, server_key: str | None = None, **options: Any
) -> AsyncIterator[tuple[OpenAIProvider, ModelServer]]:
    async with ModelServer(script, wire=wire, api_key=server_key) as server:
        provider = OpenAIProvider(server.url, **options)
        try:
            yield provider, server
        finally:
            await provider.aclose()


async def failure(provider: Provider, request: ModelRequest | None = None, heard: Heard | None = None) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await hear(provider, request, heard)
    return caught.value


def events(*told: bytes | dict[str, Any]) -> bytes:
    lines = [each if isinstance(each, bytes) else msgspec.json.encode(each) for each in told]
    return b"".join(b"data: " + line + b"\n\n" for line in lines)


SAID = {"choices": [{"index": 0, "delta": {"content": "Hel"}, "finish_reason": None}]}
FINISHED = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


# --- the good ------------------------------------------------------------------------------------------


async def test_a_streamed_reply_comes_whole_with_all_its_deltas() -> None:
    async with endpoint(FULL) as (provider, _):
        heard = await hear(provider)
    assert heard.reasoning == ["Hm… 🤔"]
    assert heard.text == ["Größe ", "😀 ", "und\nmehr"]
    assert heard.reply.content == [
        ReasoningBlock("Hm… 🤔"),
        TextBlock("Größe 😀 und\nmehr"),
        ToolUseBlock("call_1", "add", {"a": 2, "b": 40}),
        ToolUseBlock("call_2", "say", {"text": "ünïcödé \n\r\u2028"}),
    ]
    assert (heard.reply.stop, heard.reply.usage, heard.reply.model) == ("tool_use", USAGE, "m-2")


@each_row("newline", ["\n", "\r\n", "\r"])
@each_row("split_bytes", [None, 1, 7])
async def test_the_same_reply_comes_however_the_bytes_are_cut(newline: Any, split_bytes: int | None) -> None:
    wire = WireOptions(newline=newline, split_bytes=split_bytes, comments=True)
    async with endpoint(FULL, FULL, wire=wire) as (provider, server):
        heard = await hear(provider)
        async with ModelServer([FULL]) as plain:
            other = OpenAIProvider(plain.url)
            assert heard.reply == (await hear(other)).reply
            await other.aclose()
        assert server.connections == 1


async def test_a_server_that_does_not_stream_is_understood() -> None:
    async with endpoint(FULL, wire=WireOptions(streams=False)) as (provider, _):
        heard = await hear(provider)
    assert heard.text == ["Größe 😀 und\nmehr"]
    assert heard.reply.content[-1] == ToolUseBlock("call_2", "say", {"text": "ünïcödé \n\r\u2028"})
    assert (heard.reply.stop, heard.reply.usage) == ("tool_use", USAGE)


async def test_a_plain_answer_is_told_by_its_first_byte_not_by_its_type() -> None:
    body = msgspec.json.encode({"choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]})
    async with endpoint(RawReply(body=b" \n\n " + body), wire=WireOptions(split_bytes=1)) as (provider, _):
        assert (await hear(provider)).reply.content == [TextBlock("Hello")]


async def test_a_stream_under_another_type_is_understood() -> None:
    body = events(SAID, FINISHED, b"[DONE]")
    async with endpoint(RawReply(body=body, content_type="text/plain")) as (provider, _):
        assert (await hear(provider)).reply.content == [TextBlock("Hel")]


async def test_deltas_come_before_the_reply_is_whole() -> None:
    async with endpoint(fault("timeout", after=["a"])) as (provider, server):
        items = provider.stream(ask())
        async with asyncio.timeout(HANG_S):
            assert await anext(items) == TextDelta("a")
        await items.aclose()
        await until(lambda: server.hangups)


async def test_the_server_gets_the_request_as_it_was_meant() -> None:
    request = ask(
        user("What is", ImageBlock(ImageSource("image/png", b"\x89PNG")), "?"),
        assistant("Adding.", ToolUseBlock("c1", "add", {"a": 2, "b": 40})),
        tool(ToolResultBlock("c1", "42")),
        model="m-1",
        system="Be kind.",
        tools=[ADD],
        params={"temperature": 0.5, "max_tokens": 7},
        key="chat-1:q-3",
    )
    async with endpoint("ok", server_key="secret", api_key="secret", headers={"X-Team": "a"}) as (provider, server):
        await hear(provider, request)
    assert server.requests == [request]
    (received,) = server.received
    assert received.headers["idempotency-key"] == "chat-1:q-3"
    assert received.headers["x-team"] == "a"
    assert received.body["stream_options"] == {"include_usage": True}


async def test_a_key_that_no_header_can_hold_is_sent_as_its_digest_the_same_each_time() -> None:
    async with endpoint("ok", "ok") as (provider, server):
        await hear(provider, ask(key="süß\n1"))
        await hear(provider, ask(key="süß\n1"))
    first, second = [received.headers["idempotency-key"] for received in server.received]
    assert first == second
    assert first.isalnum()


async def test_without_a_key_none_is_sent() -> None:
    async with endpoint("ok") as (provider, server):
        await hear(provider)
    assert "idempotency-key" not in server.received[0].headers
    assert "authorization" not in server.received[0].headers


async def test_arguments_that_are_no_json_come_as_they_were_written() -> None:
    async with endpoint(ScriptedToolCall("add", '{"a": 2, "b"')) as (provider, _):
        assert (await hear(provider)).reply.content == [ToolUseBlock("call_1", "add", {"_raw": '{"a": 2, "b"'})]


async def test_connections_are_used_again() -> None:
    async with endpoint("a", "b", fault("rate_limit"), "c") as (provider, server):
        for _ in range(2):
            await hear(provider)
        await failure(provider)
        await hear(provider)
        assert server.connections == 1


async def test_after_closing_new_connections_are_made() -> None:
    async with endpoint("a", "b") as (provider, server):
        await hear(provider)
        await provider.aclose()
        await hear(provider)
        assert server.connections == 2


def test_each_event_loop_has_its_own_connections() -> None:
    provider: OpenAIProvider | None = None

    async def once() -> str:
        nonlocal provider
        async with ModelServer(["hi"]) as server:
            provider = provider or OpenAIProvider(server.url)
            provider.base_url = server.url
            try:
                return "".join((await hear(provider)).text)
            finally:
                await provider.aclose()

    assert [asyncio.run(once()) for _ in range(2)] == ["hi", "hi"]


async def test_cancelling_the_call_ends_it_at_the_server() -> None:
    async with endpoint(fault("timeout", after=["Hel"])) as (provider, server):
        heard = Heard()
        task = asyncio.create_task(hear(provider, into=heard))
        await until(lambda: heard.text)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: server.hangups)


# --- refusals ------------------------------------------------------------------------------------------


@each_row(
    ("step", "status"),
    [
        (fault("rate_limit", retry_after_s=7), 429),
        (fault("overloaded", status=529), 529),
        (fault("overloaded"), 503),
        (fault("auth"), 401),
        (fault("auth", status=403), 403),
        (fault("invalid_request"), 400),
        (fault("context_length"), 400),
    ],
)
async def test_a_refusal_is_an_error_of_its_class(step: Any, status: int) -> None:
    async with endpoint(step) as (provider, server):
        error = await failure(provider)
    assert (error.fault, error.status, error.retry_after_s) == (step.fault, status, step.retry_after_s)
    assert step.message in str(error)
    assert server.url in str(error)


async def test_retry_after_may_be_a_date() -> None:
    headers = {"Retry-After": "Fri, 31 Dec 2100 23:59:59 GMT"}
    async with endpoint(RawReply(body=b"{}", status=429, headers=headers)) as (provider, _):
        error = await failure(provider)
    assert error.retry_after_s is not None
    assert error.retry_after_s > 1e9


async def test_an_error_never_shows_the_key_even_if_the_service_does() -> None:
    async with endpoint(fault("auth", "Incorrect API key: sk-secret"), api_key="sk-secret") as (provider, _):
        told = f"{await failure(provider)} {provider!r}"
    assert "sk-secret" not in told
    assert "Incorrect API key: …" in told


async def test_a_page_of_html_is_quoted_briefly() -> None:
    page = RawReply(body=b"<html>" + b"x" * 500_000, status=502, content_type="text/html")
    async with endpoint(page) as (provider, _):
        error = await failure(provider)
    assert error.fault == "overloaded"
    assert len(str(error)) < 1000


async def test_a_web_page_in_place_of_an_answer_says_what_to_look_at() -> None:
    async with endpoint(RawReply(body=b"<html>", content_type="text/html; charset=utf-8")) as (provider, _):
        error = await failure(provider)
    assert error.fault == "invalid_request"
    assert "check the base_url" in str(error)


async def test_a_redirect_is_not_followed_with_the_key() -> None:
    moved = RawReply(body=b"", status=308, headers={"Location": "https://elsewhere.example/v1"})
    async with endpoint(moved) as (provider, _):
        error = await failure(provider)
    assert (error.fault, error.status) == ("invalid_request", 308)
    assert "https://elsewhere.example/v1" in str(error)


async def test_a_wrong_path_is_an_invalid_request() -> None:
    async with ModelServer(["x"]) as server:
        provider = OpenAIProvider(server.url + "/wrong/")
        error = await failure(provider)
        await provider.aclose()
    assert (error.fault, error.status) == ("invalid_request", 404)
    assert "/v1/wrong/chat/completions" in str(error)


async def test_the_wrong_key_is_told_as_such() -> None:
    async with endpoint("ok", server_key="right", api_key="wrong") as (provider, server):
        error = await failure(provider)
    assert (error.fault, error.status, server.requests) == ("auth", 401, [])


# --- the line ------------------------------------------------------------------------------------------


async def test_a_stream_that_ends_without_its_last_event_is_no_short_answer() -> None:
    async with endpoint(fault("bad_stream", after=["Hel", "lo"])) as (provider, _):
        heard = Heard()
        error = await failure(provider, heard=heard)
    assert error.fault == "bad_stream"
    assert "[DONE]" in str(error)
    assert (heard.text, heard.replies) == (["Hel", "lo"], [])


async def test_even_with_a_finish_reason_the_last_event_is_waited_for() -> None:
    async with endpoint(FULL, wire=WireOptions(done=False)) as (provider, _):
        assert (await failure(provider)).fault == "bad_stream"


async def test_the_last_event_counts_without_the_empty_line_behind_it() -> None:
    async with endpoint(RawReply(body=events(SAID, FINISHED) + b"data: [DONE]")) as (provider, _):
        assert (await hear(provider)).reply.content == [TextBlock("Hel")]


async def test_an_empty_answer_is_a_bad_stream() -> None:
    async with endpoint(RawReply(body=b""), RawReply(body=events(b"[DONE]")), RawReply(body=b"{}")) as (provider, _):
        for _ in range(3):
            assert (await failure(provider)).fault == "bad_stream"


async def test_a_connection_that_is_cut_in_the_answer_is_a_bad_stream() -> None:
    cut = [RawReply(body=events(SAID), ending="cut"), fault("network", after=["Hel"])]
    async with endpoint(*cut) as (provider, _):
        for _ in range(2):
            heard = Heard()
            error = await failure(provider, heard=heard)
            assert error.fault == "bad_stream"
            assert "broke off" in str(error)
            assert heard.text == ["Hel"]


async def test_plain_json_that_is_cut_is_a_bad_stream() -> None:
    async with endpoint(RawReply(body=b'{"choices": [{"message": {"content": "Hel')) as (provider, _):
        assert (await failure(provider)).fault == "bad_stream"


async def test_a_connection_that_is_cut_before_the_answer_is_the_network() -> None:
    async with endpoint(fault("network")) as (provider, _):
        assert (await failure(provider)).fault == "network"


async def test_nobody_at_the_address_is_the_network() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        provider = OpenAIProvider(f"http://127.0.0.1:{free.getsockname()[1]}/v1")
        error = await failure(provider)
        await provider.aclose()
    assert error.fault == "network"
    assert "cannot be reached" in str(error)


async def test_a_service_that_says_nothing_times_out() -> None:
    async with endpoint(fault("timeout"), chunk_timeout_s=0.1) as (provider, _):
        assert (await failure(provider)).fault == "timeout"


async def test_a_stream_that_falls_silent_times_out() -> None:
    async with endpoint(fault("timeout", after=["Hel"]), chunk_timeout_s=0.1) as (provider, _):
        heard = Heard()
        assert (await failure(provider, heard=heard)).fault == "timeout"
        assert heard.text == ["Hel"]


async def test_a_stream_that_is_slow_but_alive_does_not_time_out() -> None:
    async with endpoint(stream(*"abcdefghijkl", every_s=0.05), chunk_timeout_s=0.5) as (provider, _):
        assert "".join((await hear(provider)).text) == "abcdefghijkl"


async def test_a_server_that_does_not_take_the_connection_times_out() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(address)
        provider = OpenAIProvider(f"http://127.0.0.1:{address[1]}/v1", connect_timeout_s=0.2, chunk_timeout_s=5)
        error = await failure(provider)
        await provider.aclose()
        for each in waiting:
            each.close()
    assert error.fault == "timeout"
    assert "no connection" in str(error)


@each_row(
    ("told", "fault"),
    [
        (b"{not json", "bad_stream"),
        (b"[1]", "bad_stream"),
        ({"error": {"message": "busy", "type": "overloaded_error"}}, "overloaded"),
        ({"error": {"message": "slow down", "code": 429}}, "rate_limit"),
        ({"error": {"message": "what?", "code": "other"}}, "bad_stream"),
    ],
)
async def test_what_goes_wrong_within_a_stream_ends_it_with_its_class(told: Any, fault: str) -> None:
    async with endpoint(RawReply(body=events(SAID, told, FINISHED, b"[DONE]"))) as (provider, _):
        heard = Heard()
        assert (await failure(provider, heard=heard)).fault == fault
        assert (heard.text, heard.replies) == (["Hel"], [])


async def test_an_event_with_the_name_of_an_error_is_one() -> None:
    body = events(SAID) + b'event: error\ndata: {"message": "gone", "type": "server_error"}\n\n' + events(b"[DONE]")
    async with endpoint(RawReply(body=body)) as (provider, _):
        error = await failure(provider)
    assert error.fault == "overloaded"
    assert "gone" in str(error)


async def test_an_error_with_the_status_of_success_is_an_error() -> None:
    body = b'{"error": {"message": "No endpoints found", "code": 404}}'
    async with endpoint(RawReply(body=body, content_type="application/json")) as (provider, _):
        error = await failure(provider)
    assert (error.fault, error.status) == ("invalid_request", 404)


async def test_a_response_without_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai, "MAX_BODY_BYTES", 10_000)
    async with endpoint(RawReply(body=b": x\n" * 5_000)) as (provider, _):
        error = await failure(provider)
    assert error.fault == "bad_stream"
    assert "more than 10000 bytes" in str(error)


async def test_a_server_that_lingers_after_the_last_event_holds_nobody_up() -> None:
    slow = RawReply(body=events(SAID, FINISHED, b"[DONE]"), ending="hold")
    async with endpoint(slow, "next") as (provider, server):
        async with asyncio.timeout(HANG_S):
            assert (await hear(provider)).reply.content == [TextBlock("Hel")]
        assert (await hear(provider)).reply.content == [TextBlock("next")]
        assert (server.connections, server.hangups) == (2, 1)


# --- making one ----------------------------------------------------------------------------------------


@each_row("url", ["", "localhost:8000", "ftp://host/v1", "http://"])
def test_an_address_that_is_no_http_url_is_refused_at_once(url: str) -> None:
    with pytest.raises(InvalidValueError, match="not an http or https URL"):
        OpenAIProvider(url)


def test_a_key_that_no_header_can_hold_is_refused_without_being_shown() -> None:
    with pytest.raises(InvalidValueError) as caught:
        OpenAIProvider("http://localhost/v1", "schlüssel")
    assert "schl" not in str(caught.value)


def test_it_is_a_provider() -> None:
    provider: Provider = OpenAIProvider("http://localhost/v1", "key\n", id="local")
    assert isinstance(provider, Provider)
    assert provider.id == "local"
