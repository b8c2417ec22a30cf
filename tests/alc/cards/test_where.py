"""The `where` and `order_by` of cards: each rule by example, and all of them against a model without any cleverness."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.alc.cards.errors import InvalidWhereError
from holdfast.alc.cards.query import OPERATORS, in_order, matches, parse_order, parse_where
from holdfast.core.errors import InvalidValueError
from tests.tables import each_row

CARD: dict[str, Any] = {
    "card_id": "cot_1",
    "stats": {"pass_rate": 0.8, "n": 30, "note": None},
    "model": {"id": "claude-opus-4-6"},
    "tags": ["a", 1],
    "flag": True,
}


def passes(where: Any, document: Any = CARD) -> bool:
    return matches(parse_where(where), document)


# --- rules by example ----------------------------------------------------------------------------


def test_a_scalar_or_an_array_means_equality() -> None:
    assert passes({"card_id": "cot_1"})
    assert not passes({"card_id": "cot_2"})
    assert passes({"tags": ["a", 1]})
    assert not passes({"tags": ["a"]})


def test_nested_objects_walk_into_sections() -> None:
    assert passes({"stats": {"n": 30}})
    assert not passes({"stats": {"n": 31}})
    assert not passes({"card_id": {"n": 30}})


def test_an_object_of_operators_is_a_test_and_all_of_them_must_hold() -> None:
    assert passes({"stats": {"n": {"gte": 30, "lt": 31}}})
    assert not passes({"stats": {"n": {"gte": 30, "lt": 30}}})


def test_an_object_with_one_other_key_is_a_section_even_if_it_names_an_operator() -> None:
    assert passes({"a": {"gte": 1, "b": 2}}, {"a": {"gte": 1, "b": 2}})
    assert not passes({"a": {"gte": 1, "b": 2}}, {"a": 5})


def test_an_operator_name_at_the_top_is_a_field() -> None:
    assert passes({"in": 5}, {"in": 5})


def test_several_keys_are_joined_by_and() -> None:
    assert passes({"card_id": "cot_1", "stats": {"n": 30}})
    assert not passes({"card_id": "cot_1", "stats": {"n": 31}})


def test_and_or_and_not_join_filters() -> None:
    assert passes({"_or": [{"card_id": "other"}, {"stats": {"n": 30}}]})
    assert not passes({"_and": [{"card_id": "other"}, {"stats": {"n": 30}}]})
    assert passes({"_not": {"card_id": "other"}})


def test_and_or_and_not_work_below_a_field() -> None:
    assert passes({"stats": {"_or": [{"n": 1}, {"pass_rate": {"gte": 0.8}}]}})
    assert passes({"stats": {"n": {"_not": {"gte": 31}}}})
    assert not passes({"stats": {"n": {"_not": {"gte": 30}}}})


def test_an_empty_filter_passes_all_and_an_empty_or_passes_none() -> None:
    empties: list[Any] = [{}, []]
    for empty in empties:
        assert passes(empty)
        assert passes({"_and": empty})
        assert not passes({"_or": empty})


def test_a_missing_field_fails_all_but_ne_and_nin_and_not_exists() -> None:
    held = {name for name in OPERATORS if passes({"gone": {name: _operand_of(name)}})}
    assert held == {"ne", "nin"}
    assert passes({"gone": {"exists": False}})
    assert not passes({"flag": {"exists": False}})
    assert passes({"flag": {"exists": True}})


def _operand_of(operator: str) -> Any:
    return {"in": ["x"], "nin": ["x"], "exists": True}.get(operator, "x")


def test_a_null_is_there_and_equals_null() -> None:
    assert passes({"stats": {"note": None}})
    assert passes({"stats": {"note": {"exists": True}}})
    assert not passes({"stats": {"gone": None}})


def test_numbers_are_compared_as_floats_and_never_with_booleans_or_text() -> None:
    assert passes({"n": 1}, {"n": 1.0})
    assert passes({"n": {"in": [[1.0]]}}, {"n": [1]})
    assert passes({"n": 2**53}, {"n": 2**53 + 1})
    assert not passes({"flag": 1})
    assert not passes({"n": {"gte": "1"}}, {"n": 2})
    assert passes({"n": {"ne": "2"}}, {"n": 2})
    assert not passes({"flag": {"gte": 0}})
    assert passes({"flag": {"gt": False}})


def test_in_and_nin_take_arrays_and_an_empty_lua_table_is_one() -> None:
    assert passes({"card_id": {"in": ["x", "cot_1"]}})
    assert not passes({"card_id": {"nin": ["x", "cot_1"]}})
    assert not passes({"card_id": {"in": {}}})
    assert passes({"card_id": {"nin": {}}})


def test_contains_and_starts_with_look_at_text_only() -> None:
    assert passes({"model": {"id": {"contains": "opus", "starts_with": "claude-"}}})
    assert not passes({"model": {"id": {"starts_with": "opus"}}})
    assert not passes({"tags": {"contains": "a"}})


@each_row(
    ("where", "said"),
    [
        ("x", "where clause must be a table"),
        ({"_and": 5}, "_and must be an array of sub-predicates"),
        ({"_or": {"a": 1}}, "_or must be an array of sub-predicates"),
        ({"_not": 5}, "where clause must be a table"),
        ({"a": {"in": "x"}}, "'in' takes an array"),
        ({"a": {"exists": "no"}}, "'exists' takes true or false"),
        ({"a": {"b": {"contains": 5}}}, "'contains' takes a string, got 5 (at 'a.b')"),
    ],
)
def test_a_filter_that_cannot_be_understood_says_what_is_wrong(where: Any, said: str) -> None:
    with pytest.raises(InvalidWhereError) as raised:
        parse_where(where)
    assert said in str(raised.value)


def test_a_filter_nested_too_deeply_is_refused() -> None:
    deep: Any = 1
    for _ in range(100):
        deep = {"_not": {"a": deep}}
    with pytest.raises(InvalidWhereError, match="deeper than 64"):
        parse_where(deep)
    with pytest.raises(InvalidValueError):
        parse_where({"a": float("nan")})


# --- against a model -----------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "n", "gte"])
SCALARS = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.0, 0.5, 1.0, -2.0, "", "a", "ab"])
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2))
DOCUMENTS = st.dictionaries(NAMES, VALUES, max_size=4)


def _tests() -> st.SearchStrategy[Any]:
    kinds: dict[str, st.SearchStrategy[Any]] = dict.fromkeys(("eq", "ne", "lt", "lte", "gt", "gte"), VALUES)
    kinds |= dict.fromkeys(("in", "nin"), st.lists(VALUES, max_size=2))
    kinds |= dict.fromkeys(("contains", "starts_with"), st.sampled_from(["", "a", "b"]))
    kinds["exists"] = st.booleans()
    return st.sets(st.sampled_from(sorted(kinds)), min_size=1, max_size=2).flatmap(
        lambda names: st.fixed_dictionaries({name: kinds[name] for name in names})
    )


PLAIN = SCALARS | st.lists(SCALARS, max_size=2)
WHERES = st.recursive(
    st.dictionaries(NAMES, PLAIN | _tests(), max_size=2),
    lambda inner: st.one_of(
        st.dictionaries(NAMES, inner | PLAIN | _tests(), max_size=2),
        st.builds(lambda parts: {"_and": parts}, st.lists(inner, max_size=2)),
        st.builds(lambda parts: {"_or": parts}, st.lists(inner, max_size=2)),
        st.builds(lambda part: {"_not": part}, inner),
    ),
    max_leaves=6,
)


def model_passes(where: dict[str, Any], places: list[Any], top: bool = True) -> bool:
    """The rules as they are written down. `places` holds the value looked at, or nothing if it is missing."""
    if not top and where and all(key in OPERATORS for key in where):
        return all(model_test(name, places, operand) for name, operand in where.items())
    verdicts = []
    for key, value in where.items():
        below = [place[key] for place in places if isinstance(place, dict) and key in place]
        if key == "_and":
            verdicts.append(all(model_passes(part, places, top) for part in value))
        elif key == "_or":
            verdicts.append(any(model_passes(part, places, top) for part in value))
        elif key == "_not":
            verdicts.append(not model_passes(value, places, top))
        elif isinstance(value, dict):
            verdicts.append(model_passes(value, below, False))
        else:
            verdicts.append(model_test("eq", below, value))
    return all(verdicts)


def model_test(name: str, places: list[Any], operand: Any) -> bool:
    if not places:
        return name in ("ne", "nin") or (name == "exists" and not operand)
    value = places[0]
    if name == "exists":
        return bool(operand)
    if name in ("eq", "ne"):
        return bool(model_form(value) == model_form(operand)) == (name == "eq")
    if name in ("in", "nin"):
        return (model_form(value) in [model_form(one) for one in operand]) == (name == "in")
    if name == "contains":
        return isinstance(value, str) and str(operand) in value
    if name == "starts_with":
        return isinstance(value, str) and value[: len(operand)] == str(operand)
    if model_form(value)[0] != model_form(operand)[0] or model_form(value)[0] in ("object", "array", "NoneType"):
        return False
    verdicts = {"lt": value < operand, "lte": value <= operand, "gt": value > operand, "gte": value >= operand}
    return bool(verdicts[name])


def model_form(value: Any) -> Any:
    """A value in a form in which Python's own equality is that of the filters."""
    if isinstance(value, dict):
        return ("object", sorted((key, repr(model_form(item))) for key, item in value.items()))
    if isinstance(value, list):
        return ("array", [model_form(item) for item in value])
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return (type(value).__name__, value)
    return ("number", float(value) + 0.0)


