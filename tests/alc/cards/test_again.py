"""Calls that are made again after a crash: they get the answer they would have had, and write nothing twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.alc.cards import CardBox
from holdfast.alc.cards import names as naming
from holdfast.alc.cards.errors import CardError, CardExistsError, CardKeyError, SamplesExistError

NOW = 1_750_000_000.0


@pytest.fixture
def box(tmp_path: Path) -> CardBox:
    return filled(tmp_path / "cards")


def filled(directory: Path) -> CardBox:
    box = CardBox(directory)
    box.create({"pkg": {"name": "cot"}, "card_id": "c1"}, now=NOW)
    box.create({"pkg": {"name": "cot"}, "card_id": "c2"}, now=NOW)
    return box


CALLS: dict[str, dict[str, Any]] = {
    "create": {"op": "create", "now": NOW, "card": {"pkg": {"name": "cot"}, "stats": {"n": 1, "x": None}}},
    "create with an id": {"op": "create", "now": NOW, "card": {"pkg": {"name": "cot"}, "card_id": "mine"}},
    "append": {"op": "append", "now": NOW, "card_id": "c1", "fields": {"a": {"b": 1, "c": None}, "d": None}},
    "append of nothing": {"op": "append", "now": NOW, "card_id": "c1", "fields": {}},
    "alias_set": {"op": "alias_set", "now": NOW, "name": "best", "card_id": "c1", "note": "n"},
    "write_samples": {"op": "write_samples", "now": NOW, "card_id": "c1", "rows": [{"a": None}, 2.0]},
    "write_samples of none": {"op": "write_samples", "now": NOW, "card_id": "c1", "rows": []},
}


def contents(box: CardBox) -> dict[str, bytes]:
    return {
        str(path.relative_to(box.directory)): path.read_bytes() for path in box.directory.rglob("*") if path.is_file()
    }


@pytest.mark.parametrize("name", CALLS)
def test_a_repeated_call_gets_the_same_answer_and_changes_nothing(box: CardBox, name: str) -> None:
    first = box.answer(CALLS[name], False)
    before = contents(box)
    assert box.answer(CALLS[name], True) == first
    assert contents(box) == before


@pytest.mark.parametrize("name", CALLS)
def test_a_call_whose_first_attempt_did_nothing_is_carried_out_like_a_first_one(tmp_path: Path, name: str) -> None:
    once, twice = filled(tmp_path / "once"), filled(tmp_path / "twice")
    once.answer(CALLS[name], False)
    twice.answer(CALLS[name], True)
    assert contents(twice) == contents(once)


@pytest.mark.parametrize("name", ["create", "create with an id", "append", "write_samples"])
def test_without_again_the_same_call_is_refused(box: CardBox, name: str) -> None:
    box.answer(CALLS[name], False)
    with pytest.raises(CardError):
        box.answer(CALLS[name], False)


def test_create_again_finds_its_card_although_keys_were_appended_since(box: CardBox) -> None:
    made = box.answer(CALLS["create"], False)
    box.append(made["card_id"], {"review": "good"})
    assert box.answer(CALLS["create"], True) == made


def test_create_again_finds_its_card_although_another_version_made_it(
    box: CardBox, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = box.answer(CALLS["create"], False)
    monkeypatch.setattr(naming, "created_by", lambda: "alc@999")
    assert box.answer(CALLS["create"], True) == made
    assert len(box.list()) == 3


def test_create_again_with_other_content_is_refused_or_another_card(box: CardBox) -> None:
    card = {"pkg": {"name": "cot"}, "card_id": "c1", "stats": {"n": 1}}
    with pytest.raises(CardExistsError):
        box.create(card, now=NOW, again=True)
    one = box.create({"pkg": {"name": "cot"}, "stats": {"n": 1}}, now=NOW)
    other = box.create({"pkg": {"name": "cot"}, "stats": {"n": 1.0}}, now=NOW, again=True)
    assert one["card_id"] != other["card_id"]


def test_append_again_with_another_value_is_refused(box: CardBox) -> None:
    box.append("c1", {"a": 1})
    with pytest.raises(CardKeyError):
        box.append("c1", {"a": 2}, again=True)
    with pytest.raises(CardKeyError):
        box.append("c1", {"a": 1, "b": 1}, again=True)


def test_write_samples_again_with_other_rows_is_refused(box: CardBox) -> None:
    box.write_samples("c1", [1, 2])
    for rows in ([1], [1, 2, 3], [1, 3], []):
        with pytest.raises(SamplesExistError):
            box.write_samples("c1", rows, again=True)
    assert box.read_samples("c1") == [1, 2]


def test_alias_set_again_does_not_undo_a_later_binding(box: CardBox) -> None:
    first = box.alias_set("best", "c1", now=NOW)
    box.alias_set("best", "c2", now=NOW + 60)
    assert box.alias_set("best", "c1", now=NOW, again=True) == first
    assert [alias["card_id"] for alias in box.alias_list()] == ["c2"]


def test_alias_set_again_replaces_an_earlier_binding(box: CardBox) -> None:
    box.alias_set("best", "c2", now=NOW - 60)
    box.alias_set("best", "c1", now=NOW, again=True)
    assert [alias["card_id"] for alias in box.alias_list()] == ["c1"]


def test_a_repeated_call_brings_the_mirrors_up_to_date(box: CardBox, tmp_path: Path) -> None:
    box.answer(CALLS["create with an id"], False)
    box.write_samples("mine", [1])
    mirrored = CardBox(box.directory, [tmp_path / "mirror"])
    mirrored.answer(CALLS["create with an id"], True)
    mirrored.write_samples("mine", [1], again=True)
    assert CardBox(tmp_path / "mirror").get("mine") == box.get("mine")
    assert CardBox(tmp_path / "mirror").read_samples("mine") == [1]
