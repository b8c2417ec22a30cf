"""Cards and several processes: one creator wins, no change is lost, and a killed writer leaves nothing half-written."""

from __future__ import annotations

import fcntl
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from holdfast.alc.cards import CardBox, files
from holdfast.alc.cards.errors import CardFilesError
from tests.alc.cards.card_child import NOW, ROUNDS, SAMPLES

CHILD = Path(__file__).with_name("card_child.py")
ROOT = Path(__file__).parents[3]


@contextmanager
def child(what: str, directory: Path, name: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, str(CHILD), what, str(directory), name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    with process:
        try:
            assert next_line(process) == "ready"
            yield process
        finally:
            process.kill()


def next_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def test_of_several_processes_that_create_the_same_one_wins_and_no_change_of_any_is_lost(tmp_path: Path) -> None:
    box = CardBox(tmp_path)
    box.create({"pkg": {"name": "shared"}, "card_id": "shared"}, now=NOW)
    names = [f"w{number}" for number in range(5)]
    won: dict[str, list[str]] = {}
    sampled: dict[str, list[str]] = {}
    with ExitStack() as stack:
        racers = {name: stack.enter_context(child("race", tmp_path, name)) for name in names}
        for racer in racers.values():
            go(racer)
        for name, racer in racers.items():
            while (said := next_line(racer)) != "done":
                what, number = said.split()
                {"won": won, "sampled": sampled}[what].setdefault(f"c{number}", []).append(name)
    assert won.keys() == sampled.keys() == {f"c{number}" for number in range(ROUNDS)}
    for card_id, winners in won.items():
        card = box.get(card_id)
        assert card is not None
        assert [card["by"]] == winners
        assert box.read_samples(card_id) == sampled[card_id]
    expected = {f"{name}_{number}" for name in names for number in range(ROUNDS)}
    shared = box.get("shared")
    assert shared is not None
    assert expected <= shared.keys()
    assert {alias["name"] for alias in box.alias_list()} == expected


def test_a_writer_killed_at_any_moment_leaves_whole_cards_and_all_that_it_told_of(tmp_path: Path) -> None:
    chance = random.Random(4)
    told: dict[str, set[str]] = {"created": set(), "appended": set(), "samples": set(), "alias": set()}
    for life in range(12):
        with child("write", tmp_path, f"life{life}") as writer:
            go(writer)
            said = [next_line(writer) for _ in range(chance.randrange(1, 30))]
            time.sleep(chance.uniform(0, 0.01))
            writer.kill()
            assert writer.stdout is not None
            for line in (*said, *writer.stdout.read().splitlines()):
                what, card_id = line.split()
                told[what].add(card_id)
    assert all(len(cards) > 5 for cards in told.values())

    box = CardBox(tmp_path)
    there = {row["card_id"] for row in box.list()}
    assert there == {path.stem for path in tmp_path.glob("kill/*.toml")}  # none is passed over as damaged
    assert told["created"] <= there
    for card_id in there:
        card = box.get(card_id)
        assert card is not None
        assert card["zz_last"] is True
        assert len(card["bulk"]) == 300
        if "zzz_appended" in card or card_id in told["appended"]:
            assert card["zzz_appended"] == card["bulk"]
        assert len(box.read_samples(card_id)) in ({SAMPLES} if card_id in told["samples"] else {0, SAMPLES})
    last_told = {alias["card_id"] for alias in box.alias_list()}
    assert last_told <= there
    box.create({"pkg": {"name": "kill"}, "card_id": "after"}, now=NOW)  # the lock of the dead is gone


def test_a_writer_killed_in_the_middle_leaves_no_samples_and_they_can_be_written_again(tmp_path: Path) -> None:
    box = CardBox(tmp_path)
    box.create({"pkg": {"name": "kill"}, "card_id": "c1"}, now=NOW)
    with child("hang", tmp_path, "c1") as writer:
        go(writer)
        assert next_line(writer) == "half"
        writer.kill()
    [left_over] = [name for name in os.listdir(tmp_path / "kill") if name != "c1.toml"]
    assert left_over.startswith(".saving-")
    assert (tmp_path / "kill" / left_over).stat().st_size > 1_000_000  # it was in the middle
    assert [row["card_id"] for row in box.list()] == ["c1"]
    assert box.read_samples("c1") == []
    assert box.write_samples("c1", ["whole"], again=True)["count"] == 1
    assert box.read_samples("c1") == ["whole"]


def test_a_writer_that_hangs_with_the_lock_is_told_of_instead_of_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LOCK_WAIT_S", 0.1)
    handle = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(CardFilesError, match="see whether it hangs"):
            CardBox(tmp_path).create({"pkg": {"name": "cot"}}, now=NOW)
    finally:
        os.close(handle)
    assert CardBox(tmp_path).create({"pkg": {"name": "cot"}}, now=NOW)
