"""The token of the HTTP server: made once, in a file that only its owner can read, and told to hosts by the installer.

Every user of a machine reaches its loopback address, so that address alone lets in more than who started the server.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from pathlib import Path

from holdfast.programs.paths import home
from holdfast.serve.mcp.keys import KeyFileError

TOKEN_BYTES = 32
"""Random bytes of a token: no one guesses them."""


def token_path() -> Path:
    """Where the token of this user is."""
    return home() / "mcp.token"


def load_token(path: Path | None = None) -> str:
    """The token in the file; made if there is none. Of several processes that want to make it, one does."""
    path = path or token_path()
    try:
        if not path.exists():
            _make(path)
        with path.open("rb") as stream:
            mode = stat.S_IMODE(os.fstat(stream.fileno()).st_mode)
            token = stream.read(1024).decode("ascii", "replace").strip()
    except OSError as error:
        raise KeyFileError(str(path), f"{error.strerror}; HOLDFAST_HOME names another directory for it") from None
    if mode & 0o077:
        raise KeyFileError(str(path), "others can read it; remove it to have another made, and install hosts again")
    if not token:
        raise KeyFileError(str(path), "it is empty; remove it to have another made")
    return token


def _make(path: Path) -> None:
    """Whole and never readable by others: whoever looks finds the file, or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "w", encoding="ascii") as stream:
            stream.write(f"{secrets.token_hex(TOKEN_BYTES)}\n")
            stream.flush()
            os.fsync(descriptor)
        with contextlib.suppress(FileExistsError):  # somebody was quicker
            os.link(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
