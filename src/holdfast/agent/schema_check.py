"""Checks JSON schemas, and values against them; problems are in words, so that a model can correct the value.

`problems_in` checks types, enums and the names in an object; this module adds references, combinations and bounds.
These keywords count: `type`, `enum`, `const`, `properties`, `required`, `additionalProperties`, `patternProperties`,
`items`, `prefixItems`, `uniqueItems`, `multipleOf`, `pattern`, all bounds of numbers and sizes, `anyOf`, `oneOf`,
`allOf`, `not`, `if`/`then`/`else`, and `$ref` within the schema itself. Others, such as `format`, are for the model
only.
"""

from __future__ import annotations

import math
import operator
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import NoReturn

from holdfast.agent.tools.schema import Schema, problems_in
from holdfast.core.errors import InvalidValueError
from holdfast.core.values import Json, check_value, fingerprint, preview

ROOT = "$"
"""The path of the outermost value."""

SHOWN_ALTERNATIVES = 5
"""Alternatives whose problems are shown if a value matches none of them."""

_TYPE_NAMES = ("string", "integer", "number", "boolean", "array", "object", "null")
_SAYING = frozenset(["type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref", "properties"])
"""Keywords of which a schema needs at least one to say what a value is."""

_IN_PLACE = ("not", "if", "then", "else")
_IN_PLACE_LISTS = ("anyOf", "oneOf", "allOf")
_BELOW = ("items", "additionalProperties")
_BELOW_LISTS = ("prefixItems",)
_BELOW_MAPS = ("properties", "patternProperties", "$defs", "definitions")

_BOUNDS: dict[str, tuple[Callable[[float, float], bool], str]] = {
    "minimum": (operator.ge, "at least"),
    "maximum": (operator.le, "at most"),
    "exclusiveMinimum": (operator.gt, "more than"),
    "exclusiveMaximum": (operator.lt, "less than"),
}
_SIZES: dict[type, tuple[str, str, str]] = {
    str: ("minLength", "maxLength", "characters"),
    list: ("minItems", "maxItems", "items"),
    dict: ("minProperties", "maxProperties", "properties"),
}
_NUMBERS = (*_BOUNDS, "multipleOf", *(key for low, high, _ in _SIZES.values() for key in (low, high)))


# --- schemas -------------------------------------------------------------------------------------------


def check_schema(schema: Schema) -> None:
    """Raise `InvalidValueError` unless the schema is valid and says what a value is."""
    check_value(schema, "schema")
    if not _SAYING & schema.keys():
        raise InvalidValueError("schema", "it does not say what a value is; add a 'type', such as \"object\"")
    _Definition(schema).check()


