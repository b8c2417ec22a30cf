"""The logs of sessions that algocline has run: files, which are shown beside the sessions of the store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from holdfast.alc.hub.source_tree import SourceTree
from holdfast.core.errors import HoldfastError
from holdfast.core.values import Json
from holdfast.programs.paths import algocline_home, home

META_SUFFIX = ".meta.json"

MAX_LISTED = 10_000
"""Logs that are looked at for a list."""


def log_document(session_id: str) -> dict[str, Json] | None:
    """The log of a session of algocline's; None if there is none."""
    if "/" in session_id or session_id.startswith("."):
        return None
    for folder in log_folders():
        try:
            data = SourceTree(folder, str(folder)).read(f"{session_id}.json")
            document = None if data is None else msgspec.json.decode(data)
        except (HoldfastError, msgspec.DecodeError, ValueError, RecursionError):
            continue
        if isinstance(document, dict):
            return {**document, "session_id": session_id, "transcript": _list(document.get("transcript"))}
    return None


def log_metas(limit: int) -> list[dict[str, Json]]:
    """What lists show of the logs, the latest first."""
    found: dict[str, tuple[float, Path]] = {}
    for folder in log_folders():
        for changed, file in _meta_files(folder):
            found.setdefault(file.name, (changed, file))
    latest = sorted(found.values(), key=lambda each: each[0], reverse=True)[:limit]
    return [meta for _, file in latest if (meta := _meta(file)) is not None]


def log_folders() -> list[Path]:
    """Where logs of algocline's are: where it was told to write them, in its directory, and where they were adopted."""
    given = os.environ.get("ALC_LOG_DIR")
    places = [Path(given).expanduser()] if given else []
    return list(dict.fromkeys([*places, home() / "logs", algocline_home() / "logs"]))


def _meta_files(folder: Path) -> Iterator[tuple[float, Path]]:
    try:
        with os.scandir(folder) as entries:
            for number, entry in enumerate(entries):
                if number >= MAX_LISTED:
                    return
                if entry.name.endswith(META_SUFFIX) and entry.is_file(follow_symlinks=False):
                    yield entry.stat().st_mtime, Path(entry.path)
    except OSError:
        return


def _meta(file: Path) -> dict[str, Json] | None:
    try:
        data = SourceTree(file.parent, str(file.parent)).read(file.name)
        meta = msgspec.json.decode(data or b"")
    except (HoldfastError, msgspec.DecodeError, ValueError, RecursionError):
        return None
    return meta if isinstance(meta, dict) and isinstance(meta.get("session_id"), str) else None


def _list(value: Json) -> list[Json]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
