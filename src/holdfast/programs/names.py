"""Names of programs: what can be one, what a file is called as one, and which one a misspelt name may mean."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

UNNAMED = "strategy"
"""The name of a program that was given none."""

_CLOSE = 0.75
"""How much alike two names are, of 1, of which one may be a misspelling of the other."""

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
    return kept or UNNAMED


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """A question that names the known name closest to a misspelt one; empty if none is close."""
    import difflib  # only for what is misspelt

    near = difflib.get_close_matches(given, list(known), 1, _CLOSE)
    return f"did you mean '{near[0]}'?" if near else ""