class _Definition:
    """Checks a schema for everything that could go wrong when it is used."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._seen: set[int] = set()
        self._references: list[tuple[str, Schema]] = []

    def check(self) -> None:
        self._check(self._schema, "#", frozenset())
        for at, schema in self._references:
            self._check_reference(schema, at)

    def _check(self, schema: Json, at: str, declared: frozenset[str]) -> None:
        if isinstance(schema, bool):
            return
        if not isinstance(schema, dict):
            _refuse(at, f"expected a schema, got {preview(schema)}")
        self._seen.add(id(schema))
        _check_words(schema, at)
        declared |= schema.get("properties", {}).keys()
        _check_required(schema, at, declared)
        if "$ref" in schema:
            self._references.append((at, schema))
        for step, part in _parts(schema, (), _IN_PLACE_LISTS, _IN_PLACE):
            self._check(part, f"{at}/{step}", declared)
        for step, part in _parts(schema, _BELOW_MAPS, _BELOW_LISTS, _BELOW):
            self._check(part, f"{at}/{step}", frozenset())

    def _check_reference(self, schema: Schema, at: str) -> None:
        """Refuse a reference to nothing, or a cycle that never reaches a part of the value."""
        ref = schema["$ref"]
        target = pointed(ref, self._schema)
        if not isinstance(target, bool) and id(target) not in self._seen:
            _refuse(at, f"'$ref' {preview(ref)} points to no schema; put its target under '$defs'")
        reached: set[int] = set()
        ahead = [target]
        while ahead:
            part = ahead.pop()
            if part is schema:
                _refuse(at, f"'$ref' {preview(ref)} points back to itself; say what a value is")
            if isinstance(part, dict) and id(part) not in reached:
                reached.add(id(part))
                ahead += [each for _, each in _parts(part, (), _IN_PLACE_LISTS, _IN_PLACE)]
                ahead += [pointed(part["$ref"], self._schema)] if "$ref" in part else []


def _check_words(schema: Schema, at: str) -> None:
    names = schema.get("type", [])
    for name in names if isinstance(names, list) else [names]:
        if name not in _TYPE_NAMES:
            _refuse(at, f"there is no type {preview(name)}; the types are {', '.join(_TYPE_NAMES)}")
    for key in _BELOW_MAPS:
        if not isinstance(schema.get(key, {}), dict):
            _refuse(at, f"'{key}' must be a dict of schemas by name, got {preview(schema[key])}")
    for key in (*_IN_PLACE_LISTS, *_BELOW_LISTS, "enum"):
        if key in schema and not (isinstance(schema[key], list) and schema[key]):
            _refuse(at, f"'{key}' must be a non-empty list, got {preview(schema[key])}")
    for key in _NUMBERS:
        if key in schema and not _is_number(schema[key]):
            _refuse(at, f"'{key}' must be a number, got {preview(schema[key])}")
    if schema.get("multipleOf", 1) <= 0:
        _refuse(at, f"'multipleOf' must be more than 0, got {preview(schema['multipleOf'])}")
    for pattern in (*schema.get("patternProperties", {}), schema.get("pattern", "")):
        try:
            re.compile(pattern)
        except (re.error, TypeError) as error:
            _refuse(at, f"the pattern {preview(pattern)} cannot be used here: {error}")


def _check_required(schema: Schema, at: str, declared: frozenset[str]) -> None:
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        _refuse(at, f"'required' must be a list of names, got {preview(required)}")
    elsewhere = ("$ref", "patternProperties", *_IN_PLACE_LISTS)
    is_open = schema.get("additionalProperties", False) is not False or any(key in schema for key in elsewhere)
    missing = [name for name in required if name not in declared]
    if missing and not is_open:
        _refuse(at, f"'required' names '{missing[0]}', which is not among the properties; add it there, or remove it")


def _refuse(at: str, why: str) -> NoReturn:
    raise InvalidValueError("schema", why, at)


def _parts(
    schema: Schema, maps: Iterable[str], lists: Iterable[str], single: Iterable[str]
) -> Iterator[tuple[str, Json]]:
    """The schemas under these keywords of a schema, with their paths."""
    for key in maps:
        yield from ((f"{key}/{name}", part) for name, part in schema.get(key, {}).items())
    for key in lists:
        yield from ((f"{key}/{at}", part) for at, part in enumerate(schema.get(key, ())))
    yield from ((key, schema[key]) for key in single if key in schema)


def pointed(ref: Json, schema: Schema) -> Json:
    """The target of a reference in the schema, or None if there is none."""
    if not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")):
        return None
    here: Json = schema
    for step in ref.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(here, dict) and name in here:
            here = here[name]
        elif isinstance(here, list) and name.isdecimal() and int(name) < len(here):
            here = here[int(name)]
        else:
            return None
    return here


# --- values --------------------------------------------------------------------------------------------


def problems_by_schema(value: Json, schema: Schema) -> Iterator[str]:
    """The problems of a value under a schema that `check_schema` accepts, each with its path."""
    return _Checker(schema).problems(value, schema, ROOT)


class _Checker:
    """Checks values, and resolves the references of the schema."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def problems(self, value: Json, schema: Json, where: str) -> Iterator[str]:
        """The problems of a value and its parts, outer ones first."""
        ahead: deque[tuple[Json, Json, str]] = deque([(value, schema, where)])
        while ahead:
            value, schema, where = ahead.popleft()
            if schema is False:
                yield f"there is no {where}"
            if not isinstance(schema, dict):
                continue
            if "$ref" in schema:
                ahead.appendleft((value, pointed(schema["$ref"], self._schema), where))
            if wrong := list(problems_in(value, {"type": schema.get("type")}, where)):
                yield from map(placed, wrong)
                continue
            yield from _own_problems(value, schema, where)
            yield from self._combined(value, schema, where)
            ahead += _inside(value, schema, where)

    def _combined(self, value: Json, schema: Schema, where: str) -> Iterator[str]:
        """The problems by combined schemas."""
        for part in schema.get("allOf", ()):
            yield from self.problems(value, part, where)
        if "anyOf" in schema:
            tried = [list(self.problems(value, part, where)) for part in schema["anyOf"]]
            if all(tried):
                yield from _none_fits(tried, value, where)
        if "oneOf" in schema:
            tried = [list(self.problems(value, part, where)) for part in schema["oneOf"]]
            if all(tried):
                yield from _none_fits(tried, value, where)
            elif (fits := tried.count([])) > 1:
                yield f"{where}: matches {fits} of its alternatives, and must match exactly one"
        if "not" in schema and self._fits(value, schema["not"], where):
            yield f"{where}: must not match {preview(schema['not'])}, got {preview(value)}"
        if "if" in schema:
            follows = "then" if self._fits(value, schema["if"], where) else "else"
            yield from self.problems(value, schema.get(follows, True), where)

    def _fits(self, value: Json, schema: Json, where: str) -> bool:
        return next(self.problems(value, schema, where), None) is None


