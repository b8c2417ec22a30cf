"""The files of a project with Lua packages, changed: read with warnings, edited with nothing lost, or refused."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path

import hypothesis.strategies as st

from holdfast.alc.lua.project import LockedPackage, read_project
from holdfast.alc.packages.directories import PackageDirectories
from holdfast.alc.packages.install import InstalledPackage
from holdfast.alc.packages.lock import init
from holdfast.alc.packages.package_list import listing
from holdfast.alc.packages.project_files import forget_locked, record_installed, set_locked, set_package
from holdfast.alc.packages.records import InstallEntry, PackageSource, Records
from tests.fuzz.fuzzer import Fuzzer, assert_is_declared
from tests.fuzz.generation import Draw, changed_bytes, changed_document

PROJECT = b"""# ours
[packages]
any = "*"
one = "1.2.0"  # exact
here = { path = "lua/here" }
far = { git = "https://example.org/x.git", rev = "main", version = "2" }

[tool.other]
n = [1, 2.5, 2026-01-01]
"""

LOCK = b"""version = 1

[[package]]
name = "one"
version = "1.2.0"
checksum = "abc"
source = { type = "git", url = "https://example.org/x.git", rev = "0123456789012345678901234567890123456789" }

[[package]]
name = "here"

[package.source]
type = "path"
path = "lua/here"
"""

INSTALLED = {
    "schema": 1,
    "packages": {
        "one": {
            "version": "1.2.0",
            "source": {"type": "git", "url": "https://example.org/x.git", "rev": "0123"},
            "installed_at": "2026-01-01T00:00:00Z",
            "updated_at": "2026-01-01T00:00:00Z",
            "checksum": "abc",
            "pending": {
                "version": None,
                "source": {"type": "path", "path": "/x"},
                "installed_at": "",
                "updated_at": "",
            },
        }
    },
}
INSTALLED_PACKAGE = InstalledPackage("fresh", "installed", PackageSource("path", path="/x"), "1.0", "abc")
WORDS = [
    b"[packages]\n",
    b"[[package]]\n",
    b'"',
    b"'''",
    b'"""',
    b"=",
    b"packages = 1\n",
    b"package = 1\n",
    b"version = 1\n",
]


KNOWN = [
    {"holdfast.toml": project, "holdfast.lock": lock, ".gitignore": b"\xff"}
    for project, lock in [
        (b"a = " + b"[" * 5_000, LOCK),
        (b"a = " + b"9" * 5_000, LOCK),
        (b"packages = 1", b"version = 1\npackage = 1"),
        (b"packages = []", b"package = {}"),
    ]
]
"""Files that once were neither edited nor refused."""

KNOWN_LISTS = [
    b'{"packages": {"/": {"pending": {"source": "/", "checksum": "x"}}}}',
    b'{"packages": {"one": {"source": "/x", "installed_at": "\\udfff", "pending": {"source": ""}}}}',
    b'{"packages": {"one": {"source": {"\\ud800": 1}}}}',
]


@st.composite
def projects(draw: Draw) -> dict[str, bytes]:
    """The files of a project, one or two of them changed."""
    files = {"holdfast.toml": PROJECT, "holdfast.lock": LOCK, "holdfast.local.toml": PROJECT, ".gitignore": b"*.pyc"}
    for name in draw(st.lists(st.sampled_from(sorted(files)), min_size=1, max_size=2)):
        files[name] = draw(changed_bytes([PROJECT, LOCK], words=WORDS))
    return files


def written(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (folder / name).write_bytes(data)


def test_changed_files_of_a_project_are_read_with_warnings(fuzzer: Fuzzer, tmp_path: Path) -> None:
    def check(files: dict[str, bytes]) -> None:
        written(tmp_path, files)
        found = read_project(tmp_path)
        for warning in found.warnings:
            warning.encode()
        paths = [entry.path for entry in (*found.wanted.values(), *found.local.values())]
        paths += [entry.path for entry in found.locked.values()]
        assert not any(path and "\0" in path for path in paths)
        json.dumps(listing(PackageDirectories(tmp_path, {"HOLDFAST_HOME": str(tmp_path / "home")})).to_json())

    fuzzer.run(check, projects(), examples=60, known=KNOWN)


def test_a_changed_file_of_a_project_is_edited_with_nothing_lost_or_refused(fuzzer: Fuzzer, tmp_path: Path) -> None:
    project, lock = tmp_path / "holdfast.toml", tmp_path / "holdfast.lock"
    entry = LockedPackage("new", "", "1.0", "path", path=str(tmp_path / "lua"))

    def check(files: dict[str, bytes]) -> None:
        written(tmp_path, files)
        for path, edit in (
            (project, lambda: set_package(project, "new", {"path": "x"})),
            (project, lambda: set_package(project, "any", None)),
            (lock, lambda: set_locked(lock, [entry])),
            (lock, lambda: forget_locked(lock, "one")),
        ):
            before = path.read_bytes()
            try:
                edit()
            except Exception as error:
                assert_is_declared(error)
                assert path.read_bytes() == before
                continue
            had, has = tomllib.loads(before.decode()), tomllib.loads(path.read_text())
            if path == project:
                assert {key: repr(had[key]) for key in had.keys() - {"packages"}} == {
                    key: repr(has[key]) for key in has.keys() - {"packages"}
                }
        for warning in record_installed(tmp_path, [INSTALLED_PACKAGE]):
            warning.encode()
        project.unlink()
        try:
            init(PackageDirectories(tmp_path, {"HOLDFAST_HOME": str(tmp_path)}))
        except Exception as error:
            assert_is_declared(error)

    fuzzer.run(check, projects(), examples=25, known=KNOWN)


def test_a_changed_list_of_installed_packages_is_read_and_what_was_there_is_kept(
    fuzzer: Fuzzer, tmp_path: Path
) -> None:
    file = tmp_path / "installed.json"

    def check(data: bytes) -> None:
        file.write_bytes(data)
        with Records.changing(tmp_path) as records:
            for name in records.names():
                entry = records.get(name)
                if entry is not None:
                    json.dumps(entry.to_json())
            records.keep("new", InstallEntry(PackageSource("path", path="/x"), "now", "now"))
            records.save()
        assert json.loads(file.read_bytes())["packages"]["new"]["installed_at"] == "now"
        assert all(name == "new" or name.encode() for name in Records(tmp_path).names())
        for each in tmp_path.iterdir():
            if each.is_file():
                os.unlink(each)

    fuzzer.run(check, changed_document([INSTALLED]), examples=50, known=KNOWN_LISTS)
