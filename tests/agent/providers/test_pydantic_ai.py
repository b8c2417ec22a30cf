"""Models through pydantic-ai: its own test models, without a network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic_ai import exceptions as errors
from pydantic_ai import messages as theirs
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RequestUsage

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
from holdfast.agent.providers import pydantic_ai as adapter
from holdfast.agent.providers.provider import ModelReply, ModelRequest, Provider, ProviderError, TextDelta
from holdfast.agent.providers.pydantic_ai import PydanticAIProvider
from holdfast.agent.providers.pydantic_ai_messages import from_theirs, to_theirs
from holdfast.core.queries import Usage
from holdfast.testing.patience import HANG_S
from tests.agent.providers.helpers import ADD, Heard, ask, assistant, hear, tool, user
from tests.tables import each_row

PICTURE = ImageSource("image/png", b"\x89PNG")


class Asked:
    """A model that says what it is given to say, and keeps what it was asked."""

    def __init__(self, *said: Any) -> None:
        self.messages: list[theirs.ModelMessage] = []
        self.info: AgentInfo | None = None
        self._said = said

    async def __call__(self, messages: list[theirs.ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        self.messages, self.info = messages, info
        for each in self._said:
            if isinstance(each, Exception):
                raise each
            yield each

    @property
    def provider(self) -> PydanticAIProvider:
        return PydanticAIProvider(FunctionModel(stream_function=self, model_name="f-1"))


async def failure(error: Exception, *before: str) -> tuple[ProviderError, list[str]]:
    heard = Heard()
    with pytest.raises(ProviderError) as caught:
        await hear(Asked(*before, error).provider, ask(model="f-1"), heard)
    assert heard.replies == []
    return caught.value, heard.text


# --- replies -------------------------------------------------------------------------------------------


async def test_text_comes_in_deltas_and_whole() -> None:
    heard = await hear(Asked("Hel", "lo").provider, ask(model="f-1"))
    assert heard.text == ["Hel", "lo"]
    assert (heard.reply.content, heard.reply.stop, heard.reply.model) == ([TextBlock("Hello")], "end", "f-1")
    assert heard.reply.usage is not None
    assert heard.reply.usage.completion_tokens


async def test_parallel_calls_are_read_with_their_ids() -> None:
    pieces = [
        {0: DeltaToolCall("add", '{"a": 2,', tool_call_id="c1"), 1: DeltaToolCall("now", tool_call_id="c2")},
        {0: DeltaToolCall(json_args=' "b": 40}')},
    ]
    heard = await hear(Asked(*pieces).provider, ask(model="f-1"))
    assert heard.reply.content == [ToolUseBlock("c1", "add", {"a": 2, "b": 40}), ToolUseBlock("c2", "now", {})]
    assert heard.reply.stop == "tool_use"


async def test_arguments_that_are_no_json_come_as_they_were_written() -> None:
    heard = await hear(Asked({0: DeltaToolCall("add", '{"a": ', tool_call_id="c1")}).provider, ask(model="f-1"))
    assert heard.reply.content == [ToolUseBlock("c1", "add", {"_raw": '{"a": '})]


async def test_reasoning_keeps_its_signature_and_goes_back_with_it() -> None:
    first = Asked({0: DeltaThinkingPart(content="Hm")}, {0: DeltaThinkingPart(content=".", signature="s1")}, "Yes.")
    heard = await hear(first.provider, ask(model="f-1"))
    assert heard.reasoning == ["Hm", "."]
    assert [type(block) for block in heard.reply.content] == [ReasoningBlock, TextBlock]
    second = Asked("ok")
    await hear(second.provider, ask("Hi", AgentMessage("assistant", heard.reply.content), "And?", model="f-1"))
    (response,) = [message for message in second.messages if isinstance(message, theirs.ModelResponse)]
    thought, text = response.parts
    assert thought == theirs.ThinkingPart("Hm.", signature="s1", provider_name="function")
    assert text == theirs.TextPart("Yes.")


async def test_the_librarys_own_test_model_calls_tools_and_answers() -> None:
    provider = PydanticAIProvider("test")
    assert (provider.id, provider.model) == ("test", "test")
    heard = await hear(provider, ask("Add", tools=[ADD], model="test"))
    (use,) = heard.reply.content
    assert isinstance(use, ToolUseBlock)
    assert (use.name, use.input, heard.reply.stop) == ("add", {"a": 0, "b": 0}, "tool_use")
    results = [assistant(use), tool(ToolResultBlock(use.id, 42))]
    heard = await hear(provider, ask("Add", *results, tools=[ADD], model="test"))
    assert heard.reply.content == [TextBlock('{"add":42}')]
    assert "".join(heard.text) == '{"add":42}'


# --- requests ------------------------------------------------------------------------------------------


async def test_system_tools_and_params_reach_the_model() -> None:
    asked = Asked("ok")
    request = ask("Hi", system="Be kind.", tools=[ADD], params={"temperature": 0.5}, key="k", model="f-1")
    await hear(asked.provider, request)
    assert asked.info is not None
    (told,) = asked.info.function_tools
    assert (told.name, told.description, told.parameters_json_schema) == ("add", "Add two numbers.", ADD.parameters)
    assert asked.info.instructions == "Be kind."
    settings = dict(asked.info.model_settings or {})
    assert settings == {"temperature": 0.5, "max_retries": 0, "extra_headers": {"Idempotency-Key": "k"}}


def test_a_conversation_is_told_with_all_results_right_after_their_calls() -> None:
    calls = assistant("Adding.", ToolUseBlock("c1", "add", {"a": 2}), ToolUseBlock("c2", "look", {}))
    results = [tool(ToolResultBlock("c1", {"sum": 42}), ImageBlock(PICTURE)), tool(ToolResultBlock("c2", "no", True))]
    told = to_theirs(ask(user("See", ImageBlock(PICTURE)), calls, *results, "And?", system="S"), "function")
    first, response, last = told
    assert isinstance(first, theirs.ModelRequest)
    (prompt,) = first.parts
    assert isinstance(prompt, theirs.UserPromptPart)
    assert prompt.content == ["See", theirs.BinaryContent(b"\x89PNG", media_type="image/png")]
    assert response.parts == [
        theirs.TextPart("Adding."),
        theirs.ToolCallPart("add", {"a": 2}, "c1"),
        theirs.ToolCallPart("look", {}, "c2"),
    ]
    assert isinstance(last, theirs.ModelRequest)
    assert last.instructions == "S"
    good, bad, picture, text = last.parts
    assert isinstance(good, theirs.ToolReturnPart)
    assert isinstance(bad, theirs.ToolReturnPart)
    assert (good.tool_name, good.content, good.tool_call_id, good.outcome) == ("add", {"sum": 42}, "c1", "success")
    assert (bad.tool_name, bad.content, bad.outcome) == ("look", "no", "failed")
    assert isinstance(picture, theirs.UserPromptPart)
    assert isinstance(text, theirs.UserPromptPart)
    assert text.content == "And?"


def test_messages_that_say_nothing_are_left_out() -> None:
    told = to_theirs(ask("Hi", assistant(ReasoningBlock("Hm.")), assistant(TextBlock(""))), "function")
    assert len(told) == 1


PARTS: list[theirs.ModelResponsePart] = [
    theirs.ThinkingPart("Hm.", id="t1", signature="s", provider_name="google", provider_details={"n": 1}),
    theirs.ThinkingPart("", id="redacted", signature="blob", provider_name="google"),
    theirs.TextPart("Yes.", id="x1", provider_name="google", provider_details={"phase": "final"}),
    theirs.ToolCallPart("add", {"a": 1}, "c1", provider_name="google", provider_details={"thought_signature": "abc"}),
    theirs.ToolCallPart("add", {"a": 2}, "c2"),
    theirs.FilePart(theirs.BinaryContent(b"\x89PNG", media_type="image/png")),
]


def back(content: list[ContentBlock], service: str) -> list[Any]:
    (response,) = to_theirs(ModelRequest(model="m", messages=[AgentMessage("assistant", content)]), service)
    return list(response.parts)


def test_all_that_a_service_wants_back_goes_back_to_it() -> None:
    content = from_theirs(theirs.ModelResponse(parts=list(PARTS)))
    assert [block for block in content if not isinstance(block, ReasoningBlock)] == [
        TextBlock("Yes."),
        ToolUseBlock("c1", "add", {"a": 1}),
        ToolUseBlock("c2", "add", {"a": 2}),
        ImageBlock(PICTURE),
    ]
    assert back(content, "google") == PARTS


def test_nothing_of_it_goes_to_another_service() -> None:
    content = from_theirs(theirs.ModelResponse(parts=list(PARTS)))
    assert back(content, "anthropic") == [
        theirs.TextPart("Yes."),
        theirs.ToolCallPart("add", {"a": 1}, "c1"),
        theirs.ToolCallPart("add", {"a": 2}, "c2"),
        PARTS[-1],
    ]


def test_a_signature_of_another_provider_is_not_mistaken_for_ours() -> None:
    foreign: list[ContentBlock] = [
        ReasoningBlock("Hm.", "EqQBCgIYAhIM"),
        ReasoningBlock("Hm."),
        ReasoningBlock("Hm.", "{}"),
        TextBlock("x"),
    ]
    assert back(foreign, "google") == [theirs.TextPart("x")]


def test_details_that_json_has_no_form_for_do_not_lose_the_rest() -> None:
    part = theirs.ThinkingPart("Hm.", signature="s", provider_name="google", provider_details={"x": object()})
    content = from_theirs(theirs.ModelResponse(parts=[part]))
    assert back(content, "google") == [theirs.ThinkingPart("Hm.", signature="s", provider_name="google")]


# --- which model ---------------------------------------------------------------------------------------


async def test_without_a_name_the_providers_own_model_is_asked() -> None:
    assert (await hear(Asked("ok").provider, ask(model=""))).text == ["ok"]


async def test_a_model_object_serves_no_other_model() -> None:
    with pytest.raises(ProviderError, match="only serves the model 'f-1', not 'f-2'") as caught:
        await hear(Asked("ok").provider, ask(model="f-2"))
    assert caught.value.fault == "invalid_request"


async def test_a_service_serves_all_its_models(monkeypatch: pytest.MonkeyPatch) -> None:
    def infer(model: Any) -> TestModel:
        return TestModel(custom_output_text=model, model_name=model)

    monkeypatch.setattr(adapter, "infer_model", infer)
    provider = PydanticAIProvider("service:one")
    assert (provider.id, provider.model) == ("service", "one")
    replies = [(await hear(provider, ask(model=name))).reply for name in ("one", "two", "")]
    assert [reply.model for reply in replies] == ["service:one", "service:two", "service:one"]


def test_a_model_that_cannot_be_had_is_refused_at_once() -> None:
    with pytest.raises(ProviderError, match="Unknown model: nobody:x"):
        PydanticAIProvider("nobody:x")


def test_it_is_a_provider() -> None:
    provider: Provider = PydanticAIProvider(TestModel())
    assert isinstance(provider, Provider)
    assert provider.id == "test"


# --- ends and errors -----------------------------------------------------------------------------------


class OpenAIChatModel(TestModel):
    """Stands for the library's model of that name, whose own library is not installed with ours."""


