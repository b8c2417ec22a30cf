"""Files of cards, changed: a damaged one is named, never changed by reading it, and hides no other."""

from __future__ import annotations

import json
from pathlib import Path

import hypothesis.strategies as st

from holdfast.alc.cards.box import CardBox
from holdfast.alc.cards.lineage import LineageQuery
from holdfast.core.errors import InvalidValueError
from holdfast.core.values import Json, check_value
from tests.fuzz.fuzzer import Fuzzer, assert_is_declared
from tests.fuzz.generation import Draw, changed_bytes, changed_json

CARD: dict[str, Json] = {
    "pkg": {"name": "tea"},
    "scenario": {"name": "s", "case_count": 3},
    "stats": {"pass_rate": 0.5, "when": "2026-01-01", "list": [1, {"a": 2}]},
    "metadata": {"prior_card_id": "none", "relation": "child"},
}
WORDS = [
    b"[",
    b"]",
    b"[[x]]\n",
    b'"""',
    b"'''",
    b"= 1979-05-27T07:32:00Z\n",
    b"nan",
    b"= 99999999999999999999\n",
    b"{",
    b"}",
    b"#",
]
NOW = 1_700_000_000.0


class Cards:
    """A box with three cards in it, of which one is to be hurt, and its files."""

    def __init__(self, folder: Path) -> None:
        self.box = CardBox(folder)
        self.ids = [self.box.create({**CARD, "n": number}, now=NOW + number)["card_id"] for number in range(3)]
        self.box.write_samples(self.ids[1], [{"case": number, "ok": True} for number in range(4)])
        self.box.alias_set("best", self.ids[1], now=NOW)
        self.files = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".tmp")
        self.content = {path: path.read_bytes() for path in self.files}
        self.healthy = self.ids[0]


@st.composite
def changes(draw: Draw, cards: Cards) -> dict[Path, bytes]:
    """One of the files that are not the healthy card's, changed."""
    changed = [path for path in cards.files if cards.healthy not in path.name]
    path = draw(st.sampled_from(changed))
    return {path: draw(changed_bytes([cards.content[path], *cards.content.values()], words=WORDS))}


def test_changed_files_of_cards_are_named_and_hide_no_other(fuzzer: Fuzzer, tmp_path: Path) -> None:
    cards = Cards(tmp_path)
    hurt, box = cards.ids[1], cards.box

    def check(changed: dict[Path, bytes]) -> None:
        for path, data in {**cards.content, **changed}.items():
            path.write_bytes(data)
        for read in (
            lambda: box.get(hurt),
            box.list,
            lambda: box.find(where={"stats": {"pass_rate": {"gte": 0.1}}}, order_by="-created_at"),
            lambda: box.lineage(LineageQuery(card_id=hurt)),
            box.alias_list,
            lambda: box.get_by_alias("best"),
            lambda: box.read_samples(hurt, offset=1, limit=2, where={"ok": True}),
        ):
            try:
                json.dumps(read(), allow_nan=False)
            except Exception as error:
                assert_is_declared(error)
        assert box.get(cards.healthy) is not None
        assert {path: path.read_bytes() for path in changed} == changed

    fuzzer.run(check, changes(cards), examples=50)


def test_changed_questions_about_cards_are_answered_or_refused(fuzzer: Fuzzer, tmp_path: Path) -> None:
    cards = Cards(tmp_path / "cards")
    asked: list[Json] = [
        {"op": "create", "card": CARD, "now": NOW},
        {"op": "get", "card_id": cards.healthy},
        {"op": "list", "pkg": "tea"},
        {"op": "find", "where": {"_and": [{"stats": {"pass_rate": {"gte": 0.1}}}, {"n": {"in": [1, 2]}}]}, "limit": 2},
        {"op": "append", "card_id": cards.healthy, "fields": {"note": {"x": 1}}},
        {"op": "lineage", "card_id": cards.ids[1], "direction": "both", "depth": 2},
        {"op": "alias_set", "name": "best", "card_id": cards.healthy, "now": NOW},
        {"op": "alias_list", "pkg": "tea"},
        {"op": "get_by_alias", "name": "best"},
        {"op": "write_samples", "card_id": cards.healthy, "rows": [{"case": 1}]},
        {"op": "read_samples", "card_id": cards.ids[1], "offset": 0, "limit": 2, "where": {"ok": True}},
    ]

    def check(question: Json) -> None:
        try:
            json.dumps(cards.box.answer(question, again=False), allow_nan=False)
        except Exception as error:
            assert_is_declared(error)
        assert [path.name for path in tmp_path.iterdir()] == ["cards"], "a file outside the directory of the cards"

    known = [{"op": "lineage", "card_id": cards.ids[1], "direction": "x" * 10_000}]
    fuzzer.run(check, changed_json(asked, most=2).filter(_is_asked), examples=60, known=known)


def _is_asked(question: Json) -> bool:
    """Whether a program can ask this: its arguments have been checked as those of every query."""
    try:
        check_value(question, "arguments")
    except InvalidValueError:
        return False
    return isinstance(question, dict)
