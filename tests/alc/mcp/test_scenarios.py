"""Scenarios by algocline's tools: found, shown, installed with their collection; and nothing reached outside."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.alc.mcp.extension import EXTENSION
from holdfast.engine.holdfast import Holdfast, open_holdfast
from tests.alc.mcp.user_packages import Repository, write_package
from tests.serve.calls import ERAS, Host, host_of

SCENARIO = 'return { cases = { { input = "2+2?", expected = "4" } } }\n'


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ALC_HOME", str(tmp_path / "algocline"))
    return tmp_path / "home"


@pytest.fixture
async def holdfast(home: Path) -> AsyncIterator[Holdfast]:
    async with open_holdfast("memory:") as opened:
        yield opened


@pytest.fixture(params=ERAS)
async def host(holdfast: Holdfast, request: pytest.FixtureRequest) -> AsyncIterator[Host]:
    async with host_of(holdfast, EXTENSION.tools, request.param) as opened:
        yield opened


def write_scenarios(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / f"{name}.lua").write_text(SCENARIO)
    return folder


async def test_scenarios_of_both_homes_are_listed_and_our_own_come_first(
    host: Host, home: Path, tmp_path: Path
) -> None:
    write_scenarios(home / "scenarios", "sums", ".hidden")
    theirs = write_scenarios(tmp_path / "algocline" / "scenarios", "sums", "capitals")
    (theirs / "notes.md").write_text("no scenario")
    told = await host.call("alc_scenario_list")
    size = len(SCENARIO)
    assert told == {
        "scenarios": [
            {"name": "capitals", "path": str(theirs / "capitals.lua"), "size_bytes": size},
            {"name": "sums", "path": str(home / "scenarios" / "sums.lua"), "size_bytes": size},
        ],
        "failures": [],
    }


async def test_a_scenario_is_shown_with_its_code(host: Host, home: Path) -> None:
    folder = write_scenarios(home / "scenarios", "sums")
    told = await host.call("alc_scenario_show", name="sums")
    assert told == {"name": "sums", "path": str(folder / "sums.lua"), "content": SCENARIO}
    assert "Scenario 'nowhere' not found" in await host.refusal("alc_scenario_show", name="nowhere")


@pytest.mark.parametrize("name", ["../secret", "a/b", "..", "", "a\\b"])
async def test_a_name_that_leads_elsewhere_is_refused(host: Host, home: Path, name: str) -> None:
    (write_scenarios(home / "scenarios").parent / "secret.lua").write_text("return 'secret'")
    assert "Invalid scenario name" in await host.refusal("alc_scenario_show", name=name)


async def test_scenarios_of_a_directory_are_installed_and_what_is_there_is_kept(
    host: Host, home: Path, tmp_path: Path
) -> None:
    source = write_scenarios(tmp_path / "source" / "scenarios", "sums", "capitals").parent
    write_scenarios(source, "ignored")
    write_scenarios(source / "scenarios" / "deeper", "deep")
    write_scenarios(home / "scenarios", "sums")
    (home / "scenarios" / "sums.lua").write_text("return 'mine'")
    told = await host.call("alc_scenario_install", url=str(source))
    assert told == {"installed": ["capitals"], "skipped": ["sums"], "failures": []}
    assert (home / "scenarios" / "sums.lua").read_text() == "return 'mine'"
    assert sorted(os.listdir(home / "scenarios")) == ["capitals.lua", "sums.lua"]


async def test_scenarios_of_a_git_repository_are_installed(host: Host, home: Path, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository")
    write_scenarios(repository.directory / "scenarios", "sums")
    repository.commit()
    told = await host.call("alc_scenario_install", url=repository.url)
    assert told["installed"] == ["sums"]
    assert (home / "scenarios" / "sums.lua").read_text() == SCENARIO


async def test_a_link_in_a_source_is_not_followed(host: Host, home: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.lua"
    secret.write_text("return 'secret'")
    source = write_scenarios(tmp_path / "source", "sums")
    (source / "linked.lua").symlink_to(secret)
    os.mkfifo(source / "pipe.lua")
    told = await host.call("alc_scenario_install", url=str(source))
    assert told["installed"] == ["sums"]
    assert [each.partition(":")[0] for each in told["failures"]] == ["linked.lua", "pipe.lua"]
    assert os.listdir(home / "scenarios") == ["sums.lua"]


async def test_a_source_that_is_none_is_refused(host: Host, home: Path) -> None:
    for url in ("/nowhere/at/all", "--upload-pack=touch x", "ext::sh -c id"):
        assert await host.refusal("alc_scenario_install", url=url)
    assert not (home / "scenarios").exists()


async def test_a_collection_brings_its_scenarios(host: Host, home: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    write_package(source, "one")
    write_scenarios(source / "scenarios", "sums")
    told = await host.call("alc_pkg_install", url=str(source))
    assert (told["installed"], told["scenarios_installed"], told["scenarios_failures"]) == (["one"], ["sums"], [])
    assert (home / "scenarios" / "sums.lua").is_file()
    again = await host.call("alc_pkg_install", url=str(source))
    assert again["scenarios_installed"] == []
