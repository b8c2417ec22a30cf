"""A jail around the workers, where bubblewrap is there: no network, no files of the host, no rights.

The interpreter is a sandbox by itself. The jail is for the day on which it is not.
"""

from __future__ import annotations

import shlex
import shutil
import tempfile
from pathlib import Path

_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64")
"""Where the system keeps what a program is linked with. The worker needs nothing else of it."""


class Jail:
    """A script that starts the worker inside bubblewrap; `close` removes it."""

    def __init__(self, bwrap: str, binary: Path) -> None:
        self._directory = tempfile.mkdtemp(prefix="holdfast-jail-")
        self.script = Path(self._directory) / "monty"
        words = [bwrap, *_OPTIONS, "--ro-bind", str(binary.resolve()), "/monty", *_libraries(), "/monty"]
        # The pool starts its workers with an empty environment, so every path is written out.
        self.script.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        self.script.chmod(0o700)

    def close(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)


_OPTIONS = (
    *("--unshare-all", "--die-with-parent", "--new-session", "--clearenv"),
    *("--cap-drop", "ALL", "--uid", "65534", "--gid", "65534", "--proc", "/proc"),
)


def _libraries() -> list[str]:
    words: list[str] = []
    for name in _LIBRARIES:
        directory = Path(name)
        if directory.is_symlink():
            words += ["--symlink", str(directory.readlink()), name]
        elif directory.is_dir():
            words += ["--ro-bind", name, name]
    return words


def find_bwrap() -> str | None:
    """Where bubblewrap is, if it is installed."""
    return shutil.which("bwrap")
