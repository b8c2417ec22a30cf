"""What a service's refusal means."""

from __future__ import annotations

from email.utils import formatdate

import msgspec

from holdfast.agent.providers.faults import (
    MESSAGE_CHARS,
    error_reply_of,
    fault_of,
    is_error_reply,
    read_error_reply,
    read_retry_after,
)
from holdfast.agent.providers.provider import RETRIED, Fault
from tests.tables import each_row

NOW = 1_800_000_000.0


@each_row(
    ("status", "body", "fault"),
    [
        (429, b'{"error": {"message": "Slow down", "code": "rate_limit_exceeded"}}', "rate_limit"),
        (429, b'{"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}', "auth"),
        (500, b"", "overloaded"),
        (502, b"<html>Bad Gateway</html>", "overloaded"),
        (503, b'{"error": "busy"}', "overloaded"),
        (529, b'{"error": {"type": "overloaded_error", "message": "Overloaded"}}', "overloaded"),
        (401, b'{"error": {"message": "Incorrect API key"}}', "auth"),
        (402, b"{}", "auth"),
        (403, b"{}", "auth"),
        (404, b'{"error": {"message": "no such model"}}', "invalid_request"),
        (400, b'{"error": {"message": "temperature must be a number"}}', "invalid_request"),
        (422, b'{"detail": [{"msg": "field required"}]}', "invalid_request"),
        (400, b'{"error": {"message": "too long", "code": "context_length_exceeded"}}', "context_length"),
        (400, b'{"error": {"message": "This model\'s maximum context length is 8192 tokens"}}', "context_length"),
        (400, b'{"error": "the request exceeds the available context size"}', "context_length"),
        (400, b'{"type": "error", "error": {"message": "prompt is too long: 9 > 8 tokens"}}', "context_length"),
        (413, b"", "context_length"),
        (408, b"", "timeout"),
        (409, b"", "overloaded"),
        (None, b'{"error": {"code": 429, "message": "x"}}', "rate_limit"),
        (None, b'{"error": {"code": 502, "message": "upstream"}}', "overloaded"),
        (None, b'{"error": {"type": "server_error", "message": "x"}}', "overloaded"),
        (None, b'{"error": {"code": "rate_limit_exceeded", "message": "x"}}', "rate_limit"),
        (None, b'{"error": {"type": "invalid_request_error", "message": "x"}}', "invalid_request"),
        (None, b'{"error": {"code": "context_length_exceeded", "message": "x"}}', "context_length"),
        (None, b'{"error": {"message": "something"}}', "bad_stream"),
    ],
)
def test_a_refusal_is_classed_by_its_status_and_its_words(status: int | None, body: bytes, fault: Fault) -> None:
    assert fault_of(status, read_error_reply(body)) == fault


@each_row(
    "words",
    [
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens.",
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
        "prompt is too long: 210000 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length",
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
        "Please reduce the length of the messages or completion.",
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193. Given: 9000 `inputs` tokens",
        "Input validation error: `inputs` must have less than 4096 tokens. Given: 5000",
        "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
        "the request exceeds the available context size, try increasing it",
        "input length exceeds the context length",
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        "Input is too long for requested model.",
        "too many tokens: total number of tokens in the prompt cannot exceed 4081",
        "Prompt exceeds max length",
        "Invalid request: Your request exceeded model token limit: 262144 (requested: 300000)",
        "Range of input length should be [1, 30720]",
        "prompt token count of 130000 exceeds the limit of 128000",
    ],
)
def test_services_that_find_a_conversation_too_long_are_understood(words: str) -> None:
    assert fault_of(400, read_error_reply(msgspec.json.encode({"error": {"message": words}}))) == "context_length"


@each_row(
    "words",
    [
        "max_tokens is too large: 100000. This model supports at most 16384 completion tokens.",
        "Too many tokens, please wait before trying again.",
        "Rate limit reached for tokens per minute (TPM): limit 30000; too many tokens",
        "Invalid value for 'temperature'",
    ],
)
def test_other_refusals_that_speak_of_tokens_are_not_taken_for_that(words: str) -> None:
    assert fault_of(400, read_error_reply(msgspec.json.encode({"error": {"message": words}}))) == "invalid_request"


def test_only_what_may_go_well_later_is_retried() -> None:
    retried = {status for status in range(400, 600) if fault_of(status, read_error_reply(b"")) in RETRIED}
    assert retried == {408, 409, 425, 429, *range(500, 600)}


@each_row(
    ("body", "words"),
    [
        (b'{"error": {"message": "Slow  down\\n please"}}', "Slow down please"),
        (b'{"error": "busy"}', "busy"),
        (b'{"message": "busy"}', "busy"),
        (b'{"detail": "busy"}', "busy"),
        (b'[{"error": {"message": "busy"}}]', "busy"),
        (b'{"detail": [{"msg": "field required"}]}', '[{"msg":"field required"}]'),
        (b"plain \xff text", "plain � text"),
        (b"[]", "[]"),
    ],
)
def test_the_words_of_a_refusal_are_found_in_every_usual_shape(body: bytes, words: str) -> None:
    assert read_error_reply(body).message == words


def test_a_page_of_html_is_cut_short() -> None:
    told = read_error_reply(b"<html>" + b"x" * 100_000).message
    assert len(told) == MESSAGE_CHARS + 1


def test_an_error_in_place_of_an_answer_is_noticed() -> None:
    assert is_error_reply({"error": {"message": "x"}})
    assert is_error_reply([{"error": "x"}])
    assert not is_error_reply({"error": None, "choices": []})
    assert not is_error_reply({"choices": []})
    assert error_reply_of([{"error": {"code": 503, "message": "x"}}]).status == 503


@each_row(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": " 1.5 "}, 1.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": formatdate(NOW + 90, usegmt=True)}, 90.0),
        ({"retry-after": formatdate(NOW - 90, usegmt=True)}, 0.0),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "7"}, 7.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({}, None),
    ],
)
def test_retry_after_is_seconds_milliseconds_or_a_date(headers: dict[str, str], seconds: float | None) -> None:
    assert read_retry_after(headers, NOW) == seconds
