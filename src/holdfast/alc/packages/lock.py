"""`init` and `update`: make a project's file, and bring its lock up to date with it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from holdfast.alc.lua.meta import read_meta
from holdfast.alc.lua.packages import find_package, find_roots, find_version
from holdfast.alc.lua.project import (
    LockedPackage,
    PackageRequirement,
    is_commit,
    is_version,
    read_project,
    versioned_name,
)
from holdfast.alc.packages.directories import PackageDirectories
from holdfast.alc.packages.errors import ProjectFileError, SourceError
from holdfast.alc.packages.git import TIMEOUT_S, fetch
from holdfast.alc.packages.install import packages_in, place, stage_package
from holdfast.alc.packages.project_files import family, set_locked
from holdfast.alc.packages.records import PackageSource, Records
from holdfast.alc.packages.sources import parse_source, public_url
from holdfast.alc.packages.tree import checksum, staging
from holdfast.core.errors import HoldfastError
from holdfast.programs.files import locked, write_atomically
from holdfast.programs.paths import PROJECT_NAMES

_PROJECT_FILE = """\
# Lua packages of this project. `holdfast pkg update` locks them.
#   name = "*"                              any version that is installed
#   name = "1.2.0"                          exactly this version
#   name = { path = "lua/name" }            a directory of this project
#   name = { git = "https://…", rev = "…" } a branch, tag or commit

[packages]
"""


class InitReport(msgspec.Struct):
    """What `init` made."""

    created: str
    gitignore_path: str
    gitignore_updated: bool


class UpdateReport(msgspec.Struct):
    """What `update` locked, and what it could not."""

    lock: str
    resolved: list[LockedPackage] = []
    errors: dict[str, str] = {}
    warnings: list[str] = []

    def to_json(self) -> dict[str, object]:
        packages = [{"name": each.name, "version": each.version, "checksum": each.checksum} for each in self.resolved]
        errors = [f"'{name}': {why}" for name, why in self.errors.items()]
        return {
            "resolved": len(self.resolved),
            "packages": packages,
            "errors": errors,
            "lock": self.lock,
            "alc_lock": self.lock,
            "warnings": self.warnings,
        }


def init(where: PackageDirectories) -> InitReport:
    """Make a project file here, and keep what is local out of version control."""
    root = (where.project or Path.cwd()).absolute()
    if not root.is_dir():
        raise ProjectFileError(str(root), "there is no such directory")
    for name in PROJECT_NAMES:
        if (root / f"{name}.toml").exists():
            raise ProjectFileError(str(root / f"{name}.toml"), "it is there already; nothing was changed")
    file = root / f"{_family_of_new(root)}.toml"
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(_PROJECT_FILE)
    except FileExistsError:
        raise ProjectFileError(str(file), "it is there already; nothing was changed") from None
    ignored = root / ".gitignore"
    text = ignored.read_bytes().decode("utf-8", "surrogateescape") if ignored.exists() else ""
    wanted = [f"{name}.local.toml" for name in PROJECT_NAMES]
    missing = [line for line in wanted if line not in text.splitlines()]
    if missing:
        lead = "" if not text or text.endswith("\n") else "\n"
        write_atomically(ignored, (text + lead + "\n".join(missing) + "\n").encode("utf-8", "surrogateescape"))
    return InitReport(str(file), str(ignored), bool(missing))


def _family_of_new(root: Path) -> str:
    """Which of the two families of files a new project has: algocline's where its other files are already."""
    ours, algocline = PROJECT_NAMES
    has_theirs = any((root / name).exists() for name in (f"{algocline}.lock", f"{algocline}.local.toml"))
    return algocline if has_theirs else ours


def update(where: PackageDirectories, timeout: float = TIMEOUT_S) -> UpdateReport:
    """Find every package that the project asks for, fetch what comes from git, and write the lock.

    A package that cannot be found keeps its former line in the lock.
    """
    root = where.root
    if root is None:
        raise ProjectFileError(str(Path.cwd()), "no project here; `holdfast pkg init` makes one")
    if not any((root / f"{name}.toml").is_file() for name in PROJECT_NAMES):
        raise ProjectFileError(
            str(root), "it has no project file, so nothing was locked; `holdfast pkg init` makes one"
        )
    files = read_project(root)
    report = UpdateReport(str(root / f"{family(root)}.lock"), warnings=list(files.warnings))
    kept: list[LockedPackage] = []
    with locked(root):
        for name, wanted in files.wanted.items():
            try:
                report.resolved.append(_resolve(wanted, files.locked.get(name), where, timeout))
            except HoldfastError as error:
                report.errors[name] = str(error)
                if name in files.locked:
                    kept.append(files.locked[name])
        set_locked(Path(report.lock), [*kept, *report.resolved], replace=True)
    return report


