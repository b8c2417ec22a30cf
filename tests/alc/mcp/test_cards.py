"""Cards by algocline's tools: what they give, refuse, and keep in the store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.alc.cards.tool import own_box, own_library
from holdfast.alc.mcp.cards import TOOLS
from holdfast.engine.holdfast import Holdfast, open_holdfast
from tests.alc.mcp.user_packages import Repository, new_user
from tests.serve.calls import ERAS, Host, host_of

NOW = 1_750_000_000.0


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    return new_user(monkeypatch, tmp_path)


@pytest.fixture
async def holdfast() -> AsyncIterator[Holdfast]:
    async with open_holdfast("memory:") as opened:
        yield opened


@pytest.fixture
async def host(holdfast: Holdfast) -> AsyncIterator[Host]:
    async with host_of(holdfast, TOOLS) as opened:
        yield opened


async def make(holdfast: Holdfast, card_id: str, **sections: Any) -> None:
    card = {"pkg": {"name": "cot"}, "card_id": card_id, **sections}
    await own_library(holdfast.store).create(card, now=NOW)


@pytest.mark.parametrize("era", ERAS)
async def test_lists_are_json_arrays_with_the_same_as_structured_content(holdfast: Holdfast, era: str) -> None:
    await make(holdfast, "c1", stats={"pass_rate": 0.5}, model={"id": "m"}, scenario={"name": "sums"})
    async with host_of(holdfast, TOOLS, era) as host:
        [row] = await host.call("alc_card_list")
        assert row == {
            "card_id": "c1",
            "pkg": "cot",
            "created_at": "2025-06-15T15:06:40Z",
            "model": "m",
            "scenario": "sums",
            "pass_rate": 0.5,
        }
        assert await host.call("alc_card_list", pkg="other") == []


async def test_a_card_written_by_a_session_is_found_by_the_tools(holdfast: Holdfast, host: Host, home: Path) -> None:
    await make(holdfast, "c1", stats={"n": 3})
    await make(holdfast, "c2", metadata={"prior_card_id": "c1", "prior_relation": "tuned"})
    own_box().create({"pkg": {"name": "cot"}, "card_id": "c3"}, now=NOW)  # by another program, as a file
    assert {row["card_id"] for row in await host.call("alc_card_find", pkg="cot")} == {"c1", "c2", "c3"}
    found = await host.call("alc_card_find", where={"stats": {"n": {"gte": 3}}}, order_by="-created_at", limit=1)
    assert [row["card_id"] for row in found] == ["c1"]
    kin = await host.call("alc_card_lineage", card_id="c1", direction="down", include_stats=False)
    assert [node["card_id"] for node in kin["nodes"]] == ["c1", "c2"]
    assert kin["edges"] == [{"from": "c2", "to": "c1", "relation": "tuned"}]
    assert (await host.call("alc_card_append", card_id="c1", fields={"review": "good"}))["review"] == "good"
    alias = await host.call("alc_card_alias_set", name="best", card_id="c1", pkg="cot", note="so far")
    assert await host.call("alc_card_alias_list", pkg="cot") == [alias]
    assert (await host.call("alc_card_get_by_alias", name="best"))["review"] == "good"


async def test_what_is_not_there_is_an_error(host: Host) -> None:
    assert await host.refusal("alc_card_get", card_id="x") == "card 'x' not found"
    assert await host.refusal("alc_card_get_by_alias", name="x") == "alias 'x' not found"
    assert await host.refusal("alc_card_lineage", card_id="x") == "card 'x' not found"
    assert "not found" in await host.refusal("alc_card_samples", card_id="x")
    assert "not found" in await host.refusal("alc_card_append", card_id="x", fields={"a": 1})
    assert "unknown sink" in await host.refusal("alc_card_sink_backfill", sink="file:///nowhere")


async def test_what_a_card_has_is_not_changed(holdfast: Holdfast, host: Host) -> None:
    await make(holdfast, "c1", stats={"n": 1})
    why = await host.refusal("alc_card_append", card_id="c1", fields={"stats": {"n": 2}})
    assert why == "alc.card.append: key 'stats' already set on card 'c1' (immutable)"
    assert (await host.call("alc_card_get", card_id="c1"))["stats"] == {"n": 1}


async def test_samples_are_given_by_the_page(holdfast: Holdfast, host: Host) -> None:
    await make(holdfast, "c1")
    await own_library(holdfast.store).write_samples("c1", [{"case": n, "ok": n > 2} for n in range(5)])
    assert await host.call("alc_card_samples", card_id="c1", offset=1, limit=1) == [{"case": 1, "ok": False}]
    assert [row["case"] for row in await host.call("alc_card_samples", card_id="c1", where={"ok": True})] == [3, 4]


async def test_a_backfill_copies_what_the_mirror_lacks(
    holdfast: Holdfast, host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make(holdfast, "c1")
    sink = f"file://{tmp_path / 'mirror'}"
    monkeypatch.setenv("ALC_CARD_SINKS", sink)
    assert (await host.call("alc_card_sink_backfill", sink=sink, dry_run=True))["pushed"] == ["c1"]
    told = await host.call("alc_card_sink_backfill", sink=sink)
    assert told == {"sink": sink, "pushed": ["c1"], "skipped": [], "failed": [], "pushed_samples": []}
    assert (tmp_path / "mirror" / "cot" / "c1.toml").is_file()


# --- collections -------------------------------------------------------------------------------------


def write_cards(folder: Path, *card_ids: str) -> Path:
    (folder / "cot").mkdir(parents=True, exist_ok=True)
    (folder / "alc_cards.toml").write_text("")
    for card_id in card_ids:
        text = f'card_id = "{card_id}"\ncreated_at = "2025-06-15T15:06:40Z"\n[pkg]\nname = "cot"\n'
        (folder / "cot" / f"{card_id}.toml").write_text(text)
    return folder


async def test_a_collection_is_installed_and_what_is_there_is_skipped(
    holdfast: Holdfast, host: Host, tmp_path: Path, home: Path
) -> None:
    await make(holdfast, "c1", stats={"n": 1})
    folder = write_cards(tmp_path / "cards", "c1", "c2")
    (folder / "cot" / "c2.samples.jsonl").write_text('{"case":1}\n')
    told = await host.call("alc_card_install", url=str(folder))
    assert (told["installed_cards"], told["skipped_cards"], told["packages"]) == (["c2"], ["c1"], ["cot"])
    assert (told["source"], told["mode"]) == (str(folder), "card_collection")
    assert (await host.call("alc_card_get", card_id="c1"))["stats"] == {"n": 1}
    assert await host.call("alc_card_samples", card_id="c2") == [{"case": 1}]
    assert (home / "cards" / "cot" / "c2.toml").is_file()


async def test_a_collection_comes_from_a_git_repository(host: Host, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository")
    write_cards(repository.directory, "c1")
    repository.commit()
    assert (await host.call("alc_card_install", url=repository.url))["installed_cards"] == ["c1"]


async def test_a_directory_without_a_manifest_is_no_collection(host: Host, tmp_path: Path) -> None:
    folder = write_cards(tmp_path / "cards", "c1")
    (folder / "alc_cards.toml").unlink()
    assert "Not a Card Collection: alc_cards.toml not found" in await host.refusal("alc_card_install", url=str(folder))
    write_cards(tmp_path / "empty")
    assert "No Card files found" in await host.refusal("alc_card_install", url=str(tmp_path / "empty"))


async def test_links_and_what_is_no_card_are_refused_and_the_rest_installed(host: Host, tmp_path: Path) -> None:
    folder = write_cards(tmp_path / "cards", "good")
    secret = tmp_path / "secret.toml"
    secret.write_text('password = "hunter2"\n[pkg]\nname = "cot"\n')
    (folder / "cot" / "link.toml").symlink_to(secret)
    (folder / "linked").symlink_to(tmp_path)
    (folder / "cot" / "broken.toml").write_text("= no toml")
    (folder / "cot" / "other.toml").write_text('card_id = "elsewhere"\n[pkg]\nname = "cot"\n')
    told = await host.call("alc_card_install", url=str(folder))
    assert told["installed_cards"] == ["good"]
    refused = " ".join(told["refused"])
    assert all(name in refused for name in ("cot/link.toml: it is a link", "broken.toml", "other.toml"))
    assert "hunter2" not in str(await host.call("alc_card_list"))
