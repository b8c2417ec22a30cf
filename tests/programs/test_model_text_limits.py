"""Reading in Python: what it says about wrong arguments, and that hostile values cannot hold it up."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from holdfast.programs import model_text as reading
from tests.tables import each_row


def calling(name: str, *args: Any, **options: Any) -> Callable[[], Any]:
    """A call of one of the functions, also with what its types do not allow."""
    return partial(getattr(reading, name), *args, **options)


# --- arguments --------------------------------------------------------------------------------


@each_row(
    ("call", "told"),
    [
        (calling("json_extract", None), "json_extract: text must be str, got NoneType"),
        (calling("list_items", None), "list_items: text must be str, got NoneType"),
        (calling("list_items", "- a", "1"), "list_items: most must be int, got str"),
        (calling("list_items", "- a", True), "list_items: most must be int, got bool"),
        (calling("match_enum", 5, []), "match_enum: text must be str, got int"),
        (calling("match_enum", "a", "b"), "match_enum: candidates must be a list of str, got str"),
        (calling("match_enum", "a", ["x", True]), "match_enum: candidate 2 must be str, got bool"),
        (calling("match_enum", "a", [], threshold="x"), "match_enum: threshold must be a number, got str"),
        (calling("match_bool", b"yes"), "match_bool: text must be str, got bytes"),
        (calling("parse_score", []), "parse_score: text must be str, got list"),
        (calling("parse_score", "7", None), "parse_score: default must be a number, got NoneType"),
        (calling("parse_number", 7), "parse_number: text must be str, got int"),
        (calling("parse_number", "7", 7), "parse_number: pattern must be str, got int"),
        (calling("vote", "yes"), "vote: answers must be a list of values, got str"),
        (calling("vote", ["a", [{1, 2}]]), "vote: answer 2 must be JSON, got set"),
        (calling("vote", [{1: 2}]), "vote: answer 1 must be JSON, got a dict with keys that are not str"),
        (calling("chunk", None), "chunk: text must be str, got NoneType"),
        (calling("chunk", "a", size="2"), "chunk: size must be int, got str"),
        (calling("chunk", "a", overlap=True), "chunk: overlap must be int, got bool"),
        (calling("fingerprint", 1), "fingerprint: text must be str, got int"),
        (calling("tuning", [], {}), "tuning: defaults must be dict, got list"),
        (calling("tuning", {}, []), "tuning: ctx must be dict, got list"),
        (calling("tuning", {}, {}, prefix=1), "tuning: prefix must be str, got int"),
    ],
)
def test_a_wrong_type_is_told_to_the_author(call: Callable[[], Any], told: str) -> None:
    with pytest.raises(TypeError) as raised:
        call()
    assert str(raised.value) == told


@each_row(
    ("call", "told"),
    [
        (calling("list_items", "- a", -1), "list_items: most must be 0 or more, got -1"),
        (calling("chunk", "a", mode="words"), "chunk: mode must be 'lines' or 'chars', got 'words'"),
        (calling("chunk", "a", size=-1), "chunk: size must be 0 or more, got -1"),
        (calling("parse_number", "a", "("), "parse_number: pattern is not a regular expression: missing )"),
        (calling("vote", [2**64]), "vote: answer 1 contains an integer of more than 64 bits"),
    ],
)
def test_a_value_that_makes_no_sense_is_told_to_the_author(call: Callable[[], Any], told: str) -> None:
    with pytest.raises(ValueError) as raised:
        call()
    assert str(raised.value).startswith(told)


# --- hostile values --------------------------------------------------------------------------------


def laughs(make: Callable[[Any], Any], seed: Any) -> Any:
    """A value that is small in memory and has 2**60 leaves."""
    for _ in range(60):
        seed = make(seed)
    return seed


def inside_itself() -> list[Any]:
    loop: list[Any] = []
    loop.append(loop)
    return loop


LONG = 3_000_000
DICTS = laughs(lambda inner: {"a": inner, "b": inner}, {})


@each_row(
    ("call", "told"),
    [
        (lambda: reading.match_bool("x" * (reading.MAX_TEXT_CHARS + 1)), "text has 10000001 characters"),
        (lambda: reading.json_extract("{" * LONG), "more than 1000000 '{' and '}'"),
        (lambda: reading.list_items("[" * LONG), "list_items: text has more than 1000000 '[' and ']'"),
        (lambda: reading.list_items("".join(f"- {n}\n" for n in range(100_001))), "more than 100000 entries"),
        (lambda: reading.list_items(str([f"{n}" for n in range(100_001)]).replace("'", '"')), "more than 100000"),
        (lambda: reading.match_enum("x" * LONG, ["a"] * 500), "too many to search for 500 candidates"),
        (lambda: reading.match_enum("x", ["a"] * 1_001), "at most 1000 candidates"),
        (lambda: reading.match_enum("x", ["a" * 20_000] * 3), "with 50000 characters in all"),
        (lambda: reading.match_enum(" ".join(map(str, range(500_000))), ["word"]), "too long to search for similar"),
        (lambda: reading.match_enum("x " * LONG, ["word"]), "too long to search for similar"),
        (lambda: reading.match_enum("x" * LONG * 2, ["word"]), "too long to search for similar"),
        (lambda: reading.vote([laughs(lambda inner: [inner, inner], 1)]), "answer 1 exceeds the limit of 100000 items"),
        (lambda: reading.vote([[[1] * 1_000] * 60] * 60), "answer 2 exceeds the limit of 100000 items"),
        (lambda: reading.vote([" " + "x" * LONG] * 1_000), "answer 4 exceeds the limit of 100000 items"),
        (lambda: reading.vote([["x" * LONG] * 1_000]), "answer 1 exceeds the limit of 100000 items"),
        (lambda: reading.vote([inside_itself()]), "answer 1 is nested deeper than 128 levels"),
        (lambda: reading.vote(["x"] * 100_001), "answer 100001 exceeds the limit of 100000 items"),
        (lambda: reading.chunk("x" * LONG, mode="chars", size=1), "more than 100000; use a larger size"),
        (lambda: reading.chunk("x" * LONG, mode="chars", size=LONG // 2, overlap=LONG // 2 - 50), "too much text"),
        (lambda: reading.chunk("\n" * LONG), "more than 1000000 lines"),
        (lambda: reading.tuning(DICTS, DICTS), "more than 10000 keys"),
    ],
)
def test_what_would_take_too_long_is_refused_at_once(call: Callable[[], Any], told: str) -> None:
    began = time.process_time()
    with pytest.raises(ValueError) as raised:
        call()
    assert told in str(raised.value)
    assert time.process_time() - began < 5


READ = 600_000
"""Characters of texts that are read: any step that looks at all of them for each of them takes an hour."""


@each_row(
    "call",
    [
        lambda: reading.json_extract("{" * 900_000),
        lambda: reading.json_extract("[" * 400_000 + "]" * 400_000),
        lambda: reading.json_extract("{x}" * 300_000),
        lambda: reading.json_extract("```json" + " \n" * READ),
        lambda: reading.json_extract("[" + ("9" * 4_000 + ",") * 500 + "1]"),
        lambda: reading.list_items(" " * READ),
        lambda: reading.list_items("9" * READ),
        lambda: reading.list_items(" \n" * READ),
        lambda: reading.list_items("- \n" * READ),
        lambda: reading.list_items("- a\n" * READ),
        lambda: reading.list_items("- " + " " * READ + "x"),
        lambda: reading.list_items("".join(f"- {n}\n" for n in range(READ // 4)), 10),
        lambda: reading.match_enum("a" * 29_000, ["a" * 24 + "b" + "a" * 24]),
        lambda: reading.match_enum("a" * READ, ["a" * 20_000 + "b" + "a" * 20_000], threshold=2),
        lambda: reading.match_bool("no " * READ),
        lambda: reading.parse_score("0" * READ),
        lambda: reading.parse_number("9" * READ),
        lambda: reading.parse_number("0." + "0" * READ + "1"),
        lambda: reading.parse_number("9" * READ + "x", "(?s)(.*)"),
        lambda: reading.fingerprint(" A" * READ),
        lambda: reading.tuning({"a": {"b": 1}}, {"a": DICTS}),
    ],
)
def test_long_texts_are_read_in_time(call: Callable[[], Any]) -> None:
    began = time.process_time()
    call()
    assert time.process_time() - began < 4


def test_lone_surrogates_break_nothing() -> None:
    broken = "\ud800 yes 7 {} \udfff"
    assert reading.json_extract(broken) == {}
    assert reading.list_items(f"- {broken}\n") == [broken]
    assert reading.match_bool(broken) is True
    assert reading.match_enum(broken, ["YES", "\ud800"]) == "YES"
    assert reading.chunk(broken, mode="chars", size=100) == [broken]
    assert len(reading.fingerprint(broken)) == 8
    assert reading.vote([broken, broken])["winner"] == broken