def _resolve(
    wanted: PackageRequirement, before: LockedPackage | None, where: PackageDirectories, timeout: float
) -> LockedPackage:
    if wanted.git is not None:
        return _from_git(wanted, before, where, timeout)
    if wanted.path is not None:
        return _from_path(wanted)
    if wanted.version is not None:
        return _at_version(wanted, where)
    roots = msgspec.structs.replace(find_roots(where.project, where.environ), variants={}, pinned={}, unmet={})
    package = find_package(roots, wanted.name)
    if package is None:
        raise ProjectFileError(wanted.file, f"it is not installed; `holdfast pkg install` brings it ({wanted.name})")
    return _lock_of(wanted.name, Path(package.directory), where)


def _lock_of(name: str, directory: Path, where: PackageDirectories) -> LockedPackage:
    """What a lock says of a directory: where it came from, as long as it is what was installed."""
    meta = read_meta(directory / "init.lua")
    found = checksum(directory.resolve())
    entry = Records(where.home).get(directory.name)
    version = meta.version if meta is not None else None
    if entry is not None and entry.checksum == found and entry.source.type == "git":
        return LockedPackage(name, "", version, "git", url=entry.source.url, rev=entry.source.rev, checksum=found)
    return LockedPackage(name, "", version, "installed", checksum=found)


def _from_path(wanted: PackageRequirement) -> LockedPackage:
    directory = Path(str(wanted.path))
    if not (directory / "init.lua").is_file() and (directory / wanted.name / "init.lua").is_file():
        directory = directory / wanted.name
    if not (directory / "init.lua").is_file():
        raise ProjectFileError(wanted.file, f"there is no {directory / 'init.lua'}; correct the path")
    meta = read_meta(directory / "init.lua")
    version = meta.version if meta is not None else None
    if wanted.version is not None and version != wanted.version:
        raise ProjectFileError(wanted.file, f"it asks for {wanted.version}, but {directory} has {version}")
    return LockedPackage(wanted.name, "", version, "path", path=str(directory))


def _at_version(wanted: PackageRequirement, where: PackageDirectories) -> LockedPackage:
    version = str(wanted.version)
    roots = where.roots()
    searched = [root for root in roots.roots if roots.origins.get(root) in ("path", "user")]
    found, seen = find_version(wanted.name, version, searched) if is_version(version) else (None, [])
    if found is None:
        there = f"found: {', '.join(seen)}" if seen else "it is not installed"
        raise ProjectFileError(wanted.file, f"it asks for {wanted.name} {version}, but {there}")
    if "@" not in found.name and roots.origins.get(str(found.parent)) == "user":
        # Kept apart, so that a later install of another version does not take it from this project.
        found = _keep_version(wanted.name, version, found, where)
    return _lock_of(wanted.name, found, where)


def _keep_version(name: str, version: str, directory: Path, where: PackageDirectories) -> Path:
    target = versioned_name(name, version=version)
    entry = Records(where.home).get(directory.name)
    source = entry.source if entry is not None else PackageSource("installed")
    with staging(where.packages) as stage:
        staged = stage_package(name, directory.resolve(), stage / name, source, False)
        with Records.changing(where.home) as records:
            if not (where.packages / target / "init.lua").is_file():
                place(where.packages, [staged], records, as_name=target)
    return where.packages / target


def _from_git(
    wanted: PackageRequirement, before: LockedPackage | None, where: PackageDirectories, timeout: float
) -> LockedPackage:
    source = parse_source(str(wanted.git), wanted.rev)
    if source.url is None:
        raise SourceError(str(wanted.git), "it is a directory, not a git repository; give it as path")
    if wanted.rev is not None and is_commit(wanted.rev):
        there = where.packages / versioned_name(wanted.name, commit=wanted.rev)
        if (there / "init.lua").is_file():
            return _git_lock(wanted, there, wanted.rev)
    with staging(where.packages) as stage:
        commit = fetch(source.url, wanted.rev, stage / "checkout", where.environ, timeout)
        found = packages_in(stage / "checkout", source)
        single = (stage / "checkout" / "init.lua").is_file()
        directory = next(iter(found.values())) if single else found.get(wanted.name)
        if directory is None:
            raise SourceError(str(wanted.git), f"it has no package '{wanted.name}'")
        record = PackageSource("git", url=public_url(source.url), rev=commit)
        staged = stage_package(wanted.name, directory, stage / "ready" / wanted.name, record, False)
        if wanted.version is not None and staged.version != wanted.version:
            raise ProjectFileError(wanted.file, f"it asks for {wanted.version}, but {commit[:12]} is {staged.version}")
        if before is not None and before.rev == commit and before.checksum not in (None, staged.checksum):
            raise ProjectFileError(before.file, f"commit {commit[:12]} no longer has the checksum that is locked")
        target = versioned_name(wanted.name, commit=commit)
        with Records.changing(where.home) as records:
            if not (where.packages / target / "init.lua").is_file():
                place(where.packages, [staged], records, as_name=target)
    return _git_lock(wanted, where.packages / target, commit)


def _git_lock(wanted: PackageRequirement, directory: Path, commit: str) -> LockedPackage:
    meta = read_meta(directory / "init.lua")
    version = meta.version if meta is not None else None
    return LockedPackage(wanted.name, "", version, "git", url=wanted.git, rev=commit, checksum=checksum(directory))