def replied(response: theirs.ModelResponse, model: TestModel | None = None) -> ModelReply:
    return PydanticAIProvider("test")._reply(response, model or TestModel())


def said(reason: Any, **details: Any) -> theirs.ModelResponse:
    return theirs.ModelResponse(
        parts=[theirs.TextPart("x")], finish_reason=reason, provider_name="openai", provider_details=details
    )


def test_a_stream_that_just_fell_silent_is_no_short_answer() -> None:
    for response, model in ((said(None), TestModel()), (said("stop"), OpenAIChatModel())):
        with pytest.raises(ProviderError, match="broke off") as caught:
            replied(response, model)
        assert caught.value.fault == "bad_stream"


def test_what_the_service_said_is_the_end() -> None:
    assert replied(said("stop")).stop == "end"
    assert replied(said("stop", finish_reason="stop"), OpenAIChatModel()).stop == "end"
    assert replied(said("content_filter", refusal="No."), OpenAIChatModel()).stop == "refusal"
    assert replied(said(None, finish_reason="something new")).stop == "other"


@each_row(
    ("reason", "state", "stop"),
    [
        ("stop", "complete", "end"),
        ("length", "complete", "length"),
        ("content_filter", "complete", "refusal"),
        ("tool_call", "complete", "tool_use"),
        (None, "complete", "end"),
        ("stop", "suspended", "other"),
    ],
)
def test_the_reason_of_the_end_is_told(reason: Any, state: Any, stop: str) -> None:
    response = theirs.ModelResponse(parts=[theirs.TextPart("x")], finish_reason=reason, state=state)
    assert replied(response).stop == stop


