"""Linking, unlinking and removing packages, and the list of them."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from holdfast.alc.lua.packages import find_module
from holdfast.alc.packages.errors import (
    PackageExistsError,
    PackageNameError,
    PackageNotFoundError,
    ProjectFileError,
    SourceError,
)
from holdfast.alc.packages.links import link, remove, unlink
from holdfast.alc.packages.package_list import listing
from tests.alc.packages.helpers import Repository, User, write_package

# --- link and unlink ---------------------------------------------------------------------------


def test_a_linked_package_is_used_where_it_is(user: User, tmp_path: Path) -> None:
    source = write_package(tmp_path / "src", "p")
    report = link(user.where, source)
    assert (report.linked, report.mode, report.scope) == (["p"], "single", "global")
    (source / "late.lua").write_text("return 1")
    assert find_module(user.where.roots(), "p.late") == user.packages / "p" / "late.lua"
    assert unlink(user.where, "p").unlinked == "p"
    assert find_module(user.where.roots(), "p") is None
    assert (source / "late.lua").is_file()


def test_a_collection_is_linked_package_by_package(user: User, tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_package(tmp_path / "src", name)
    report = link(user.where, tmp_path / "src")
    assert (report.linked, report.mode) == (["a", "b"], "collection")
    assert (user.packages / "a").is_symlink()
    with pytest.raises(PackageNameError):
        link(user.where, tmp_path / "src", name="c")


def test_a_link_replaces_nothing_unless_forced(user: User, tmp_path: Path) -> None:
    user.install(write_package(tmp_path / "1", "p", "1.0.0"))
    other = write_package(tmp_path / "2", "p", "2.0.0")
    with pytest.raises(PackageExistsError, match="--force"):
        link(user.where, other)
    assert not (user.packages / "p").is_symlink()
    link(user.where, other, force=True)
    assert (user.packages / "p").readlink() == other
    third = write_package(tmp_path / "3", "p", "3.0.0")
    with pytest.raises(PackageExistsError, match="link to"):
        link(user.where, third)
    link(user.where, third, force=True)
    assert (user.packages / "p").readlink() == third
    assert user.left_over() == []


def test_an_install_does_not_write_through_a_link(user: User, tmp_path: Path) -> None:
    source = write_package(tmp_path / "1", "p", "1.0.0")
    link(user.where, source)
    with pytest.raises(PackageExistsError, match="unlink"):
        user.install(write_package(tmp_path / "2", "p", "2.0.0"), force=True)
    assert "1.0.0" in (source / "init.lua").read_text()


def test_a_variant_is_for_one_project_and_can_be_undone(user: User, tmp_path: Path) -> None:
    source = write_package(tmp_path / "src", "p", "2.0.0")
    user.install(write_package(tmp_path / "other", "p", "1.0.0"))
    with pytest.raises(SourceError, match="force"):
        link(user.where, source, scope="variant", force=True)
    project = user.make_project()
    report = link(user.where, source, scope="variant")
    assert report.local_file == str(project / "holdfast.local.toml")
    assert find_module(user.where.roots(), "p") == source / "init.lua"
    assert unlink(user.where, "p").scope == "variant"
    assert find_module(user.where.roots(), "p") == user.packages / "p" / "init.lua"


def test_a_variant_needs_a_project(user: User, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = write_package(tmp_path / "src", "p")
    from holdfast.alc.packages.directories import PackageDirectories

    with pytest.raises(ProjectFileError, match="pkg init"):
        link(PackageDirectories(None, user.environ), source, scope="variant")


def test_an_algocline_project_gets_its_variant_in_its_own_file(user: User, tmp_path: Path) -> None:
    project = user.make_project(file="alc.toml")
    source = write_package(tmp_path / "src", "p")
    link(user.where, source, scope="variant")
    assert tomllib.loads((project / "alc.local.toml").read_text()) == {"packages": {"p": {"path": str(source)}}}


def test_only_links_are_unlinked(user: User, tmp_path: Path) -> None:
    user.install(write_package(tmp_path, "p"))
    with pytest.raises(PackageExistsError, match="installed, not linked"):
        unlink(user.where, "p")
    with pytest.raises(PackageNotFoundError):
        unlink(user.where, "q")
    with pytest.raises(PackageNameError):
        unlink(user.where, "../p")


# --- remove ------------------------------------------------------------------------------------


def test_a_package_is_removed_from_the_user_with_its_record(user: User, tmp_path: Path) -> None:
    user.install(write_package(tmp_path, "p"), write_package(tmp_path, "q"))
    report = remove(user.where, "p")
    assert report.deleted == [str(user.packages / "p")]
    assert list(user.records()) == ["q"]
    assert user.left_over() == []
    with pytest.raises(PackageNotFoundError):
        remove(user.where, "p")


def test_files_can_be_kept(user: User, tmp_path: Path) -> None:
    user.install(write_package(tmp_path, "p"))
    remove(user.where, "p", keep_files=True)
    assert user.records() == {}
    assert (user.packages / "p" / "init.lua").is_file()


def test_in_a_project_a_package_goes_from_the_project_first(user: User, tmp_path: Path) -> None:
    project = user.make_project()
    user.install(write_package(tmp_path, "p"))
    report = remove(user.where, "p")
    assert report.scope == "project"
    assert tomllib.loads((project / "holdfast.toml").read_text()) == {"packages": {}}
    assert tomllib.loads((project / "holdfast.lock").read_text())["package"] == []
    assert (user.packages / "p").is_dir()
    assert remove(user.where, "p").scope == "global"
    assert not (user.packages / "p").exists()


def test_all_means_the_project_and_the_user(user: User, tmp_path: Path) -> None:
    user.make_project()
    user.install(write_package(tmp_path, "p"))
    report = remove(user.where, "p", scope="all")
    assert len(report.deleted) == 1
    assert len(report.changed) == 3


def test_one_version_can_be_removed(user: User) -> None:
    write_package(user.packages, "p@1.0.0")
    write_package(user.packages, "p")
    remove(user.where, "p", version="1.0.0")
    assert sorted(each.name for each in user.packages.iterdir()) == ["p"]


@pytest.mark.parametrize("name", ["..", "../own", "a/b", ""])
def test_a_hostile_name_removes_nothing(user: User, tmp_path: Path, name: str) -> None:
    user.install(write_package(tmp_path, "p"))
    with pytest.raises(PackageNameError):
        remove(user.where, name, scope="global")
    with pytest.raises(PackageNameError):
        remove(user.where, "p", version=f"1/{name}")
    assert (user.packages / "p" / "init.lua").is_file()


def test_a_linked_package_is_not_deleted(user: User, tmp_path: Path) -> None:
    source = write_package(tmp_path, "p")
    link(user.where, source)
    with pytest.raises(PackageExistsError, match="unlink"):
        remove(user.where, "p")
    assert (source / "init.lua").is_file()


# --- list --------------------------------------------------------------------------------------


def test_the_list_tells_where_each_package_is_from(user: User, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "remote")
    write_package(repository.directory, "from_git", "1.0.0")
    commit = repository.commit()
    user.install(repository.url)
    link(user.where, write_package(tmp_path, "linked"))
    (user.packages / "gone").symlink_to(tmp_path / "nowhere")
    user.environ["ALC_PACKAGES_PATH"] = str(tmp_path / "path")
    write_package(tmp_path / "path", "local", "3.0.0")
    write_package(tmp_path / "path", "evalframe")
    rows = {row["name"]: row for row in listing(user.where).to_json()["packages"]}
    assert list(rows) == ["from_git", "gone", "linked", "local"]
    git = rows["from_git"]
    assert (git["scope"], git["active"], git["version"], git["type"]) == ("global", True, "1.0.0", "runnable")
    assert git["source"] == {"type": "git", "url": repository.url, "rev": commit}
    assert git["install_source"] == f"{repository.url}@{commit[:12]}"
    assert git["resolved_source_kind"] == "installed"
    assert rows["linked"]["resolved_source_kind"] == "linked"
    assert rows["linked"]["link_target"] == str(tmp_path / "linked")
    assert rows["gone"]["broken"] is True
    assert rows["local"]["resolved_source_kind"] == "local_path"


def test_metadata_is_listed_but_overwrites_nothing(user: User) -> None:
    directory = write_package(user.packages, "p")
    (directory / "init.lua").write_text('return { meta = { name = "fake", path = "/x", category = "c", mine = 1 } }')
    (row,) = listing(user.where).to_json()["packages"]
    assert (row["name"], row["path"], row["category"], row["mine"]) == ("p", str(directory), "c", 1)


def test_older_forms_of_the_records_are_read(user: User, tmp_path: Path) -> None:
    for name in ("a", "b", "c", "d", "e"):
        write_package(user.packages, name)
    records = (
        '{"a": {"source": ""}, "b": {"source": "bundled"}, "c": {"source": "/abs"}, "d": {"source": "host/r"}, "e": 3}'
    )
    (tmp_path / "own" / "installed.json").write_text(f'{{"packages": {records}}}')
    found = listing(user.where)
    kinds = [row.get("source_type") for row in found.to_json()["packages"]]
    assert kinds == ["unknown", "bundled", "path", "git", None]
    assert 'the record of "e"' in found.warnings[0]
