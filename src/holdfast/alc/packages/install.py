"""Install: fetch or read sources, check and stage their packages, and put them in place all at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from holdfast.alc.lua.meta import read_meta
from holdfast.alc.lua.trusted_roots import is_below
from holdfast.alc.packages.directories import PackageDirectories
from holdfast.alc.packages.errors import PackageExistsError, PackageNameError, SourceError, UnsafePackageError
from holdfast.alc.packages.git import TIMEOUT_S, fetch
from holdfast.alc.packages.project_files import record_installed
from holdfast.alc.packages.records import InstallEntry, PackageSource, Records, now
from holdfast.alc.packages.sources import SourceAddress, parse_source, public_url
from holdfast.alc.packages.tree import checksum, copy_package, put_in_place, staging
from holdfast.alc.scenarios import FOLDER, ScenarioFiles, ScenarioInstall
from holdfast.core.errors import HoldfastError
from holdfast.programs.names import invalid_name_reason

MAX_FETCHES = 4
"""Sources fetched at the same time: enough to hide latency, few enough for a server's patience."""

Stage = Literal["fetching", "staging", "placing", "done"]
Action = Literal["installed", "updated", "unchanged", "skipped", "refused"]


class Progress(msgspec.Struct, frozen=True):
    """How far one source is. Packages of all sources are placed together."""

    source: str
    stage: Stage
    done: int = 0
    total: int = 0


class InstalledPackage(msgspec.Struct, frozen=True):
    """The result for one package."""

    name: str
    action: Action
    source: PackageSource
    version: str | None = None
    checksum: str | None = None
    why: str = ""


class InstallReport(msgspec.Struct):
    """What an install did."""

    packages: list[InstalledPackage] = []
    modes: dict[str, str] = {}
    """For each source: single, collection, local_single or local_collection."""
    errors: list[HoldfastError] = []
    """Sources from which nothing could be installed."""
    warnings: list[str] = []
    scenarios: ScenarioInstall = msgspec.field(default_factory=ScenarioInstall)
    """What became of the scenarios that collections brought."""

    @property
    def ok(self) -> bool:
        return not self.errors and not self._names("refused")

    def to_json(self) -> dict[str, object]:
        modes = sorted(set(self.modes.values()))
        return {
            "installed": self._names("installed", "updated"),
            "updated": self._names("updated"),
            "skipped": self._names("skipped", "unchanged"),
            "refused": [{"name": each.name, "why": each.why} for each in self.packages if each.action == "refused"],
            "mode": modes[0] if len(modes) == 1 else "mixed",
            "packages": [{**msgspec.to_builtins(each), "source": each.source.to_json()} for each in self.packages],
            "errors": [error.to_json() for error in self.errors],
            "warnings": self.warnings,
            "scenarios": msgspec.to_builtins(self.scenarios),
        }

    def _names(self, *actions: str) -> list[str]:
        return [each.name for each in self.packages if each.action in actions]


PROTECTED = "it is in a directory that this server trusts, and only whoever runs the server changes what is there"


@dataclass
class Options:
    """How to install."""

    rev: str | None = None
    name: str | None = None
    force: bool = False
    in_project: bool = True
    """Also name the packages in the project's file and lock, if there is a project."""
    timeout: float = TIMEOUT_S
    progress: Callable[[Progress], None] = lambda _: None
    protected: Sequence[Path] = ()
    """Directories in which nothing is replaced or added."""


@dataclass
class Staged:
    """A package that is ready to be put in place."""

    name: str
    directory: Path
    source: PackageSource
    version: str | None
    checksum: str
    in_collection: bool


@dataclass
class _Found:
    """What one source has."""

    source: SourceAddress
    mode: str
    staged: list[Staged]
    refused: list[InstalledPackage]
    scenarios: Path | None = None
    """The directory of the scenarios that a collection brings."""


def install(where: PackageDirectories, sources: Sequence[str], options: Options | None = None) -> InstallReport:
    """Install every package of every source. One that fails does not stop the others.

    A single source that fails is raised; of several, each failure is in the report.
    """
    options = options or Options()
    if not sources:
        raise SourceError("", "give at least one directory or URL")
    if options.name is not None and len(sources) > 1:
        raise PackageNameError(options.name, "one name is for one source")
    parsed = [parse_source(given, options.rev) for given in dict.fromkeys(sources)]
    report = InstallReport()
    with staging(where.packages) as stage, ThreadPoolExecutor(MAX_FETCHES) as pool:
        waiting = [
            pool.submit(stage_source, source, stage / str(number), where, options)
            for number, source in enumerate(parsed)
        ]
        found: list[_Found] = []
        for each in waiting:
            try:
                found.append(each.result())
            except HoldfastError as error:
                if len(parsed) == 1:
                    raise
                report.errors.append(error)
        _place(where, found, options, report)
        for folder in [source.scenarios for source in found if source.scenarios is not None]:
            _add_scenarios(where, folder, report.scenarios)
    if options.in_project and where.root is not None:
        changed = [each for each in report.packages if each.action not in ("refused", "skipped")]
        report.warnings += record_installed(where.root, changed)
    return report


