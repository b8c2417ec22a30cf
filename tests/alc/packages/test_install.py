"""Installing packages from directories and git repositories."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from holdfast.alc.lua.packages import find_module
from holdfast.alc.packages.errors import (
    GitError,
    PackageExistsError,
    PackageNameError,
    SourceError,
    UnsafePackageError,
)
from holdfast.alc.packages.install import Progress
from holdfast.alc.packages.sources import parse_source, public_url
from holdfast.alc.packages.tree import checksum
from holdfast.testing.patience import until_so
from tests.alc.packages.helpers import Repository, User, write_package
from tests.tables import each_row

# --- directories -------------------------------------------------------------------------------


def test_a_directory_is_installed_whole_and_recorded(user: User, tmp_path: Path) -> None:
    source = write_package(tmp_path / "src", "flow", "0.2.0", state="return {}", token="return {}")
    (source / "spec").mkdir()
    (source / "spec" / "flow_spec.lua").write_text("-- a test")
    (source / ".git").mkdir()
    (source / ".git" / "config").write_text("")
    report = user.install(source)
    assert report.to_json()["installed"] == ["flow"]
    assert report.to_json()["mode"] == "local_single"
    installed = user.packages / "flow"
    assert sorted(str(p.relative_to(installed)) for p in installed.rglob("*") if p.is_file()) == [
        "init.lua",
        "spec/flow_spec.lua",
        "state.lua",
        "token.lua",
    ]
    assert find_module(user.where.roots(), "flow.state") == installed / "state.lua"
    record = user.records()["flow"]
    assert record["version"] == "0.2.0"
    assert record["source"] == {"type": "path", "path": str(source)}
    assert record["checksum"] == checksum(installed)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", record["installed_at"])
    assert user.left_over() == []


def test_what_is_installed_under_alc_home_is_found_there(user: User, tmp_path: Path) -> None:
    del user.environ["HOLDFAST_HOME"]
    user.environ["ALC_HOME"] = str(tmp_path / "alc")
    user.install(write_package(tmp_path / "src", "p"))
    assert find_module(user.where.roots(), "p") == tmp_path / "alc" / "packages" / "p" / "init.lua"


def test_a_package_is_named_as_it_names_itself_unless_told_otherwise(user: User, tmp_path: Path) -> None:
    source = write_package(tmp_path, "own_name").rename(tmp_path / "any-directory")
    assert user.install(source).to_json()["installed"] == ["own_name"]
    assert user.install(source, name="third").to_json()["installed"] == ["third"]
    (source / "init.lua").write_text("return {}")
    assert user.install(source).to_json()["installed"] == ["any-directory"]


def test_a_changed_directory_is_installed_again_and_an_unchanged_one_is_left_alone(user: User, tmp_path: Path) -> None:
    source = write_package(tmp_path, "p", "1.0.0", old="return 1")
    user.install(source)
    before = user.records()["p"]
    inode = (user.packages / "p").stat().st_ino
    assert user.install(source).to_json()["skipped"] == ["p"]
    assert (user.packages / "p").stat().st_ino == inode
    (source / "old.lua").unlink()
    write_package(tmp_path, "p", "1.1.0")
    assert user.install(source).to_json()["updated"] == ["p"]
    assert not (user.packages / "p" / "old.lua").exists()
    after = user.records()["p"]
    assert after["version"] == "1.1.0"
    assert after["installed_at"] == before["installed_at"]


def test_keys_that_another_program_wrote_into_the_records_stay(user: User, tmp_path: Path) -> None:
    source = write_package(tmp_path, "p")
    user.install(source)
    file = tmp_path / "own" / "installed.json"
    file.write_text(
        '{"schema": 7, "packages": {"p": {"version": null, "source": "", "note": "x"}, "q": {"source": "/a"}}}'
    )
    write_package(tmp_path, "p", "2.0.0")
    user.install(source)
    assert user.records()["p"]["note"] == "x"
    assert user.records()["p"]["version"] == "2.0.0"
    assert user.records()["q"] == {"source": "/a"}
    assert '"schema": 7' in file.read_text()


def test_damaged_records_are_kept_aside_and_do_not_stop_an_install(user: User, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "installed.json").write_text("{ not json")
    report = user.install(write_package(tmp_path, "p"))
    assert "installed.json" in report.warnings[0]
    assert (tmp_path / "own" / "installed.json.damaged").read_text() == "{ not json"
    assert list(user.records()) == ["p"]


def test_a_collection_is_installed_with_its_libraries(user: User, tmp_path: Path) -> None:
    collection = tmp_path / "collection"
    for name in ("cot", "panel"):
        write_package(collection, name)
    write_package(collection, "shapes", t="return {}", check="return {}")
    (collection / "docs").mkdir()
    (collection / "README.md").write_text("")
    report = user.install(collection)
    assert report.to_json()["mode"] == "local_collection"
    assert report.to_json()["installed"] == ["cot", "panel", "shapes"]
    assert find_module(user.where.roots(), "shapes.check") == user.packages / "shapes" / "check.lua"


def test_several_sources_are_installed_at_once_and_their_progress_is_told(user: User, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "remote")
    write_package(repository.directory, "a")
    repository.commit()
    sources = [str(write_package(tmp_path, "b")), repository.url, str(tmp_path / "b")]
    seen: list[Progress] = []
    report = user.install(*sources, progress=seen.append)
    assert sorted(each.name for each in report.packages) == ["a", "b"]
    for source in sources:
        stages = [each.stage for each in seen if each.source == source]
        assert stages == ["fetching", "staging", "done"]
    assert [each.done for each in seen if each.stage == "placing"] == [0, 1, 2]


def test_one_source_that_fails_does_not_hold_up_the_others(user: User, tmp_path: Path) -> None:
    report = user.install(write_package(tmp_path, "b"), f"file://{tmp_path}/nothing")
    assert report.to_json()["installed"] == ["b"]
    assert not report.ok
    assert [type(error) for error in report.errors] == [GitError]


def test_the_same_name_in_two_sources_is_installed_from_the_first(user: User, tmp_path: Path) -> None:
    first, second = write_package(tmp_path / "1", "p", "1.0.0"), write_package(tmp_path / "2", "p", "2.0.0")
    report = user.install(first, second)
    assert [(each.action, each.version) for each in report.packages] == [("installed", "1.0.0"), ("skipped", "2.0.0")]
    assert user.records()["p"]["version"] == "1.0.0"


# --- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["..", "a/b", ".hidden", "a b", "-x", "", "a\0b", "x" * 200, "a@1.0"])
def test_a_name_that_no_package_may_have_is_refused(user: User, tmp_path: Path, name: str) -> None:
    source = write_package(tmp_path, "p")
    with pytest.raises((PackageNameError, SourceError)):
        user.install(source, name=name or ".")
    assert not user.packages.exists() or list(user.packages.iterdir()) == []


@pytest.mark.parametrize("target", ["/etc/passwd", "../../outside", "../outside.lua", "."])
def test_a_link_that_leaves_the_package_is_refused_and_nothing_is_installed(
    user: User, tmp_path: Path, target: str
) -> None:
    source = write_package(tmp_path / "src", "p")
    (tmp_path / "src" / "outside.lua").write_text("secret")
    (source / "link.lua").symlink_to(target if target != "." else str(source / "init.lua"))
    with pytest.raises(UnsafePackageError, match=r"link\.lua"):
        user.install(source)
    assert list(user.packages.iterdir()) == []


def test_a_chain_of_links_that_leaves_the_package_is_refused(user: User, tmp_path: Path) -> None:
    source = write_package(tmp_path / "src", "p")
    (source / "a.lua").symlink_to("b.lua")
    (source / "b.lua").symlink_to("../../x")
    with pytest.raises(UnsafePackageError):
        user.install(source)


def test_a_link_inside_the_package_stays_a_link(user: User, tmp_path: Path) -> None:
    source = write_package(tmp_path / "src", "p", real="return 1")
    (source / "alias.lua").symlink_to("real.lua")
    user.install(source)
    assert os.readlink(user.packages / "p" / "alias.lua") == "real.lua"
    assert user.records()["p"]["checksum"] == checksum(source)


def test_what_is_neither_file_nor_directory_is_refused(user: User, tmp_path: Path) -> None:
    source = write_package(tmp_path, "p")
    os.mkfifo(source / "pipe")
    with pytest.raises(UnsafePackageError, match="pipe"):
        user.install(source)


def test_a_hostile_package_of_a_collection_is_refused_and_the_others_installed(user: User, tmp_path: Path) -> None:
    collection = tmp_path / "collection"
    write_package(collection, "good")
    (write_package(collection, "bad") / "x").symlink_to("/etc")
    write_package(tmp_path / "elsewhere", "linked")
    (collection / "linked").symlink_to(tmp_path / "elsewhere" / "linked")
    write_package(collection, "odd name")
    report = user.install(collection)
    assert report.to_json()["installed"] == ["good"]
    assert [each.name for each in report.packages if each.action == "refused"] == ["bad", "linked", "odd name"]
    assert not report.ok
    assert sorted(each.name for each in user.packages.iterdir()) == ["good"]


def test_a_package_from_elsewhere_is_not_replaced_unless_forced(user: User, tmp_path: Path) -> None:
    user.install(write_package(tmp_path, "p", "1.0.0"))
    repository = Repository(tmp_path / "remote")
    write_package(tmp_path / "x", "p", "2.0.0").rename(repository.directory / "p")
    repository.commit()
    report = user.install(repository.url)
    assert [(each.action, "--force" in each.why) for each in report.packages] == [("skipped", True)]
    (repository.directory / "p" / "init.lua").rename(repository.directory / "init.lua")
    repository.commit()
    with pytest.raises(PackageExistsError, match="--force"):
        user.install(repository.url)
    assert user.records()["p"]["version"] == "1.0.0"
    assert user.install(repository.url, force=True).to_json()["updated"] == ["p"]
    assert user.records()["p"]["version"] == "2.0.0"


@pytest.mark.parametrize(
    "source", ["./nothing", "/no/such/directory", "nothing", "ext::sh -c touch% x", "-u", "  ", "a\0"]
)
def test_a_source_that_cannot_be_understood_is_explained(user: User, source: str) -> None:
    with pytest.raises(SourceError):
        user.install(source)


def test_a_directory_without_packages_is_explained(user: User, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match=r"no init\.lua"):
        user.install(tmp_path / "empty")


# --- git ---------------------------------------------------------------------------------------


@pytest.fixture
def remote(tmp_path: Path) -> Repository:
    """A repository with two versions: 1.0.0 is tagged, 2.0.0 is on main, 3.0.0 on a branch."""
    repository = Repository(tmp_path / "remote")
    for version in ("1.0.0", "2.0.0"):
        write_package(repository.directory, "p", version, sub=f"return '{version}'")
        repository.commit(version)
        if version == "1.0.0":
            repository.git("tag", "-a", "v1.0.0", "-m", "one")
    repository.git("checkout", "--quiet", "-b", "feature/new")
    write_package(repository.directory, "p", "3.0.0")
    repository.commit("3.0.0")
    repository.git("checkout", "--quiet", "main")
    return repository


def test_a_repository_is_installed_at_its_head_and_pinned_by_commit(user: User, remote: Repository) -> None:
    report = user.install(remote.url)
    assert report.to_json()["mode"] == "collection"
    head = remote.git("rev-parse", "HEAD")
    assert user.records()["p"]["source"] == {"type": "git", "url": remote.url, "rev": head}
    assert user.records()["p"]["version"] == "2.0.0"
    assert not (user.packages / "p" / ".git").exists()
    assert user.install(remote.url).to_json()["skipped"] == ["p"]


@pytest.mark.parametrize("form", ["tag", "tag option", "branch", "commit", "short commit", "path", "bare"])
def test_a_revision_can_be_given_in_every_form(user: User, remote: Repository, form: str, tmp_path: Path) -> None:
    first = remote.git("rev-parse", "v1.0.0^{commit}")
    remote.git("clone", "--quiet", "--bare", ".", str(tmp_path / "bare"))
    source, options, version = {
        "tag": (f"{remote.url}@v1.0.0", {}, "1.0.0"),
        "tag option": (remote.url, {"rev": "v1.0.0"}, "1.0.0"),
        "branch": (remote.url, {"rev": "feature/new"}, "3.0.0"),
        "commit": (f"{remote.url}@{first}", {}, "1.0.0"),
        "short commit": (f"{remote.url}@{first[:10]}", {}, "1.0.0"),
        "path": (f"{remote.directory}@v1.0.0", {}, "1.0.0"),
        "bare": (str(tmp_path / "bare"), {}, "2.0.0"),
    }[form]
    user.install(source, **options)
    assert user.records()["p"]["version"] == version
    if version == "1.0.0":
        assert user.records()["p"]["source"]["rev"] == first


def test_the_same_repository_may_move_to_another_revision(user: User, remote: Repository) -> None:
    user.install(f"{remote.url}@v1.0.0")
    assert user.install(remote.url).to_json()["updated"] == ["p"]
    assert user.records()["p"]["version"] == "2.0.0"


@pytest.mark.parametrize("rev", ["no-such-branch", "0" * 40, "deadbeef"])
def test_a_revision_that_is_not_there_is_an_error_and_changes_nothing(user: User, remote: Repository, rev: str) -> None:
    user.install(remote.url)
    with pytest.raises(GitError):
        user.install(remote.url, rev=rev)
    assert user.records()["p"]["version"] == "2.0.0"
    assert user.left_over() == []


@pytest.mark.parametrize("rev", ["--upload-pack=touch x", "a b", "..", "a..b", ""])
def test_a_revision_that_is_none_is_refused(user: User, remote: Repository, rev: str) -> None:
    with pytest.raises(SourceError):
        user.install(remote.url, rev=rev or " ")


def test_links_out_of_a_repository_are_refused(user: User, remote: Repository) -> None:
    (remote.directory / "p" / "passwd.lua").symlink_to("/etc/passwd")
    remote.commit()
    report = user.install(remote.url)
    assert [each.action for each in report.packages] == ["refused"]
    assert list(user.packages.iterdir()) == []


def test_a_server_that_never_answers_is_given_up_in_time(user: User, tmp_path: Path) -> None:
    marker = tmp_path / "alive"
    script = tmp_path / "ssh"
    script.write_text(f"#!/bin/sh\necho $$ > {marker}\nexec sleep 600\n")
    script.chmod(0o755)
    user.environ["GIT_SSH_COMMAND"] = str(script)
    with pytest.raises(GitError, match="longer than 2 seconds"):
        user.install("git@example.invalid:me/repository.git", timeout=2.0)
    pid = int(marker.read_text())
    stat = Path(f"/proc/{pid}/stat")
    until_so(lambda: not stat.exists() or "Z" in stat.read_text().split()[2])


def test_a_password_in_a_url_is_neither_told_nor_kept(user: User) -> None:
    with pytest.raises(GitError) as raised:
        user.install("https://me:geheim@localhost:1/x/y.git")
    assert "geheim" not in str(raised.value) + str(raised.value.to_json())
    assert public_url("https://token@host/x") == "https://host/x"
    assert public_url("git@host:x") == "git@host:x"


@each_row(
    ("given", "url", "rev"),
    [
        ("https://github.com/a/b", "https://github.com/a/b", None),
        ("github.com/a/b", "https://github.com/a/b", None),
        ("https://github.com/a/b.git@v1.2", "https://github.com/a/b.git", "v1.2"),
        ("https://github.com/a/b.git@feature/x", "https://github.com/a/b.git", "feature/x"),
        ("https://me@host/a/b", "https://me@host/a/b", None),
        ("git@github.com:a/b.git", "git@github.com:a/b.git", None),
        ("git@github.com:a/b@v1", "git@github.com:a/b", "v1"),
        ("ssh://git@host:22/a/b.git@v1", "ssh://git@host:22/a/b.git", "v1"),
    ],
)
def test_every_form_of_url_is_understood(given: str, url: str, rev: str | None) -> None:
    source = parse_source(given)
    assert (source.url, source.rev) == (url, rev)
    assert source.base_name == "b"
