"""Names of programs: what can be one, and what a file is called as one."""

from __future__ import annotations

import re
from pathlib import Path

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,127}", re.ASCII)


def invalid_name_reason(name: object) -> str | None:
    """Why this cannot be the name of a program or a package; None if it can."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return "a name has 1 to 128 letters, digits, '_' and '-', and does not begin with '-'"
    return None


def program_path(file: Path) -> Path:
    """What stands for a program on the disk: its file, or its directory if the file is an `init.lua`."""
    return file.parent if file.name == "init.lua" else file


def name_of_file(path: Path) -> str:
    """The file's name as an id; that of its directory for an `init.lua`."""
    stem = path.resolve().parent.name if path.name == "init.lua" else path.stem
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in stem).lstrip("._-")
    return kept or "strategy"