@each_row(("reason", "state"), [("stop", "incomplete"), (None, "interrupted"), ("error", "complete")])
def test_an_answer_that_broke_off_is_no_short_answer(reason: Any, state: Any) -> None:
    response = theirs.ModelResponse(parts=[theirs.TextPart("x")], finish_reason=reason, state=state)
    with pytest.raises(ProviderError) as caught:
        replied(response)
    assert caught.value.fault == "bad_stream"


def test_usage_is_told_in_our_buckets() -> None:
    used = RequestUsage(
        input_tokens=100, cache_read_tokens=80, cache_write_tokens=5, output_tokens=20, output_reasoning_tokens=15
    )
    response = theirs.ModelResponse(parts=[theirs.TextPart("x")], usage=used)
    assert replied(response).usage == Usage(
        prompt_tokens=100, completion_tokens=20, cache_read_tokens=80, cache_write_tokens=5, reasoning_tokens=15
    )


@each_row("used", [RequestUsage(), RequestUsage(unmeasured_requests=1, output_tokens=3)])
def test_usage_that_is_not_known_is_none(used: RequestUsage) -> None:
    response = theirs.ModelResponse(parts=[theirs.TextPart("x")], usage=used)
    assert replied(response).usage is None


def http(kind: Any, status: int, **headers: str) -> errors.ModelHTTPError:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return errors.ModelHTTPError.for_category(kind, status_code=status, model_name="m", headers=named)


