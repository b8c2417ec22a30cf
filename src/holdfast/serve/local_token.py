"""The token of this machine: made once, and kept where only its user can read it."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from holdfast.programs.paths import home
from holdfast.serve.listener import HttpError, check_token

FILE = "serve.token"
"""The file below Holdfast's home."""


def token_path() -> Path:
    """Where the token of this machine is kept."""
    return home() / FILE


def local_token() -> str:
    """The token of this machine; a new one if there is none. Raises if others can read it: it is known then."""
    path = token_path()
    try:
        text = _read(path)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        made = secrets.token_urlsafe(32)
        try:
            with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
                file.write(made + "\n")
        except FileExistsError:
            made = _read(path)  # another process was faster
        return made
    check_token(text)
    return text


def _read(path: Path) -> str:
    with path.open() as file:
        if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
            raise HttpError(
                f"{path} can be read by others, so its token may be known: delete the file, and start again"
            )
        return file.read().strip()
