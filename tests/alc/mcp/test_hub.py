"""The hub by algocline's tools and resources: search, info, index and documents, over directories and repositories."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from holdfast.alc.cards.tool import own_library
from holdfast.alc.mcp.hub import TOOLS
from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.serve.mcp.server import McpServer
from tests.alc.mcp.user_packages import Repository, new_user, write_package
from tests.serve.calls import ERAS, Host, host_of

THINK = """\
--- think — asks twice
---
--- Usage: the answer is checked for zebras

local M = {}

M.meta = { name = "think", version = "1.2.0", description = "Asks twice", category = "reasoning" }

function M.run(ctx)
    return ctx
end

return M
"""


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


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    folder = tmp_path / "collection"
    (folder / "think").mkdir(parents=True)
    (folder / "think" / "init.lua").write_text(THINK)
    write_package(folder, "plain")
    return folder


async def search(host: Host, **arguments: Any) -> dict[str, Any]:
    found = await host.call("alc_hub_search", fields=["name", "installed"], **arguments)
    return {row["name"]: row["installed"] for row in found["results"]}


# --- search and info ---------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_packages_of_a_source_and_of_this_machine_are_found_together(
    holdfast: Holdfast, home: Path, collection: Path, era: str
) -> None:
    write_package(home / "packages", "plain")
    async with host_of(holdfast, TOOLS, era) as host:
        found = await host.call("alc_hub_search", local_indices=[str(collection)], limit=0)
        rows = {row["name"]: row for row in found["results"]}
        assert (rows["plain"]["installed"], rows["think"]["installed"]) == (True, False)
        assert rows["think"] == {
            "name": "think",
            "version": "1.2.0",
            "description": "Asks twice",
            "category": "reasoning",
            "installed": False,
            "docstring_matched": False,
        }
        assert (found["sources"], found["total"]) == ([str(collection)], len(rows))
        assert rows["cot"]["installed"] is True  # a strategy in Python


async def test_text_is_looked_for_in_name_description_category_and_docstring(host: Host, collection: Path) -> None:
    where = {"local_indices": [str(collection)]}
    for query in ("THINK", "asks TWICE", "zebras"):
        assert "think" in await search(host, query=query, **where)
    [row] = (await host.call("alc_hub_search", query="zebras", verbose="full", **where))["results"]
    assert (row["docstring_matched"], row["card_count"], row["best_card"]) == (True, 0, None)
    assert "zebras" in row["docstring"]
    assert "think" not in await search(host, query="think", category="other", **where)
    assert "think" not in await search(host, query="think", installed_only=True, **where)
    assert list(await search(host, filter={"name": "think"}, **where)) == ["think"]
    assert len(await search(host, limit=1, sort="name", **where)) == 1


async def test_wrong_orders_are_refused(host: Host) -> None:
    assert "unknown sort key 'x'" in await host.refusal("alc_hub_search", sort="x")
    assert "invalid verbose value" in await host.refusal("alc_hub_search", verbose="much")
    assert "must be an object" in await host.refusal("alc_hub_search", filter=[1])


async def test_info_has_the_cards_aliases_and_best_pass_rate(holdfast: Holdfast, host: Host, home: Path) -> None:
    write_package(home / "packages", "plain")
    library = own_library(holdfast.store)
    for number, rate in enumerate((0.25, 0.75)):
        await library.create({"pkg": {"name": "plain"}, "card_id": f"c{number}", "stats": {"pass_rate": rate}}, now=1.0)
    await library.alias_set("best", "c1", now=2.0)
    (home / "evals").mkdir(parents=True)
    (home / "evals" / "plain_1.meta.json").write_text('{"strategy": "plain"}')
    (home / "evals" / "other_1.meta.json").write_text('{"strategy": "other"}')
    found = await host.call("alc_hub_info", pkg="plain")
    assert (found["pkg"]["name"], found["pkg"]["version"], found["pkg"]["installed"]) == ("plain", "1.0.0", True)
    assert [card["card_id"] for card in found["cards"]] == ["c1", "c0"]
    assert [alias["name"] for alias in found["aliases"]] == ["best"]
    assert found["stats"] == {"card_count": 2, "eval_count": 1, "best_pass_rate": 0.75}
    [row] = (await host.call("alc_hub_search", filter={"name": "plain"}, verbose="full"))["results"]
    assert (row["card_count"], row["best_card"]["card_id"]) == (2, "c1")


async def test_info_of_an_unknown_package_says_so_and_a_path_is_no_name(host: Host) -> None:
    found = await host.call("alc_hub_info", pkg="nobody")
    assert (found["pkg"]["installed"], "nobody" in found["warnings"][0]) == (False, True)
    assert "invalid package name" in await host.refusal("alc_hub_info", pkg="../x")


async def test_a_source_that_packages_were_installed_from_is_asked_again_only_after_an_hour(
    host: Host, home: Path, collection: Path, tmp_path: Path
) -> None:
    repository = Repository(tmp_path / "repository")
    write_package(repository.directory, "faraway")
    repository.commit()
    home.mkdir(exist_ok=True)
    (home / "hub_registries.json").write_text(json.dumps({"registries": [{"source": repository.url}]}))
    assert "faraway" in await search(host, query="faraway")
    write_package(repository.directory, "faraway2")
    repository.commit()
    assert list(await search(host, query="faraway")) == ["faraway"]
    for file in (home / "hub_cache").iterdir():
        file.unlink()
    assert set(await search(host, query="faraway")) == {"faraway", "faraway2"}


async def test_a_source_that_cannot_be_asked_is_a_warning(host: Host, tmp_path: Path) -> None:
    found = await host.call("alc_hub_search", local_indices=[f"file://{tmp_path}/nothing", "ext::sh -c true"])
    assert len(found["warnings"]) == 2
    assert found["results"]


# --- index and documents -----------------------------------------------------------------------------


async def test_a_collection_is_indexed_without_being_run(host: Host, collection: Path, tmp_path: Path) -> None:
    (collection / "plain" / "init.lua").write_text("error('was run')")
    output = tmp_path / "hub_index.json"
    told = await host.call("alc_hub_reindex", source_dir=str(collection), output_path=str(output))
    assert (told["package_count"], told["output_path"], told["source_dir"]) == (2, str(output), str(collection))
    index = json.loads(output.read_text())
    assert index["schema_version"] == "hub_index/v0"
    assert [entry["name"] for entry in index["packages"]] == ["plain", "think"]
    assert set(index["packages"][1]) == {
        *("name", "version", "description", "category", "docstring", "source", "card_count", "best_card"),
    }
    assert (await host.call("alc_hub_reindex", source_dir=str(collection)))["output_path"] is None


async def test_what_is_installed_is_indexed_into_our_own_directory(host: Host, home: Path) -> None:
    write_package(home / "packages", "plain")
    told = await host.call("alc_hub_reindex")
    assert (told["package_count"], told["output_path"]) == (1, str(home / "hub_index.json"))
    assert (await host.call("alc_hub_reindex"))["package_count"] == 1


async def test_only_an_index_is_replaced_by_an_index(host: Host, collection: Path, tmp_path: Path) -> None:
    precious, link = tmp_path / "precious.json", tmp_path / "link.json"
    precious.write_text("{}")
    link.symlink_to(tmp_path / "elsewhere.json")
    for path in (precious, link, tmp_path / "missing" / "index.json"):
        await host.refusal("alc_hub_reindex", source_dir=str(collection), output_path=str(path))
    assert precious.read_text() == "{}"
    assert not (tmp_path / "elsewhere.json").exists()


async def test_documents_are_made_of_every_projection(host: Host, collection: Path, tmp_path: Path) -> None:
    config = tmp_path / "docs.toml"
    config.write_text('[hub.context7]\nprojectTitle = "Mine"\n[hub.devin]\nrepo_notes = ["n"]\n')
    told = await host.call(
        "alc_hub_gendoc",
        source_dir=str(collection),
        out_dir=str(tmp_path / "out"),
        projections=["hub", "narrative", "llms", "luacats", "context7", "devin", "lint"],
        config_path=str(config),
    )
    out = tmp_path / "out"
    assert (told["source_dir"], told["out_dir"]) == (str(collection), str(out))
    page = (out / "narrative" / "think.md").read_text()
    assert "# think\n\nAsks twice" in page
    assert "`think.run(ctx)`" in page
    assert json.loads((out / "hub" / "think.json").read_text())["category"] == "reasoning"
    assert "[think](narrative/think.md): Asks twice" in (out / "llms.txt").read_text()
    assert "function think.run(ctx) end" in (out / "types" / "think.d.lua").read_text()
    assert json.loads((out / "context7.json").read_text())["projectTitle"] == "Mine"
    assert json.loads((out / ".devin" / "wiki.json").read_text())["repo_notes"] == ["n"]
    assert "plain: meta.description is missing" in told["warnings"]
    assert "lint: plain: meta.description is missing" in told["stderr"]
    assert "wrote narrative/think.md" in told["stdout"]


async def test_strict_lint_writes_nothing_and_lint_only_writes_nothing(host: Host, collection: Path) -> None:
    why = await host.refusal(
        "alc_hub_gendoc", source_dir=str(collection), projections=["lint", "hub"], lint_strict=True
    )
    assert "lint_strict is set" in why
    assert (await host.call("alc_hub_gendoc", source_dir=str(collection), projections=["lint_only"]))["out_dir"] is None
    assert not (collection / "docs").exists()
    assert "no such projection" in await host.refusal("alc_hub_gendoc", source_dir=str(collection), projections=["x"])


async def test_a_distribution_is_an_index_and_documents_by_a_preset(
    host: Host, collection: Path, tmp_path: Path
) -> None:
    told = await host.call("alc_hub_dist", source_dir=str(collection), preset="publish")
    assert told["reindex"]["output_path"] == str(collection / "hub_index.json")
    assert told["gendoc"]["out_dir"] == str(collection / "docs")
    assert (told["preset"], told["preset_catalog_version"]) == ("publish", "1")
    project = tmp_path / "project"
    project.mkdir()
    (project / "alc.toml").write_text('[hub.dist.presets.small]\nprojections = ["llms"]\n')
    told = await host.call(
        "alc_hub_dist",
        source_dir=str(collection),
        preset="small",
        project_root=str(project),
        out_dir=str(tmp_path / "o"),
    )
    assert sorted(told["gendoc"]["files"]) == ["llms-full.txt", "llms.txt"]
    assert "no preset of that name" in await host.refusal("alc_hub_dist", source_dir=str(collection), preset="x")


async def test_a_repository_is_documented_where_it_is_said(host: Host, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository")
    write_package(repository.directory, "far")
    repository.commit()
    assert "out_dir" in await host.refusal("alc_hub_gendoc", source_dir=repository.url)
    out = tmp_path / "out"
    await host.call("alc_hub_gendoc", source_dir=repository.url, out_dir=str(out))
    assert (out / "narrative" / "far.md").is_file()


# --- resources ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_the_index_and_the_page_of_a_package_are_resources(
    holdfast: Holdfast, home: Path, collection: Path, era: str
) -> None:
    (home / "packages").mkdir(parents=True)
    (collection / "think").rename(home / "packages" / "think")
    server = McpServer(holdfast, family="alc", keys=[b"k" * 32])
    async with Client(server.server, mode=era) as client:
        assert "alc://hub/index" in {str(each.uri) for each in (await client.list_resources()).resources}
        [content] = (await client.read_resource("alc://hub/index")).contents
        assert [entry["name"] for entry in json.loads(content.text)["packages"]] == ["think"]  # type: ignore[union-attr]
        [page] = (await client.read_resource("alc://packages/think/narrative")).contents
        assert page.mime_type == "text/markdown"
        assert page.text.startswith("# think")  # type: ignore[union-attr]
