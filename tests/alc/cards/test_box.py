"""The box of cards: what each operation does, and what it refuses."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest

from holdfast.alc.cards import CardBox
from holdfast.alc.cards.errors import (
    CardExistsError,
    CardFilesError,
    CardKeyError,
    CardNotFoundError,
    CardTooLargeError,
    DanglingAliasError,
    InvalidCardError,
    InvalidCardNameError,
    SamplesExistError,
    UnreadableCardError,
)
from holdfast.alc.cards.lineage import LineageQuery
from holdfast.core.errors import InvalidValueError

NOW = 1_750_000_000.0


@pytest.fixture
def box(tmp_path: Path) -> CardBox:
    return CardBox(tmp_path / "home" / "cards")


def put(box: CardBox, card_id: str, pkg: str = "cot", now: float = NOW, **sections: Any) -> str:
    made = box.create({"pkg": {"name": pkg}, "card_id": card_id, **sections}, now=now)
    return str(made["card_id"])


def ids(rows: list[Any]) -> list[str]:
    return [row["card_id"] for row in rows]


# --- create and get ------------------------------------------------------------------------------


def test_a_card_is_a_toml_file_named_after_its_package_and_id(box: CardBox) -> None:
    made = box.create({"pkg": {"name": "cot"}, "stats": {"n": 3, "rate": 1.0}, "gone": None}, now=NOW)
    path = box.directory / "cot" / f"{made['card_id']}.toml"
    assert made == {"card_id": path.stem, "path": str(path)}
    there = tomllib.loads(path.read_text())
    assert there["card_id"] == path.stem
    assert there["stats"] == {"n": 3, "rate": 1.0}
    assert isinstance(there["stats"]["n"], int)
    assert isinstance(there["stats"]["rate"], float)
    assert "gone" not in there


def test_a_card_is_read_back_whole_and_an_unknown_one_is_none(box: CardBox) -> None:
    card_id = put(box, "c1", params={"a": [1, 2.5, "x"]}, metadata={"deep": {"er": True}})
    card = box.get(card_id)
    assert card is not None
    assert card["params"] == {"a": [1, 2.5, "x"]}
    assert card["metadata"] == {"deep": {"er": True}}
    assert card["created_at"] == "2025-06-15T15:06:40Z"
    assert box.get("nobody") is None


def test_an_existing_id_is_refused_and_the_card_stays_as_it_was(box: CardBox) -> None:
    put(box, "c1", stats={"n": 1})
    with pytest.raises(CardExistsError) as raised:
        put(box, "c1", stats={"n": 2})
    assert str(raised.value) == "alc.card.create: card 'c1' already exists (immutable)"
    assert raised.value.to_json()["kind"] == "card_exists"
    card = box.get("c1")
    assert card is not None
    assert card["stats"] == {"n": 1}


def test_an_id_that_another_package_has_is_taken_too(box: CardBox) -> None:
    put(box, "c1", pkg="one")
    with pytest.raises(CardExistsError):
        put(box, "c1", pkg="two")


def test_two_different_cards_of_one_second_get_two_ids(box: CardBox) -> None:
    first = box.create({"pkg": {"name": "cot"}, "stats": {"n": 1}}, now=NOW)
    second = box.create({"pkg": {"name": "cot"}, "stats": {"n": 2}}, now=NOW)
    assert first["card_id"] != second["card_id"]


def test_names_that_leave_their_place_are_refused_everywhere(box: CardBox) -> None:
    put(box, "c1")
    with pytest.raises(InvalidCardNameError, match=r"Invalid pkg name: '\.\./x'"):
        put(box, "c2", pkg="../x")
    with pytest.raises(InvalidCardNameError, match="Invalid card_id name: 'a/b'"):
        put(box, "a/b")
    for call in (
        lambda: box.get("../c1"),
        lambda: box.list("a/b"),
        lambda: box.find(pkg=""),
        lambda: box.append("a/b", {}),
        lambda: box.alias_set("a/b", "c1", now=NOW),
        lambda: box.alias_set("a", "c1", now=NOW, pkg="a\\b"),
        lambda: box.get_by_alias(".."),
        lambda: box.write_samples("a/b", []),
        lambda: box.read_samples("a\0b"),
        lambda: box.lineage(LineageQuery("a/b")),
    ):
        with pytest.raises(InvalidCardNameError):
            call()


def test_what_cannot_be_kept_is_refused_before_anything_is_written(box: CardBox) -> None:
    with pytest.raises(InvalidValueError):
        put(box, "c1", stats={"n": float("nan")})
    with pytest.raises(CardTooLargeError, match="write_samples"):
        put(box, "c1", metadata={"blob": "x" * (5 * 1024 * 1024)})
    assert not box.directory.exists()


def test_a_card_that_is_not_toml_is_an_error_for_get_and_passed_over_in_lists(box: CardBox) -> None:
    put(box, "good")
    (box.directory / "cot" / "bad.toml").write_text("not toml")
    (box.directory / "cot" / "huge.toml").write_bytes(b"#" * (4 * 1024 * 1024 + 1))
    os.mkfifo(box.directory / "cot" / "pipe.toml")
    with pytest.raises(UnreadableCardError, match=r"bad\.toml cannot be read: it is not TOML"):
        box.get("bad")
    with pytest.raises(UnreadableCardError, match="at most"):
        box.get("huge")
    assert box.get("pipe") is None
    assert ids(box.list()) == ids(box.find(where={})) == ["good"]


def test_a_directory_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "cards").write_text("a file")
    box = CardBox(tmp_path / "cards")
    with pytest.raises(CardFilesError, match="cannot be used"):
        put(box, "c1")
    assert box.list() == []


def test_files_may_be_read_by_whom_the_umask_allows(box: CardBox) -> None:
    before = os.umask(0o022)
    try:
        put(box, "c1")
    finally:
        os.umask(before)
    assert (box.directory / "cot" / "c1.toml").stat().st_mode & 0o777 == 0o644


# --- list and find -------------------------------------------------------------------------------


def test_lists_show_summaries_the_newest_first(box: CardBox) -> None:
    put(box, "old", now=NOW)
    put(box, "new", pkg="tot", now=NOW + 60, model={"id": "m"}, scenario={"name": "s"}, stats={"pass_rate": 0.5})
    put(box, "newer_id", now=NOW)
    assert box.list() == [
        {
            "card_id": "new",
            "pkg": "tot",
            "created_at": "2025-06-15T15:07:40Z",
            "model": "m",
            "scenario": "s",
            "pass_rate": 0.5,
        },
        {"card_id": "old", "pkg": "cot", "created_at": "2025-06-15T15:06:40Z"},
        {"card_id": "newer_id", "pkg": "cot", "created_at": "2025-06-15T15:06:40Z"},
    ]
    assert ids(box.list("tot")) == ["new"]
    assert box.list("nobody") == []


def test_an_integer_pass_rate_is_kept_in_both_listings(box: CardBox) -> None:
    put(box, "c1", stats={"pass_rate": 1})
    assert [row["pass_rate"] for row in (*box.list(), *box.find())] == [1, 1]


def test_find_filters_orders_and_pages(box: CardBox) -> None:
    for n in range(6):
        put(box, f"c{n}", now=NOW + n, stats={"n": n} if n else {}, pkg="even" if n % 2 == 0 else "odd")
    assert ids(box.find(where={"stats": {"n": {"gte": 3}}})) == ["c5", "c4", "c3"]
    assert ids(box.find(pkg="odd", order_by="stats.n")) == ["c1", "c3", "c5"]
    assert ids(box.find(order_by=["-stats.n"])) == ["c0", "c5", "c4", "c3", "c2", "c1"]
    assert ids(box.find(order_by="stats.n", offset=1, limit=2)) == ["c2", "c3"]
    assert box.find(limit=0) == []
    assert box.find(offset=9) == []


# --- append --------------------------------------------------------------------------------------


def test_append_adds_new_keys_and_gives_back_the_whole_card(box: CardBox) -> None:
    put(box, "c1", stats={"n": 1})
    merged = box.append("c1", {"review": {"by": "me", "gone": None}, "nothing": None})
    assert merged["review"] == {"by": "me"}
    assert merged["stats"] == {"n": 1}
    assert "nothing" not in merged
    assert box.get("c1") == merged


def test_append_refuses_a_key_that_is_set_and_adds_none_of_the_others(box: CardBox) -> None:
    put(box, "c1", stats={"n": 1})
    before = box.get("c1")
    with pytest.raises(CardKeyError) as raised:
        box.append("c1", {"a_new_one": 1, "stats": {"n": 2}})
    assert str(raised.value) == "alc.card.append: key 'stats' already set on card 'c1' (immutable)"
    with pytest.raises(CardKeyError):
        box.append("c1", {"stats": None})
    assert box.get("c1") == before


def test_append_to_an_unknown_card_is_refused(box: CardBox) -> None:
    with pytest.raises(CardNotFoundError, match=r"alc\.card\.append: card 'nobody' not found"):
        box.append("nobody", {"a": 1})


# --- aliases -------------------------------------------------------------------------------------


def test_an_alias_finds_its_card_and_can_be_bound_anew(box: CardBox) -> None:
    put(box, "c1")
    put(box, "c2")
    assert box.alias_set("best", "c1", now=NOW, pkg="cot", note="first") == {
        "name": "best",
        "card_id": "c1",
        "pkg": "cot",
        "set_at": "2025-06-15T15:06:40Z",
        "note": "first",
    }
    box.alias_set("other", "c1", now=NOW)
    box.alias_set("best", "c2", now=NOW + 1)
    card = box.get_by_alias("best")
    assert card is not None
    assert card["card_id"] == "c2"
    assert [alias["name"] for alias in box.alias_list()] == ["other", "best"]
    assert box.get_by_alias("nobody") is None


def test_aliases_are_kept_in_one_toml_file(box: CardBox) -> None:
    put(box, "c1")
    box.alias_set("best", "c1", now=NOW, note='say "hi"')
    text = (box.directory / "_aliases.toml").read_text()
    assert text.startswith("[[alias]]\n")
    assert tomllib.loads(text)["alias"] == box.alias_list()


def test_aliases_can_be_listed_by_package(box: CardBox) -> None:
    put(box, "c1")
    box.alias_set("a", "c1", now=NOW, pkg="cot")
    box.alias_set("b", "c1", now=NOW)
    assert [alias["name"] for alias in box.alias_list("cot")] == ["a"]
    assert box.alias_list("tot") == []


def test_an_alias_needs_a_card_and_one_whose_card_is_gone_is_an_error(box: CardBox) -> None:
    with pytest.raises(CardNotFoundError, match=r"alc\.card\.alias_set: card 'c1' not found"):
        box.alias_set("best", "c1", now=NOW)
    put(box, "c1")
    box.alias_set("best", "c1", now=NOW)
    (box.directory / "cot" / "c1.toml").unlink()
    with pytest.raises(DanglingAliasError, match="alias 'best' points at missing card 'c1'"):
        box.get_by_alias("best")


def test_alias_entries_that_are_none_are_passed_over_and_a_broken_table_is_not_written_over(box: CardBox) -> None:
    put(box, "c1")
    table = box.directory / "_aliases.toml"
    table.write_text('[[alias]]\nname = "x"\n\n[[alias]]\nname = "y"\ncard_id = "c1"\n')
    assert box.alias_list() == [{"name": "y", "card_id": "c1", "set_at": ""}]
    table.write_text("half [")
    with pytest.raises(UnreadableCardError):
        box.alias_set("best", "c1", now=NOW)
    assert table.read_text() == "half ["


# --- samples -------------------------------------------------------------------------------------


def test_samples_are_lines_of_json_beside_the_card_and_keep_their_nulls(box: CardBox) -> None:
    put(box, "c1")
    rows = [{"case": 1, "why": None}, {"case": 2.0, "text": "zwei\nZeilen"}, "bare"]
    path = box.directory / "cot" / "c1.samples.jsonl"
    assert box.write_samples("c1", rows) == {"path": str(path), "count": 3}
    assert [json.loads(line) for line in path.read_text().splitlines()] == rows
    assert box.read_samples("c1") == rows
    assert ids(box.list()) == ["c1"]


def test_samples_are_written_once(box: CardBox) -> None:
    put(box, "c1")
    box.write_samples("c1", [1])
    with pytest.raises(SamplesExistError) as raised:
        box.write_samples("c1", [2])
    assert str(raised.value) == "alc.card.write_samples: samples already exist for card 'c1' (write-once)"
    assert box.read_samples("c1") == [1]


def test_samples_need_a_card_and_a_card_needs_no_samples(box: CardBox) -> None:
    put(box, "c1")
    assert box.read_samples("c1") == []
    for call in (lambda: box.write_samples("nobody", []), lambda: box.read_samples("nobody")):
        with pytest.raises(CardNotFoundError, match="card 'nobody' not found"):
            call()


def test_the_offset_of_samples_counts_what_passed_the_filter(box: CardBox) -> None:
    put(box, "c1")
    box.write_samples("c1", [{"n": n, "even": n % 2 == 0} for n in range(10)])
    page = box.read_samples("c1", offset=1, limit=2, where={"even": False})
    assert [row["n"] for row in page] == [3, 5]
    assert [row["n"] for row in box.read_samples("c1", offset=8)] == [8, 9]
    assert box.read_samples("c1", limit=0) == []
    assert box.read_samples("c1", offset=10) == []


def test_blank_lines_are_no_samples_and_a_broken_line_is_named(box: CardBox) -> None:
    put(box, "c1")
    path = box.directory / "cot" / "c1.samples.jsonl"
    path.write_text('\n{"n":1}\n  \n{"n":2}\n{"n":\n')
    assert box.read_samples("c1", limit=2) == [{"n": 1}, {"n": 2}]
    with pytest.raises(UnreadableCardError, match="line 5 is not JSON"):
        box.read_samples("c1")


def test_many_samples_are_streamed_and_read_by_the_page(box: CardBox) -> None:
    put(box, "c1")
    wide = "x" * 1000
    made = box.write_samples("c1", ({"n": n, "wide": wide} for n in range(40_000)))
    assert made["count"] == 40_000
    assert [row["n"] for row in box.read_samples("c1", offset=39_990)] == list(range(39_990, 40_000))
    with pytest.raises(CardTooLargeError, match="limit and offset"):
        box.read_samples("c1")


def test_a_sample_that_cannot_be_kept_leaves_no_file(box: CardBox) -> None:
    put(box, "c1")
    with pytest.raises(InvalidValueError, match="sample 2"):
        box.write_samples("c1", [1, float("inf")])
    with pytest.raises(CardTooLargeError, match="sample 1 has"):
        box.write_samples("c1", ["x" * (9 * 1024 * 1024)])
    assert sorted(os.listdir(box.directory / "cot")) == ["c1.toml"]
    assert box.write_samples("c1", [])["count"] == 0


# --- lineage -------------------------------------------------------------------------------------


def family(box: CardBox) -> None:
    """g ← p ← c ← (d, e) and one that came from nowhere known."""
    put(box, "g", stats={"pass_rate": 0.1})
    put(box, "p", metadata={"prior_card_id": "g", "prior_relation": "derived_from"})
    put(box, "c", pkg="tot", metadata={"prior_card_id": "p", "prior_relation": "sweep_variant"})
    put(box, "d", metadata={"prior_card_id": "c", "prior_relation": "sweep_variant"})
    put(box, "e", metadata={"prior_card_id": "c"})
    put(box, "stray", metadata={"prior_card_id": "lost"})


def depths(found: Any) -> dict[str, int]:
    return {node["card_id"]: node["depth"] for node in found["nodes"]}


def test_a_lineage_goes_up_to_the_parents_unless_told_otherwise(box: CardBox) -> None:
    family(box)
    assert box.lineage(LineageQuery("c")) == {
        "root": "c",
        "nodes": [
            {"card_id": "c", "pkg": "tot", "depth": 0, "prior_card_id": "p", "prior_relation": "sweep_variant"},
            {"card_id": "p", "pkg": "cot", "depth": -1, "prior_card_id": "g", "prior_relation": "derived_from"},
            {"card_id": "g", "pkg": "cot", "depth": -2, "stats": {"pass_rate": 0.1}},
        ],
        "edges": [
            {"from": "c", "to": "p", "relation": "sweep_variant"},
            {"from": "p", "to": "g", "relation": "derived_from"},
        ],
        "truncated": False,
    }


def test_a_lineage_goes_down_and_both_ways(box: CardBox) -> None:
    family(box)
    assert depths(box.lineage(LineageQuery("p", "down"))) == {"p": 0, "c": 1, "d": 2, "e": 2}
    both = box.lineage(LineageQuery("c", "both", include_stats=False))
    assert depths(both) == {"c": 0, "p": -1, "g": -2, "d": 1, "e": 1}
    assert {"from": "e", "to": "c"} in both["edges"]
    assert not any("stats" in node for node in both["nodes"])


def test_a_lineage_stops_at_its_depth_and_says_so(box: CardBox) -> None:
    family(box)
    up = box.lineage(LineageQuery("c", depth=1))
    assert (depths(up), up["truncated"]) == ({"c": 0, "p": -1}, True)
    down = box.lineage(LineageQuery("g", "down", depth=2))
    assert (depths(down), down["truncated"]) == ({"g": 0, "p": 1, "c": 2}, True)
    assert box.lineage(LineageQuery("g", "down", depth=3))["truncated"] is False
    assert box.lineage(LineageQuery("c", depth=0))["truncated"] is True


def test_a_relation_filter_lets_only_its_relations_pass(box: CardBox) -> None:
    family(box)
    only = ("sweep_variant",)
    assert depths(box.lineage(LineageQuery("c", "both", relation_filter=only))) == {"c": 0, "p": -1, "d": 1}
    assert box.lineage(LineageQuery("c", depth=1, relation_filter=only))["truncated"] is False
    assert depths(box.lineage(LineageQuery("c", "both", relation_filter=()))) == {"c": 0}


def test_a_lineage_in_a_circle_ends_and_one_of_nobody_is_none(box: CardBox) -> None:
    put(box, "a", metadata={"prior_card_id": "b"})
    put(box, "b", metadata={"prior_card_id": "a"})
    put(box, "self", metadata={"prior_card_id": "self"})
    assert depths(box.lineage(LineageQuery("a", "both"))) == {"a": 0, "b": -1}
    assert depths(box.lineage(LineageQuery("self", "both"))) == {"self": 0}
    assert box.lineage(LineageQuery("nobody")) is None


# --- answer --------------------------------------------------------------------------------------


def ask(box: CardBox, op: Any, **arguments: Any) -> Any:
    return box.answer({"op": op, "now": NOW, **arguments}, False)


def test_every_operation_can_be_asked_for(box: CardBox, tmp_path: Path) -> None:
    box = CardBox(box.directory, [tmp_path / "mirror"])
    card_id = ask(box, "create", card={"pkg": {"name": "cot"}, "stats": {"pass_rate": 1}})["card_id"]
    assert ask(box, "get", card_id=card_id)["pkg"] == {"name": "cot"}
    assert ids(ask(box, "list")) == ids(ask(box, "list", pkg="cot")) == [card_id]
    assert ask(box, "append", card_id=card_id, fields={"a": 1})["a"] == 1
    assert ask(box, "alias_set", name="best", card_id=card_id, note="n")["note"] == "n"
    assert ask(box, "alias_list", pkg=None)[0]["name"] == "best"
    assert ask(box, "get_by_alias", name="best")["card_id"] == card_id
    assert ids(ask(box, "find", where={"a": 1}, order_by="a", limit=1.0, offset=0)) == [card_id]
    assert ask(box, "write_samples", card_id=card_id, rows=[1, 2])["count"] == 2
    assert ask(box, "read_samples", card_id=card_id, offset=1) == [2]
    assert ask(box, "lineage", card_id=card_id, direction="both", depth=1, relation_filter=["x"])["root"] == card_id
    assert ask(box, "sink_backfill", sink=f"file://{tmp_path}/mirror", dry_run=True)["skipped"] == [card_id]


def test_what_is_not_there_is_answered_with_null(box: CardBox) -> None:
    assert ask(box, "get", card_id="x") is None
    assert ask(box, "get_by_alias", name="x") is None
    assert ask(box, "lineage", card_id="x") is None


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"op": "drop"}, "unknown operation"),
        ({"op": None}, "unknown operation"),
        ({"op": "get"}, "alc.card.get: card_id is required"),
        ({"op": "get", "card_id": 5}, "alc.card.get: card_id must be a string, got 5"),
        ({"op": "create", "now": NOW}, "alc.card.create: card must be a table"),
        ({"op": "create", "now": NOW, "card": []}, "alc.card.create: pkg.name is required"),
        ({"op": "create", "card": {"pkg": {"name": "x"}}}, "alc.card.create: now must be a time"),
        ({"op": "append", "card_id": "x", "fields": [1]}, "alc.card.append: fields must be a table"),
        ({"op": "find", "limit": -1}, "alc.card.find: limit must be a whole number"),
        ({"op": "find", "limit": 1.5}, "alc.card.find: limit must be a whole number"),
        ({"op": "write_samples", "card_id": "x", "rows": {"a": 1}}, "rows must be an array"),
        ({"op": "lineage", "card_id": "x", "direction": "in"}, "direction must be 'up', 'down', or 'both' (got 'in')"),
        ({"op": "lineage", "card_id": "x", "relation_filter": [1]}, "relation_filter must be an array of strings"),
        ({"op": "sink_backfill", "sink": "x", "dry_run": "no"}, "dry_run must be true or false"),
    ],
)
def test_wrong_arguments_are_told(box: CardBox, asked: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidCardError) as raised:
        box.answer(asked, False)
    assert said in str(raised.value)
