"""The lock of an older project, which named its local packages itself: they move to `alc.toml`."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

import tomli_w

from holdfast.alc.packages.errors import ProjectFileError
from holdfast.core.values import Json
from holdfast.programs.files import write_atomically

NOTE = "Run alc_update to generate new alc.lock"


def migrate_lock(root: Path) -> dict[str, Json]:
    """Turn an old `alc.lock` into `alc.toml`. The lock is kept as `alc.lock.bak`."""
    lock, target = root / "alc.lock", root / "alc.toml"
    if not lock.is_file():
        return {"status": "nothing to migrate", "reason": "alc.lock not found"}
    packages = _local_packages(lock)
    if packages is None:
        return {"status": "nothing to migrate", "reason": "already new format or no local_dir entries"}
    if target.exists():
        why = f"alc.toml already exists at {target}. Remove it first or migrate manually."
        raise ProjectFileError(str(target), why)
    write_atomically(target, tomli_w.dumps({"packages": packages}).encode())
    backup = _free_name(lock.with_name("alc.lock.bak"))
    os.rename(lock, backup)
    return {"migrated": True, "alc_toml": str(target), "backup": str(backup), "note": NOTE}


def _local_packages(lock: Path) -> dict[str, dict[str, str]] | None:
    """The packages that an old lock has at paths; None if it is not an old one."""
    try:
        entries = tomllib.loads(lock.read_text(encoding="utf-8")).get("package")
    except (ValueError, OSError) as error:
        raise ProjectFileError(str(lock), f"it cannot be read ({error})") from None
    tables: list[dict[str, Any]] = []
    if isinstance(entries, list):
        tables = [each for each in entries if isinstance(each, dict)]
    if not any("linked_at" in each or _local_path(each) is not None for each in tables):
        return None
    found: dict[str, dict[str, str]] = {}
    for each in tables:
        name, path = each.get("name"), _local_path(each)
        if isinstance(name, str) and path is not None:
            found[name] = {"path": path}
    return found


def _local_path(entry: dict[str, Any]) -> str | None:
    source = entry.get("source")
    if not isinstance(source, dict) or source.get("type") != "local_dir":
        return None
    path = source.get("path")
    return path if isinstance(path, str) else None


def _free_name(path: Path) -> Path:
    number = 1
    free = path
    while os.path.lexists(free):
        number += 1
        free = path.with_name(f"{path.name}{number}")
    return free
