"""Which file a `require` means, and which packages there are. Only looking: `alc.packages` installs and removes.

The order: local variants, what the project pins or gives a path for, HOLDFAST_PACKAGES_PATH, ALC_PACKAGES_PATH, then
the user's directories (Holdfast's, then algocline's). The first file found is the one, even if it is broken.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from holdfast.alc.lua.meta import PackageMeta, read_meta
from holdfast.alc.lua.project import (
    LockedPackage,
    PackageRequirement,
    ProjectFiles,
    is_commit,
    is_version,
    read_project,
    versioned_name,
)
from holdfast.core.errors import ExitCode, HoldfastError
from holdfast.programs.names import invalid_name_reason
from holdfast.programs.paths import algocline_home, find_project, home, paths_in

__all__ = [
    "Package",
    "PackageMeta",
    "Roots",
    "find_module",
    "find_package",
    "find_roots",
    "list_packages",
    "read_meta",
]

Origin = Literal["variant", "project", "path", "user"]

BUILT_IN = frozenset(
    ["_G", "alc", "coroutine", "debug", "io", "lust", "math", "os", "package", "string", "table", "utf8"]
)
"""Modules that `require` has without a file, for this page's users to leave out of account."""

MAX_MODULE_NAME = 255
"""Characters of a module name; longer ones fit no file system."""


class ModuleNameError(HoldfastError):
    """A module name that could not be a file below a root."""

    name: str
    why: str
    kind = "invalid_module_name"

    def __str__(self) -> str:
        return f"invalid module name {self.name[:80]!r}: {self.why}"


class UnmetPinError(HoldfastError):
    """A project asks for a version of a package that is not there."""

    package: str
    why: str
    kind = "unmet_pin"
    exit_code = ExitCode.CONFLICT

    def __str__(self) -> str:
        return f"package '{self.package}': {self.why}"


class ModuleEscapeError(HoldfastError):
    """A module that is a link out of its root, where that is forbidden."""

    module: str
    file: str
    root: str
    kind = "module_escape"

    def __str__(self) -> str:
        return (
            f"module '{self.module}': {self.file} is a link that leaves {self.root},"
            " which HOLDFAST_PKG_STRICT (or ALC_PKG_STRICT) forbids"
        )


class Roots(msgspec.Struct, frozen=True):
    """Where modules are looked for, as the environment and the project's files say at one moment."""

    variants: dict[str, str] = {}
    """Directories of packages that a local file names. They win over everything."""
    pinned: dict[str, str] = {}
    """Directories of packages that the project has at a version or path. Their modules come from nowhere else."""
    roots: list[str] = []
    warnings: list[str] = []
    origins: dict[str, Origin] = {}
    """Where each of `roots` is from. Those of a `variant` or the `project` are directories of single packages."""
    unmet: dict[str, str] = {}
    """Packages whose pin nothing satisfies, and why: an error when one of them is required."""
    strict: bool = False
    """Links may not leave their root."""
    project: str | None = None


class Package(msgspec.Struct, frozen=True):
    """A package that was found."""

    name: str
    directory: str
    origin: Origin
    version: str | None = None
    meta: PackageMeta | None = None
    """None where it cannot be read without running the package."""
    active: bool = True
    """Whether `require` of the name finds this one."""
    overridden_by: str | None = None
    """The directory that is found instead."""
    link: str | None = None
    """The target, where the directory is a symbolic link."""
    error: str | None = None
    """Why the package cannot be used."""


def find_roots(project: Path | None = None, environ: Mapping[str, str] | None = None) -> Roots:
    """Where to look, now. Nothing is remembered, so what is installed later is found by the next call."""
    environ = os.environ if environ is None else environ
    warnings: list[str] = []
    files = read_project(find_project(project, environ, warnings))
    warnings += files.warnings
    variants, origins = _variants(files, warnings), dict[str, Origin]()
    for name, directory in variants.items():
        origins.setdefault(directory, "variant")
        origins.setdefault(str(files.local[name].path), "variant")
    installed = _search_path(environ, warnings)
    pinned, unmet = _pins(files, [str(each) for each in (*installed, *_user_roots(environ))], warnings)
    for name, directory in pinned.items():
        if _is_path(files, name):
            origins.setdefault(directory, "project")
    for root in installed:
        origins.setdefault(str(root), "path")
    for root in _user_roots(environ):
        origins.setdefault(str(root), "user")
    return Roots(
        variants=variants,
        pinned=pinned,
        roots=list(origins),
        warnings=warnings,
        origins=origins,
        unmet=unmet,
        strict=any(_is_on(environ.get(name)) for name in ("HOLDFAST_PKG_STRICT", "ALC_PKG_STRICT")),
        project=None if files.root is None else str(files.root),
    )


def find_module(roots: Roots, name: str) -> Path | None:
    """The file of a module, or None. A package whose pin is not met, or a forbidden link, is an error."""
    parts = module_parts(name)
    package, inner = parts[0], parts[1:]
    if package in roots.variants:
        found = _candidate(Path(roots.variants[package]), inner, name, roots.strict)
        if found is not None:
            return found
    elif package in roots.unmet:
        raise UnmetPinError(package, roots.unmet[package])
    elif package in roots.pinned:
        return _candidate(Path(roots.pinned[package]), inner, name, roots.strict)
    for root in roots.roots:
        found = _candidate(Path(root), parts, name, roots.strict)
        if found is not None:
            return found
    return None


