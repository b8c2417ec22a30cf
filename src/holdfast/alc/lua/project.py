"""Where Lua packages are looked for outside a package: the app directory, the project, and its three files.

Nothing here is read at import: environment and files are looked at when they are needed, by one rule for every user.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from holdfast.programs.names import invalid_name_reason
from holdfast.programs.paths import PROJECT_NAMES

LOCK_VERSION = 1

_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]{0,63}", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40,64}")


class PackageRequirement(msgspec.Struct, frozen=True):
    """A package that a project file asks for: any version, one version, a directory, or a git revision."""

    name: str
    file: str
    version: str | None = None
    path: str | None = None
    git: str | None = None
    rev: str | None = None


class LockedPackage(msgspec.Struct, frozen=True):
    """A package as a lock file found it."""

    name: str
    file: str
    version: str | None = None
    type: str = "unknown"
    path: str | None = None
    url: str | None = None
    rev: str | None = None
    checksum: str | None = None


class ProjectFiles(msgspec.Struct, frozen=True):
    """What the files of a project say, the two families merged."""

    root: Path | None = None
    wanted: dict[str, PackageRequirement] = {}
    locked: dict[str, LockedPackage] = {}
    local: dict[str, PackageRequirement] = {}
    """From the local file, which has only directories and is not shared."""
    warnings: list[str] = []


def read_project(root: Path | None) -> ProjectFiles:
    """All that a project's files say. What cannot be used is in `warnings`, with its file and the reason."""
    files = ProjectFiles(root)
    if root is None:
        return files
    for family in PROJECT_NAMES:
        for into, file in ((files.wanted, f"{family}.toml"), (files.local, f"{family}.local.toml")):
            for entry in _wanted(root / file, files.warnings):
                into.setdefault(entry.name, entry)
        for locked in _locked(root / f"{family}.lock", files.warnings):
            files.locked.setdefault(locked.name, locked)
    for name, entry in list(files.local.items()):
        if entry.path is None:
            files.warnings.append(f"{entry.file}: '{name}' has no path; a local file has only directories; not used")
            del files.local[name]
    return files


def is_version(version: str) -> bool:
    """Whether this can be an exact version (and so the end of a directory name)."""
    return _VERSION.fullmatch(version) is not None


def is_commit(rev: str) -> bool:
    """Whether this is the full hash of a commit."""
    return _COMMIT.fullmatch(rev) is not None


def versioned_name(name: str, *, version: str | None = None, commit: str | None = None) -> str:
    """The directory of one version of a package, beside the one that is used where no version is asked for."""
    return f"{name}@{commit[:12] if commit else version}"


def read_toml(path: Path, warnings: list[str]) -> dict[str, Any]:
    """A TOML file; empty if it is absent, or if it cannot be read, which is then in `warnings`."""
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        why = error.strerror or str(error)
    except UnicodeDecodeError:
        why = "it is not text in UTF-8"
    except ValueError as error:  # not TOML, or a number of more digits than Python reads
        why = str(error)
    except RecursionError:
        why = "it is nested too deeply"
    warnings.append(f"{path}: {why}; the file is not used")
    return {}


def _wanted(path: Path, warnings: list[str]) -> Iterator[PackageRequirement]:
    packages = read_toml(path, warnings).get("packages", {})
    if not isinstance(packages, dict):
        warnings.append(f"{path}: [packages] is not a table; it is not used")
        return
    for name, value in packages.items():
        found = _wanted_entry(name, value, path)
        if isinstance(found, str):
            warnings.append(f"{path}: package '{name}': {found}; it is not used")
        else:
            yield found


def _wanted_entry(name: str, value: object, path: Path) -> PackageRequirement | str:
    why = invalid_name_reason(name)
    if why is not None:
        return why
    if isinstance(value, str):
        value = {"version": value}
    if not isinstance(value, dict):
        return "it has to be a version or a table"
    given = {key: value[key] for key in ("version", "path", "git", "rev") if key in value}
    if not given:
        return "it names no version, no path and no git"
    for key, text in given.items():
        if not isinstance(text, str) or not text or "\0" in text:
            return f"{key} has to be text"
    if given.get("version") == "*":
        del given["version"]
    if "path" in given:
        given["path"] = os.path.normpath(path.parent / os.path.expanduser(given["path"]))
    return PackageRequirement(name, str(path), **given)


def _locked(path: Path, warnings: list[str]) -> Iterator[LockedPackage]:
    lock = read_toml(path, warnings)
    if not lock:
        return
    if lock.get("version") != LOCK_VERSION:
        warnings.append(f"{path}: lock version {lock.get('version')!r} is not {LOCK_VERSION}; the file is not used")
        return
    entries = lock.get("package", [])
    for number, entry in enumerate(entries if isinstance(entries, list) else [entries], 1):
        found = _locked_entry(entry, path)
        if isinstance(found, str):
            warnings.append(f"{path}: package {number}: {found}; it is not used")
        else:
            yield found


_LOCKED_KEYS = {
    "version": "package",
    "checksum": "package",
    "type": "source",
    "path": "source",
    "url": "source",
    "rev": "source",
}
"""The keys of a lock's entry, and the table each stands in."""


def _locked_entry(entry: object, path: Path) -> LockedPackage | str:
    if not isinstance(entry, dict):
        return "it is not a table"
    why = invalid_name_reason(entry.get("name"))
    if why is not None:
        return why
    source = entry.get("source", {})
    if isinstance(source, str):
        source = {"type": source}
    if not isinstance(source, dict):
        return "its source is not a table"
    given: dict[str, str] = {}
    for key, table in _LOCKED_KEYS.items():
        text = (entry if table == "package" else source).get(key)
        if text is not None and (not isinstance(text, str) or "\0" in text):
            return f"{key} has to be text"
        if text is not None:
            given[key] = text
    if given.get("type") == "path" and not given.get("path"):
        return "its source is a path, but it has none"
    if given.get("path"):
        given["path"] = os.path.normpath(path.parent / os.path.expanduser(given["path"]))
    return LockedPackage(entry["name"], str(path), **given)
