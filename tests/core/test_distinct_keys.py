"""Repeated keys of JSON objects are found wherever they are, and nothing else is refused for them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.distinct_keys import check_distinct_keys
from holdfast.core.errors import InvalidValueError

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "a": 1}',
        b'{"a": 1, "a": 2}',
        '[{"b": {"a": 1, "c": 2, "a": 3}}]',
        '{"dec\\u0069sion": "deny", "decision": "approve"}',
        '{"n": %s, "a": 1, "a": 2}' % ("9" * 5_000),
        '{"n": NaN, "x": "a\tb", "a": 1, "a": 2}',
    ],
)
def test_a_key_that_stands_in_an_object_twice_is_refused(text: str | bytes) -> None:
    with pytest.raises(InvalidValueError, match="stands in one object more than once"):
        check_distinct_keys(text, "message")


@given(VALUES)
def test_a_value_that_was_written_down_is_not_refused(value: object) -> None:
    check_distinct_keys(json.dumps(value), "message")


@pytest.mark.parametrize(
    "text", ["", "no JSON: at: all", '{"a": 1, "b":', b'{"a": "\xff", "a": 1}', '{"a": 1} {"a": 1}']
)
def test_what_is_not_json_is_left_to_its_reader(text: str | bytes) -> None:
    check_distinct_keys(text, "message")


def test_what_is_nested_too_deeply_to_be_looked_at_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="nested too deeply"):
        check_distinct_keys('{"a": 1, "b": ' + "[" * 100_000, "message")