def stage_source(source: SourceAddress, stage: Path, where: PackageDirectories, options: Options) -> _Found:
    """Bring the packages of a source into a directory of their own, checked and counted."""
    options.progress(Progress(source.given, "fetching"))
    if source.url is not None:
        checkout = stage / "checkout"
        commit = fetch(source.url, source.rev, checkout, where.environ, options.timeout)
        record = PackageSource("git", url=public_url(source.url), rev=commit)
    else:
        checkout = Path(str(source.path))
        record = PackageSource("path", path=str(checkout))
    found = packages_in(checkout, source, options.name)
    single = (checkout / "init.lua").is_file()
    mode = ("" if source.url is not None else "local_") + ("single" if single else "collection")
    result = _Found(source, mode, [], [])
    scenarios = checkout / FOLDER
    if not single and scenarios.is_dir() and not scenarios.is_symlink():
        result.scenarios = scenarios
    for number, (name, directory) in enumerate(found.items()):
        options.progress(Progress(source.given, "staging", number, len(found)))
        try:
            result.staged.append(stage_package(name, directory, stage / "ready" / name, record, not single))
        except (PackageNameError, UnsafePackageError) as error:
            if single:
                raise
            result.refused.append(InstalledPackage(name, "refused", record, why=str(error)))
    return result


def packages_in(directory: Path, source: SourceAddress, name: str | None = None) -> dict[str, Path]:
    """The packages of a directory: itself, or those in it."""
    if (directory / "init.lua").is_file():
        meta = read_meta(directory / "init.lua")
        own = meta.name if meta is not None else None
        # What a package calls itself is what its own files require; the directory's name may be any.
        chosen = name or (own if invalid_name_reason(own) is None else None) or source.base_name
        return {chosen: directory}
    inner = sorted(each for each in directory.iterdir() if (each / "init.lua").is_file() and each.name[0] != ".")
    if not inner:
        raise SourceError(source.given, "it has no init.lua, and no directory in it has one")
    if name is not None:
        raise PackageNameError(name, f"a name is for a single package, but {source.given} is a collection")
    return {each.name: each for each in inner}


def stage_package(name: str, directory: Path, target: Path, source: PackageSource, in_collection: bool) -> Staged:
    """Copy a package into the staging directory."""
    why = invalid_name_reason(name)
    if why is not None:
        raise PackageNameError(name, why)
    if directory.is_symlink():
        raise UnsafePackageError(name, "its directory is a link; install what it leads to")
    copy_package(directory, target, name)
    if not (target / "init.lua").is_file():
        raise UnsafePackageError(name, "its init.lua is a link that leads nowhere")
    meta = read_meta(target / "init.lua")
    return Staged(name, target, source, meta.version if meta else None, checksum(target), in_collection)


def _add_scenarios(where: PackageDirectories, folder: Path, report: ScenarioInstall) -> None:
    """Install the scenarios of a collection. What is wrong with them does not undo its packages."""
    try:
        done = ScenarioFiles(where.environ).install_from(folder)
    except (OSError, SourceError) as error:
        report.failures.append(str(error))
        return
    report.installed += done.installed
    report.skipped += done.skipped
    report.failures += done.failures


def _place(where: PackageDirectories, found: list[_Found], options: Options, report: InstallReport) -> None:
    """Put what was staged in place, and write it down, while no other process does."""
    with Records.changing(where.home) as records:
        report.warnings += records.warnings
        chosen: list[Staged] = []
        taken: dict[str, str] = {}
        for each in found:
            report.modes[each.source.given] = each.mode
            report.packages += each.refused
            for staged in each.staged:
                action, why = _decide(staged, where.packages / staged.name, records, options.force)
                if action in ("installed", "updated") and is_below(where.packages / staged.name, options.protected):
                    action, why = "refused", PROTECTED
                if staged.name in taken:
                    action, why = "skipped", f"it is also in {taken[staged.name]}, which comes first"
                if action == "skipped" and len(found) == 1 and not staged.in_collection:
                    raise PackageExistsError(staged.name, str(where.packages / staged.name), why)
                taken.setdefault(staged.name, each.source.given)
                if action in ("installed", "updated"):
                    chosen.append(staged)
                report.packages.append(_installed_package(staged, action, why))
        all_sources = ", ".join(report.modes)
        place(
            where.packages,
            chosen,
            records,
            moved=lambda number: options.progress(Progress(all_sources, "placing", number, len(chosen))),
        )
    for each in found:
        options.progress(Progress(each.source.given, "done", len(each.staged), len(each.staged)))


def place(
    packages: Path,
    staged: list[Staged],
    records: Records,
    as_name: str | None = None,
    moved: Callable[[int], None] = lambda _: None,
) -> None:
    """Put packages in place. The records say before and after what each directory is."""
    entries: dict[str, InstallEntry] = {}
    for each in staged:
        name = as_name or each.name
        before = records.get(name)
        since = before.installed_at if before is not None and before.installed_at else now()
        entries[name] = InstallEntry(each.source, since, now(), each.version, each.checksum)
        records.expect(name, entries[name])
    if not entries:
        return
    records.save()
    for number, each in enumerate(staged):
        moved(number)
        put_in_place(each.directory, packages / (as_name or each.name))
    moved(len(staged))
    for name, entry in entries.items():
        records.keep(name, entry)
    records.save()


def _decide(staged: Staged, target: Path, records: Records, force: bool) -> tuple[Action, str]:
    """What to do with a package, where something may be in its place."""
    if not os.path.lexists(target):
        return "installed", ""
    if target.is_symlink():
        why = f"it is a link to {os.readlink(target)}; `holdfast pkg unlink {staged.name}` first"
    elif not target.is_dir():
        why = "a file of that name is in the way"
    else:
        entry = records.get(staged.name)
        same = entry is not None and entry.source == staged.source and entry.checksum == staged.checksum
        if same and checksum(target) == staged.checksum:
            return "unchanged", "it is there already"
        if force or staged.source.type == "path" or (entry is not None and entry.source.url == staged.source.url):
            return "updated", ""
        came = f"from {entry.source}" if entry is not None else "from an unknown source"
        why = f"it is there already, {came}; --force replaces it"
    return "skipped", why


def _installed_package(staged: Staged, action: Action, why: str) -> InstalledPackage:
    return InstalledPackage(staged.name, action, staged.source, staged.version, staged.checksum, why)
