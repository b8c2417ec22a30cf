"""`link`, `unlink` and `remove`: packages that are used where they are, and packages that are removed."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Literal

import msgspec

from holdfast.alc.lua.project import is_version, read_project, versioned_name
from holdfast.alc.packages.directories import PackageDirectories
from holdfast.alc.packages.errors import (
    PackageExistsError,
    PackageNameError,
    PackageNotFoundError,
    ProjectFileError,
    SourceError,
)
from holdfast.alc.packages.install import packages_in
from holdfast.alc.packages.project_files import family, forget_locked, set_package
from holdfast.alc.packages.records import Records
from holdfast.alc.packages.sources import SourceAddress
from holdfast.alc.packages.tree import staging, take_away
from holdfast.programs.files import locked
from holdfast.programs.names import invalid_name_reason

LinkScope = Literal["global", "variant"]
RemoveScope = Literal["project", "global", "all"]


class LinkReport(msgspec.Struct, omit_defaults=True):
    """What was linked."""

    linked: list[str]
    mode: str
    targets: dict[str, str]
    scope: LinkScope
    local_file: str | None = None
    """The local file that now names the packages."""


class UnlinkReport(msgspec.Struct, omit_defaults=True):
    """What was unlinked."""

    unlinked: str
    scope: LinkScope
    path: str


class RemoveReport(msgspec.Struct):
    """What was removed, and from where."""

    removed: str
    scope: RemoveScope
    deleted: list[str] = []
    """Directories that are gone."""
    changed: list[str] = []
    """Files that no longer name the package."""


def link(
    where: PackageDirectories, path: Path, *, name: str | None = None, force: bool = False, scope: LinkScope = "global"
) -> LinkReport:
    """Make packages in a directory available without a copy, for the user or only for this project."""
    directory = Path(os.path.abspath(os.path.expanduser(path)))
    if not directory.is_dir():
        raise SourceError(str(path), "there is no such directory")
    found = packages_in(directory, SourceAddress(str(path), path=str(directory)), name)
    for each in found:
        _check_name(each)
    mode = "single" if (directory / "init.lua").is_file() else "collection"
    targets = {each: str(target) for each, target in found.items()}
    if scope == "variant":
        if force:
            raise SourceError(str(path), "--force is for links in the user's directory; a variant replaces nothing")
        file = _local_file(where)
        with locked(file.parent):
            for each, target in targets.items():
                set_package(file, each, {"path": target})
        return LinkReport(list(found), mode, targets, scope, str(file))
    with Records.changing(where.home):
        for each in found:
            _check_free(where.packages / each, each, force)
        with staging(where.packages) as stage:
            for each, target in targets.items():
                _link(where.packages / each, target, stage)
    return LinkReport(list(found), mode, targets, scope)


def unlink(where: PackageDirectories, name: str) -> UnlinkReport:
    """Remove the link to a package, or the variant of this project. What it led to stays."""
    _check_name(name)
    place = where.packages / name
    if place.is_symlink():
        with Records.changing(where.home):
            place.unlink()
        return UnlinkReport(name, "global", str(place))
    root = where.root
    entry = read_project(root).local.get(name)
    if root is not None and entry is not None:
        with locked(root):
            set_package(Path(entry.file), name, None)
        return UnlinkReport(name, "variant", entry.file)
    if place.is_dir():
        raise PackageExistsError(name, str(place), "it is installed, not linked; `holdfast pkg remove` removes it")
    raise PackageNotFoundError(name, f"there is no link at {place}, and no variant in the project")


def remove(
    where: PackageDirectories,
    name: str,
    *,
    scope: RemoveScope | None = None,
    version: str | None = None,
    keep_files: bool = False,
) -> RemoveReport:
    """Remove a package from the project's files, from the user's directory, or from both.

    Without a scope, it goes from the project if that names it, else from the user's directory.
    """
    _check_name(name)
    if version is not None and not is_version(version):
        raise PackageNameError(f"{name}@{version}", "that is not a version")
    root = where.root
    files = read_project(root)
    if scope is None:
        scope = "project" if name in files.wanted or name in files.locked else "global"
    report = RemoveReport(name, scope)
    if scope in ("project", "all"):
        if root is None and scope == "project":
            raise ProjectFileError(str(Path.cwd()), "no project here")
        if root is not None:
            _remove_from_project(root, name, version, report)
    if scope in ("global", "all"):
        _remove_from_user(where, name, version, keep_files, report)
    if not report.deleted and not report.changed:
        places = {"project": str(root), "global": str(where.packages), "all": f"{root} and {where.packages}"}
        raise PackageNotFoundError(name, f"looked in {places[scope]}; `holdfast pkg list` shows what there is")
    return report


def _check_name(name: str) -> None:
    why = invalid_name_reason(name)
    if why is not None:
        raise PackageNameError(name, why)


def _local_file(where: PackageDirectories) -> Path:
    root = where.root
    if root is None:
        raise ProjectFileError(str(Path.cwd()), "a variant belongs to a project; `holdfast pkg init` makes one")
    return root / f"{family(root)}.local.toml"


def _check_free(place: Path, name: str, force: bool) -> None:
    if not os.path.lexists(place) or force:
        return
    if place.is_symlink():
        raise PackageExistsError(name, str(place), f"a link to {os.readlink(place)}; --force replaces it")
    raise PackageExistsError(name, str(place), "it is installed there; --force replaces it")


def _link(place: Path, target: str, stage: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        take_away(place, stage)
    made = stage / f"link-{secrets.token_hex(4)}"
    os.symlink(target, made)
    os.replace(made, place)


def _remove_from_project(root: Path, name: str, version: str | None, report: RemoveReport) -> None:
    with locked(root):
        for own in ("holdfast", "alc"):
            file, lock = root / f"{own}.toml", root / f"{own}.lock"
            if version is None and file.is_file() and set_package(file, name, None):
                report.changed.append(str(file))
            if lock.is_file() and forget_locked(lock, name, version):
                report.changed.append(str(lock))


def _remove_from_user(
    where: PackageDirectories, name: str, version: str | None, keep_files: bool, report: RemoveReport
) -> None:
    entry = name if version is None else versioned_name(name, version=version)
    place = where.packages / entry
    if place.is_symlink():
        raise PackageExistsError(name, str(place), "it is a link; `holdfast pkg unlink` removes it")
    with staging(where.packages) as stage, Records.changing(where.home) as records:
        if records.forget(entry):
            records.save()
            report.changed.append(str(where.home / "installed.json"))
        if place.is_dir() and not keep_files:
            take_away(place, stage)
            report.deleted.append(str(place))