@given(WHERES, DOCUMENTS)
def test_filters_mean_what_the_model_says(where: dict[str, Any], document: dict[str, Any]) -> None:
    assert passes(where, document) == model_passes(where, [document])


# --- order ---------------------------------------------------------------------------------------


def ordered(order: Any, documents: list[Any]) -> list[Any]:
    return in_order(documents, parse_order(order), lambda document: document)


def test_a_dash_means_descending_and_missing_values_are_last_or_then_first() -> None:
    rows = [{"s": {"n": 2}}, {}, {"s": {"n": 1.5}}]
    assert ordered("s.n", rows) == [{"s": {"n": 1.5}}, {"s": {"n": 2}}, {}]
    assert ordered("-s.n", rows) == [{}, {"s": {"n": 2}}, {"s": {"n": 1.5}}]


def test_later_keys_break_ties_and_what_still_ties_stays_as_it_was() -> None:
    rows = [{"a": a, "b": b, "i": i} for i, (a, b) in enumerate([(1, "x"), (1, "y"), (0, "z"), (1, "x")])]
    assert [row["i"] for row in ordered(["a", "-b"], rows)] == [2, 1, 0, 3]


@given(st.lists(st.fixed_dictionaries({}, optional={"a": VALUES}), max_size=6), st.booleans())
def test_any_values_can_be_sorted_and_the_result_does_not_depend_on_where_they_stood(
    rows: list[dict[str, Any]], descending: bool
) -> None:
    order = "-a" if descending else "a"
    keyed = [repr(model_sort_key(row)) for row in ordered(order, rows)]
    assert keyed == [repr(model_sort_key(row)) for row in ordered(order, rows[::-1])]


def model_sort_key(row: dict[str, Any]) -> Any:
    value = row.get("a", row)
    return "other" if isinstance(value, (dict, list)) or value is None else model_form(value)


@each_row("order", ["", "-", "a..b", ["a", ""], 5, {"a": 1}, [5]])
def test_an_order_that_cannot_be_understood_is_refused(order: Any) -> None:
    with pytest.raises(InvalidWhereError, match="order_by"):
        parse_order(order)
