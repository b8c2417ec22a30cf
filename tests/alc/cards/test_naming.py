"""Names, fingerprints and ids of cards."""

from __future__ import annotations

import re
from typing import Any

import pytest

from holdfast.alc.cards.errors import InvalidCardError, InvalidCardNameError
from holdfast.alc.cards.names import check_name, check_now, completed, djb2, rfc3339, short_model, stable_text
from tests.tables import each_row

NOW = 1_750_000_000.9


def test_djb2_is_the_64_bit_one_with_16_digits() -> None:
    assert djb2("") == "0000000000001505"
    assert djb2("a") == "000000000002b606"  # 5381 * 33 + 97
    assert djb2("x" * 100) == format(_djb2_without_mask("x" * 100) % 2**64, "016x")
    assert djb2("é") == format(_djb2_without_mask("é"), "016x")


def _djb2_without_mask(text: str) -> int:
    data = text.encode()
    powers: list[int] = [33**place for place in range(len(data) + 1)]
    return 5381 * powers[-1] + sum(byte * power for byte, power in zip(reversed(data), powers, strict=False))


def test_the_hashed_text_has_sorted_keys_and_no_spaces() -> None:
    value = {"b": [1, 1.0, None, True], "a": {"z": "x", "ä": -0.5}}
    assert stable_text(value) == '{"a":{"z":"x","ä":-0.5},"b":[1,1.0,null,true]}'


def test_the_hashed_text_has_strings_as_they_are_and_numbers_as_rust_writes_them() -> None:
    assert stable_text({'q"': 'say "hi"\n'}) == '{"q"":"say "hi"\n"}'
    assert stable_text([1e16, 1e-6, 0.00001, 1e15]) == "[1e16,1e-6,0.00001,1000000000000000.0]"


@each_row(
    ("model", "short"),
    [
        ("claude-opus-4-6", "opus46"),
        ("gpt-4o", "4o"),
        ("", "model"),
        ("claude-", "model"),
        ("claude-gpt-4", "gpt4"),
        ("日本", "model"),
        ("mistral/large_2", "mistrallarge2"),
    ],
)
def test_a_model_is_shortened_to_letters_and_digits(model: str, short: str) -> None:
    assert short_model(model) == short


def test_a_new_card_gets_what_it_lacks() -> None:
    whole = completed({"pkg": {"name": "cot"}, "params": {"depth": 3, "t": 0.5}}, NOW)
    assert whole["schema_version"] == "card/v0"
    assert whole["created_at"] == "2025-06-15T15:06:40Z"
    assert re.fullmatch(r"alc@[0-9].*", whole["created_by"])
    assert whole["param_fingerprint"] == djb2('{"depth":3,"t":0.5}')


def test_a_card_id_is_made_of_package_model_time_and_the_digest_of_the_rest() -> None:
    whole = completed({"pkg": {"name": "cot"}, "model": {"id": "claude-opus-4-6"}}, NOW)
    rest = {key: value for key, value in whole.items() if key != "card_id"}
    assert whole["card_id"] == f"cot_opus46_20250615T150640_{djb2(stable_text(rest))[-6:]}"


def test_what_a_card_says_of_itself_stays_but_for_the_fingerprint() -> None:
    given = {
        "pkg": {"name": "cot"},
        "card_id": "mine",
        "created_at": "then",
        "created_by": "me",
        "schema_version": "card/v9",
        "params": {},
        "param_fingerprint": "wrong",
    }
    whole = completed(given, NOW)
    assert whole == {**given, "param_fingerprint": djb2("{}")}
    assert given["param_fingerprint"] == "wrong"


def test_params_that_are_no_object_get_no_fingerprint() -> None:
    assert "param_fingerprint" not in completed({"pkg": {"name": "cot"}, "params": [1]}, NOW)


def test_an_empty_or_null_id_counts_as_none() -> None:
    for card_id in ("", None, 5):
        assert completed({"pkg": {"name": "cot"}, "card_id": card_id}, NOW)["card_id"].startswith("cot_model_")
    assert completed({"pkg": {"name": "cot"}, "created_at": None}, NOW)["created_at"] == rfc3339(NOW)


@each_row("card", [{}, {"pkg": "cot"}, {"pkg": {}}, {"pkg": {"name": 5}}])
def test_a_card_without_a_package_is_refused(card: Any) -> None:
    with pytest.raises(InvalidCardError, match=re.escape("alc.card.create: pkg.name is required")):
        completed(card, NOW)


@each_row("name", ["", "a/b", "a\\b", "..", "a..b", "a\0b", ".", "_aliases.toml", "x" * 201, "\ud800", 5])
def test_names_that_could_leave_their_place_are_refused(name: Any) -> None:
    with pytest.raises(InvalidCardNameError, match=r"^Invalid pkg name: '"):
        check_name(name, "pkg")


@each_row("name", ["cot", "a.b", "日本語", "with space", "-x", "x" * 200])
def test_other_names_are_taken(name: str) -> None:
    assert check_name(name, "pkg") == name


@each_row("now", [None, "5", True, -1, float("nan"), float("inf"), 1e12])
def test_a_time_that_is_none_is_refused(now: Any) -> None:
    with pytest.raises(InvalidCardError, match="unix seconds"):
        check_now(now, "create")
