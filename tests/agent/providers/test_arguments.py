"""Arguments as models write them."""

from __future__ import annotations

from holdfast.agent.providers.arguments import read_arguments
from tests.tables import each_row


@each_row("text", ["", "  ", "null", "{}"])
def test_no_arguments_are_no_arguments(text: str) -> None:
    assert read_arguments(text) == {}


def test_an_object_is_read() -> None:
    assert read_arguments(' {"a": 2, "b": [40, {"c": null}]} ') == {"a": 2, "b": [40, {"c": None}]}


@each_row(
    "text",
    [
        '{"a": 2',
        "a=2",
        "[1, 2]",
        '"text"',
        '{"a": NaN}',
        '{"a": 1e999}',
        '{"a": 123456789012345678901234567890}',
        '{"a": "\\ud83d"}',
        '{"a": ' * 300 + "1" + "}" * 300,
    ],
)
def test_what_is_no_object_that_can_be_kept_is_given_as_it_was_written(text: str) -> None:
    assert read_arguments(text) == {"_raw": text}


def test_text_that_is_no_valid_unicode_can_be_kept_all_the_same() -> None:
    assert read_arguments('{"a": "\ud83d') == {"_raw": '{"a": "?'}
