"""`alc_pkg_list`: what an entry has, and the rules of limit, sort, filter, fields and verbose."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.alc.mcp.package_list import in_order, matches, sort_keys
from holdfast.alc.mcp.packages import TOOLS
from holdfast.engine.holdfast import Holdfast, open_holdfast
from tests.alc.mcp.user_packages import new_user, write_collection, write_package, write_project
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


def names(told: Told) -> list[str]:
    return [each["name"] for each in told["packages"]]


@pytest.mark.parametrize("era", ERAS)
async def test_packages_are_listed_with_what_a_summary_has(
    holdfast: Holdfast, collection: Path, home: Path, era: str
) -> None:
    async with host_of(holdfast, TOOLS, era) as host:
        await host.call("alc_pkg_install", url=str(collection))
        told = await host.call("alc_pkg_list")
        assert sorted(names(told)) == ["alpha", "beta", "gamma"]
        [beta] = [each for each in told["packages"] if each["name"] == "beta"]
        assert beta == {
            "name": "beta",
            "scope": "global",
            "version": "2.0.0",
            "active": True,
            "resolved_source_path": str(home / "packages" / "beta"),
            "resolved_source_kind": "installed",
        }
        assert {"path": str(home / "packages"), "source": "user"} in told["search_paths"]
        assert told["total"] == 3
        assert "project_root" not in told
        assert "warnings" not in told


async def test_no_packages_are_an_empty_list(host: Host) -> None:
    told = await host.call("alc_pkg_list")
    assert (told["packages"], told["total"]) == ([], 0)


async def test_a_full_entry_has_the_install_and_the_keys_of_the_packages_own_metadata(
    host: Host, collection: Path, home: Path
) -> None:
    await host.call("alc_pkg_install", url=str(collection))
    told = await host.call("alc_pkg_list", verbose="full", filter={"name": "beta"})
    [beta] = told["packages"]
    assert (beta["category"], beta["rank"]) == ("reasoning", 7)
    assert (beta["source_type"], beta["install_source"]) == ("path", str(collection))
    assert beta["source"] == str(home / "packages")
    assert beta["installed_at"] == beta["updated_at"]
    assert None not in beta.values()


async def test_fields_beat_verbose_and_unknown_ones_are_passed_over(host: Host, collection: Path) -> None:
    await host.call("alc_pkg_install", url=str(collection))
    told = await host.call("alc_pkg_list", fields=["category", "name", "nonsense"], verbose="fat", sort="name")
    assert told["packages"] == [{"name": "alpha"}, {"category": "reasoning", "name": "beta"}, {"name": "gamma"}]
    assert (await host.call("alc_pkg_list", fields=[], limit=1))["packages"] == [{}]


async def test_an_unknown_verbose_is_an_error(host: Host) -> None:
    why = await host.refusal("alc_pkg_list", verbose="fat")
    assert why == 'invalid verbose value "fat" (expected "summary" or "full")'


@pytest.mark.parametrize(("limit", "count"), [(None, 50), (0, 60), (-5, 60), (2, 2), (10**20, 60)])
async def test_fifty_packages_are_the_default_and_none_or_less_is_all(
    host: Host, home: Path, limit: int | None, count: int
) -> None:
    for number in range(60):
        write_package(home / "packages", f"p{number:02}")
    told = await host.call("alc_pkg_list", limit=limit, sort="name")
    assert names(told) == [f"p{number:02}" for number in range(count)]
    assert told["total"] == 60


async def test_a_list_is_cut_after_it_is_filtered_and_sorted(host: Host, collection: Path) -> None:
    await host.call("alc_pkg_install", url=str(collection))
    assert names(await host.call("alc_pkg_list", sort="-version", limit=1)) == ["gamma"]
    assert names(await host.call("alc_pkg_list", filter={"category": "reasoning"}, limit=1)) == ["beta"]


async def test_what_a_package_lacks_is_last_ascending_and_first_descending(host: Host, collection: Path) -> None:
    await host.call("alc_pkg_install", url=str(collection))
    assert names(await host.call("alc_pkg_list", sort="category,name")) == ["beta", "alpha", "gamma"]
    assert names(await host.call("alc_pkg_list", sort="-category,name")) == ["alpha", "gamma", "beta"]
    assert names(await host.call("alc_pkg_list", sort="-category,-name")) == ["gamma", "alpha", "beta"]


def test_values_of_different_types_are_in_the_order_of_their_types() -> None:
    values = ["text", 3, True, None, [1], False, 2.5, "Text", {"a": 1}]
    entries = [{"k": value} for value in values]
    ascending = [entry["k"] for entry in in_order(entries, sort_keys("k"))]
    assert ascending == [False, True, 2.5, 3, "Text", "text", [1], {"a": 1}, None]
    assert [entry["k"] for entry in in_order(entries, sort_keys("-k"))] == ascending[::-1]


def test_equal_entries_keep_their_order_in_both_directions() -> None:
    entries = [{"k": 1, "n": number} for number in range(5)]
    assert in_order(entries, sort_keys("k")) == entries
    assert in_order(entries, sort_keys("-k")) == entries


def test_a_filter_tells_true_from_one_and_missing_from_null() -> None:
    assert matches({"a": True, "b": {"x": 1, "y": 2}}, {"a": True, "b": {"y": 2, "x": 1}})
    assert not matches({"a": True}, {"a": 1})
    assert not matches({"a": 1}, {"a": True})
    assert not matches({}, {"a": None})
    assert matches({"a": 1}, {})


async def test_a_filter_keeps_what_is_equal_in_every_key(host: Host, collection: Path) -> None:
    await host.call("alc_pkg_install", url=str(collection))
    assert names(await host.call("alc_pkg_list", filter={"rank": 7, "active": True})) == ["beta"]
    assert names(await host.call("alc_pkg_list", filter='{"version": "1.0.0"}')) == ["alpha"]
    for nothing in ({"rank": "7"}, {"rank": 7, "name": "alpha"}, {"nonsense": 1}):
        told = await host.call("alc_pkg_list", filter=nothing)
        assert (told["packages"], told["total"]) == ([], 0)


async def test_a_package_that_hides_another_says_which(host: Host, tmp_path: Path, project: Path, home: Path) -> None:
    write_package(home / "packages", "both", "1.0.0")
    write_package(tmp_path / "mine", "both", "2.0.0")
    await host.call("alc_pkg_link", path=str(tmp_path / "mine" / "both"), scope="variant", project_root=str(project))
    told = await host.call("alc_pkg_list", project_root=str(project), verbose="full")
    winner, hidden = told["packages"]
    assert (winner["scope"], winner["active"], winner["version"]) == ("variant", True, "2.0.0")
    assert winner["resolved_source_kind"] == "variant"
    assert winner["override_paths"] == [str(home / "packages" / "both")]
    assert winner["overrides"] == [str(home / "packages")]
    assert (hidden["scope"], hidden["active"]) == ("global", False)
    assert told["project_root"] == str(project)
    assert told["lockfile_path"] == str(project / "holdfast.lock")


async def test_a_link_that_leads_nowhere_is_listed_as_broken(host: Host, tmp_path: Path) -> None:
    package = write_package(tmp_path / "work", "gone")
    await host.call("alc_pkg_link", path=str(package))
    [told] = (await host.call("alc_pkg_list", verbose="full"))["packages"]
    assert (told["linked"], told["broken"], told["resolved_source_kind"]) == (True, False, "linked")
    assert told["resolved_source_path"] == str(package)
    package.rename(tmp_path / "elsewhere")
    [told] = (await host.call("alc_pkg_list", verbose="full"))["packages"]
    assert (told["linked"], told["broken"]) == (True, True)
    assert "resolved_source_path" not in told


async def test_metadata_that_only_running_tells_is_listed(host: Host, home: Path) -> None:
    package = write_package(home / "packages", "made")
    (package / "init.lua").write_text(
        "local M = {} M.meta = {} for _, k in ipairs({'a', 'b'}) do M.meta['key_' .. k] = k .. '!' end\n"
        "function M.run() end return M"
    )
    [told] = (await host.call("alc_pkg_list", fields=["name", "key_a", "key_b"]))["packages"]
    assert told == {"name": "made", "key_a": "a!", "key_b": "b!"}


async def test_names_of_files_that_are_no_text_do_not_break_the_list(host: Host, home: Path, collection: Path) -> None:
    await host.call("alc_pkg_install", url=str(collection))
    broken = os.fsencode(home / "packages") + b"/\xff\xfe"
    os.mkdir(broken)
    Path(os.fsdecode(broken), "init.lua").write_text("return {}")
    assert {"alpha", "beta", "gamma"} <= set(names(await host.call("alc_pkg_list", verbose="full")))


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"sort": ""}, "sort string is empty"),
        ({"sort": "-"}, "no key name"),
        ({"sort": "name,,scope"}, "empty element"),
        ({"sort": "name,"}, "empty element"),
        ({"sort": "nonsense"}, "unknown sort key 'nonsense'"),
        ({"sort": "x" * 100_000}, "unknown sort key"),
        ({"sort": 5}, "`$.sort`"),
        ({"limit": "ten"}, "`$.limit`"),
        ({"limit": 1.5}, "`$.limit`"),
        ({"filter": "scope"}, "`filter` must be an object"),
        ({"filter": ["scope"]}, "`filter` must be an object"),
        ({"filter": 5}, "`filter` must be an object"),
        ({"fields": "name"}, "`$.fields`"),
        ({"fields": [1]}, "`$.fields[0]`"),
        ({"verbose": 1}, "`$.verbose`"),
        ({"project_root": "/nowhere"}, "there is no directory '/nowhere'"),
        ({"project_root": ""}, "there is no directory"),
        ({"project_root": "x" * 100_000}, "there is no directory"),
        ({"project_root": "a\x00b"}, "there is no directory"),
        ({"page": 2}, "page"),
    ],
)
async def test_a_list_that_is_asked_for_wrongly_is_refused(host: Host, arguments: Told, why: str) -> None:
    refusal = await host.refusal("alc_pkg_list", **arguments)
    assert why in refusal
    assert len(refusal) < 1_000
