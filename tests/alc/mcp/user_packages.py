"""What the tests of the package tools share: a user of their own, packages, real git repositories."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

_IDENTITY = {
    f"GIT_{role}_{what}": value
    for role in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "A"), ("EMAIL", "a@example.org"))
}

_AROUND = ("HOLDFAST_PACKAGES_PATH", "ALC_PACKAGES_PATH", "HOLDFAST_PROJECT_ROOT", "ALC_PROJECT_ROOT")


def new_user(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    """The home of a user who has no packages, and whose server runs in a directory that is in no project."""
    for name in _AROUND:
        monkeypatch.delenv(name, raising=False)
    for name in ("HOLDFAST_HOME", "ALC_HOME"):
        monkeypatch.setenv(name, str(folder / "home"))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    (folder / "here").mkdir()
    monkeypatch.chdir(folder / "here")
    return folder / "home"


def write_package(folder: Path, name: str, version: str = "1.0.0", **files: str) -> Path:
    """A package with metadata, and other modules beside it."""
    package = folder / name
    package.mkdir(parents=True, exist_ok=True)
    meta = f'{{ name = "{name}", version = "{version}" }}'
    (package / "init.lua").write_text(f"local M = {{}}\nM.meta = {meta}\nfunction M.run(ctx) end\nreturn M\n")
    for file, text in files.items():
        (package / f"{file}.lua").write_text(text)
    return package


def write_collection(folder: Path) -> Path:
    """Three packages, one of which has more metadata than the others."""
    for name, version in (("alpha", "1.0.0"), ("beta", "2.0.0"), ("gamma", "3.0.0")):
        write_package(folder, name, version)
    (folder / "beta" / "init.lua").write_text(
        'local M = {}\nM.meta = { name = "beta", version = "2.0.0", category = "reasoning", rank = 7 }\n'
        "function M.run(ctx) return ctx end\nreturn M\n"
    )
    return folder


def write_project(folder: Path) -> Path:
    folder.mkdir()
    (folder / "holdfast.toml").write_text("[packages]\n")
    return folder


class Repository:
    """A real git repository."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.url = f"file://{directory}"
        directory.mkdir()
        self._git("init", "--quiet", "--initial-branch=main")

    def commit(self) -> str:
        self._git("add", "--all")
        self._git("commit", "--quiet", "-m", "change")
        return self._git("rev-parse", "HEAD")

    def _git(self, *args: str) -> str:
        done = subprocess.run(
            ["git", *args],
            cwd=self.directory,
            env={**os.environ, **_IDENTITY},
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip()


def files_below(folder: Path) -> dict[str, bytes | str | None]:
    """All that is in a folder, so that a change shows. The empty files that locks stand for do not count."""
    found: dict[str, bytes | str | None] = {}
    for path in sorted(folder.rglob("*")):
        if path.name.endswith(".lock") and not path.stat().st_size:
            continue
        name = str(path.relative_to(folder))
        found[name] = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
    return found
