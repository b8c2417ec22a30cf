"""Packages and projects by algocline's tools: what is installed, linked, removed, checked and put right."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.alc.mcp.packages import TOOLS
from holdfast.engine.holdfast import Holdfast, open_holdfast
from tests.alc.mcp.user_packages import (
    Repository,
    files_below,
    new_user,
    write_collection,
    write_package,
    write_project,
)
from tests.serve.calls import ERAS, Host, Told, host_of


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
    return write_collection(tmp_path / "collection")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return write_project(tmp_path / "project")


def filled(arguments: Told, **places: Path) -> Told:
    """The arguments, with the names of places replaced by where they are."""

    def fill(value: Any) -> Any:
        for name, place in places.items():
            value = value.replace(name, str(place)) if isinstance(value, str) else value
        return value

    return {key: fill(value) for key, value in arguments.items()}


# --- install ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_a_local_collection_is_installed_with_progress_that_rises(
    holdfast: Holdfast, collection: Path, home: Path, era: str
) -> None:
    steps: list[tuple[float, str | None]] = []

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        steps.append((progress, message))

    async with host_of(holdfast, TOOLS, era) as host:
        result = await host.client.call_tool("alc_pkg_install", {"url": str(collection)}, progress_callback=heard)
        await asyncio.sleep(0.1)
    told = result.structured_content
    assert told is not None
    assert (told["installed"], told["updated"], told["mode"]) == (["alpha", "beta", "gamma"], [], "local_collection")
    assert (told["cards_installed"], told["skipped_symlinks"]) == ([], [])
    assert (home / "packages" / "gamma" / "init.lua").is_file()
    numbers = [number for number, _ in steps]
    assert numbers == sorted(set(numbers))
    said = " ".join(message or "" for _, message in steps)
    assert "fetching" in said
    assert "placing" in said
    assert "done" in said


async def test_a_single_package_can_have_another_name(host: Host, tmp_path: Path, home: Path) -> None:
    told = await host.call("alc_pkg_install", url=str(write_package(tmp_path / "src", "one")), name="other")
    assert (told["installed"], told["mode"]) == (["other"], "local_single")
    assert (home / "packages" / "other" / "init.lua").is_file()


async def test_what_changed_at_the_source_is_updated_and_the_rest_skipped(host: Host, collection: Path) -> None:
    await host.call("alc_pkg_install", url=str(collection))
    write_package(collection, "alpha", "1.1.0")
    write_package(collection, "delta")
    told = await host.call("alc_pkg_install", url=str(collection))
    assert (told["installed"], told["updated"], told["skipped"]) == (["delta"], ["alpha"], ["beta", "gamma"])


async def test_cards_that_packages_bring_along_are_kept(host: Host, collection: Path, home: Path) -> None:
    (collection / "alpha" / "cards").mkdir()
    (collection / "alpha" / "cards" / "a1.toml").write_text('card_id = "a1"\n[pkg]\nname = "alpha"\n')
    (collection / "alpha" / "cards" / "bad.toml").write_text("= no card")
    assert (await host.call("alc_pkg_install", url=str(collection)))["cards_installed"] == ["a1"]
    assert (home / "cards" / "alpha" / "a1.toml").is_file()


async def test_a_git_repository_is_installed_at_its_commit(host: Host, tmp_path: Path, home: Path) -> None:
    repository = Repository(tmp_path / "repository")
    write_package(repository.directory, "one")
    write_package(repository.directory, "two")
    commit = repository.commit()
    told = await host.call("alc_pkg_install", url=repository.url)
    assert (told["installed"], told["mode"]) == (["one", "two"], "collection")
    assert told["skipped"] == []
    records = json.loads((home / "installed.json").read_text())["packages"]
    assert records["one"]["source"]["rev"] == commit


async def test_a_package_from_elsewhere_is_replaced_only_by_force(host: Host, tmp_path: Path, home: Path) -> None:
    repository = Repository(tmp_path / "repository")
    write_package(repository.directory, "one", "2.0.0")
    repository.commit()
    await host.call("alc_pkg_install", url=str(write_package(tmp_path / "src", "one", "1.0.0")))
    told = await host.call("alc_pkg_install", url=repository.url)
    assert (told["installed"], told["skipped"]) == ([], ["one"])
    assert "force" in told["packages"][0]["why"]
    assert "1.0.0" in (home / "packages" / "one" / "init.lua").read_text()
    told = await host.call("alc_pkg_install", url=repository.url, force=True)
    assert told["installed"] == ["one"]
    assert "2.0.0" in (home / "packages" / "one" / "init.lua").read_text()


async def test_a_link_that_has_the_name_is_left_alone(host: Host, tmp_path: Path, collection: Path) -> None:
    await host.call("alc_pkg_link", path=str(write_package(tmp_path / "work", "alpha")))
    told = await host.call("alc_pkg_install", url=str(collection))
    assert (told["installed"], told["skipped_symlinks"]) == (["beta", "gamma"], ["alpha"])


async def test_an_install_in_a_project_is_named_in_its_file(host: Host, collection: Path, project: Path) -> None:
    await host.call("alc_pkg_install", url=str(collection), project_root=str(project))
    assert "alpha" in (project / "holdfast.toml").read_text()
    assert "alpha" in (project / "holdfast.lock").read_text()


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"url": ""},
        {"url": 5},
        {"url": "/nowhere/at/all"},
        {"url": "--upload-pack=touch /tmp/x"},
        {"url": "ext::sh -c id"},
        {"url": "file:///nowhere/repository"},
        {"url": "x" * 100_000},
        {"url": "a\x00b"},
        {"url": "COLLECTION", "name": "one"},
        {"url": "COLLECTION/alpha", "name": "../../evil"},
        {"url": "COLLECTION", "force": "yes"},
        {"url": "COLLECTION", "project_root": "/nowhere"},
        {"url": "EMPTY"},
    ],
)
async def test_an_install_that_cannot_be_is_refused_and_leaves_nothing(
    host: Host, collection: Path, home: Path, tmp_path: Path, arguments: Told
) -> None:
    given = filled(arguments, COLLECTION=collection, EMPTY=tmp_path / "here")
    before = files_below(collection)
    assert await host.refusal("alc_pkg_install", **given)
    assert list((home / "packages").glob("*")) == []
    assert files_below(collection) == before


# --- remove ----------------------------------------------------------------------------------------


async def test_a_package_is_taken_out_of_the_project_and_its_files_stay(
    host: Host, collection: Path, project: Path, home: Path
) -> None:
    await host.call("alc_pkg_install", url=str(collection), project_root=str(project))
    told = await host.call("alc_pkg_remove", name="alpha", project_root=str(project))
    assert (told["removed"], told["scope"]) == ("alpha", "project")
    assert told["alc_toml"] == str(project / "holdfast.toml")
    assert told["alc_lock"] == str(project / "holdfast.lock")
    assert "alpha" not in (project / "holdfast.toml").read_text() + (project / "holdfast.lock").read_text()
    assert (home / "packages" / "alpha" / "init.lua").is_file()
    assert "alpha" in json.loads((home / "installed.json").read_text())["packages"]


async def test_a_package_is_forgotten_globally_and_its_files_go_only_if_that_is_said(
    host: Host, collection: Path, home: Path
) -> None:
    await host.call("alc_pkg_install", url=str(collection))
    told = await host.call("alc_pkg_remove", name="alpha", scope="global")
    assert (told["removed"], told["scope"], told["deleted"]) == ("alpha", "global", [])
    assert told["installed_json"] == str(home / "installed.json")
    assert (home / "packages" / "alpha").is_dir()
    assert "not found" in await host.refusal("alc_pkg_remove", name="alpha", scope="global")
    told = await host.call("alc_pkg_remove", name="beta", scope="global", delete_files=True)
    assert told["deleted"] == [str(home / "packages" / "beta")]
    assert not (home / "packages" / "beta").exists()


async def test_a_package_is_removed_from_everywhere(host: Host, collection: Path, project: Path) -> None:
    await host.call("alc_pkg_install", url=str(collection), project_root=str(project))
    told = await host.call("alc_pkg_remove", name="alpha", scope="all", project_root=str(project))
    assert (told["project_removed"], told["global_removed"]) == (True, True)
    await host.call("alc_pkg_remove", name="beta", project_root=str(project))
    told = await host.call("alc_pkg_remove", name="beta", scope="all", project_root=str(project))
    assert (told["project_removed"], told["global_removed"]) == (False, True)
    assert told["project_note"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"name": "alpha"}, "alc.toml not found: cannot remove 'alpha' without a project root."),
        ({"name": "nobody", "scope": "global"}, "not found"),
        ({"name": "nobody", "project_root": "PROJECT"}, "not found"),
        ({"name": "../alpha", "scope": "global", "delete_files": True}, "invalid package name"),
        ({"name": "..", "scope": "global", "delete_files": True}, "invalid package name"),
        ({"name": "", "scope": "global", "delete_files": True}, "invalid package name"),
        ({"name": "x" * 100_000, "scope": "global"}, "invalid package name"),
        ({"name": "alpha", "scope": "world"}, "`$.scope`"),
        ({"name": "alpha", "scope": "global", "version": "../../x"}, "not a version"),
        ({"name": 5}, "`$.name`"),
        ({"scope": "global"}, "name"),
    ],
)
async def test_a_removal_that_cannot_be_is_refused_and_changes_nothing(
    host: Host, collection: Path, project: Path, home: Path, arguments: Told, why: str
) -> None:
    await host.call("alc_pkg_install", url=str(collection))
    before = files_below(home), files_below(project)
    refusal = await host.refusal("alc_pkg_remove", **filled(arguments, PROJECT=project))
    assert why in refusal
    assert len(refusal) < 1_000
    assert (files_below(home), files_below(project)) == before


# --- link, unlink ----------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_a_link_is_made_again_and_undone(holdfast: Holdfast, collection: Path, home: Path, era: str) -> None:
    async with host_of(holdfast, TOOLS, era) as host:
        told = await host.call("alc_pkg_link", path=str(collection))
        assert (told["linked"], told["mode"], told["scope"]) == (["alpha", "beta", "gamma"], "collection", "global")
        assert told["targets"]["beta"] == str(collection / "beta")
        assert await host.call("alc_pkg_link", path=str(collection)) == told
        told = await host.call("alc_pkg_unlink", name="beta")
        assert told["unlinked"] == "beta"
        assert not (home / "packages" / "beta").exists()
        assert (collection / "beta" / "init.lua").is_file()
        assert (await host.call("alc_pkg_list"))["total"] == 2


async def test_a_link_takes_the_place_of_another_but_not_of_an_installed_package(
    host: Host, tmp_path: Path, home: Path
) -> None:
    old, new = write_package(tmp_path / "old", "one"), write_package(tmp_path / "new", "one")
    await host.call("alc_pkg_link", path=str(old))
    await host.call("alc_pkg_link", path=str(new))
    assert os.readlink(home / "packages" / "one") == str(new)
    await host.call("alc_pkg_unlink", name="one")
    await host.call("alc_pkg_install", url=str(old))
    assert "installed there" in await host.refusal("alc_pkg_link", path=str(new))
    assert not (home / "packages" / "one").is_symlink()
    await host.call("alc_pkg_link", path=str(new), force=True)
    assert os.readlink(home / "packages" / "one") == str(new)


async def test_a_variant_is_written_into_the_projects_local_file(host: Host, tmp_path: Path, project: Path) -> None:
    package = write_package(tmp_path / "work", "one")
    told = await host.call("alc_pkg_link", path=str(package), scope="variant", project_root=str(project))
    assert (told["mode"], told["scope"]) == ("single", "variant")
    assert told["alc_local_toml"] == str(project / "holdfast.local.toml")
    assert "one" in (project / "holdfast.local.toml").read_text()
    told = await host.call("alc_pkg_unlink", name="one", project_root=str(project))
    assert (told["unlinked"], told["scope"]) == ("one", "variant")


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("alc_pkg_link", {}),
        ("alc_pkg_link", {"path": "/nowhere"}),
        ("alc_pkg_link", {"path": ""}),
        ("alc_pkg_link", {"path": "a\x00b"}),
        ("alc_pkg_link", {"path": 5}),
        ("alc_pkg_link", {"path": "HERE"}),
        ("alc_pkg_link", {"path": "COLLECTION", "name": "one"}),
        ("alc_pkg_link", {"path": "COLLECTION/alpha", "name": "../evil"}),
        ("alc_pkg_link", {"path": "COLLECTION", "scope": "universe"}),
        ("alc_pkg_link", {"path": "COLLECTION", "scope": "variant", "force": True, "project_root": "PROJECT"}),
        ("alc_pkg_link", {"path": "COLLECTION", "scope": "variant"}),
        ("alc_pkg_unlink", {}),
        ("alc_pkg_unlink", {"name": "nobody"}),
        ("alc_pkg_unlink", {"name": "../collection"}),
        ("alc_pkg_unlink", {"name": ["alpha"]}),
    ],
)
async def test_a_link_that_cannot_be_is_refused_and_changes_nothing(
    host: Host, tmp_path: Path, collection: Path, project: Path, home: Path, tool: str, arguments: Told
) -> None:
    (home / "packages").mkdir(parents=True)
    before = files_below(home / "packages"), files_below(project), files_below(collection)
    given = filled(arguments, HERE=tmp_path / "here", COLLECTION=collection, PROJECT=project)
    assert await host.refusal(tool, **given)
    assert (files_below(home / "packages"), files_below(project), files_below(collection)) == before


async def test_an_installed_package_is_not_unlinked(host: Host, collection: Path, home: Path) -> None:
    await host.call("alc_pkg_install", url=str(collection))
    assert "not linked" in await host.refusal("alc_pkg_unlink", name="alpha")
    assert (home / "packages" / "alpha" / "init.lua").is_file()


# --- doctor, repair --------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_what_is_wrong_is_found_and_put_right(
    holdfast: Holdfast, collection: Path, home: Path, tmp_path: Path, era: str
) -> None:
    async with host_of(holdfast, TOOLS, era) as host:
        await host.call("alc_pkg_install", url=str(collection))
        await host.call("alc_pkg_link", path=str(write_package(tmp_path / "work", "linked")))
        shutil.rmtree(tmp_path / "work")
        shutil.rmtree(home / "packages" / "alpha")
        before = files_below(home)
        told = await host.call("alc_pkg_doctor")
        assert files_below(home) == before
        assert (told["ok"], told["healthy"]) == (False, [{"name": "beta"}, {"name": "gamma"}])
        [missing] = told["installed_missing"]
        assert (missing["name"], missing["kind"]) == ("alpha", "installed_missing")
        assert missing["reason"]
        assert missing["suggestion"]
        assert [each["name"] for each in told["symlink_dangling"]] == ["linked"]
        assert (told["incomplete_pkg"], told["path_missing"]) == ([], [])

        told = await host.call("alc_pkg_repair")
        [repaired] = told["repaired"]
        assert (repaired["name"], repaired["kind"], repaired["action"]) == ("alpha", "installed_missing", "reinstall")
        assert repaired["source"] == str(collection)
        [left] = told["unrepairable"]
        assert (left["name"], left["kind"]) == ("linked", "symlink_dangling")
        assert left["suggestion"]
        assert told["skipped"] == [{"name": "beta", "reason": "healthy"}, {"name": "gamma", "reason": "healthy"}]
        assert told["failed"] == []
        assert (home / "packages" / "alpha" / "init.lua").is_file()


async def test_a_package_whose_source_is_gone_is_not_repaired(host: Host, collection: Path, home: Path) -> None:
    await host.call("alc_pkg_install", url=str(collection))
    shutil.rmtree(home / "packages" / "alpha")
    shutil.rmtree(collection)
    told = await host.call("alc_pkg_repair", name="alpha")
    [failed] = told["failed"]
    assert (failed["name"], failed["kind"]) == ("alpha", "installed_missing")
    assert told["repaired"] == []


async def test_a_package_that_was_changed_is_put_back_only_by_force(host: Host, collection: Path, home: Path) -> None:
    await host.call("alc_pkg_install", url=str(collection))
    file = home / "packages" / "alpha" / "init.lua"
    original = file.read_text()
    file.write_text(original + "-- mine\n")
    told = await host.call("alc_pkg_repair", name="alpha")
    assert [(each["name"], each["kind"]) for each in told["skipped"]] == [("alpha", "checksum_mismatch")]
    assert file.read_text() != original
    told = await host.call("alc_pkg_repair", name="alpha", force=True)
    assert [each["name"] for each in told["repaired"]] == ["alpha"]
    assert file.read_text() == original


async def test_a_missing_module_is_named(host: Host, home: Path) -> None:
    package = write_package(home / "packages", "half")
    (package / "init.lua").write_text('local part = require("half.part")\nreturn { run = function() end }\n')
    told = await host.call("alc_pkg_doctor", name="half")
    assert told["incomplete_pkg"][0]["missing_subs"] == ["half.part"]


@pytest.mark.parametrize("tool", ["alc_pkg_doctor", "alc_pkg_repair"])
@pytest.mark.parametrize("name", ["nobody", "../x", "", "x" * 10_000, 5, ["a"]])
async def test_a_check_of_what_is_no_package_is_refused(host: Host, tool: str, name: Any) -> None:
    refusal = await host.refusal(tool, name=name)
    assert len(refusal) < 20_000


# --- projects --------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_a_project_is_made_and_its_packages_are_locked(
    holdfast: Holdfast, tmp_path: Path, collection: Path, era: str
) -> None:
    folder = tmp_path / "new"
    folder.mkdir()
    async with host_of(holdfast, TOOLS, era) as host:
        told = await host.call("alc_init", project_root=str(folder))
        assert told["created"] == str(folder / "holdfast.toml")
        assert (told["gitignore_path"], told["gitignore_updated"]) == (str(folder / ".gitignore"), True)
        assert "alc.local.toml" in (folder / ".gitignore").read_text()
        await host.call("alc_pkg_install", url=str(collection))
        (folder / "holdfast.toml").write_text('[packages]\nalpha = "*"\nnobody = "*"\n')
        told = await host.call("alc_update", project_root=str(folder))
        assert told["resolved"] == 1
        assert told["alc_lock"] == str(folder / "holdfast.lock")
        assert len(told["errors"]) == 1
        assert "nobody" in told["errors"][0]
        assert "alpha" in (folder / "holdfast.lock").read_text()


async def test_a_project_is_made_where_the_server_is_by_default(host: Host, tmp_path: Path) -> None:
    assert (await host.call("alc_init"))["created"] == str(tmp_path / "here" / "holdfast.toml")


async def test_a_project_is_made_where_the_environment_says(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "said").mkdir()
    monkeypatch.setenv("ALC_PROJECT_ROOT", str(tmp_path / "said"))
    assert (await host.call("alc_init"))["created"] == str(tmp_path / "said" / "holdfast.toml")


@pytest.mark.parametrize("file", ["holdfast.toml", "alc.toml"])
async def test_a_project_is_not_made_twice(host: Host, tmp_path: Path, file: str) -> None:
    (tmp_path / "here" / file).write_text("[packages]\n")
    before = files_below(tmp_path)
    assert "there already" in await host.refusal("alc_init")
    assert files_below(tmp_path) == before


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("alc_init", {"project_root": "/nowhere"}),
        ("alc_init", {"project_root": ""}),
        ("alc_init", {"project_root": 5}),
        ("alc_init", {"force": True}),
        ("alc_update", {}),
        ("alc_update", {"project_root": "/nowhere"}),
        ("alc_update", {"project_root": "a\x00b"}),
        ("alc_update", {"project_root": ["x"]}),
    ],
)
async def test_a_project_that_cannot_be_is_refused_and_nothing_is_written(
    host: Host, tmp_path: Path, tool: str, arguments: Told
) -> None:
    before = files_below(tmp_path)
    assert await host.refusal(tool, **arguments)
    assert files_below(tmp_path) == before


async def test_every_tool_has_a_schema_in_one_piece_and_says_what_it_does(host: Host) -> None:
    tools = (await host.client.list_tools()).tools
    assert {tool.name for tool in tools} == {
        *(f"alc_pkg_{name}" for name in ("list", "install", "remove", "link", "unlink", "repair", "doctor")),
        *(f"alc_pkg_{name}" for name in ("scaffold", "test")),
        "alc_init",
        "alc_update",
    }
    for tool in tools:
        assert "$ref" not in json.dumps(tool.input_schema)
        assert tool.input_schema["additionalProperties"] is False
        assert tool.description
        assert len(tool.description) > 40
        assert "description" in json.dumps(tool.input_schema)
