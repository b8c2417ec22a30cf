"""Cards as TOML: what is written is read back, whatever is in it."""

from __future__ import annotations

import tomllib
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.alc.cards.errors import InvalidCardError
from holdfast.alc.cards.toml import aliases_to_toml, from_toml, storable, to_json, to_toml
from holdfast.core.errors import InvalidValueError
from holdfast.core.values import fingerprint
from tests.tables import each_row

HOSTILE = st.sampled_from(
    [
        "", '"', "'", '"""', "'''", "\\", "\\u0041", "\n", "\r\n", "\r", "\t", "\0", "\x7f", "\x85", "\u2028", "\ufeff",
        "#", "[x]", "a = 1", "a.b", "=", "true", "nan", "1", " x ", "😀", "é",
    ]
)  # fmt: skip
TEXTS = HOSTILE | st.text(st.characters(codec="utf-8"), max_size=12)
SCALARS = st.one_of(
    st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False), TEXTS
)
VALUES = st.recursive(
    SCALARS | st.none(), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3)
)
CARDS = st.dictionaries(TEXTS, VALUES, max_size=4)


@given(CARDS)
def test_what_is_written_is_read_back_but_for_its_nulls(card: dict[str, Any]) -> None:
    kept = storable(card, "create")
    again = to_json(from_toml(to_toml(kept)))
    assert fingerprint(again) == fingerprint(kept)  # tells 1 from 1.0
    assert fingerprint(kept) == fingerprint(model_without_nulls(card))


def model_without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: model_without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [model_without_nulls(item) for item in value if item is not None]
    return value


@given(CARDS)
def test_writing_twice_gives_the_same_bytes_whatever_the_order_of_the_keys(card: dict[str, Any]) -> None:
    kept = storable(card, "create")
    assert to_toml(kept) == to_toml(dict(reversed(kept.items()))) == to_toml(from_toml(to_toml(kept)))


@given(st.lists(st.fixed_dictionaries({"name": TEXTS, "card_id": TEXTS, "set_at": TEXTS}, optional={"note": TEXTS})))
def test_aliases_are_read_back(aliases: list[dict[str, str]]) -> None:
    assert tomllib.loads(aliases_to_toml(aliases).decode()).get("alias", []) == aliases


def test_aliases_are_written_as_an_array_of_tables() -> None:
    text = aliases_to_toml([{"name": "a", "card_id": "c1"}, {"name": "b", "card_id": "c2"}]).decode()
    assert text == '[[alias]]\nname = "a"\ncard_id = "c1"\n\n[[alias]]\nname = "b"\ncard_id = "c2"\n'


def test_what_json_lacks_becomes_text_or_null_and_survives_a_rewrite() -> None:
    table = from_toml(b"at = 2026-04-12T06:15:00Z\nday = 2026-04-12\nbad = nan\nfar = inf\n")
    assert to_json(table) == {"at": "2026-04-12T06:15:00Z", "day": "2026-04-12", "bad": None, "far": None}
    assert from_toml(to_toml(table))["at"] == datetime(2026, 4, 12, 6, 15, tzinfo=UTC)
    assert to_json(from_toml(to_toml(table))) == to_json(table)


@each_row("shape", ["tables", "arrays", "both"])
def test_a_card_as_deep_as_allowed_is_kept_and_a_deeper_one_refused(shape: str) -> None:
    card: Any = 1
    for level in range(63):
        in_table = shape == "tables" or level == 62 or (shape == "both" and level % 2)
        card = {"a": card} if in_table else [card]
    assert fingerprint(to_json(from_toml(to_toml(storable(card, "create"))))) == fingerprint(card)
    with pytest.raises(InvalidCardError, match="deeper than 64"):
        storable({"a": {"a": card}}, "create")


@each_row("value", [float("nan"), 2**63, "\ud800", {1: 2}, object()])
def test_what_json_cannot_hold_is_refused(value: Any) -> None:
    with pytest.raises(InvalidValueError):
        storable({"x": value}, "create")


@each_row("data", [b"x", b"\xff", b"a = 1\na = 2", b"a = " + b"[" * 100_000])
def test_what_is_not_toml_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError):
        from_toml(data)


def test_integers_past_64_bits_and_bottomless_tables_are_value_errors() -> None:
    with pytest.raises(ValueError, match="64 bits"):
        to_json(from_toml(b"a = 9223372036854775808"))
    with pytest.raises(ValueError, match="deeply"):
        to_json(from_toml(b".".join([b"a"] * 5000) + b" = 1"))
