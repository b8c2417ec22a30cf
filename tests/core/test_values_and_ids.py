"""Hostile input: ids, values, queries, answers and budgets that nobody sane would send, and the errors they get."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

import pytest

from holdfast.core import errors
from holdfast.core.budget import Budget, Price
from holdfast.core.decide import (
    CancelMessage,
    FeedMessage,
    decide_cancel,
    decide_complete,
    decide_fail,
    decide_feed,
    decide_pause,
    decide_start,
)
from holdfast.core.errors import (
    BudgetExceededError,
    HoldfastError,
    InvalidIdError,
    InvalidValueError,
    UnknownQueryError,
)
from holdfast.core.ids import check_id, new_session_id
from holdfast.core.limits import MAX_ID_CHARS, MAX_INTEGER, MAX_VALUE_BYTES, MAX_VALUE_DEPTH, MIN_INTEGER
from holdfast.core.queries import ChildQuery, Failure, HumanQuery, Query, TimerQuery, ToolQuery, Usage, Value
from holdfast.core.records import CompletedRecord, Parent, Program, Record, decode_record
from holdfast.core.state import State
from holdfast.core.values import check_value, encode, fingerprint, preview
from tests.core.helpers import PROGRAM, START, given, in_state, llm, nested, paused, picture, refused, started
from tests.tables import each_row

LONE = "\ud800"
"""Half of a surrogate pair: text to Python, but not to UTF-8."""

HUGE = 10**5000
"""An integer so long that Python refuses to print it."""

# --- ids ---------------------------------------------------------------------------------------------


@each_row("text", ["a", "0", "s-1", "A.b_c:d@e+f=g-h", "x" * MAX_ID_CHARS, "a..b"])
def test_a_good_id_is_given_back(text: str) -> None:
    assert check_id(text, "session id") == text


@each_row(
    "text",
    [
        "",
        "..",
        ".hidden",
        "-rf",
        "../../etc/passwd",
        "a/b",
        "a\\b",
        "a b",
        "a\0b",
        "\0",
        "a\n",
        "a'; DROP TABLE sessions; --",
        "$(reboot)",
        "%2e%2e",
        "é",
        "٣",
        LONE,
        "a" + LONE,
        "x" * (MAX_ID_CHARS + 1),
        "x" * 1_000_000,
        LONE * 1_000_000,
        None,
        7,
        True,
        b"bytes",
        ["a"],
        nested(100_000),
        HUGE,
    ],
    ids=lambda text: preview(text[:9]) if isinstance(text, str) and LONE not in text else type(text).__name__,
)
def test_a_bad_id_is_refused_with_a_short_printable_sentence(text: object) -> None:
    with pytest.raises(InvalidIdError) as caught:
        check_id(text, "session id")
    sentence = str(caught.value)
    assert sentence.startswith("invalid session id ")
    assert len(sentence) < 1_500
    assert sentence.isprintable()
    sentence.encode()


def test_a_new_session_id_is_26_readable_characters_after_its_prefix() -> None:
    text = new_session_id()
    assert text.startswith("s-")
    assert len(text) == 28
    assert set(text[2:]) <= set("0123456789abcdefghjkmnpqrstvwxyz")
    assert check_id(text, "session id") == text


def test_new_session_ids_do_not_repeat() -> None:
    assert len({new_session_id() for _ in range(10_000)}) == 10_000


@each_row(
    "query_id", ["../../etc/passwd", "q-0\0", "x" * 1_000_000, '"', LONE, "q-0\n", "q-" + "9" * 5000], ids=range(7)
)
def test_an_answer_to_a_hostile_query_id_is_unknown_in_a_short_sentence(query_id: str) -> None:
    journal = paused()
    with refused(journal.session, UnknownQueryError) as caught:
        journal.feed(given(query_id))
    sentence = str(caught.value)
    assert len(sentence) < 400
    assert sentence.isprintable()
    encode(caught.value.to_json())


# --- values ------------------------------------------------------------------------------------------

GOOD: list[Any] = [
    None,
    True,
    0,
    MAX_INTEGER,
    MIN_INTEGER,
    -0.0,
    1e16,
    5e-324,
    1.7976931348623157e308,
    "",
    "\0\x1f\x7f\u2028🙂",
    [],
    {},
    {"": {"a": [None, {"b": False}]}},
    nested(MAX_VALUE_DEPTH),
]


@each_row("value", GOOD, ids=range(len(GOOD)))
def test_a_value_that_is_accepted_comes_back_exactly(value: Any) -> None:
    check_value(value, "result")
    kept = decode_record(encode(CompletedRecord(result=value)))
    assert isinstance(kept, CompletedRecord)
    assert picture(kept.result) == picture(value)


class Text(str):
    """Text to isinstance, but not to the encoder."""


class Number(float):
    """As numpy's float64 is."""


