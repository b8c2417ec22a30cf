"""Scenarios that `alc.eval` is given as paths: files of Lua in the project, or any file for a trusted program."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path


def scenario_file_reader(project: str | None, is_trusted: bool) -> Callable[[bytes], bytes | None]:
    """What reads a scenario by its path, which begins in the project unless it is absolute; None if it may not be
    read, or is not there. A program in the sandbox gets files of Lua in its project, and nothing that is outside."""
    root = os.path.realpath(project) if project is not None else None

    def read(path: bytes) -> bytes | None:
        try:
            file = Path(os.path.realpath(os.path.join(root or os.getcwd(), os.path.expanduser(path.decode()))))
            is_own = root is not None and file.suffix == ".lua" and file.is_relative_to(root)
            return file.read_bytes() if is_trusted or is_own else None
        except Exception:  # an exception of Python's must not be seen by a program
            return None

    return read
