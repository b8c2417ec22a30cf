"""Scenarios: Lua files that name cases and graders. Where they are found, and how they are installed."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from holdfast.alc.lua.meta import MAX_SOURCE, read_source
from holdfast.alc.packages.directories import PackageDirectories
from holdfast.alc.packages.errors import SourceError
from holdfast.alc.packages.git import fetch
from holdfast.alc.packages.sources import parse_source
from holdfast.core.errors import ExitCode, HoldfastError
from holdfast.core.values import repaired
from holdfast.programs.files import sync_directory
from holdfast.programs.paths import algocline_home, home

FOLDER = "scenarios"
"""The directory of scenarios: in Holdfast's own directory, in algocline's, and in a collection."""

SUFFIX = ".lua"

MAX_SCENARIOS = 2_000
"""Files that one source may bring: far above any collection, so that a wrong directory is noticed."""


class ScenarioNotFoundError(HoldfastError):
    """There is no scenario of that name."""

    name: str
    places: list[str]
    kind = "scenario_not_found"
    exit_code = ExitCode.NOT_FOUND

    def __str__(self) -> str:
        return f"Scenario '{self.name[:80]}' not found (looked in {', '.join(self.places)})"


class ListedScenario(msgspec.Struct, frozen=True):
    """A scenario that is installed."""

    name: str
    path: str
    size_bytes: int


class ScenarioInstall(msgspec.Struct):
    """What an installation did; nothing that was there is replaced."""

    installed: list[str] = []
    skipped: list[str] = []
    failures: list[str] = []


@dataclass(frozen=True)
class ScenarioFiles:
    """The scenarios of a user: Holdfast's own first, then algocline's."""

    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    @property
    def own(self) -> Path:
        """Where scenarios are installed."""
        return home(self.environ) / FOLDER

    @property
    def places(self) -> list[Path]:
        """Where they are looked for, in this order."""
        return list(dict.fromkeys([self.own, algocline_home(self.environ) / FOLDER]))

    def list(self) -> tuple[list[ListedScenario], list[str]]:
        """All of them by name, and what could not be looked at."""
        found: dict[str, ListedScenario] = {}
        failures: list[str] = []
        for place in self.places:
            try:
                entries = sorted(os.scandir(place), key=lambda entry: entry.name)
            except FileNotFoundError:
                continue
            except OSError as error:
                failures.append(f"{place}: {error.strerror}")
                continue
            for entry in entries:
                name = entry.name.removesuffix(SUFFIX)
                if not entry.name.endswith(SUFFIX) or not is_scenario_name(name) or name in found:
                    continue
                try:
                    if entry.is_file():
                        found[name] = ListedScenario(name, entry.path, entry.stat().st_size)
                except OSError as error:
                    failures.append(f"{entry.path}: {error.strerror}")
        return [found[name] for name in sorted(found)], failures

    def find(self, name: str) -> Path | None:
        """The file of a scenario, or None."""
        if not is_scenario_name(name):
            return None
        return next((file for place in self.places if (file := place / f"{name}{SUFFIX}").is_file()), None)

    def read(self, name: str) -> tuple[Path, str]:
        """The file of a scenario and its text. Raises `ScenarioNotFoundError`."""
        file = self.find(name)
        text = read_source(file) if file is not None else None
        if file is None or text is None:
            raise ScenarioNotFoundError(name, [str(place) for place in self.places])
        return file, repaired(text)

    def install(self, source: str) -> ScenarioInstall:
        """Install the scenarios of a directory or a git repository (`URL@revision` pins one). Raises `SourceError`."""
        address = parse_source(source)
        if address.url is None:
            return self.install_from(Path(str(address.path)))
        with tempfile.TemporaryDirectory(prefix="holdfast-scenarios-") as stage:
            checkout = Path(stage) / "checkout"
            fetch(address.url, address.rev, checkout, PackageDirectories(environ=self.environ).environ)
            return self.install_from(checkout)

    def install_from(self, directory: Path) -> ScenarioInstall:
        """Install the scenarios of a directory: those in its `scenarios/`, else its own files."""
        inner = directory / FOLDER
        folder = inner if inner.is_dir() and not inner.is_symlink() else directory
        files = sorted(each for each in folder.iterdir() if each.name.endswith(SUFFIX))
        if len(files) > MAX_SCENARIOS:
            raise SourceError(str(directory), f"it has {len(files):,} Lua files; at most {MAX_SCENARIOS:,} are taken")
        report = ScenarioInstall()
        for file in files:
            name = file.name.removesuffix(SUFFIX)
            try:
                _copy(file, self.own, name)
                report.installed.append(name)
            except FileExistsError:
                report.skipped.append(name)
            except (OSError, ValueError) as error:
                why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
                report.failures.append(f"{file.name}: {why}")
        return report


def is_scenario_name(name: str) -> bool:
    """Whether this can be the name of a scenario: one part of a path that is not hidden."""
    return bool(name) and name[0] != "." and not any(each in name for each in "/\\\0")


def _copy(file: Path, target: Path, name: str) -> None:
    """Copy a scenario, whole or not at all. Raises `FileExistsError` if there is one, `ValueError` if it is no file."""
    if not is_scenario_name(name):
        raise ValueError("not a name of a scenario")
    if os.path.lexists(target / file.name):
        raise FileExistsError(file.name)
    # O_NOFOLLOW: a link in a foreign tree may lead to any file of this user.
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb") as stream:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("not a file")
        if found.st_size > MAX_SOURCE:
            raise ValueError(f"it has more than {MAX_SOURCE:,} bytes")
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=target, prefix=".", delete=False) as copy:
            staged = Path(copy.name)
            try:
                shutil.copyfileobj(stream, copy)
                copy.flush()
                os.fsync(copy.fileno())
                os.fchmod(copy.fileno(), 0o644)
                os.link(staged, target / file.name)  # not rename: what another process has put there stays
            finally:
                staged.unlink()
    sync_directory(target)