class Word(StrEnum):
    YES = "yes"


@each_row("value", [Text("a"), Number(1.5), Word.YES, [Text("a")], {Text("a"): 1}, (1, 2)], ids=repr)
def test_a_value_of_a_type_close_to_json_is_refused_or_can_be_encoded(value: Any) -> None:
    try:
        check_value(value, "result")
    except InvalidValueError:
        return
    assert json.loads(encode(value)) == json.loads(json.dumps(value))


def cyclic() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


BAD: list[tuple[Any, str]] = [
    (float("nan"), "nan is not a JSON number"),
    (float("inf"), "inf is not a JSON number"),
    (float("-inf"), "-inf is not a JSON number"),
    (MAX_INTEGER + 1, "64 bits"),
    (MIN_INTEGER - 1, "64 bits"),
    (HUGE, "64 bits"),
    (LONE, "lone surrogate"),
    ({LONE: 1}, "lone surrogate"),
    ({1: 2}, "a key of type int"),
    ({None: 2}, "a key of type NoneType"),
    ({("a",): 2}, "a key of type tuple"),
    (b"bytes", "bytes has no JSON form"),
    ({1, 2}, "set has no JSON form"),
    (Decimal(1), "Decimal has no JSON form"),
    (datetime(2020, 1, 1), "datetime has no JSON form"),
    (object(), "object has no JSON form"),
    (1j, "complex has no JSON form"),
    (len, "has no JSON form"),
    (Value(value=1), "Value has no JSON form"),
    (nested(MAX_VALUE_DEPTH + 1), "nested deeper than 256 levels"),
    (nested(100_000), "nested deeper than 256 levels"),
    (cyclic(), "nested deeper than 256 levels"),
    ("x" * 50_000_000, "larger than 33554432 bytes"),
    ("é" * 20_000_000, "larger than 33554432 bytes"),
    (["x" * 1_000_000] * 50, "larger than 33554432 bytes"),
    ({"x" * 50_000_000: 1}, "larger than 33554432 bytes"),
]


@each_row(("value", "why"), BAD, ids=[why.replace(" ", "-") + f"-{n}" for n, (_, why) in enumerate(BAD)])
def test_a_value_that_json_cannot_keep_is_refused_wherever_it_is(value: Any, why: str) -> None:
    for hidden in (value, [value], {"a": [0, value]}):
        with pytest.raises(InvalidValueError) as caught:
            check_value(hidden, "answer")
        sentence = str(caught.value)
        assert sentence.startswith("invalid answer")
        assert why in sentence
        assert len(sentence) < 400
        sentence.encode()


def test_the_refusal_names_the_place() -> None:
    with pytest.raises(InvalidValueError) as caught:
        check_value({"a": [1, {"b c": float("nan")}], "z": 1}, "answer")
    assert caught.value.path == ".a[1].b c"
    assert str(caught.value) == "invalid answer at .a[1].b c: nan is not a JSON number"


def test_the_place_is_right_after_deeper_neighbours() -> None:
    with pytest.raises(InvalidValueError) as caught:
        check_value([[[1, 2], [3]], {"a": {"b": 1}}, {"c": LONE}], "answer")
    assert caught.value.path == "[2].c"


