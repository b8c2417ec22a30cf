"""`cards`, `hub` and `migrate` from the command line."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.alc.cards import CardBox, CardLibrary
from holdfast.store import open_store
from tests.alc.mcp.user_packages import write_package
from tests.cli.helpers import Home

NOW = 1_750_000_000.0


class Shell:
    """The command, run by a user with a home and a store of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = Home(folder)
        self.home.serve_nothing()
        self.url = f"sqlite:///{folder}/cards.db"
        self.env = {
            "HOME": str(folder / "user"),
            "HOLDFAST_HOME": str(folder / "own"),
            "HOLDFAST_STORE": self.url,
            "ALC_HOME": str(folder / "user" / ".algocline"),
            "HOLDFAST_PACKAGES_PATH": "",
            "ALC_PACKAGES_PATH": "",
            "HOLDFAST_PROJECT_ROOT": "",
            "ALC_PROJECT_ROOT": "",
        }

    def call(self, *args: str, code: int = 0) -> str:
        result = self.home.call(*args, "--store", self.url, env=self.env)
        assert result.exit_code == code, result.output
        return result.output

    def plain(self, *args: str, code: int = 0) -> str:
        """A command that has no store."""
        result = self.home.call(*args, env=self.env)
        assert result.exit_code == code, result.output
        return result.output

    def json(self, *args: str) -> Any:
        return json.loads(self.call(*args, "--json"))


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.chdir(tmp_path)
    return Shell(tmp_path)


@pytest.fixture
def cards(shell: Shell) -> Shell:
    """Two cards, one of which came from the other, in the store alone."""

    async def fill() -> None:
        async with open_store(shell.url) as store:
            library = CardLibrary(store, CardBox(shell.folder / "elsewhere"))
            await library.create({"pkg": {"name": "cot"}, "card_id": "c1", "stats": {"pass_rate": 0.25}}, now=NOW)
            prior = {"prior_card_id": "c1", "prior_relation": "tuned"}
            second = {"pkg": {"name": "cot"}, "card_id": "c2", "stats": {"pass_rate": 0.75}, "metadata": prior}
            await library.create(second, now=NOW + 1)
            await library.write_samples("c2", [{"case": 1}])
            await library.alias_set("best", "c2", now=NOW)

    asyncio.run(fill())
    return shell


def test_cards_are_listed_and_found(cards: Shell) -> None:
    assert [row["card_id"] for row in cards.json("cards", "list")] == ["c2", "c1"]
    shown = cards.call("cards", "list", "--pkg", "cot")
    assert "CARD" in shown
    assert "0.75" in shown
    where = '{"stats": {"pass_rate": {"lt": 0.5}}}'
    assert [row["card_id"] for row in cards.json("cards", "find", where)] == ["c1"]
    assert [row["card_id"] for row in cards.json("cards", "find", "--order", "stats.pass_rate")] == ["c1", "c2"]
    assert "No cards." in cards.call("cards", "list", "--pkg", "other")
    assert "takes an array" in cards.call("cards", "find", '{"a": {"in": 1}}', code=2)


def test_a_card_is_shown_by_its_id_or_alias(cards: Shell) -> None:
    shown = cards.json("cards", "show", "best", "--samples", "5")
    assert (shown["card"]["card_id"], shown["aliases"], shown["samples"]) == ("c2", ["best"], [{"case": 1}])
    assert "also best" in cards.call("cards", "show", "c2")
    assert "not found" in cards.call("cards", "show", "nobody", code=3)


def test_the_lineage_of_a_card_goes_both_ways(cards: Shell) -> None:
    assert [node["card_id"] for node in cards.json("cards", "lineage", "c1")["nodes"]] == ["c1", "c2"]
    assert "-1   c1" in cards.call("cards", "lineage", "c2")


def test_two_cards_are_compared_field_by_field(cards: Shell) -> None:
    compared = cards.json("cards", "compare", "c1", "best")
    by_path = {each["path"]: each for each in compared["differences"]}
    assert by_path["stats.pass_rate"] == {"path": "stats.pass_rate", "a": 0.25, "b": 0.75, "delta": 0.5}
    assert by_path["metadata.prior_card_id"]["only"] == "b"
    assert compared["same"] == ["pkg.name"]
    assert "+0.5" in cards.call("cards", "compare", "c1", "c2")


def test_exported_cards_are_a_collection_that_can_be_installed_elsewhere(cards: Shell, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert cards.json("cards", "export", str(out), "best")["cards"] == ["c2"]
    assert CardBox(out).get("c1") is None
    assert cards.json("cards", "export", str(out))["cards"] == ["c1", "c2"]
    assert CardBox(out).read_samples("c2") == [{"case": 1}]
    (tmp_path / "other").mkdir()
    other = Shell(tmp_path / "other")
    assert "2 cards installed, 0 there already" in other.call("cards", "install", str(out))
    assert "0 cards installed, 2 there already" in other.call("cards", "install", str(out))
    assert other.json("cards", "show", "c2", "--samples", "1")["samples"] == [{"case": 1}]


def test_the_hub_searches_and_tells_of_a_package(cards: Shell, tmp_path: Path) -> None:
    write_package(tmp_path / "collection", "faraway")
    found = cards.json("hub", "search", "faraway", "--source", str(tmp_path / "collection"))
    assert [(row["name"], row["installed"]) for row in found["results"]] == [("faraway", False)]
    assert "far" in cards.call("hub", "search", "faraway", "--source", str(tmp_path / "collection"))
    assert cards.json("hub", "info", "cot")["stats"]["card_count"] == 2
    assert "2 cards" in cards.call("hub", "info", "cot")


def test_a_collection_is_indexed_documented_and_distributed(shell: Shell, tmp_path: Path) -> None:
    collection = tmp_path / "collection"
    write_package(collection, "far")
    assert "1 package" in shell.call("hub", "reindex", str(collection), "-o", str(tmp_path / "index.json"))
    assert "0 packages" in shell.call("hub", "reindex")
    assert (tmp_path / "own" / "hub_index.json").is_file()
    assert "4 files written" in shell.plain("hub", "docs", str(collection))
    assert (collection / "docs" / "narrative" / "far.md").is_file()
    made = json.loads(shell.plain("hub", "dist", str(collection), "--preset", "publish", "--json"))
    assert made["reindex"]["output_path"] == str(collection / "hub_index.json")
    assert "no such projection" in shell.plain("hub", "docs", str(collection), "--projection", "x", code=2)


def test_an_algocline_directory_is_taken_over(shell: Shell, tmp_path: Path) -> None:
    assert "There is no directory" in shell.call("migrate")
    theirs = tmp_path / "user" / ".algocline"
    write_package(theirs / "packages", "mine")
    CardBox(theirs / "cards").create({"pkg": {"name": "mine"}, "card_id": "c1"}, now=NOW)
    shown = shell.call("migrate")
    assert "packages   1 adopted" in shown
    assert "2 things adopted" in shown
    assert shell.json("migrate")["count"] == 0
    assert (tmp_path / "own" / "packages" / "mine" / "init.lua").is_file()
