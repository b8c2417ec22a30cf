"""JSON schemas: what is wrong with values by them, checked against another implementation, and schemas of no use."""

from __future__ import annotations

import importlib
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from holdfast.agent.schema_check import check_schema, problems_by_schema
from holdfast.core.errors import InvalidValueError
from tests.examples import examples
from tests.tables import each_row

jsonschema: Any = importlib.import_module("jsonschema")  # it comes with `mcp`, and has no types


def problems(value: Any, schema: dict[str, Any]) -> list[str]:
    check_schema(schema)
    return list(problems_by_schema(value, schema))


LINKED: dict[str, Any] = {
    "type": "object",
    "properties": {"value": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
    "required": ["value"],
    "additionalProperties": False,
}
TREE: dict[str, Any] = {
    "$defs": {"node": {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/node"}}}}},
    "$ref": "#/$defs/node",
}
PETS: dict[str, Any] = {
    "oneOf": [
        {
            "type": "object",
            "properties": {"kind": {"const": "cat"}, "lives": {"type": "integer"}},
            "required": ["kind"],
        },
        {
            "type": "object",
            "properties": {"kind": {"const": "dog"}, "barks": {"type": "boolean"}},
            "required": ["kind"],
        },
    ]
}

NO_PET = ['$.kind: expected "cat", got "cow"', '$.kind: expected "dog", got "cow"']


@each_row(
    ("value", "schema", "found"),
    [
        ("abc", {"type": "number"}, ['$: expected number, got "abc"']),
        (True, {"type": "integer"}, ["$: expected integer, got true"]),
        (7, {"type": "integer", "maximum": 5}, ["$: expected at most 5, got 7"]),
        (0, {"type": "number", "exclusiveMinimum": 0}, ["$: expected more than 0, got 0"]),
        (0.35, {"type": "number", "multipleOf": 0.1}, ["$: expected a multiple of 0.1, got 0.35"]),
        (0.3, {"type": "number", "multipleOf": 0.1}, []),
        ("", {"type": "string", "minLength": 1}, ["$: expected at least 1 characters, got 0"]),
        ("ab", {"type": "string", "pattern": "^b"}, ['$: expected text that matches "^b", got "ab"']),
        ([1, 1], {"type": "array", "uniqueItems": True}, ["$: expected unique items, got a duplicate"]),
        ([1], {"type": "array", "minItems": 2}, ["$: expected at least 2 items, got 1"]),
        ("red", {"enum": ["blue", "green"]}, ['$: "red" is none of "blue", "green"']),
        (True, {"const": 1}, ["$: expected 1, got true"]),
        ("x", {"anyOf": [{"type": "integer"}, {"type": "null"}]}, ['$: expected integer or null, got "x"']),
        (3, {"not": {"type": "integer"}, "type": "number"}, ['$: must not match {"type":"integer"}, got 3']),
        (
            2,
            {"oneOf": [{"minimum": 1}, {"maximum": 3}]},
            ["$: matches 2 of its alternatives, and must match exactly one"],
        ),
        ([1, "a"], {"type": "array", "prefixItems": [{"type": "integer"}], "items": False}, ["there is no $[1]"]),
        (
            {"a": 1, "x-b": "t"},
            {"type": "object", "patternProperties": {"^x-": {"type": "string"}}, "additionalProperties": False},
            ["there is no $.a"],
        ),
        ({"a": "t"}, {"type": "object", "additionalProperties": {"type": "number"}}, ['$.a: expected number, got "t"']),
        (
            {"if": 1},
            {"properties": {"if": True}, "if": {"required": ["if"]}, "then": {"maxProperties": 0}},
            ["$: expected at most 0 properties, got 1"],
        ),
        ({"value": 1, "next": {"value": "b", "next": None}}, LINKED, ['$.next.value: expected integer, got "b"']),
        (
            {"value": 1, "next": {"next": 3}},
            LINKED,
            ["$.next.value is missing", "$.next.next: expected object or null, got 3"],
        ),
        ({"kids": [{}, {"kids": [1]}]}, TREE, ["$.kids[1].kids[0]: expected object, got 1"]),
        (
            {"kind": "cow"},
            PETS,
            [f"$: matches none of its 2 alternatives: {' or '.join(NO_PET)}"],
        ),
    ],
)
def test_a_problem_is_told_with_its_place(value: Any, schema: dict[str, Any], found: list[str]) -> None:
    assert problems(value, schema) == found


def test_all_problems_are_told_and_those_further_out_first() -> None:
    schema = {
        "type": "object",
        "properties": {
            "items": {"type": "array", "items": {"type": "object", "properties": {"price": {"type": "number"}}}},
            "name": {"type": "string"},
        },
        "required": ["name", "items"],
    }

    assert problems({"items": [{"price": 1}, {}, {"price": "abc"}]}, schema) == [
        "$.name is missing",
        '$.items[2].price: expected number, got "abc"',
    ]


def test_a_value_that_is_as_deep_as_values_may_be_is_checked_through() -> None:
    value: dict[str, Any] = {"value": "bottom"}
    for _ in range(250):
        value = {"value": 1, "next": value}

    (problem,) = problems(value, LINKED)
    assert problem.endswith('.next.value: expected integer, got "bottom"')


@each_row(
    ("schema", "why"),
    [
        ({}, "does not say what a value is; add a 'type'"),
        ({"description": "a number"}, "does not say what a value is"),
        ({"type": "strin"}, 'at #: there is no type "strin"; the types are string, integer'),
        ({"type": "array", "items": {"type": ["text", "null"]}}, 'at #/items: there is no type "text"'),
        ({"type": "array", "items": [{"type": "null"}]}, "at #/items: expected a schema, got"),
        ({"type": "object", "properties": ["a"]}, "'properties' must be a dict of schemas by name"),
        ({"type": "object", "required": ["a"]}, "'required' names 'a', which is not among the properties"),
        (
            {"type": "object", "properties": {"b": {"type": "object", "required": ["c"]}}},
            "at #/properties/b: 'required'",
        ),
        ({"type": "object", "required": "a"}, "'required' must be a list of names"),
        ({"enum": []}, "'enum' must be a non-empty list"),
        ({"anyOf": {"type": "null"}}, "'anyOf' must be a non-empty list"),
        ({"type": "string", "pattern": "("}, r'the pattern "(" cannot be used here'),
        ({"type": "number", "exclusiveMinimum": True}, "'exclusiveMinimum' must be a number, got true"),
        ({"type": "number", "multipleOf": 0}, "'multipleOf' must be more than 0"),
        ({"$ref": "#/$defs/gone"}, "'$ref' \"#/$defs/gone\" points to no schema; put its target under '$defs'"),
        ({"$ref": "https://example.org/schema.json"}, "points to no schema"),
        ({"$ref": "#/title", "title": "T"}, "points to no schema"),
        ({"$ref": "#"}, "'$ref' \"#\" points back to itself"),
        (
            {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
            "back to itself",
        ),
        ({"type": "string", "default": object()}, "object has no JSON form"),
        ({"type": "number", "default": float("nan")}, "at .default: nan is not a JSON number"),
    ],
)
def test_a_schema_of_no_use_is_refused_with_the_place_and_what_to_do(schema: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidValueError) as raised:
        check_schema(schema)
    assert why in str(raised.value)


@each_row(
    "schema",
    [
        {"type": "object", "properties": {"a": {}, "b": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        {"type": "object", "required": ["a"], "additionalProperties": {"type": "number"}},
        {"type": "object", "required": ["a"], "allOf": [{"properties": {"a": {"type": "string"}}}]},
    ],
)
def test_a_required_name_that_is_said_elsewhere_is_no_mistake(schema: dict[str, Any]) -> None:
    check_schema(schema)


# --- against another implementation ----------------------------------------------------------------------

scalars = st.none() | st.integers(-3, 3) | st.sampled_from(["", "a", "ab", "x-1"])
names = st.sampled_from(["a", "b", "x-1"])
values = st.recursive(
    scalars | st.booleans() | st.just(0.5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
leaves = st.one_of(
    st.sampled_from(["string", "integer", "number", "boolean", "array", "object", "null"]).map(
        lambda name: {"type": name}
    ),
    st.lists(st.sampled_from(["string", "integer", "null"]), min_size=1, unique=True).map(lambda many: {"type": many}),
    st.builds(lambda low, high: {"minimum": low, "exclusiveMaximum": high}, st.integers(-2, 2), st.integers(-2, 3)),
    st.builds(lambda low, high: {"minLength": low, "maxItems": high}, st.integers(0, 2), st.integers(0, 2)),
    st.lists(st.sampled_from([None, "a", "ab", [], {}, 3]), min_size=1, max_size=3).map(lambda many: {"enum": many}),
    st.sampled_from([{"const": 1}, {"const": "a"}, {"pattern": "^x"}, {"uniqueItems": True}, {"multipleOf": 2}]),
    st.sampled_from([{"minProperties": 1}, {"maxProperties": 1}, {"minItems": 1}, {"$ref": "#/$defs/leaf"}]),
)


def _grown(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(inner, min_size=1, max_size=3)
    closed = st.sampled_from([{}, {"additionalProperties": False}])
    return st.one_of(
        some.map(lambda parts: {"anyOf": parts}),
        some.map(lambda parts: {"oneOf": parts}),
        some.map(lambda parts: {"allOf": parts}),
        inner.map(lambda part: {"not": part}),
        st.builds(lambda one, two, three: {"if": one, "then": two, "else": three}, inner, inner, inner),
        inner.map(lambda part: {"items": part}),
        st.builds(lambda parts, rest: {"prefixItems": parts, "items": rest}, some, inner | st.booleans()),
        st.builds(lambda parts, rest: {"properties": parts, **rest}, st.dictionaries(names, inner), closed),
        st.builds(lambda parts: {"properties": parts, "required": sorted(parts)}, st.dictionaries(names, inner)),
        st.builds(lambda part, rest: {"patternProperties": {"^x-": part}, **rest}, inner, closed),
        inner.map(lambda part: {"properties": {"a": part}, "additionalProperties": part}),
    )


schemas = st.recursive(leaves, _grown, max_leaves=5).map(
    lambda part: {"allOf": [part], "$defs": {"leaf": {"type": ["string", "null"]}}}
)


@settings(max_examples=examples(100))
@given(schemas, values)
def test_a_value_has_problems_exactly_if_the_standard_says_so(schema: dict[str, Any], value: Any) -> None:
    check_schema(schema)
    valid = jsonschema.Draft202012Validator(schema).is_valid(value)

    assert (list(problems_by_schema(value, schema)) == []) == valid
