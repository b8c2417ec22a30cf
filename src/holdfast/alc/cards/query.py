"""The `where` and `order_by` of cards and samples: how they are read, and what they mean. Pure.

A filter is an object. Its keys are fields, and all of them must hold:
- an object below a field walks into it: `{"stats": {"n": 3}}` looks at `stats.n`;
- an object whose keys are all operators tests the field: `{"n": {"gte": 3, "lt": 9}}`;
- anything else must equal the field;
- `_and`, `_or` (lists of filters) and `_not` (a filter) join what is below the same field.

A field that is missing fails every test but `ne`, `nin` and `exists: false`. Numbers are compared as 64-bit floats,
values of unlike types are neither equal nor ordered, and `contains` and `starts_with` are for text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

from holdfast.alc.cards.errors import InvalidWhereError
from holdfast.alc.cards.limits import MAX_CARD_DEPTH
from holdfast.core.values import Json, check_value, preview

Path: TypeAlias = tuple[str, ...]
T = TypeVar("T")

OPERATORS: Final = frozenset(("eq", "ne", "lt", "lte", "gt", "gte", "in", "nin", "exists", "contains", "starts_with"))


@dataclass(frozen=True)
class FieldTest:
    """One operator applied to the field at a path."""

    path: Path
    operator: str
    operand: Json


@dataclass(frozen=True)
class Conjunction:
    """Holds if all of its parts hold; without parts, always."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True)