def _own_problems(value: Json, schema: Schema, where: str) -> Iterator[str]:
    """The problems of the value itself, without its parts and without combined schemas."""
    names: dict[str, Json] = dict.fromkeys(schema.get("properties", {}), True)
    if isinstance(value, dict):
        names |= {
            name: True for name in value for pattern in schema.get("patternProperties", ()) if re.search(pattern, name)
        }
    alone: Schema = {"required": schema.get("required", ()), "properties": names}
    alone |= {key: schema[key] for key in ("enum", "additionalProperties") if key in schema}
    yield from map(placed, problems_in(value, alone, where))
    if "const" in schema and not _equal(value, schema["const"]):
        yield f"{where}: expected {preview(schema['const'])}, got {preview(value)}"
    if _is_number(value):
        for key, (holds, words) in _BOUNDS.items():
            if key in schema and not holds(value, schema[key]):
                yield f"{where}: expected {words} {schema[key]}, got {preview(value)}"
        if "multipleOf" in schema and not _is_whole(value / schema["multipleOf"]):
            yield f"{where}: expected a multiple of {schema['multipleOf']}, got {preview(value)}"
    if type(value) in _SIZES:
        least, most, unit = _SIZES[type(value)]
        if len(value) < schema.get(least, 0):
            yield f"{where}: expected at least {schema[least]} {unit}, got {len(value)}"
        if most in schema and len(value) > schema[most]:
            yield f"{where}: expected at most {schema[most]} {unit}, got {len(value)}"
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        yield f"{where}: expected text that matches {preview(schema['pattern'])}, got {preview(value)}"
    if (
        isinstance(value, list)
        and schema.get("uniqueItems")
        and len({fingerprint(each) for each in value}) < len(value)
    ):
        yield f"{where}: expected unique items, got a duplicate"


def _inside(value: Json, schema: Schema, where: str) -> Iterator[tuple[Json, Json, str]]:
    """The parts of a value, each with its schema and path."""
    if isinstance(value, list):
        first = schema.get("prefixItems", ())
        for at, item in enumerate(value):
            yield item, first[at] if at < len(first) else schema.get("items", True), f"{where}[{at}]"
    if isinstance(value, dict):
        properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        for name, item in value.items():
            schemas = [
                part for pattern, part in schema.get("patternProperties", {}).items() if re.search(pattern, name)
            ]
            schemas += [properties[name]] if name in properties else []
            # Unknown names were reported with the object.
            for part in schemas or [others if others is not False else True]:
                yield item, part, f"{where}.{name}"


def _none_fits(tried: list[list[str]], value: Json, where: str) -> Iterator[str]:
    """The problems of a value that matches no alternative: if its type fits just one, the problems of that one."""
    before, after = f"{where}: expected ", f", got {preview(value)}"
    likely = [problems for problems in tried if not problems[0].startswith(before)]
    if len(likely) == 1:
        yield from likely[0]
    elif not likely and all(problems[0].endswith(after) for problems in tried):
        wanted = [problems[0].removeprefix(before).removesuffix(after) for problems in tried]
        yield before + " or ".join(dict.fromkeys(wanted)) + after
    else:
        reasons = " or ".join(problems[0] for problems in tried[:SHOWN_ALTERNATIVES])
        yield f"{where}: matches none of its {len(tried)} alternatives: {reasons}"


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(quotient: float) -> bool:
    return math.isclose(quotient, round(quotient), rel_tol=1e-12, abs_tol=1e-9)  # 0.3 is three times 0.1


def _equal(one: Json, other: Json) -> bool:
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


_ARGUMENT = re.compile(r"argument '(\$.*?)'(?=: | is missing\Z|\Z)", re.DOTALL)


def placed(problem: str) -> str:
    """A problem of an argument as one of a value: only its path says where it is."""
    return _ARGUMENT.sub(r"\1", problem, count=1)
