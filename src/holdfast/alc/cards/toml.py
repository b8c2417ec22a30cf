"""Cards as TOML, which has no null: how they are written down and read back. Pure."""

from __future__ import annotations

import math
import tomllib
from datetime import date, datetime, time
from typing import Any

import tomli_w

from holdfast.alc.cards.errors import InvalidCardError
from holdfast.alc.cards.limits import MAX_CARD_DEPTH
from holdfast.core.limits import MAX_INTEGER, MIN_INTEGER
from holdfast.core.values import Json, check_value

Table = dict[str, Any]
"""A TOML table as it is read: JSON without null, and with the dates, times, NaN and infinities that JSON lacks."""


def storable(value: Json, operation: str) -> Json:
    """A value as a card keeps it: a copy without its nulls. Raises if it cannot be kept."""
    check_value(value, f"card (alc.card.{operation})")
    return _without_nulls(value, operation, 1)


def _without_nulls(value: Json, operation: str, depth: int) -> Json:
    if depth > MAX_CARD_DEPTH:
        raise InvalidCardError(operation, f"the card is nested deeper than {MAX_CARD_DEPTH} levels")
    match value:
        case dict():
            return {k: _without_nulls(v, operation, depth + 1) for k, v in value.items() if v is not None}
        case list() | tuple():
            return [_without_nulls(item, operation, depth + 1) for item in value if item is not None]
        case _:
            return value


def to_toml(table: Table) -> bytes:
    """A card as TOML, its keys sorted: two cards can be compared line by line."""
    return tomli_w.dumps(_sorted(table)).encode()


def _sorted(value: Any) -> Any:
    match value:
        case dict():
            return {key: _sorted(value[key]) for key in sorted(value)}
        case list():
            return [_sorted(item) for item in value]
        case _:
            return value


def aliases_to_toml(aliases: list[dict[str, str]]) -> bytes:
    """The alias table: one `[[alias]]` each, in the order given."""
    return "\n".join(f"[[alias]]\n{tomli_w.dumps(alias)}" for alias in aliases).encode()


def from_toml(data: bytes) -> Table:
    """A table read from TOML. Raises ValueError with what is wrong."""
    try:
        return tomllib.loads(data.decode())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def to_json(table: Table) -> dict[str, Json]:
    """What was read, as JSON: dates become text, NaN and infinities null. Raises ValueError with what is wrong."""
    try:
        return {key: _json(value) for key, value in table.items()}
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _json(value: Any) -> Json:
    match value:
        case dict():
            return {key: _json(item) for key, item in value.items()}
        case list():
            return [_json(item) for item in value]
        case datetime() | date() | time():
            return value.isoformat().replace("+00:00", "Z")
        case float() if not math.isfinite(value):
            return None
        case int() if not MIN_INTEGER <= value <= MAX_INTEGER:
            raise ValueError("it holds an integer past 64 bits")
        case _:
            return value
