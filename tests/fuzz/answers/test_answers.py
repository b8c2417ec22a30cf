"""What people and models answer, changed: decisions about tool calls, and texts that strategies take apart."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest

from holdfast.agent.machine.approval import check_decision
from holdfast.core.errors import InvalidValueError
from holdfast.core.queries import Value
from holdfast.core.values import Json
from holdfast.programs import model_text
from tests.fuzz.fuzzer import Fuzzer, assert_is_declared
from tests.fuzz.generation import changed_json, changed_text

DECISIONS: list[Json] = [
    "approve",
    {"decision": "approve", "arguments": {"path": "x", "n": [1, None]}},
    {"decision": "deny", "reason": "no"},
    {"decision": "always", "match": {"path": "x*"}},
]


def test_a_changed_decision_is_taken_or_refused(fuzzer: Fuzzer) -> None:
    def check(value: Json) -> None:
        try:
            check_decision("write", {"path": "x"}, Value(value=value))
        except InvalidValueError as error:
            assert_is_declared(error)

    written = [each if isinstance(each, str) else json.dumps(each) for each in DECISIONS]
    known: list[Json] = ['{"a":' * 3_000, '{"\ud800": 1}', {"value": "\ud800"}, {"decision": "deny", "x" * 9_000: 1}]
    fuzzer.run(check, changed_json(DECISIONS) | changed_text(written), examples=75, known=known)


TEXTS = [
    'Sure!\n```json\n{"score": 7, "list": [1, {"a": "b\\n"}]}\n```\nDone.',
    "1. first\n2) second\n- third\n* fourth: **bold**\n",
    "Score: 8.5/10, because yes. No, maybe -1e3 or 1,000.25",
    "The answer is: YES",
]


def test_a_decision_that_says_two_things_is_refused() -> None:
    for text in (
        '{"decision": "deny", "decision": "approve"}',
        '{"decision": "always", "match": {"a": "x", "a": "*"}}',
    ):
        with pytest.raises(InvalidValueError, match="more than once"):
            check_decision("write", {"a": "y"}, Value(value=text))


WORDS = ["[", "]", "{", "}", '"', "```", "```json\n", "- ", "1. ", "/10", "%", "-", "e", ".", "\\", "yes", "no", ":"]

READERS: list[Callable[[str], Any]] = [
    model_text.json_extract,
    model_text.list_items,
    model_text.match_bool,
    model_text.parse_score,
    model_text.parse_number,
    lambda text: model_text.match_enum(text, ["yes", "no", "maybe not"]),
    lambda text: model_text.chunk(text, mode="chars", size=7, overlap=3),
    lambda text: model_text.vote([text, text]),
]


def test_a_changed_text_of_a_model_is_read_without_an_error(fuzzer: Fuzzer) -> None:
    def check(text: str) -> None:
        for read in READERS:
            read(text)

    changed = changed_text(TEXTS, words=WORDS)
    fuzzer.run(check, st.one_of(changed, changed.map(lambda text: text[:50] * 200)), examples=100)
