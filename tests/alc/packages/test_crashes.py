"""Installs that are killed, and installs that race: every package is the old one or the new one, and recorded so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.alc.packages import tree
from holdfast.alc.packages.health import doctor
from holdfast.alc.packages.records import Records
from holdfast.alc.packages.tree import checksum, finish_replacing, put_in_place, staging
from holdfast.testing.patience import HANG_S
from tests.alc.packages.helpers import User, write_package

PACKAGES = 25
CHILD = Path(__file__).with_name("install_child.py")


def collection(directory: Path, version: str) -> Path:
    """A collection in which every package has several files, all of one version."""
    for number in range(PACKAGES):
        name = f"p{number:02d}"
        files = {f"m{module}": f"return '{name} {version}'" for module in range(4)}
        write_package(directory, name, version, **files)
    return directory


def start(user: User, source: Path, times: int = 1, die: tuple[str, int] = ("", 0)) -> subprocess.Popen[str]:
    """A process that installs once it is told to go on."""
    child = subprocess.Popen(
        [sys.executable, str(CHILD), str(user.folder / "home"), str(source), str(times), die[0], str(die[1])],
        env={**user.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def go(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    child.stdin.write("go\n")
    child.stdin.flush()


def check_whole(user: User, *sources: Path) -> dict[str, str]:
    """Every installed package is exactly that of one source, and the records say which. The version of each."""
    with Records.changing(user.where.home) as records:
        names = [each.name for each in user.packages.iterdir() if not each.name.startswith(".")]
        versions = {}
        for name in names:
            found = checksum(user.packages / name)
            assert found in {checksum(source / name) for source in sources}, f"{name} is a mixture"
            entry = records.get(name)
            assert entry is not None
            assert entry.checksum == found
            versions[name] = str(entry.version)
        assert sorted(records.names()) == sorted(names)
        return versions


@pytest.mark.parametrize(
    ("stage", "number", "new_ones"),
    [("staging", 3, 0), ("placing", 0, 0), ("placing", 1, 1), ("placing", 13, 13), ("placing", PACKAGES, PACKAGES)],
)
def test_an_install_that_is_killed_leaves_each_package_old_or_new(
    user: User, tmp_path: Path, stage: str, number: int, new_ones: int
) -> None:
    old, new = collection(tmp_path / "old", "1.0.0"), collection(tmp_path / "new", "2.0.0")
    user.install(old)
    child = start(user, new, die=(stage, number))
    go(child)
    child.communicate(timeout=HANG_S)
    assert child.returncode == -signal.SIGKILL
    versions = check_whole(user, old, new)
    assert sorted(versions.values()) == ["1.0.0"] * (PACKAGES - new_ones) + ["2.0.0"] * new_ones
    assert doctor(user.where).ok
    user.install(new)
    assert set(check_whole(user, new).values()) == {"2.0.0"}
    assert user.left_over() == []


def test_a_killed_first_install_leaves_whole_packages_or_none(user: User, tmp_path: Path) -> None:
    new = collection(tmp_path / "new", "2.0.0")
    for delay in (0.02, 0.05, 0.1, 0.2):
        child = start(user, new)
        go(child)
        time.sleep(delay)
        os.kill(child.pid, signal.SIGKILL)
        child.communicate()
        check_whole(user, new)
    user.install(new)
    assert len(check_whole(user, new)) == PACKAGES
    assert user.left_over() == []


def test_installers_that_race_leave_every_package_whole_and_recorded(user: User, tmp_path: Path) -> None:
    sources = [collection(tmp_path / name, version) for name, version in (("a", "1.0.0"), ("b", "2.0.0"))]
    children = [start(user, source, times=3) for source in sources]
    for child in children:
        go(child)
    for child in children:
        output, _ = child.communicate(timeout=HANG_S)
        assert output == "done\n"
        assert child.returncode == 0
    assert len(check_whole(user, *sources)) == PACKAGES
    assert user.left_over() == []


def test_what_a_reader_sees_while_a_package_is_replaced_is_always_whole(user: User, tmp_path: Path) -> None:
    sources = [write_package(tmp_path / version, "p", version) for version in ("1.0.0", "2.0.0")]
    user.install(sources[0])
    children = [start(user, source, times=20) for source in sources]
    for child in children:
        go(child)
    seen = set()
    while any(child.poll() is None for child in children):
        seen.add((user.packages / "p" / "init.lua").read_text().partition("version")[2][:12])
    for child in children:
        child.communicate()
    assert len(seen) == 2
    assert all(text.startswith(' = "') for text in seen)


@pytest.mark.parametrize("became", [True, False])
def test_a_crash_between_directory_and_record_is_settled_by_what_is_there(
    user: User, tmp_path: Path, became: bool
) -> None:
    old, new = write_package(tmp_path / "1", "p", "1.0.0"), write_package(tmp_path / "2", "p", "2.0.0")
    user.install(new)
    with Records.changing(user.where.home) as records:
        expected = records.get("p")
    user.install(old, force=True)
    assert expected is not None
    with Records.changing(
        user.where.home
    ) as records:  # as a process does that is killed right after, or before, the rename
        records.expect("p", expected)
        records.save()
        if became:
            with staging(user.packages) as stage:
                tree.copy_package(new, stage / "p", "p")
                put_in_place(stage / "p", user.packages / "p")
    with Records.changing(user.where.home) as records:
        entry = records.get("p")
    assert entry is not None
    assert entry.version == ("2.0.0" if became else "1.0.0")
    assert "pending" not in user.records()["p"]


def test_a_directory_that_was_set_aside_by_a_killed_process_comes_back(tmp_path: Path) -> None:
    write_package(tmp_path, ".replaced-p")
    finish_replacing(tmp_path)
    assert (tmp_path / "p" / "init.lua").is_file()
    write_package(tmp_path, ".replaced-p", "0.0.1")
    finish_replacing(tmp_path)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["p"]
    assert "1.0.0" in (tmp_path / "p" / "init.lua").read_text()


def test_a_file_system_that_cannot_exchange_directories_still_gets_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "_RENAME_EXCHANGE", 1 << 20)  # a flag that the kernel refuses, as such a file system does
    write_package(tmp_path, "p", "1.0.0", old="return 1")
    write_package(tmp_path / "stage", "p", "2.0.0")
    put_in_place(tmp_path / "stage" / "p", tmp_path / "p")
    assert "2.0.0" in (tmp_path / "p" / "init.lua").read_text()
    assert not (tmp_path / "p" / "old.lua").exists()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["p", "stage"]


def test_the_staging_of_a_living_process_is_not_cleared_by_another(tmp_path: Path) -> None:
    with staging(tmp_path) as first:
        (first / "work").mkdir()
        with staging(tmp_path) as second:
            assert first != second
        assert (first / "work").is_dir()
    assert list(tmp_path.iterdir()) == []