@each_row(
    ("error", "fault", "status"),
    [
        (http(errors.ModelRateLimitError, 429), "rate_limit", 429),
        (http(errors.ModelQuotaExceededError, 429), "auth", 429),
        (http(errors.ModelOverloadedError, 529), "overloaded", 529),
        (http(errors.ModelServerError, 500), "overloaded", 500),
        (http(errors.ModelAuthenticationError, 401), "auth", 401),
        (http(errors.ModelNotFoundError, 404), "invalid_request", 404),
        (http(errors.ModelContextWindowExceededError, 400), "context_length", 400),
        (http(errors.ModelRequestRejectedError, 400), "invalid_request", 400),
        (errors.ModelHTTPError(400, "m", {"message": "Prompt exceeds max length"}), "context_length", 400),
        (errors.ModelRequestRejectedError("m", "prompt token count of 9 exceeds the limit"), "context_length", None),
        (errors.ModelHTTPError(503, "m"), "overloaded", 503),
        (errors.ModelHTTPError(418, "m"), "invalid_request", 418),
        (errors.ModelConnectionError("m", "cut"), "network", None),
        (errors.ModelTimeoutError("m", "late"), "timeout", None),
        (errors.ModelRequestTimeout("m", 5), "timeout", None),
        (errors.UnexpectedModelBehavior("what?"), "bad_stream", None),
        (errors.ContentFilterError("no"), "invalid_request", None),
        (errors.UserError("wrong"), "invalid_request", None),
        (ConnectionResetError("cut"), "network", None),
        (KeyError("x"), "other", None),
    ],
)
async def test_errors_are_classed(error: Exception, fault: str, status: int | None) -> None:
    raised, said = await failure(error, "Hel")
    assert (raised.fault, raised.status, said) == (fault, status, ["Hel"])
    assert str(raised).startswith("function: ")


async def test_the_wait_that_a_service_asks_for_is_passed_on() -> None:
    raised, _ = await failure(http(errors.ModelRateLimitError, 429, retry_after="7"))
    assert raised.retry_after_s == 7


async def test_cancelling_ends_the_call() -> None:
    ended = asyncio.Event()

    async def slow(messages: list[theirs.ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        try:
            yield "a"
            await asyncio.sleep(30)
        finally:
            ended.set()

    items = PydanticAIProvider(FunctionModel(stream_function=slow, model_name="slow")).stream(ask(model="slow"))
    assert await anext(items) == TextDelta("a")
    task = asyncio.ensure_future(anext(items))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(HANG_S):
        await ended.wait()
