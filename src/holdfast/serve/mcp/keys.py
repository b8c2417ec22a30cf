"""The keys that seal what a paused call leaves with its host, kept in a file so that they outlive every process.

One key a line, the newest first: `HEX SECONDS`, the second being when it was made. The newest seals, all of them open.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from logging import getLogger
from pathlib import Path

from holdfast.core.errors import HoldfastError
from holdfast.programs.files import locked
from holdfast.programs.paths import home
from holdfast.serve.mcp.server import PAUSE_TTL_S

KEY_BYTES = 32
"""Random bytes of a key: what AES-256 takes, and the least that the protocol's sealing accepts."""

_logger = getLogger("holdfast.mcp")


class KeyFileError(HoldfastError):
    """The keys cannot be read, or not be made."""

    path: str
    why: str
    kind = "key_file"

    def __str__(self) -> str:
        return f"the keys in {self.path} cannot be used: {self.why}"


@dataclass(frozen=True)
class _Key:
    secret: bytes
    made: int


def key_path() -> Path:
    """Where the keys of this user are."""
    return home() / "mcp.keys"


def load_keys(path: Path | None = None) -> list[bytes]:
    """The keys, the one that seals first. Made if there are none; of several that want to make them, one does."""
    path = path or key_path()
    keys = _read(path)
    if keys is None:
        with _locked(path):
            keys = _read(path)
            if keys is None:
                keys = [_new()]
                _write(path, keys)
    return [key.secret for key in keys]


def rotate_keys(path: Path | None = None) -> int:
    """Seal with a new key from now on, and drop those that nothing can need any more; how many old ones are left.

    A server reads the keys when it starts: those that run go on with the old key until they are started again.
    """
    path = path or key_path()
    with _locked(path):
        new = _new()
        keys = [new, *(_read(path) or [])]
        # A key was replaced when the one before it was made, and what it has sealed until then is valid for a while.
        kept = [key for newer, key in pairwise(keys) if newer.made > new.made - PAUSE_TTL_S]
        _write(path, [new, *kept])
    return len(kept)


def _new() -> _Key:
    return _Key(secrets.token_bytes(KEY_BYTES), int(time.time()))


def _read(path: Path) -> list[_Key] | None:
    try:
        with path.open("rb") as stream:
            others = stat.S_IMODE(os.fstat(stream.fileno()).st_mode) & 0o077
            text = stream.read().decode("ascii", "replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(path, error) from None
    if others:
        _logger.warning("%s can be read by others; `chmod 600` it, then `holdfast mcp --rotate-key`", path)
    keys = [_parsed(line) for line in text.splitlines() if line.strip()]
    usable = [key for key in keys if key is not None]
    if not usable or len(usable) < len(keys):
        raise KeyFileError(
            str(path),
            "it holds something else; move it away to begin with a new key (hosts then lose their open calls)",
        )
    return usable


def _parsed(line: str) -> _Key | None:
    words = line.split()
    if len(words) != 2 or not words[1].isdigit():
        return None
    try:
        secret = bytes.fromhex(words[0])
    except ValueError:
        return None
    return _Key(secret, int(words[1])) if len(secret) >= KEY_BYTES else None


def _write(path: Path, keys: list[_Key]) -> None:
    """All of it or nothing, and never readable by others: whoever looks finds the old file, the new one, or none."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as stream:
            stream.write("".join(f"{key.secret.hex()} {key.made}\n" for key in keys).encode())
            stream.flush()
            os.fsync(descriptor)
        os.replace(unfinished, path)
    except OSError as error:
        raise _unusable(path, error) from None
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Only one process makes keys at a time."""
    with contextlib.ExitStack() as held:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            held.enter_context(locked(path.with_name(f"{path.name}.lock")))
        except OSError as error:
            raise _unusable(path, error) from None
        yield


def _unusable(path: Path, error: OSError) -> KeyFileError:
    return KeyFileError(str(path), f"{error.strerror}; HOLDFAST_HOME names another directory for them")
