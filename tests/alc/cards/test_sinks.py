"""Mirrors of cards: which are named, what they get, and that their failures stay theirs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from holdfast.alc.cards import CardBox, sinks_from
from holdfast.alc.cards.errors import InvalidSinkError, UnknownSinkError
from holdfast.alc.cards.sinks import sink_uri
from tests.tables import each_row

NOW = 1_750_000_000.0
NONE = {"created": 0, "appended": 0, "samples": 0, "aliases": 0}


def fill(box: CardBox, *card_ids: str) -> None:
    for card_id in card_ids:
        box.create({"pkg": {"name": "cot"}, "card_id": card_id}, now=NOW)


def files(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


# --- naming them ---------------------------------------------------------------------------------


def test_sinks_are_file_uris_separated_by_bars() -> None:
    assert sinks_from("file:///a/b| file:///with%20space |file:///a/b||") == [Path("/a/b"), Path("/with space")]
    assert sinks_from("") == sinks_from(" | ") == []


@each_row(
    ("text", "why"),
    [
        ("/a/b", "it is not a URI"),
        ("s3://bucket/x", "the scheme 's3' is not known"),
        ("file:/a", "the '//' after 'file:' is missing"),
        ("file://host/a", "'host' would be the name of a host"),
        ("file://", "it has no path"),
        ("file:///a%2", "a '%' is not followed by two hex digits"),
        ("file:///a%zz", "a '%' is not followed by two hex digits"),
        ("file:///a%ff", "the path is not UTF-8"),
        ("file:///a%00b", "the path holds a NUL"),
        ("file:///ok|nope", "it is not a URI"),
    ],
)
def test_a_sink_that_is_none_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(InvalidSinkError) as raised:
        sinks_from(text)
    assert why in str(raised.value)
    assert "write it as file:///absolute/path" in str(raised.value)


@each_row("path", ["/a", "/with space", "/50%", "/a|b", "/é%20"])
def test_the_name_of_a_sink_leads_back_to_it(path: str) -> None:
    assert sinks_from(sink_uri(Path(path))) == [Path(path)]


def test_the_card_directory_is_no_sink_of_itself(tmp_path: Path) -> None:
    with pytest.raises(InvalidSinkError, match="card directory itself"):
        CardBox(tmp_path, [tmp_path])


# --- mirroring -----------------------------------------------------------------------------------


def test_every_write_is_mirrored_to_every_sink_byte_by_byte(tmp_path: Path) -> None:
    sinks = [tmp_path / "one", tmp_path / "two"]
    box = CardBox(tmp_path / "cards", sinks)
    fill(box, "c1", "c2")
    box.append("c1", {"review": "good"})
    box.write_samples("c1", [{"n": 1}])
    box.alias_set("best", "c1", now=NOW)
    assert len(files(box.directory)) == 4
    assert files(sinks[0]) == files(sinks[1]) == files(box.directory)
    assert box.sink_stats() == [
        {
            "sink": f"file://{sink}",
            "ok": {"created": 2, "appended": 1, "samples": 1, "aliases": 1},
            "err": NONE,
            "last_error": None,
        }
        for sink in sinks
    ]


def test_a_sink_that_fails_is_counted_and_harms_neither_the_card_nor_the_other_sink(tmp_path: Path) -> None:
    (tmp_path / "broken").write_text("a file")
    box = CardBox(tmp_path / "cards", [tmp_path / "broken", tmp_path / "good"])
    fill(box, "c1")
    broken, good = box.sink_stats()
    assert box.get("c1") == CardBox(tmp_path / "good").get("c1") is not None
    assert broken["err"] == {**NONE, "created": 1}
    assert broken["ok"] == good["err"] == NONE
    assert broken["last_error"]["kind"] == "created"
    assert "broken" in broken["last_error"]["msg"]
    assert abs(broken["last_error"]["ts_ms"] - time.time() * 1000) < 60_000


def test_an_append_reaches_a_sink_that_never_had_the_card(tmp_path: Path) -> None:
    fill(CardBox(tmp_path / "cards"), "c1")
    box = CardBox(tmp_path / "cards", [tmp_path / "mirror"])
    box.append("c1", {"a": 1})
    assert files(tmp_path / "mirror") == files(box.directory)


# --- backfill ------------------------------------------------------------------------------------


@pytest.fixture
def late(tmp_path: Path) -> CardBox:
    """A box with three cards, of which its new sink has one, and that without its samples."""
    before = CardBox(tmp_path / "cards")
    fill(before, "c1", "c2", "c3")
    before.write_samples("c1", [1])
    before.write_samples("c3", [3])
    there = CardBox(tmp_path / "mirror")
    there.create({"pkg": {"name": "cot"}, "card_id": "c1", "kept": True}, now=NOW)
    return CardBox(tmp_path / "cards", [tmp_path / "mirror"])


def backfill(box: CardBox, sink: Any, dry_run: bool = False) -> Any:
    return box.sink_backfill(f"file://{sink}", dry_run)


def test_a_backfill_pushes_what_is_missing_and_leaves_what_is_there(late: CardBox, tmp_path: Path) -> None:
    expected = {
        "sink": f"file://{tmp_path}/mirror",
        "pushed": ["c2", "c3"],
        "skipped": ["c1"],
        "failed": [],
        "pushed_samples": ["c1", "c3"],
    }
    assert backfill(late, tmp_path / "mirror") == expected
    mirror = CardBox(tmp_path / "mirror")
    assert [mirror.read_samples(card_id) for card_id in ("c1", "c2", "c3")] == [[1], [], [3]]
    card = mirror.get("c1")
    assert card is not None
    assert card["kept"] is True
    assert backfill(late, tmp_path / "mirror") == {
        **expected,
        "pushed": [],
        "skipped": ["c1", "c2", "c3"],
        "pushed_samples": [],
    }


def test_a_dry_run_tells_the_same_and_writes_nothing(late: CardBox, tmp_path: Path) -> None:
    before = files(tmp_path / "mirror")
    told = backfill(late, tmp_path / "mirror", dry_run=True)
    assert files(tmp_path / "mirror") == before
    assert late.sink_stats()[0]["ok"] == NONE
    assert backfill(late, tmp_path / "mirror") == told


def test_what_a_backfill_cannot_push_is_listed_with_the_reason(tmp_path: Path) -> None:
    fill(CardBox(tmp_path / "cards"), "c1", "c2")
    (tmp_path / "mirror").mkdir()
    (tmp_path / "mirror" / "cot").write_text("in the way")
    told = backfill(CardBox(tmp_path / "cards", [tmp_path / "mirror"]), tmp_path / "mirror")
    assert [card_id for card_id, _ in told["failed"]] == ["c1", "c2"]
    assert all("mirror" in message for _, message in told["failed"])
    assert told["pushed"] == []


def test_a_backfill_of_an_unknown_sink_is_refused(late: CardBox) -> None:
    for sink in ("file:///elsewhere", "nonsense"):
        with pytest.raises(UnknownSinkError, match=f"unknown sink: {sink}"):
            late.sink_backfill(sink)