def find_package(roots: Roots, name: str) -> Package | None:
    """The package that `require` of its name finds, or None. Raises what `find_module` does."""
    why = invalid_name_reason(name)
    if why is not None:
        raise ModuleNameError(name, why)
    file = find_module(roots, name)
    if file is None or file.name != "init.lua":
        return None
    return _package(name, file.parent, _origin(roots, name, file.parent))


def list_packages(roots: Roots) -> list[Package]:
    """Every package in every place, by name; those that another one hides are marked."""
    found: dict[str, list[Package]] = {}
    for name, directory, origin in _places(roots):
        package = _package(name, directory, origin)
        if all(package.directory != other.directory for other in found.get(name, [])):
            found.setdefault(name, []).append(package)
    listed: list[Package] = []
    for name in sorted(found):
        active = _active(roots, name)
        for package in found[name]:
            error = roots.unmet.get(name) if package.error is None and name not in roots.variants else package.error
            is_active = package.directory == active
            overridden = active if active is not None and not is_active else None
            listed.append(msgspec.structs.replace(package, active=is_active, overridden_by=overridden, error=error))
    listed.sort(key=lambda package: (package.name, not package.active))
    return listed


def module_parts(name: str) -> list[str]:
    """The parts of a dotted module name, checked so that they stay below a root."""
    parts = name.split(".")
    if not name or len(name) > MAX_MODULE_NAME:
        raise ModuleNameError(name, f"it has to have 1 to {MAX_MODULE_NAME} characters")
    if "" in parts:
        raise ModuleNameError(name, "a part between dots is empty")
    if not name.isprintable() or any(forbidden in name for forbidden in "/\\:"):
        raise ModuleNameError(name, "it may not contain slashes, colons or control characters")
    return parts


def _candidate(root: Path, parts: list[str], module: str, strict: bool) -> Path | None:
    inside = root.joinpath(*parts)
    places = [inside / "init.lua"] if not parts else [inside.with_name(f"{inside.name}.lua"), inside / "init.lua"]
    for file in places:
        if os.path.isfile(file):
            if strict and not file.resolve().is_relative_to(root.resolve()):
                raise ModuleEscapeError(module, str(file), str(root))
            return file
    return None


def _is_on(value: str | None) -> bool:
    return (value or "").strip().lower() in ("1", "true")


def _search_path(environ: Mapping[str, str], warnings: list[str]) -> list[Path]:
    found = []
    for variable in ("HOLDFAST_PACKAGES_PATH", "ALC_PACKAGES_PATH"):
        for path in paths_in(variable, environ):
            found.append(path)  # also one that is not there yet
            if path.exists() and not path.is_dir():
                warnings.append(f"{variable}: {path} is not a directory")
    return found


def _user_roots(environ: Mapping[str, str]) -> list[Path]:
    return [home(environ) / "packages", algocline_home(environ) / "packages"]


def _variants(files: ProjectFiles, warnings: list[str]) -> dict[str, str]:
    found = {}
    for name, entry in files.local.items():
        directory = Path(str(entry.path))
        if not directory.is_dir():
            warnings.append(f"{entry.file}: '{name}': {directory} is not a directory; it is not used")
        else:
            found[name] = str(_inside(directory, name))
    return found


def _is_path(files: ProjectFiles, name: str) -> bool:
    wanted, locked = files.wanted.get(name), files.locked.get(name)
    return (wanted is not None and wanted.path is not None) or (locked is not None and locked.path is not None)


# --- pins --------------------------------------------------------------------------------------


def _pins(files: ProjectFiles, roots: list[str], warnings: list[str]) -> tuple[dict[str, str], dict[str, str]]:
    """The directory of each package that the project fixes; and why there is none for the others."""
    pinned: dict[str, str] = {}
    unmet: dict[str, str] = {}
    for name in {**files.wanted, **files.locked}:
        wanted, locked = files.wanted.get(name), files.locked.get(name)
        result: Path | str | None = None
        if wanted is not None and wanted.path is not None:
            result = _at_path(wanted)
        elif wanted is not None and wanted.git is not None:
            result = _at_commit(wanted, locked, roots)
        elif wanted is not None and wanted.version is not None:
            result = _at_version(wanted, locked, roots)
        elif locked is not None:
            result = _as_locked(locked, roots, warnings)
        if isinstance(result, Path):
            pinned[name] = str(result)
        elif result is not None:
            unmet[name] = result
    return pinned, unmet


def _inside(directory: Path, name: str) -> Path:
    """The package's own directory, where a path may also mean the directory around it."""
    around = not (directory / "init.lua").is_file() and (directory / name / "init.lua").is_file()
    return directory / name if around else directory


