"""`installed.json`: which package was installed from where. Written under a lock, and true after a crash.

Before directories change, what they will be is written down as `pending`; whoever holds the lock next compares the
checksum, and keeps or drops it. So the file never speaks of a directory that a crash left as it was.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from holdfast.alc.packages.tree import checksum, finish_replacing
from holdfast.core.values import preview
from holdfast.programs.files import locked, write_atomically
from holdfast.programs.names import invalid_name_reason


class PackageSource(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a package came from. `type` is unknown, installed, path, git or bundled."""

    type: str = "unknown"
    path: str | None = None
    url: str | None = None
    rev: str | None = None
    collection: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The tagged form, with the keys that belong to the type."""
        keys = {"path": ("path",), "git": ("url", "rev"), "bundled": ("collection",)}.get(self.type, ())
        return {"type": self.type, **{key: getattr(self, key) for key in keys}}

    def __str__(self) -> str:
        if self.type == "git":
            return f"{self.url}@{self.rev[:12]}" if self.rev else str(self.url)
        return self.path or (f"bundled:{self.collection}" if self.collection else self.type)


class InstallEntry(msgspec.Struct):
    """The record of one installed package."""

    source: PackageSource
    installed_at: str
    updated_at: str
    version: str | None = None
    checksum: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "source": self.source.to_json(),
            "installed_at": self.installed_at,
            "updated_at": self.updated_at,
            "checksum": self.checksum,
        }


class Records:
    """The installed packages. Inside `changing` it may be changed; `save` writes it."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._file = home / "installed.json"
        self._raw: dict[str, Any] = {}
        self._damaged = False
        self.warnings: list[str] = []
        self._read()

    @classmethod
    @contextlib.contextmanager
    def changing(cls, home: Path) -> Iterator[Records]:
        """The records, with the right to change them and the directory of packages; others wait."""
        (home / "packages").mkdir(parents=True, exist_ok=True)
        with locked(home / "installed.json.lock"):
            finish_replacing(home / "packages")
            records = cls(home)
            records._settle()
            yield records

    def get(self, name: str) -> InstallEntry | None:
        """The record of a package (or of one version of it, as `name@version`)."""
        return _entry(self._packages().get(name))

    def names(self) -> list[str]:
        return sorted(self._packages())

    def expect(self, name: str, entry: InstallEntry) -> None:
        """Note what the directory of a package is about to become."""
        self._packages().setdefault(name, {})["pending"] = entry.to_json()

    def keep(self, name: str, entry: InstallEntry) -> None:
        """Note what the directory of a package has become. Keys that another program wrote stay."""
        raw = self._packages().setdefault(name, {})
        raw.pop("pending", None)
        raw.update(entry.to_json())

    def forget(self, name: str) -> bool:
        return self._packages().pop(name, None) is not None

    def save(self) -> None:
        if self._damaged:
            os.replace(self._file, self._file.with_name(f"{self._file.name}.damaged"))
            self._damaged = False
        self._raw["packages"] = dict(sorted(self._packages().items()))
        text = json.dumps(self._raw, indent=2, ensure_ascii=False)
        # Half a character, which another program may have written, becomes its escape in JSON again.
        write_atomically(self._file, text.encode("utf-8", "backslashreplace") + b"\n")

    def _packages(self) -> dict[str, Any]:
        packages: dict[str, Any] = self._raw.setdefault("packages", {})
        return packages

    def _read(self) -> None:
        try:
            raw = json.loads(self._file.read_bytes())
        except FileNotFoundError:
            return
        except (ValueError, RecursionError) as error:
            self._set_aside(f"it is not JSON ({error})")
            return
        packages = raw.get("packages", {}) if isinstance(raw, dict) else None
        if not isinstance(packages, dict):
            self._set_aside("it has no table of packages")
            return
        self._raw = raw
        for name, entry in list(packages.items()):
            why = invalid_name_reason(name.partition("@")[0]) or ("/" in name and "it is a path") or None
            if not isinstance(entry, dict):
                why = "it is not a table"
            if why is not None:
                self.warnings.append(f"{self._file}: the record of {preview(name)} is not used: {why}")
                del packages[name]

    def _set_aside(self, why: str) -> None:
        self.warnings.append(f"{self._file}: {why}; it counts as empty, and is kept as {self._file.name}.damaged")
        self._damaged = True

    def _settle(self) -> None:
        """Decide what a crash left open: did the directory become what was expected of it?"""
        changed = False
        for name, raw in list(self._packages().items()):
            pending = _entry(raw.pop("pending", None)) if "pending" in raw else None
            changed = changed or pending is not None
            directory = self._home / "packages" / name
            if pending is not None and os.path.isdir(directory) and checksum(directory) == pending.checksum:
                raw.update(pending.to_json())
            if not raw:
                del self._packages()[name]
        if changed:
            self.save()


def now() -> str:
    """The time of a record."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _entry(raw: object) -> InstallEntry | None:
    if not isinstance(raw, dict) or "source" not in raw:
        return None
    times = [raw.get(key) for key in ("installed_at", "updated_at")]
    installed, updated = (time if isinstance(time, str) else "" for time in times)
    texts = [raw.get(key) for key in ("version", "checksum")]
    version, found = (text if isinstance(text, str) else None for text in texts)
    return InstallEntry(_source(raw["source"]), installed, updated, version, found)


def _source(raw: object) -> PackageSource:
    """The source in its tagged form, or in the bare text of older files."""
    if isinstance(raw, str):
        if raw in ("", "bundled"):
            return PackageSource("bundled" if raw else "unknown")
        return PackageSource("path", path=raw) if os.path.isabs(raw) else PackageSource("git", url=raw)
    try:
        return msgspec.convert(raw, PackageSource)
    except (msgspec.ValidationError, UnicodeEncodeError):
        return PackageSource()