class Disjunction:
    """Holds if one of its parts holds; without parts, never."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True)
class Negation:
    """Holds if its part does not."""

    part: Predicate


Predicate: TypeAlias = FieldTest | Conjunction | Disjunction | Negation


@dataclass(frozen=True)
class Order:
    """One key to sort by."""

    path: Path
    descending: bool


# --- reading a filter ----------------------------------------------------------------------------


def parse_where(where: Json) -> Predicate:
    """The filter that a `where` stands for; `InvalidWhereError` if it stands for none."""
    check_value(where, "where")
    return _parse(where, (), 1)


def _parse(where: Json, path: Path, depth: int) -> Predicate:
    if depth > MAX_CARD_DEPTH:
        raise InvalidWhereError(f"where clause is nested deeper than {MAX_CARD_DEPTH} levels")
    if where == []:  # an empty Lua table may arrive as either
        where = {}
    if not isinstance(where, dict):
        raise InvalidWhereError(f"where clause must be a table, got {preview(where)}{_at(path)}")
    if path and where and OPERATORS.issuperset(where):
        tests = tuple(FieldTest(path, name, _operand(name, operand, path)) for name, operand in where.items())
        return tests[0] if len(tests) == 1 else Conjunction(tests)
    parts = tuple(_parse_key(key, value, path, depth + 1) for key, value in where.items())
    return parts[0] if len(parts) == 1 else Conjunction(parts)


def _parse_key(key: str, value: Json, path: Path, depth: int) -> Predicate:
    match key:
        case "_and" | "_or":
            if value == {}:
                value = []
            if not isinstance(value, list):
                raise InvalidWhereError(f"{key} must be an array of sub-predicates, got {preview(value)}{_at(path)}")
            parts = tuple(_parse(part, path, depth) for part in value)
            return Conjunction(parts) if key == "_and" else Disjunction(parts)
        case "_not":
            return Negation(_parse(value, path, depth))
        case _ if isinstance(value, dict):
            return _parse(value, (*path, key), depth)
        case _:
            return FieldTest((*path, key), "eq", value)


def _operand(operator: str, operand: Json, path: Path) -> Json:
    """An operand of the kind its operator needs. Any other could never match, and would hide a mistake."""
    if operator in ("in", "nin"):
        if operand == {}:
            return []
        if not isinstance(operand, list):
            raise InvalidWhereError(f"'{operator}' takes an array, got {preview(operand)}{_at(path)}")
    elif operator == "exists":
        if operand is not None and not isinstance(operand, bool):
            raise InvalidWhereError(f"'exists' takes true or false, got {preview(operand)}{_at(path)}")
        return operand is not False
    elif operator in ("contains", "starts_with") and not isinstance(operand, str):
        raise InvalidWhereError(f"'{operator}' takes a string, got {preview(operand)}{_at(path)}")
    return operand


def _at(path: Path) -> str:
    return f" (at '{'.'.join(path)}')" if path else ""


# --- what it means -------------------------------------------------------------------------------


class _Missing:
    """The value of a field that is not there."""


MISSING: Final = _Missing()


def field(document: Json, path: Path) -> Any:
    """The value at a path, or `MISSING`."""
    for key in path:
        if not isinstance(document, dict) or key not in document:
            return MISSING
        document = document[key]
    return document


def matches(predicate: Predicate, document: Json) -> bool:
    """Whether a document passes a filter."""
    match predicate:
        case FieldTest(path, operator, operand):
            return _holds(operator, field(document, path), operand)
        case Conjunction(parts):
            return all(matches(part, document) for part in parts)
        case Disjunction(parts):
            return any(matches(part, document) for part in parts)
        case Negation(part):
            return not matches(part, document)


def _holds(operator: str, value: Any, operand: Json) -> bool:
    if value is MISSING:
        return operator in ("ne", "nin") or (operator == "exists" and operand is False)
    match operator:
        case "exists":
            return operand is not False
        case "eq":
            return same(value, operand)
        case "ne":
            return not same(value, operand)
        case "in":
            return any(same(value, one) for one in operand)
        case "nin":
            return not any(same(value, one) for one in operand)
        case "contains":
            return isinstance(value, str) and operand in value
        case "starts_with":
            return isinstance(value, str) and value.startswith(operand)
        case _:
            mine, theirs = _rank(value), _rank(operand)
            return mine[0] == theirs[0] != _UNORDERED and _COMPARE[operator](mine[1], theirs[1])


_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "lt": lambda mine, theirs: mine < theirs,
    "lte": lambda mine, theirs: mine <= theirs,
    "gt": lambda mine, theirs: mine > theirs,
    "gte": lambda mine, theirs: mine >= theirs,
}


def same(one: Json, other: Json) -> bool:
    """Whether two values are equal: `1` and `1.0` are, `1` and `true` are not."""
    match one, other:
        case dict(), dict():
            return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
        case list(), list():
            return len(one) == len(other) and all(map(same, one, other))
        case _:
            mine, theirs = _rank(one), _rank(other)
            if mine[0] == _UNORDERED:
                return one is None and other is None
            return mine == theirs


_UNORDERED: Final = 3


def _rank(value: Any) -> tuple[int, Any]:
    """A value with its place among the types, so that only like is compared with like."""
    match value:
        case bool():
            return 2, value
        case int() | float():
            return 0, float(value)
        case str():
            return 1, value
        case _:
            return _UNORDERED, 0


# --- order ---------------------------------------------------------------------------------------


def parse_order(order: Json) -> list[Order]:
    """The keys that an `order_by` names: a dotted path or a list of them, `-` before one for descending."""
    if order == {}:
        order = []
    names = [order] if isinstance(order, str) else order
    if not isinstance(names, list):
        raise InvalidWhereError(f"order_by must be a string or array of strings, got {preview(order)}")
    return [_parse_order_key(name) for name in names]


def _parse_order_key(name: Json) -> Order:
    if not isinstance(name, str):
        raise InvalidWhereError(f"order_by array must contain strings, got {preview(name)}")
    path = tuple(name.removeprefix("-").split("."))
    if not all(path):
        raise InvalidWhereError(f"invalid order_by key: '{name}'; write it like 'stats.pass_rate' or '-created_at'")
    return Order(path, name.startswith("-"))


def in_order(rows: Sequence[T], order: Sequence[Order], document_of: Callable[[T], Json]) -> list[T]:
    """Rows sorted by the keys, the first key first; rows that tie stay as they were.

    Values of unlike types have no order of their own, so types are kept apart: numbers, then text, then booleans, then
    the rest. Rows without the field come after all of these, and hence before them when descending.
    """
    ordered = list(rows)
    for key in reversed(order):

        def place(row: T, path: Path = key.path) -> tuple[int, Any]:
            value = field(document_of(row), path)
            return (_UNORDERED + 1, 0) if value is MISSING else _rank(value)

        ordered.sort(key=place, reverse=key.descending)
    return ordered
