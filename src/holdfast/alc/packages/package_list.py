"""The list of packages, with where each came from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from holdfast.alc.lua.packages import Package, Roots, list_packages
from holdfast.alc.packages.directories import PackageDirectories
from holdfast.alc.packages.project_files import family
from holdfast.alc.packages.records import InstallEntry, Records

SYSTEM_PACKAGES = {"evalframe"}
"""Packages that others need and nobody runs: found by `require`, left out of lists."""

_SCOPES = {"variant": "variant", "project": "project", "path": "global", "user": "global"}


class PackageEntry(msgspec.Struct, frozen=True):
    """A package, and what is recorded of its install."""

    package: Package
    record: InstallEntry | None

    def to_json(self) -> dict[str, Any]:
        """The package as JSON; keys of its own metadata come last, and overwrite nothing."""
        package, record = self.package, self.record
        shown: dict[str, Any] = {
            "name": package.name,
            "scope": _SCOPES[package.origin],
            "origin": package.origin,
            "active": package.active,
            "version": package.version,
            "path": package.directory,
            "resolved_source_path": package.link or package.directory,
            "resolved_source_kind": self._kind(),
        }
        if package.meta is not None:
            shown["type"] = package.meta.type
        if record is not None:
            shown |= {
                "source_type": record.source.type,
                "source": record.source.to_json(),
                "install_source": str(record.source),
                "installed_at": record.installed_at,
                "updated_at": record.updated_at,
                "checksum": record.checksum,
            }
        if package.link is not None:
            shown |= {"linked": True, "link_target": package.link, "broken": package.error is not None}
        if package.overridden_by is not None:
            shown["overridden_by"] = package.overridden_by
        if package.error is not None:
            shown["error"] = package.error
        own = package.meta.values if package.meta is not None else {}
        return shown | {key: value for key, value in own.items() if key not in shown}

    def _kind(self) -> str:
        if self.package.origin == "variant":
            return "variant"
        if self.package.link is not None:
            return "linked"
        if self.record is not None:
            return "bundled" if self.record.source.type == "bundled" else "installed"
        return "local_path" if self.package.origin in ("project", "path") else "installed"


class PackageList(msgspec.Struct):
    """All packages, and where they were looked for."""

    packages: list[PackageEntry]
    roots: Roots
    warnings: list[str] = []

    def to_json(self) -> dict[str, Any]:
        paths = [{"path": root, "source": self.roots.origins.get(root, "path")} for root in self.roots.roots]
        shown: dict[str, Any] = {"packages": [each.to_json() for each in self.packages], "search_paths": paths}
        if self.roots.project is not None:
            root = Path(self.roots.project)
            shown |= {"project_root": str(root), "lockfile_path": str(root / f"{family(root)}.lock")}
        return {**shown, "warnings": self.warnings}


def listing(where: PackageDirectories) -> PackageList:
    """Every package that can be found, and those that another one hides."""
    roots = where.roots()
    records = Records(where.home)
    listed = []
    for package in list_packages(roots):
        if package.name in SYSTEM_PACKAGES:
            continue
        directory = Path(package.directory)
        record = records.get(directory.name) if directory.parent == where.packages else None
        listed.append(PackageEntry(package, record))
    return PackageList(listed, roots, [*roots.warnings, *records.warnings])