def _at_path(wanted: PackageRequirement) -> Path | str:
    directory = _inside(Path(str(wanted.path)), wanted.name)
    if not (directory / "init.lua").is_file():
        return f"{wanted.file} says it is in {directory}, but there is no init.lua; correct the path"
    found = _version_of(directory)
    if wanted.version is not None and found != wanted.version:
        return (
            f"{wanted.file} asks for version {wanted.version}, but {directory} has"
            f" {found or 'a version that cannot be read from its meta'}; correct one of them"
        )
    return directory


def _at_commit(wanted: PackageRequirement, locked: LockedPackage | None, roots: list[str]) -> Path | str:
    commit = locked.rev if locked is not None and locked.url == wanted.git else None
    if wanted.rev is not None and is_commit(wanted.rev):
        commit = wanted.rev
    if commit is None or not is_commit(commit):
        return f"{wanted.file} asks for it from {wanted.git}, but it is not locked yet; run `holdfast pkg update`"
    for root in roots:
        directory = Path(root) / versioned_name(wanted.name, commit=commit)
        if (directory / "init.lua").is_file():
            return directory
    which = f"commit {commit[:12]} of {wanted.git}"
    return f"{wanted.file} asks for {which}, which is not installed; run `holdfast pkg update`"


def _at_version(wanted: PackageRequirement, locked: LockedPackage | None, roots: list[str]) -> Path | str:
    version = str(wanted.version)
    if not is_version(version):
        return f'{wanted.file} asks for version {version!r}; write "*" or an exact version such as "1.2.0"'
    if locked is not None and locked.path is not None:
        given = _inside(Path(locked.path), locked.name)
        if _version_of(given) == version:
            return given
    directory, seen = find_version(wanted.name, version, roots)
    if directory is not None:
        return directory
    found = f"found: {', '.join(seen)}" if seen else "it is not installed"
    return (
        f"{wanted.file} asks for version {version}, but {found}; install that version,"
        " or change the file and run `holdfast pkg update`"
    )


def _as_locked(locked: LockedPackage, roots: list[str], warnings: list[str]) -> Path | str | None:
    """What a lock file alone says: a path is used, and a version if it is kept apart. Else any version will do.

    No other metadata is read here, because a lock may name hundreds of packages, and this is part of every start.
    """
    if locked.path is not None:
        directory = _inside(Path(locked.path), locked.name)
        if (directory / "init.lua").is_file():
            return directory
        warnings.append(f"{locked.file}: '{locked.name}': there is no {directory / 'init.lua'}; it is not used")
        return None
    if locked.version is None or not is_version(locked.version):
        return None
    for root in roots:
        directory = Path(root) / versioned_name(locked.name, version=locked.version)
        if (directory / "init.lua").is_file() and _version_of(directory) in (locked.version, None):
            return directory
    return None


def find_version(name: str, version: str, roots: list[str]) -> tuple[Path | None, list[str]]:
    """The directory with this version of a package, and in `seen` what else there is."""
    seen: list[str] = []
    for root in roots:
        for directory in (Path(root) / versioned_name(name, version=version), Path(root) / name):
            if not (directory / "init.lua").is_file():
                continue
            found = _version_of(directory)
            if found == version or (found is None and directory.name != name):
                return directory, seen
            seen.append(f"{found or 'a version that cannot be read'} in {directory}")
    return None, seen


def _version_of(directory: Path) -> str | None:
    meta = read_meta(directory / "init.lua")
    return None if meta is None else meta.version


# --- packages ----------------------------------------------------------------------------------


def _places(roots: Roots) -> Iterator[tuple[str, Path, Origin]]:
    for name, directory in roots.variants.items():
        yield name, Path(directory), "variant"
    for name, directory in roots.pinned.items():
        yield name, Path(directory), "project"
    for root in roots.roots:
        origin = roots.origins.get(root, "path")
        if origin in ("variant", "project"):
            continue  # the directory of one package, named above
        try:
            entries = sorted(os.scandir(root), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            name, _, version = entry.name.partition("@")
            listed = invalid_name_reason(name) is None and (not version or is_version(version))
            is_package = os.path.isfile(os.path.join(entry.path, "init.lua"))
            if listed and (is_package or (entry.is_symlink() and not os.path.exists(entry.path))):
                yield name, Path(entry.path), origin


def _package(name: str, directory: Path, origin: Origin) -> Package:
    meta = read_meta(directory / "init.lua")
    version = meta.version if meta is not None else None
    _, _, in_name = directory.name.partition("@")
    link = os.readlink(directory) if directory.is_symlink() else None
    error = None
    if not (directory / "init.lua").is_file():
        error = f"the link leads to {link}, which is not there" if link else "there is no init.lua"
    return Package(name, str(directory), origin, version or in_name or None, meta, link=link, error=error)


def _origin(roots: Roots, name: str, directory: Path) -> Origin:
    if roots.variants.get(name) == str(directory):
        return "variant"
    if roots.pinned.get(name) == str(directory):
        return "project"
    return roots.origins.get(str(directory.parent), "path")


def _active(roots: Roots, name: str) -> str | None:
    try:
        file = find_module(roots, name)
    except HoldfastError:
        return None
    return None if file is None else str(file.parent)
