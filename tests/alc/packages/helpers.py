"""What the tests of package management share: packages, real git repositories, and a user of their own."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from holdfast.alc.packages.directories import PackageDirectories
from holdfast.alc.packages.install import InstallReport, Options, install

_IDENTITY = {
    "GIT_AUTHOR_NAME": "A",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "A",
    "GIT_COMMITTER_EMAIL": "a@example.org",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
}


def write_package(directory: Path, name: str, version: str = "1.0.0", **files: str) -> Path:
    """A package with metadata, and other modules beside it."""
    package = directory / name
    package.mkdir(parents=True, exist_ok=True)
    meta = f'{{ name = "{name}", version = "{version}" }}'
    (package / "init.lua").write_text(f"local M = {{}}\nM.meta = {meta}\nfunction M.run(ctx) end\nreturn M\n")
    for file, text in files.items():
        (package / f"{file}.lua").write_text(text)
    return package


class Repository:
    """A real git repository."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *args: str) -> str:
        done = subprocess.run(
            ["git", *args],
            cwd=self.directory,
            env={**os.environ, **_IDENTITY},
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip()

    def commit(self, message: str = "change") -> str:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    @property
    def url(self) -> str:
        return f"file://{self.directory}"


class User:
    """A user with a home of their own, in a project or not."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder / "home"),
            "HOLDFAST_HOME": str(folder / "own"),
            "GIT_CONFIG_NOSYSTEM": "1",
        }
        (folder / "home").mkdir(exist_ok=True)
        self.packages = folder / "own" / "packages"
        self.project: Path | None = None

    @property
    def where(self) -> PackageDirectories:
        # A directory without project files stands for no project: those around the tests must not count.
        nowhere = self.folder / "home"
        return PackageDirectories(self.project or nowhere, self.environ)

    def make_project(self, text: str = "[packages]\n", file: str = "holdfast.toml") -> Path:
        self.project = self.folder / "project"
        self.project.mkdir(exist_ok=True)
        (self.project / file).write_text(text)
        return self.project

    def install(self, *sources: object, **options: Any) -> InstallReport:
        chosen = Options(**{"in_project": self.project is not None, **options})
        return install(self.where, [str(source) for source in sources], chosen)

    def records(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "own" / "installed.json").read_text())["packages"]
        return found

    def left_over(self) -> list[str]:
        """What is in the directory of packages and is none."""
        return [each.name for each in self.packages.iterdir() if each.name.startswith(".")]
