"""What a service's refusal means."""

from __future__ import annotations

from email.utils import formatdate

import pytest

from holdfast.agent.providers.faults import TOLD_CHARS, fault_of, read_refusal, read_retry_after, refusal_in, refusal_of
from holdfast.agent.providers.protocol import RETRIED, Fault

NOW = 1_800_000_000.0


@pytest.mark.parametrize(
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
    assert fault_of(status, read_refusal(body)) == fault


def test_only_what_may_go_well_later_is_retried() -> None:
    retried = {status for status in range(400, 600) if fault_of(status, read_refusal(b"")) in RETRIED}
    assert retried == {408, 409, 425, 429, *range(500, 600)}


@pytest.mark.parametrize(
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
    assert read_refusal(body).message == words


def test_a_page_of_html_is_cut_short() -> None:
    told = read_refusal(b"<html>" + b"x" * 100_000).message
    assert len(told) == TOLD_CHARS + 1


def test_an_error_in_place_of_an_answer_is_noticed() -> None:
    assert refusal_in({"error": {"message": "x"}})
    assert refusal_in([{"error": "x"}])
    assert not refusal_in({"error": None, "choices": []})
    assert not refusal_in({"choices": []})
    assert refusal_of([{"error": {"code": 503, "message": "x"}}]).status == 503


@pytest.mark.parametrize(
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
