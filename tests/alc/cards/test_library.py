"""Cards in a store and in files as one: found by any process on the store, and kept in step with algocline's files."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.alc.cards import CardBox, CardLibrary
from holdfast.alc.cards import shelf as shelving
from holdfast.alc.cards.errors import CardExistsError, CardKeyError, SamplesExistError
from holdfast.alc.cards.lineage import LineageQuery
from holdfast.alc.lua.source import lua_code
from holdfast.core.events import CompletedEvent
from holdfast.engine.holdfast import open_holdfast
from holdfast.engine.upkeep import Upkeep
from holdfast.store import open_store
from holdfast.store.contract import Store
from holdfast.testing.postgres_server import fresh_database

NOW = 1_750_000_000.0


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return fresh_database(request.getfixturevalue("server"))
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/cards.db"


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    async with open_store(url) as opened:
        yield opened


@pytest.fixture
async def memory() -> AsyncIterator[Store]:
    async with open_store("memory:") as opened:
        yield opened


def library(store: Store, folder: Path, *others: Path) -> CardLibrary:
    return CardLibrary(store, CardBox(folder / "cards"), [CardBox(each / "cards") for each in others])


def card(card_id: str, **sections: Any) -> dict[str, Any]:
    return {"pkg": {"name": "cot"}, "card_id": card_id, **sections}


# --- the store ---------------------------------------------------------------------------------------


async def test_a_card_is_found_by_a_process_that_has_none_of_the_files(store: Store, tmp_path: Path) -> None:
    here, there = library(store, tmp_path / "here"), library(store, tmp_path / "there")
    await here.create(card("c1", stats={"n": 3, "pass_rate": 0.5}), now=NOW)
    await here.write_samples("c1", [{"case": number} for number in range(5)])
    await here.create(card("c2", metadata={"prior_card_id": "c1", "prior_relation": "tuned"}), now=NOW + 1)
    await there.append("c1", {"review": "good"})
    await there.alias_set("best", "c1", now=NOW, pkg="cot", note="so far")

    assert await there.get("c1") == await here.get("c1")
    assert [row["card_id"] for row in await there.list("cot")] == ["c2", "c1"]
    assert [row["card_id"] for row in await there.find(where={"stats": {"n": {"gte": 3}}})] == ["c1"]
    assert await there.read_samples("c1", 1, 2) == [{"case": 1}, {"case": 2}]
    assert (await here.get_by_alias("best") or {})["review"] == "good"
    kin = await there.lineage(LineageQuery("c1", "down"))
    assert [node["card_id"] for node in kin["nodes"]] == ["c1", "c2"]


async def test_what_a_lua_session_writes_is_in_the_store(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "worker"))
    code = "return alc.card.create({ pkg = { name = 'cot' }, card_id = 'c1', stats = { n = 3 } }).card_id"
    async with open_holdfast(url, upkeep=Upkeep(on=False)) as holdfast:
        event = await holdfast.start(lua_code(code))
        assert isinstance(event, CompletedEvent)
        found = await library(holdfast.store, tmp_path / "elsewhere").get("c1") or {}
    assert found["stats"] == {"n": 3}
    assert CardBox(tmp_path / "worker" / "cards").get("c1") == found


async def test_of_several_who_create_the_same_id_at_once_one_does(store: Store, tmp_path: Path) -> None:
    libraries = [library(store, tmp_path / str(number)) for number in range(6)]
    made = [each.create(card("c1", stats={"n": n}), now=NOW) for n, each in enumerate(libraries)]
    outcomes = await asyncio.gather(*made, return_exceptions=True)
    assert sum(isinstance(each, dict) for each in outcomes) == 1
    assert sum(isinstance(each, CardExistsError) for each in outcomes) == 5


async def test_keys_that_two_append_at_once_are_both_kept(store: Store, tmp_path: Path) -> None:
    libraries = [library(store, tmp_path / str(number)) for number in range(4)]
    await libraries[0].create(card("c1"), now=NOW)
    await asyncio.gather(*(each.append("c1", {f"key{n}": n}) for n, each in enumerate(libraries)))
    found = await libraries[0].get("c1") or {}
    assert [found[f"key{n}"] for n in range(4)] == [0, 1, 2, 3]
    with pytest.raises(CardKeyError):
        await libraries[1].append("c1", {"key0": 9})


async def test_samples_are_written_once_whoever_writes_them(store: Store, tmp_path: Path) -> None:
    here, there = library(store, tmp_path / "here"), library(store, tmp_path / "there")
    await here.create(card("c1"), now=NOW)
    await here.write_samples("c1", [1, 2])
    with pytest.raises(SamplesExistError):
        await there.write_samples("c1", [1, 2])
    assert (await there.write_samples("c1", [1, 2], again=True))["count"] == 2
    with pytest.raises(SamplesExistError):
        await there.write_samples("c1", [3], again=True)


async def test_samples_in_many_pieces_are_read_by_the_page(
    memory: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shelving, "PIECE_BYTES", 64)
    own = library(memory, tmp_path)
    await own.create(card("c1"), now=NOW)
    await own.write_samples("c1", [{"case": number, "even": number % 2 == 0} for number in range(100)])
    index = await own.shelf.samples("c1")
    assert index is not None
    assert len(index.pieces) > 10
    assert [row["case"] for row in await own.read_samples("c1", 90, 3)] == [90, 91, 92]
    assert [row["case"] for row in await own.read_samples("c1", 1, 2, {"even": True})] == [2, 4]
    assert len(await own.read_samples("c1")) == 100


@pytest.mark.parametrize("name", ["c1", "a b~ü%", "x" * 200, "ü" * 100, "=", "-c"])
async def test_any_name_that_a_file_may_have_is_a_key_of_the_store(memory: Store, tmp_path: Path, name: str) -> None:
    own = library(memory, tmp_path)
    await own.create(card(name), now=NOW)
    await own.write_samples(name, [1])
    await own.alias_set(name, name, now=NOW)
    assert await own.shelf.get(name) is not None
    assert (await own.get_by_alias(name) or {})["card_id"] == name
    assert await own.read_samples(name) == [1]


# --- in step with the files --------------------------------------------------------------------------


async def test_what_is_written_is_in_algoclines_files_too(memory: Store, tmp_path: Path) -> None:
    own = library(memory, tmp_path)
    made = await own.create(card("c1", stats={"n": 3}), now=NOW)
    await own.append("c1", {"review": "good"})
    told = await own.write_samples("c1", [{"case": 1}])
    await own.alias_set("best", "c1", now=NOW)
    box = CardBox(tmp_path / "cards")
    assert box.get("c1") == await own.get("c1")
    assert box.read_samples("c1") == [{"case": 1}]
    assert box.alias_list() == await own.alias_list()
    assert Path(str(made["path"])).is_file()
    assert Path(str(told["path"])).is_file()


async def test_cards_that_only_files_have_are_found_and_grow_in_the_store(memory: Store, tmp_path: Path) -> None:
    theirs = CardBox(tmp_path / "theirs" / "cards")
    theirs.create(card("old", stats={"n": 1}), now=NOW)
    theirs.write_samples("old", [1, 2, 3])
    theirs.alias_set("first", "old", now=NOW)
    own = library(memory, tmp_path / "own", tmp_path / "theirs")
    assert [row["card_id"] for row in await own.list()] == ["old"]
    assert await own.read_samples("old", 1) == [2, 3]
    assert (await own.get_by_alias("first") or {})["card_id"] == "old"
    with pytest.raises(CardExistsError):
        await own.create(card("old"), now=NOW)
    with pytest.raises(SamplesExistError):
        await own.write_samples("old", [4])
    before = sorted((path, path.read_bytes()) for path in theirs.directory.rglob("*") if path.is_file())
    await own.append("old", {"review": "good"})
    assert (await own.get("old") or {})["stats"] == {"n": 1}
    assert CardBox(tmp_path / "own" / "cards").get("old") == await own.get("old")
    assert sorted((path, path.read_bytes()) for path in theirs.directory.rglob("*") if path.is_file()) == before


async def test_a_key_that_another_program_appended_to_the_file_is_seen(memory: Store, tmp_path: Path) -> None:
    own = library(memory, tmp_path)
    await own.create(card("c1"), now=NOW)
    CardBox(tmp_path / "cards").append("c1", {"theirs": 1})
    assert (await own.get("c1") or {})["theirs"] == 1
    await own.append("c1", {"ours": 2})
    assert CardBox(tmp_path / "cards").get("c1") == await own.get("c1")


async def test_where_copies_differ_the_store_counts_and_a_damaged_file_does_not(memory: Store, tmp_path: Path) -> None:
    own = library(memory, tmp_path)
    path = Path(str((await own.create(card("c1", stats={"n": 1}), now=NOW))["path"]))
    path.write_text(path.read_text().replace("n = 1", "n = 2"))
    assert (await own.get("c1") or {})["stats"] == {"n": 1}
    path.write_text("= not toml")
    assert (await own.get("c1") or {})["stats"] == {"n": 1}
    assert len(await own.list()) == 1


async def test_a_card_is_kept_although_its_file_cannot_be_written(memory: Store, tmp_path: Path) -> None:
    (tmp_path / "cards").write_text("a file where the directory should be")
    own = library(memory, tmp_path)
    await own.create(card("c1"), now=NOW)
    await own.write_samples("c1", [1])
    assert [row["card_id"] for row in await CardLibrary(memory, CardBox(tmp_path / "other")).list()] == ["c1"]
    (tmp_path / "cards").unlink()
    assert await own.write_files() == ["c1"]
    assert CardBox(tmp_path / "cards").read_samples("c1") == [1]
    assert await own.write_files() == []


async def test_an_alias_that_was_bound_later_wins_wherever_it_is(memory: Store, tmp_path: Path) -> None:
    own = library(memory, tmp_path)
    await own.create(card("c1"), now=NOW)
    await own.create(card("c2"), now=NOW)
    await own.alias_set("best", "c1", now=NOW)
    CardBox(tmp_path / "cards").alias_set("best", "c2", now=NOW + 60)
    assert (await own.get_by_alias("best") or {})["card_id"] == "c2"
    await own.alias_set("best", "c1", now=NOW + 1)  # by a clock that is behind
    assert (await own.get_by_alias("best") or {})["card_id"] == "c1"
    await own.alias_set("best", "c2", now=NOW, again=True)  # a call that was carried out before
    assert (await own.get_by_alias("best") or {})["card_id"] == "c1"


# --- carried out again -------------------------------------------------------------------------------


async def test_a_create_that_died_before_its_file_is_finished_by_the_next_run(store: Store, tmp_path: Path) -> None:
    asked = {"op": "create", "now": NOW, "card": {"pkg": {"name": "cot"}, "stats": {"n": 1}}}
    first = await library(store, tmp_path / "dead").answer(asked, again=False)
    own = library(store, tmp_path / "own")
    again = await own.answer(asked, again=True)
    assert again["card_id"] == first["card_id"]
    assert Path(again["path"]).is_file()
    assert len(await own.list()) == 1


async def test_cards_are_in_a_copy_of_the_store(tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path}/one.db") as store:
        await library(store, tmp_path / "own").create(card("c1", stats={"n": 1}), now=NOW)
        with sqlite3.connect(tmp_path / "one.db") as source, sqlite3.connect(tmp_path / "two.db") as target:
            source.backup(target)
    async with open_store(f"sqlite:///{tmp_path}/two.db") as copy:
        assert (await library(copy, tmp_path / "elsewhere").get("c1") or {})["stats"] == {"n": 1}
