"""Requests in the chat-completions form: what is posted for a conversation."""

from __future__ import annotations

import pytest

from holdfast.agent.machine.messages import (
    AgentMessage,
    ImageBlock,
    ImageSource,
    ReasoningBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from holdfast.agent.providers.openai_request import request_body
from holdfast.agent.providers.provider import ModelRequest, ProviderError
from holdfast.core.values import Json
from tests.agent.providers.helpers import ADD, ask, assistant, tool, user

PICTURE = ImageBlock(ImageSource("image/png", b"\x89PNG"))
URL = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}}


def body(request: ModelRequest, *, reasoning: str | None = None) -> dict[str, Json]:
    return request_body(request, max_tokens="max_tokens", reasoning=reasoning)


def told(*messages: AgentMessage | str, reasoning: str | None = None) -> Json:
    return body(ask(*messages), reasoning=reasoning)["messages"]


def test_a_plain_request_is_streamed_with_usage() -> None:
    assert body(ask("Hello", model="gpt", system="Be kind.")) == {
        "model": "gpt",
        "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_tools_are_told_with_their_schema() -> None:
    assert body(ask(tools=[ADD]))["tools"] == [
        {
            "type": "function",
            "function": {"name": "add", "description": "Add two numbers.", "parameters": ADD.parameters},
        }
    ]


def test_calls_and_their_results_follow_each_other() -> None:
    calls = assistant(TextBlock("Adding."), ToolUseBlock("c1", "add", {"a": 2, "b": 40}), ToolUseBlock("c2", "now", {}))
    results = [tool(ToolResultBlock("c1", 42)), tool(ToolResultBlock("c2", "no clock", is_error=True))]
    assert told("Add", calls, *results) == [
        {"role": "user", "content": "Add"},
        {
            "role": "assistant",
            "content": "Adding.",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":2,"b":40}'}},
                {"id": "c2", "type": "function", "function": {"name": "now", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "42"},
        {"role": "tool", "tool_call_id": "c2", "content": "Error: no clock"},
    ]


def test_a_result_that_is_text_is_not_quoted_and_one_that_is_not_is_json() -> None:
    results = told(tool(ToolResultBlock("c1", "two\nlines")), tool(ToolResultBlock("c2", {"a": [1, None]})))
    assert [result["content"] for result in results] == ["two\nlines", '{"a":[1,null]}']


def test_pictures_are_data_urls_among_the_text() -> None:
    assert told(user("What is", PICTURE, "?")) == [
        {"role": "user", "content": [{"type": "text", "text": "What is"}, URL, {"type": "text", "text": "?"}]}
    ]


def test_pictures_of_tools_come_after_the_last_result() -> None:
    calls = assistant(ToolUseBlock("c1", "look", {}), ToolUseBlock("c2", "look", {}))
    results = [tool(ToolResultBlock("c1", "seen"), PICTURE), tool(ToolResultBlock("c2", "seen"))]
    roles = [(each["role"], each["content"]) for each in told(calls, *results)[1:]]
    assert roles == [("tool", "seen"), ("tool", "seen"), ("user", [URL])]
    roles = [(each["role"], each["content"]) for each in told(calls, *results, "And?")[1:]]
    assert roles == [("tool", "seen"), ("tool", "seen"), ("user", [URL]), ("user", "And?")]


def test_reasoning_goes_back_only_where_it_is_wanted() -> None:
    thought = assistant(ReasoningBlock("Hm."), TextBlock("Yes."))
    assert told(thought) == [{"role": "assistant", "content": "Yes."}]
    assert told(thought, reasoning="reasoning_content") == [
        {"role": "assistant", "content": "Yes.", "reasoning_content": "Hm."}
    ]


def test_a_message_that_says_nothing_is_left_out() -> None:
    assert told("Hello", assistant(ReasoningBlock("Hm.")), assistant()) == [{"role": "user", "content": "Hello"}]


def test_calls_without_text_have_null_for_it() -> None:
    (message,) = told(assistant(ToolUseBlock("c1", "now", {})))
    assert message["content"] is None


def test_messages_of_other_roles_keep_what_they_say() -> None:
    said = [TextBlock("a"), TextBlock("b")]
    assert told(AgentMessage("system", [*said]), AgentMessage("signal", [*said])) == [
        {"role": "system", "content": "ab"},
        {"role": "user", "content": "ab"},
    ]


def test_params_go_by_their_own_names() -> None:
    sent = request_body(
        ask(params={"temperature": 0.5, "max_tokens": 7, "seed": 1}), max_tokens="max_completion_tokens", reasoning=None
    )
    assert (sent["temperature"], sent["max_completion_tokens"], sent["seed"]) == (0.5, 7, 1)
    assert "max_tokens" not in sent


def test_a_param_that_is_none_takes_a_default_out() -> None:
    assert "stream_options" not in body(ask(params={"stream_options": None}))


def test_params_cannot_say_what_the_request_says() -> None:
    with pytest.raises(ProviderError, match="params cannot set messages, stream") as caught:
        body(ask(params={"stream": False, "messages": []}))
    assert caught.value.fault == "invalid_request"


def test_arguments_that_could_not_be_read_go_back_as_json() -> None:
    (message,) = told(assistant(ToolUseBlock("c1", "add", {"_raw": '{"a": '})))
    assert message["tool_calls"][0]["function"]["arguments"] == '{"_raw":"{\\"a\\": "}'