@each_row(
    "value",
    ["\0" * (MAX_VALUE_BYTES // 4), [MIN_INTEGER] * (MAX_VALUE_BYTES // 20)],
    ids=["escapes", "integers"],
)
def test_the_size_of_a_value_is_that_of_its_json(value: Any) -> None:
    assert len(encode(value)) > MAX_VALUE_BYTES
    with pytest.raises(InvalidValueError, match="larger than"):
        check_value(value, "answer")


def test_a_value_of_thirty_megabytes_is_accepted() -> None:
    value = "x" * 30_000_000
    check_value(value, "answer")
    assert len(encode(value)) < MAX_VALUE_BYTES


def test_a_fingerprint_does_not_depend_on_the_order_of_keys() -> None:
    assert fingerprint({"a": 1, "b": {"c": 1, "d": 2}}) == fingerprint({"b": {"d": 2, "c": 1}, "a": 1})


@each_row("value", ["x" * 1_000_000, list(range(100_000)), {"k" * 1000: "v"}, "\0" * 1000])
def test_a_preview_is_short(value: Any) -> None:
    assert len(preview(value)) <= 81
    assert preview(value).endswith("…")


# --- what programs and hosts hand in -----------------------------------------------------------------

BAD_QUERIES: list[Query] = [
    llm(LONE),
    llm("x" * 50_000_000),
    llm(system=LONE),
    llm(options={"model": float("nan")}),
    llm(options={1: 2}),
    llm(max_tokens=0),
    llm(max_tokens=-HUGE),
    llm(max_tokens=HUGE),
    llm(timeout_ms=-1),
    llm(timeout_ms=2**62),
    llm(timeout_ms=HUGE),
    ToolQuery(name=LONE),
    ToolQuery(name="t", arguments={"a": nested(100_000)}),
    ToolQuery(name="t", arguments={"a": b"bytes"}),
    HumanQuery(prompt=LONE),
    HumanQuery(prompt="p", choices=[LONE]),
    TimerQuery(delay_ms=-1),
    TimerQuery(delay_ms=2**62),
    TimerQuery(delay_ms=HUGE),
    ChildQuery(program=LONE),
    ChildQuery(program="p", ctx=object()),
]


@each_row("query", BAD_QUERIES, ids=range(len(BAD_QUERIES)))
def test_a_query_that_cannot_be_kept_is_not_asked(query: Query) -> None:
    session = started().session
    with refused(session, InvalidValueError) as caught:
        decide_pause(session, [llm(), query], START)
    assert len(str(caught.value)) < 400


UNTYPED: Any = 5
"""Stands for what a caller without a type checker may pass."""

MISTYPED_QUERIES: dict[str, Callable[[], Query]] = {
    "llm prompt": lambda: llm(UNTYPED),
    "llm system": lambda: llm(system=UNTYPED),
    "llm options": lambda: llm(options=[1]),
    "llm max_tokens": lambda: llm(max_tokens=1.5),
    "llm grounded": lambda: llm(grounded="yes"),
    "llm timeout_ms": lambda: llm(timeout_ms=1.5),
    "tool name": lambda: ToolQuery(name=UNTYPED),
    "tool arguments": lambda: ToolQuery(name="t", arguments=UNTYPED),
    "human prompt": lambda: HumanQuery(prompt=UNTYPED),
    "human choices": lambda: HumanQuery(prompt="p", choices=[UNTYPED]),
    "timer delay_ms": lambda: TimerQuery(delay_ms=1.5),  # type: ignore[arg-type]
    "child program": lambda: ChildQuery(program=UNTYPED),
}


@each_row("query", MISTYPED_QUERIES.values(), ids=MISTYPED_QUERIES)
def test_a_query_with_a_field_of_another_type_is_not_asked(query: Callable[[], Query]) -> None:
    session = started().session
    with refused(session, InvalidValueError):
        decide_pause(session, [query()], START)


@each_row("wake", ["any", "", None])
def test_an_unknown_wake_rule_is_refused(wake: Any) -> None:
    session = started().session
    with refused(session, InvalidValueError):
        decide_pause(session, [llm()], START, wake=wake)


BAD_FEEDS: dict[str, FeedMessage] = {
    "lone surrogate": FeedMessage([given("q-0", LONE)]),
    "nan": FeedMessage([given("q-0", {"a": float("nan")})]),
    "deep": FeedMessage([given("q-0", nested(100_000))]),
    "50 MB": FeedMessage([given("q-0", "x" * 50_000_000)]),
    "object": FeedMessage([given("q-0", object())]),
    "failure message": FeedMessage([given("q-0", Failure(LONE))]),
    "failure code": FeedMessage([given("q-0", Failure("no", LONE))]),
    "failure of another type": FeedMessage([given("q-0", Failure(UNTYPED))]),
    "negative tokens": FeedMessage([given("q-0", "x", Usage(completion_tokens=-1))]),
    "negative tokens past printing": FeedMessage([given("q-0", "x", Usage(completion_tokens=-HUGE))]),
    "tokens past 64 bits": FeedMessage([given("q-0", "x", Usage(prompt_tokens=2**70))]),
    "tokens in fractions": FeedMessage([given("q-0", "x", Usage(prompt_tokens=1.5))]),  # type: ignore[arg-type]
    "cost nan": FeedMessage([given("q-0", "x", Usage(cost=float("nan")))]),
    "negative cost": FeedMessage([given("q-0", "x", Usage(cost=-0.1))]),
    "cost of another type": FeedMessage([given("q-0", "x", Usage(cost="1"))]),  # type: ignore[arg-type]
    "by": FeedMessage([given("q-0")], by=LONE),
    "by of another type": FeedMessage([given("q-0")], by=UNTYPED),
}


@each_row("feed", BAD_FEEDS.values(), ids=BAD_FEEDS)
def test_an_answer_that_cannot_be_kept_is_not_taken(feed: FeedMessage) -> None:
    session = paused().session
    with refused(session, InvalidValueError):
        decide_feed(session, feed)


@each_row(
    "cancel",
    [CancelMessage(reason=LONE), CancelMessage(by=LONE), CancelMessage(reason=UNTYPED)],
    ids=["reason", "by", "reason of another type"],
)
def test_a_cancellation_that_cannot_be_kept_is_refused(cancel: CancelMessage) -> None:
    session = paused().session
    with refused(session, InvalidValueError):
        decide_cancel(session, cancel)


@each_row("result", [LONE, object(), float("nan"), nested(100_000), {1: 1}], ids=range(5))
def test_a_result_that_cannot_be_kept_is_refused(result: Any) -> None:
    session = started().session
    with refused(session, InvalidValueError):
        decide_complete(session, result)


STARTS: dict[str, Callable[[], Record]] = {
    "program name": lambda: decide_start(Program("native", LONE)),
    "program source": lambda: decide_start(Program("native", "demo", LONE)),
    "program kind of another type": lambda: decide_start(Program(UNTYPED, "demo")),
    "ctx": lambda: decide_start(PROGRAM, ctx={"a": object()}),
    "deep ctx": lambda: decide_start(PROGRAM, ctx=nested(100_000)),
    "parent": lambda: decide_start(PROGRAM, parent=Parent(LONE, "q-0")),
    "name of a price": lambda: decide_start(PROGRAM, prices={LONE: Price(1.0, 1.0)}),
    "price of another type": lambda: decide_start(PROGRAM, prices={"default": Price("1", 1.0)}),  # type: ignore[arg-type]
    "calls in fractions": lambda: decide_start(PROGRAM, budget=Budget(max_llm_calls=1.5)),  # type: ignore[arg-type]
    "limit of another type": lambda: decide_start(PROGRAM, budget=Budget(max_tokens="5")),  # type: ignore[arg-type]
    "limit past 64 bits": lambda: decide_start(PROGRAM, budget=Budget(max_tokens=2**70)),
    "negative limit past printing": lambda: decide_start(PROGRAM, budget=Budget(max_tokens=-HUGE)),
}


@each_row("start", STARTS.values(), ids=STARTS)
def test_a_start_that_cannot_be_kept_is_refused(start: Callable[[], Record]) -> None:
    with pytest.raises((InvalidValueError, errors.InvalidBudgetError, InvalidIdError)):
        start()


@each_row(
    ("error", "kind"),
    [(LONE, "error"), ("boom", LONE), ("\0" * 10, "error"), ("x" * 50_000_000, "error")],
    ids=range(4),
)
def test_an_error_is_never_lost_to_its_own_text(error: str, kind: str) -> None:
    journal = started()
    record = decide_fail(journal.session, error, kind)
    assert decode_record(encode(record)) == record
    assert journal.write(record).session.state is State.FAILED


# --- errors ------------------------------------------------------------------------------------------


def every_error() -> list[type[HoldfastError]]:
    def below(kind: type[HoldfastError]) -> list[type[HoldfastError]]:
        return [kind, *(found for sub in kind.__subclasses__() for found in below(sub))]

    return [kind for kind in below(HoldfastError) if kind.__module__ == errors.__name__]


def example(kind: type[HoldfastError]) -> HoldfastError:
    """An error of the kind with every field filled in."""
    samples: dict[str, Any] = {"position": 7, "deleted_at": 9, "pending": ["q-1", "q-2"], "session_id": "s-named"}
    return kind(**{name: samples.get(name, f"<{name}>") for name in kind.field_names})


@each_row("kind", every_error())
def test_every_error_tells_its_kind_its_sentence_and_its_fields_as_json(kind: type[HoldfastError]) -> None:
    error = example(kind)
    told = json.loads(json.dumps(error.to_json()))
    fields = {name: getattr(error, name) for name in kind.field_names}
    assert told == {"kind": kind.kind, "error": str(error), **fields}


@each_row("kind", [each for each in every_error() if "session_id" in each.field_names])
def test_every_error_about_a_session_names_it(kind: type[HoldfastError]) -> None:
    if kind is BudgetExceededError:  # raised inside the program, whose authors match on this text
        assert example(kind).to_json()["session_id"] == "s-named"
    else:
        assert "'s-named'" in str(example(kind))


def test_every_kind_of_error_has_a_name_of_its_own() -> None:
    names = [kind.kind for kind in every_error()]
    assert len(set(names)) == len(names)


def test_an_error_about_many_pending_queries_names_only_some() -> None:
    journal = paused(*(llm() for _ in range(1000)))
    for query_id in (None, "q-5000"):
        with refused(journal.session, errors.FeedError) as caught:
            journal.feed(given(query_id))
        assert len(str(caught.value)) < 400


def test_a_refused_transition_is_json_as_well() -> None:
    journal = in_state(State.COMPLETED)
    with refused(journal.session, errors.TransitionError) as caught:
        journal.complete()
    assert json.loads(json.dumps(caught.value.to_json()))["actual"] == "completed"
