"""Changing the files of a project: entries in its file, its local file and its lock. Comments stay where they can."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from holdfast.alc.lua.project import LOCK_VERSION, LockedPackage
from holdfast.alc.packages.errors import ProjectFileError
from holdfast.programs.files import locked, write_atomically
from holdfast.programs.paths import PROJECT_NAMES

if TYPE_CHECKING:
    from holdfast.alc.packages.install import InstalledPackage

_HEADER = re.compile(r"^\s*\[\s*packages\s*\]\s*(#.*)?$")
_ANY_HEADER = re.compile(r"^\s*\[")
_LOCK_COMMENT = "# Written by `holdfast pkg`; change the project's file instead, and run `holdfast pkg update`.\n"


def family(root: Path) -> str:
    """Which of the two families of files a project uses: ours, unless it only has the other one."""
    for name in PROJECT_NAMES:
        if (root / f"{name}.toml").is_file():
            return name
    return PROJECT_NAMES[0]


def set_package(path: Path, name: str, value: str | dict[str, str] | None) -> bool:
    """Give a package a value in `[packages]` of a file, or remove it with None; whether that changed anything."""
    text, before = _read(path)
    packages = before.get("packages", {})
    if not isinstance(packages, dict):
        raise ProjectFileError(str(path), "[packages] is not a table; correct it by hand")
    if packages.get(name) == value:
        return False
    after = {**before, "packages": {key: each for key, each in packages.items() if key != name}}
    if value is not None:
        after["packages"][name] = value
    edited = _edited(text, name, value)
    if _parsed(edited) != after:
        # The file has a form that lines cannot express. What it says stays; its comments do not.
        edited = tomli_w.dumps(after)
    write_atomically(path, edited.encode())
    return True


def set_locked(path: Path, entries: Iterable[LockedPackage], *, replace: bool = False) -> None:
    """Write entries into a lock file; those of other packages stay, unless all are replaced."""
    _, before = _read(path)
    if before and before.get("version") != LOCK_VERSION:
        raise ProjectFileError(str(path), f"its version is not {LOCK_VERSION}; a newer program wrote it")
    old = before.get("package", [])
    kept = {} if replace or not isinstance(old, list) else {e["name"]: e for e in old if _named(e)}
    for entry in entries:
        kept[entry.name] = _lock_entry(entry, path.parent)
    lock = {"version": LOCK_VERSION, "package": [kept[name] for name in sorted(kept)]}
    write_atomically(path, (_LOCK_COMMENT + tomli_w.dumps(lock)).encode())


def forget_locked(path: Path, name: str, version: str | None = None) -> bool:
    """Remove a package from a lock file; whether it was there."""
    _, before = _read(path)
    found = before.get("package", [])
    old = [entry for entry in found if _named(entry)] if isinstance(found, list) else []
    kept = [e for e in old if e["name"] != name or (version is not None and e.get("version") != version)]
    if len(kept) == len(old):
        return False
    write_atomically(path, (_LOCK_COMMENT + tomli_w.dumps({**before, "package": kept})).encode())
    return True


def record_installed(root: Path, packages: Iterable[InstalledPackage]) -> list[str]:
    """Name newly installed packages in a project's file and lock; what could not be done."""
    name = family(root)
    entries = []
    try:
        with locked(root):
            for package in packages:
                _, project = _read(root / f"{name}.toml")
                named = project.get("packages", {})
                if not isinstance(named, dict) or package.name not in named:
                    set_package(root / f"{name}.toml", package.name, "*")
                entries.append(
                    LockedPackage(
                        package.name,
                        "",
                        package.version,
                        package.source.type if package.source.type == "git" else "installed",
                        url=package.source.url,
                        rev=package.source.rev,
                        checksum=package.checksum,
                    )
                )
            if entries:
                set_locked(root / f"{name}.lock", entries)
    except (ProjectFileError, OSError) as error:
        return [f"the packages are installed, but the project does not name them: {error}"]
    return []


def _named(entry: object) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("name"), str)


def _lock_entry(entry: LockedPackage, root: Path) -> dict[str, Any]:
    source = {"type": entry.type}
    if entry.type == "path" and entry.path is not None:
        path = Path(entry.path)
        # Inside the project a path is kept relative, so that the lock is right in every checkout.
        source["path"] = str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
    if entry.type == "git":
        source |= {key: value for key, value in (("url", entry.url), ("rev", entry.rev)) if value is not None}
    made: dict[str, Any] = {"name": entry.name}
    made |= {key: value for key, value in (("version", entry.version), ("checksum", entry.checksum)) if value}
    return {**made, "source": source}


def _read(path: Path) -> tuple[str, dict[str, Any]]:
    try:
        text = path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return "", {}
    except UnicodeDecodeError:
        raise ProjectFileError(str(path), "it is not text in UTF-8; correct it by hand") from None
    try:
        return text, tomllib.loads(text)
    except ValueError as error:  # not TOML, or a number of more digits than Python reads
        raise ProjectFileError(str(path), f"it is not TOML ({error}); correct it by hand") from None
    except RecursionError:
        raise ProjectFileError(str(path), "it is nested too deeply; correct it by hand") from None


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except ValueError:
        return None


def _edited(text: str, name: str, value: str | dict[str, str] | None) -> str:
    """The text of a file with one line of `[packages]` changed, added or removed."""
    lines = text.splitlines()
    line = f"{name} = {_inline(value)}" if value is not None else None
    header = next((number for number, each in enumerate(lines) if _HEADER.match(each)), None)
    if header is None:
        return text if line is None else "\n".join([*lines, *([""] if lines else []), "[packages]", line, ""])
    end = next((n for n in range(header + 1, len(lines)) if _ANY_HEADER.match(lines[n])), len(lines))
    key = re.compile(rf"""^\s*(?:{re.escape(name)}|"{re.escape(name)}"|'{re.escape(name)}')\s*=""")
    at = next((number for number in range(header + 1, end) if key.match(lines[number])), None)
    if at is not None:
        lines[at : at + 1] = [] if line is None else [line]
    elif line is not None:
        while end > header + 1 and not lines[end - 1].strip():
            end -= 1
        lines.insert(end, line)
    return "\n".join(lines) + "\n"


def _inline(value: str | dict[str, str]) -> str:
    # Text in JSON's form is also a basic string of TOML, but for the character DEL.
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
    return "{ " + ", ".join(f"{key} = {_inline(each)}" for key, each in value.items()) + " }"
