"""A project's files: made, extended by installs, locked by updates, and the pins that follow from them."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from holdfast.alc.lua.packages import UnmetPinError, find_module
from holdfast.alc.packages.directories import PackageDirectories
from holdfast.alc.packages.errors import ProjectFileError
from holdfast.alc.packages.lock import init, update
from holdfast.alc.packages.project_files import set_package
from holdfast.alc.packages.tree import checksum
from tests.alc.packages.helpers import Repository, User, write_package


def toml(path: Path) -> Any:
    return tomllib.loads(path.read_text())


def module(user: User, name: str) -> Path | None:
    return find_module(user.where.roots(), name)


# --- init --------------------------------------------------------------------------------------


def test_init_makes_a_project_and_keeps_local_files_out_of_version_control(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("build/")
    report = init(PackageDirectories(tmp_path))
    assert report.created == str(tmp_path / "holdfast.toml")
    assert toml(tmp_path / "holdfast.toml") == {"packages": {}}
    assert report.gitignore_updated
    assert (tmp_path / ".gitignore").read_text().splitlines() == ["build/", "holdfast.local.toml", "alc.local.toml"]


def test_init_changes_nothing_where_there_is_a_project(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text("# mine\n")
    with pytest.raises(ProjectFileError, match="already"):
        init(PackageDirectories(tmp_path))
    assert (tmp_path / "holdfast.toml").read_text() == "# mine\n"
    assert not (tmp_path / ".gitignore").exists()


def test_a_directory_with_files_of_algocline_gets_its_project_file(tmp_path: Path) -> None:
    (tmp_path / "alc.local.toml").write_text("[packages]\n")
    assert init(PackageDirectories(tmp_path)).created == str(tmp_path / "alc.toml")


def test_without_a_project_file_nothing_is_locked(user: User) -> None:
    project = user.where.home / "bare"
    project.mkdir(parents=True)
    (project / "holdfast.local.toml").write_text("[packages]\n")
    with pytest.raises(ProjectFileError, match="no project"):
        update(PackageDirectories(project))
    assert not list(project.glob("*.lock"))


# --- editing -----------------------------------------------------------------------------------


def test_an_entry_is_changed_in_place_and_everything_else_stays(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    before = '# head\n[hub] # h\nname = "x"\n\n[packages]\n# about a\na = "*"  # why\nb = "1.0.0"\n\n[other]\nc = 1\n'
    file.write_text(before)
    assert set_package(file, "d", {"path": 'odd "path"\\'})
    assert set_package(file, "b", None)
    assert not set_package(file, "b", None)
    assert file.read_text() == before.replace('b = "1.0.0"\n', 'd = { path = "odd \\"path\\"\\\\" }\n')
    assert toml(file)["packages"] == {"a": "*", "d": {"path": 'odd "path"\\'}}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[packages]",
        '[packages.a]\npath = "x"\n',
        'packages = { a = "*" }\n',
        'packages.a = "*"\n',
        '[packages]\n"a" = "*"\n',
        '[packages]\na = { path = "x", more = [\n  1\n] }\n',
        '[packages]\na = """\n[x]\n"""\n',
        'text = """\n[packages]\n"""\n',
    ],
)
def test_whatever_form_a_file_has_only_the_entry_changes(tmp_path: Path, text: str) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text(text)
    before = toml(file)
    set_package(file, "new", "1.0.0")
    set_package(file, "a", "2.0.0")
    wanted = {**before, "packages": {**before.get("packages", {}), "new": "1.0.0", "a": "2.0.0"}}
    assert toml(file) == wanted
    set_package(file, "a", None)
    del wanted["packages"]["a"]
    assert toml(file) == wanted


def test_a_file_that_is_not_toml_is_not_touched(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text("[packages")
    with pytest.raises(ProjectFileError, match="by hand"):
        set_package(file, "a", "*")
    assert file.read_text() == "[packages"


# --- install in a project ----------------------------------------------------------------------


def test_an_install_in_a_project_is_named_and_locked_with_commit_and_checksum(user: User, tmp_path: Path) -> None:
    project = user.make_project('# mine\n[packages]\nother = "*"\n')
    repository = Repository(tmp_path / "remote")
    write_package(repository.directory, "p", "1.5.0")
    commit = repository.commit()
    user.install(repository.url)
    assert toml(project / "holdfast.toml") == {"packages": {"other": "*", "p": "*"}}
    assert (project / "holdfast.toml").read_text().startswith("# mine\n")
    (entry,) = toml(project / "holdfast.lock")["package"]
    assert entry == {
        "name": "p",
        "version": "1.5.0",
        "checksum": checksum(user.packages / "p"),
        "source": {"type": "git", "url": repository.url, "rev": commit},
    }


def test_an_algocline_project_keeps_its_own_files(user: User, tmp_path: Path) -> None:
    project = user.make_project('[packages]\np = "1.0.0"\n', file="alc.toml")
    user.install(write_package(tmp_path, "p"))
    assert toml(project / "alc.toml") == {"packages": {"p": "1.0.0"}}
    assert toml(project / "alc.lock")["package"][0]["source"] == {"type": "installed"}
    assert not (project / "holdfast.lock").exists()


def test_a_broken_project_file_is_a_warning_and_the_package_is_installed(user: User, tmp_path: Path) -> None:
    project = user.make_project("[packages")
    report = user.install(write_package(tmp_path, "p"))
    assert "holdfast.toml" in report.warnings[0]
    assert (user.packages / "p" / "init.lua").is_file()
    assert (project / "holdfast.toml").read_text() == "[packages"


# --- update ------------------------------------------------------------------------------------


def test_update_keeps_a_pinned_version_from_later_installs(user: User, tmp_path: Path) -> None:
    source = write_package(tmp_path, "p", "1.0.0", sub="return 1")
    user.install(source)
    project = user.make_project('[packages]\np = "1.0.0"\n')
    report = update(user.where)
    assert report.to_json()["resolved"] == 1
    assert report.to_json()["errors"] == []
    user.project = None
    write_package(tmp_path, "p", "2.0.0")
    user.install(source)
    assert module(user, "p.sub") == user.packages / "p" / "sub.lua"
    user.project = project
    assert module(user, "p.sub") == user.packages / "p@1.0.0" / "sub.lua"
    assert update(user.where).errors == {}
    assert toml(project / "holdfast.lock")["package"][0]["version"] == "1.0.0"


def test_update_never_passes_one_version_off_as_another(user: User, tmp_path: Path) -> None:
    user.install(write_package(tmp_path, "p", "2.0.0"))
    project = user.make_project('[packages]\np = "1.0.0"\n')
    report = update(user.where)
    assert "2.0.0" in report.errors["p"]
    assert not (user.packages / "p@1.0.0").exists()
    assert toml(project / "holdfast.lock")["package"] == []
    with pytest.raises(UnmetPinError):
        module(user, "p")


def test_update_locks_paths_relative_to_the_project(user: User) -> None:
    project = user.make_project('[packages]\np = { path = "lua/p", version = "1.0.0" }\nq = { path = "gone" }\n')
    write_package(project / "lua", "p")
    report = update(user.where)
    assert list(report.errors) == ["q"]
    assert toml(project / "holdfast.lock")["package"] == [
        {"name": "p", "version": "1.0.0", "source": {"type": "path", "path": "lua/p"}}
    ]
    assert module(user, "p") == project / "lua" / "p" / "init.lua"


def test_update_fetches_git_entries_at_their_commit_and_keeps_projects_apart(user: User, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "remote")
    write_package(repository.directory, "p", "1.0.0", sub="return 1")
    first = repository.commit()
    project = user.make_project(f'[packages]\np = {{ git = "{repository.url}", rev = "main" }}\n')
    assert update(user.where).errors == {}
    assert module(user, "p.sub") == user.packages / f"p@{first[:12]}" / "sub.lua"
    lock = (project / "holdfast.lock").read_text()
    write_package(repository.directory, "p", "2.0.0")
    second = repository.commit()
    assert module(user, "p") == user.packages / f"p@{first[:12]}" / "init.lua"
    assert update(user.where).errors == {}
    assert module(user, "p") == user.packages / f"p@{second[:12]}" / "init.lua"
    (project / "holdfast.lock").write_text(lock)
    assert module(user, "p") == user.packages / f"p@{first[:12]}" / "init.lua"


def test_a_git_entry_at_a_commit_that_is_installed_needs_no_network(user: User, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "remote")
    write_package(tmp_path / "x", "p").rename(repository.directory / "p")
    commit = repository.commit()
    user.make_project(f'[packages]\np = {{ git = "{repository.url}", rev = "{commit}" }}\n')
    assert update(user.where).errors == {}
    repository.directory.rename(tmp_path / "moved")
    assert update(user.where).errors == {}
    assert module(user, "p") == user.packages / f"p@{commit[:12]}" / "init.lua"


def test_a_package_that_cannot_be_fetched_keeps_its_line_in_the_lock(user: User, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "remote")
    write_package(repository.directory, "p")
    repository.commit()
    project = user.make_project(f'[packages]\np = {{ git = "{repository.url}" }}\nq = "*"\n')
    assert list(update(user.where).errors) == ["q"]
    locked = toml(project / "holdfast.lock")["package"]
    repository.directory.rename(tmp_path / "moved")
    assert list(update(user.where).errors) == ["p", "q"]
    assert toml(project / "holdfast.lock")["package"] == locked


def test_a_commit_with_other_contents_than_were_locked_is_refused(user: User, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "remote")
    write_package(repository.directory, "p")
    repository.commit()
    project = user.make_project(f'[packages]\np = {{ git = "{repository.url}" }}\n')
    update(user.where)
    lock = (project / "holdfast.lock").read_text()
    right = checksum(next(user.packages.glob("p@*")))
    (project / "holdfast.lock").write_text(lock.replace(right, "sha256:" + "0" * 64))
    assert "checksum" in update(user.where).errors["p"]


def test_a_git_repository_without_the_package_is_explained(user: User, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "remote")
    write_package(repository.directory, "other")
    repository.commit()
    user.make_project(f'[packages]\np = {{ git = "{repository.url}" }}\n')
    assert "no package 'p'" in update(user.where).errors["p"]


def test_update_without_a_project_says_how_to_make_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ProjectFileError, match="pkg init"):
        update(PackageDirectories(None, {"HOME": str(tmp_path)}))
