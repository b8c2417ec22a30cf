"""What is wrong with packages is found, and put right from where they came."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from holdfast.alc.packages.errors import PackageNameError, PackageNotFoundError
from holdfast.alc.packages.health import HealthReport, doctor, repair
from holdfast.alc.packages.links import link
from holdfast.alc.packages.lock import update
from holdfast.alc.packages.tree import checksum
from tests.alc.packages.helpers import Repository, User, write_package


def found(report: HealthReport) -> list[tuple[str, str]]:
    return [(each.name, each.kind) for each in report.findings]


@pytest.fixture
def remote(tmp_path: Path) -> Repository:
    repository = Repository(tmp_path / "remote")
    package = write_package(repository.directory, "flow", state="return {}")
    text = (package / "init.lua").read_text()
    (package / "init.lua").write_text('local state = require("flow.state")\n' + text)
    repository.commit()
    return repository


def test_sound_packages_are_sound(user: User, remote: Repository) -> None:
    user.install(remote.url)
    report = doctor(user.where)
    assert report.ok
    assert report.healthy == ["flow"]
    assert report.to_json()["incomplete_pkg"] == []


def test_a_package_without_one_of_its_modules_is_incomplete_and_repaired(user: User, remote: Repository) -> None:
    user.install(remote.url)
    whole = checksum(user.packages / "flow")
    (user.packages / "flow" / "state.lua").unlink()
    report = doctor(user.where)
    assert ("flow", "incomplete_pkg") in found(report)
    assert report.of("incomplete_pkg")[0].missing_subs == ["flow.state"]
    assert [each.name for each in repair(user.where).repaired] == ["flow"]
    assert checksum(user.packages / "flow") == whole
    assert doctor(user.where).ok


def test_a_module_of_another_copy_does_not_make_a_package_complete(user: User, tmp_path: Path) -> None:
    broken = write_package(user.packages, "p")
    (broken / "init.lua").write_text('local s = require("p.sub") return {}')
    user.environ["ALC_HOME"] = str(tmp_path / "alc")
    write_package(tmp_path / "alc" / "packages", "p", sub="return 1")
    assert doctor(user.where).of("incomplete_pkg")[0].missing_subs == ["p.sub"]


def test_what_a_package_requires_from_others_has_to_be_there_when_it_is_loaded(user: User) -> None:
    package = write_package(user.packages, "p")
    (package / "init.lua").write_text(
        'local a = require("absent") local ok = pcall(require, "optional") local s = require("string")\n'
        'local M = {} function M.run() return require("later") end return M'
    )
    (finding,) = doctor(user.where).findings
    assert "absent" in finding.reason
    assert "optional" not in finding.reason
    assert "later" not in finding.reason
    write_package(user.packages, "absent")
    assert doctor(user.where).ok


def test_a_recorded_package_that_is_gone_is_installed_again_at_its_commit(user: User, remote: Repository) -> None:
    user.install(remote.url)
    before = user.records()["flow"]
    write_package(remote.directory, "flow", "2.0.0")
    remote.commit()
    shutil.rmtree(user.packages / "flow")
    assert found(doctor(user.where)) == [("flow", "installed_missing")]
    assert [each.name for each in repair(user.where).repaired] == ["flow"]
    assert user.records()["flow"]["source"] == before["source"]
    assert checksum(user.packages / "flow") == before["checksum"]


def test_a_directory_without_its_init_is_installed_again(user: User, remote: Repository) -> None:
    user.install(remote.url)
    (user.packages / "flow" / "init.lua").unlink()
    assert found(doctor(user.where)) == [("flow", "missing_init")]
    assert [each.name for each in repair(user.where, "flow").repaired] == ["flow"]


def test_a_changed_package_is_put_back_only_with_force(user: User, remote: Repository) -> None:
    user.install(remote.url)
    file = user.packages / "flow" / "state.lua"
    file.write_text("return { mine = true }")
    assert found(doctor(user.where)) == [("flow", "checksum_mismatch")]
    assert [each.name for each in repair(user.where).skipped] == ["flow"]
    assert "mine" in file.read_text()
    assert [each.name for each in repair(user.where, force=True).repaired] == ["flow"]
    assert file.read_text() == "return {}"


def test_a_source_that_is_gone_is_told(user: User, remote: Repository, tmp_path: Path) -> None:
    user.install(remote.url)
    shutil.rmtree(user.packages / "flow")
    remote.directory.rename(tmp_path / "moved")
    report = repair(user.where)
    assert [each.name for each in report.failed] == ["flow"]
    assert not report.ok


def test_a_broken_link_is_found_and_explained(user: User, tmp_path: Path) -> None:
    source = write_package(tmp_path / "src", "p")
    link(user.where, source)
    shutil.rmtree(source)
    (finding,) = doctor(user.where).findings
    assert (finding.name, finding.kind) == ("p", "symlink_dangling")
    assert "pkg unlink p" in finding.suggestion
    assert [each.name for each in repair(user.where).unrepairable] == ["p"]


def test_paths_and_pins_of_the_project_are_checked(user: User) -> None:
    write_package(user.packages, "pinned", "2.0.0")
    project = user.make_project('[packages]\npinned = "1.0.0"\nlost = { path = "gone" }\n')
    (project / "alc.local.toml").write_text('[packages]\nvariant = { path = "nowhere" }\n')
    report = doctor(user.where)
    assert sorted(found(report)) == [
        ("lost", "path_missing"),
        ("lost", "unmet_pin"),
        ("pinned", "unmet_pin"),
        ("variant", "path_missing"),
    ]
    assert not report.ok


def test_a_package_that_is_not_what_the_lock_has_is_found(user: User, tmp_path: Path) -> None:
    source = write_package(tmp_path, "p")
    user.make_project()
    user.install(source)
    assert doctor(user.where).ok
    user.project, project = None, user.project
    write_package(tmp_path, "p", "2.0.0")
    user.install(source)
    user.project = project
    assert found(doctor(user.where)) == [("p", "lock_mismatch")]
    update(user.where)
    assert doctor(user.where).ok


def test_a_hidden_package_is_mentioned_but_no_damage(user: User, tmp_path: Path) -> None:
    user.environ["HOLDFAST_PACKAGES_PATH"] = str(tmp_path / "path")
    write_package(tmp_path / "path", "p")
    write_package(user.packages, "p")
    report = doctor(user.where)
    assert found(report) == [("p", "shadowed")]
    assert report.ok
    assert report.healthy == ["p"]
    assert repair(user.where).ok


def test_one_package_can_be_asked_for(user: User) -> None:
    write_package(user.packages, "sound")
    (user.packages / "ill").mkdir()
    assert doctor(user.where, "sound").healthy == ["sound"]
    assert doctor(user.where, "sound").findings == []
    assert found(doctor(user.where, "ill")) == [("ill", "missing_init")]
    with pytest.raises(PackageNotFoundError):
        doctor(user.where, "absent")
    with pytest.raises(PackageNameError):
        doctor(user.where, "../x")


def test_repair_clears_what_killed_installs_left(user: User) -> None:
    (user.packages / ".staging-1-x" / "half").mkdir(parents=True)
    write_package(user.packages, ".replaced-p")
    assert repair(user.where).ok
    assert sorted(each.name for each in user.packages.iterdir()) == ["p"]
