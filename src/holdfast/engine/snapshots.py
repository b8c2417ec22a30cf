"""Seals of snapshots: only what this user's processes wrote, for this session and this place in it, is restored.

A snapshot is a program's whole state, and whoever could forge one could run the program as it never ran. So it carries
a keyed digest of itself, of its session and of its position; the key lies outside the store. A snapshot that does not
fit is no error: the program is rebuilt from its journal instead.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
from hashlib import blake2b
from logging import getLogger
from pathlib import Path

from holdfast.programs.errors import SnapshotUnusableError
from holdfast.programs.paths import home
from holdfast.store.commits import Snapshot

KEY_VARIABLE = "HOLDFAST_SNAPSHOT_KEY"
"""Names the key's hex where several machines share a store. They must all have the same, or each replays what the
others have left."""

KEY_BYTES = 32

MAX_SNAPSHOT_BYTES = 16 * 1024 * 1024
"""Bytes of a snapshot that is kept: written again at each pause, a larger one costs more than the replay it saves."""

_MAGIC = b"HFS\x01"
"""The format and its version."""

_DIGEST_BYTES = 16

_logger = getLogger("holdfast.engine")


class Sealer:
    """Seals and opens with one key, which is read when it is first needed."""

    def __init__(self) -> None:
        self._key: bytes | None = None

    def seal(self, session_id: str, position: int, state: bytes) -> Snapshot | None:
        """What to keep of a program that waits after `position`; None if it is too large to be worth it."""
        if len(state) > MAX_SNAPSHOT_BYTES:
            return None
        return Snapshot(position, b"".join((_MAGIC, self._digest(session_id, position, state), state)))

    def open(self, session_id: str, position: int, snapshot: Snapshot | None) -> bytes:
        """The state of the program that waits after `position`; `SnapshotUnusableError`, with the reason, if not."""
        if snapshot is None:
            raise SnapshotUnusableError("there is no snapshot")
        if snapshot.position != position:
            raise SnapshotUnusableError(f"its snapshot is of position {snapshot.position}, and it is at {position}")
        head = len(_MAGIC) + _DIGEST_BYTES
        if not snapshot.data.startswith(_MAGIC):
            raise SnapshotUnusableError("its snapshot has another format")
        state = snapshot.data[head:]
        if not hmac.compare_digest(snapshot.data[len(_MAGIC) : head], self._digest(session_id, position, state)):
            raise SnapshotUnusableError("its snapshot was not sealed with the key of this home, or was changed")
        return state

    def _digest(self, session_id: str, position: int, state: bytes) -> bytes:
        if self._key is None:
            self._key = _load_key()
        digest = blake2b(b"%d/%b/" % (position, session_id.encode()), key=self._key, digest_size=_DIGEST_BYTES)
        digest.update(state)
        return digest.digest()


def key_path() -> Path:
    """Where the key of this user is."""
    return home() / "snapshot.key"


def _load_key() -> bytes:
    """The key that is named or kept; made if there is none. One that cannot be kept serves this process only."""
    if named := os.environ.get(KEY_VARIABLE):
        if (key := _parsed(named)) is not None:
            return key
        _logger.warning("%s is not %d or more bytes of hex; it is not used", KEY_VARIABLE, KEY_BYTES)
    path = key_path()
    try:
        with contextlib.suppress(FileExistsError):
            _make(path)
        if (key := _parsed(path.read_text("ascii", "replace"))) is not None:
            return key
        why = "it holds something else; remove it to begin with a new one"
    except OSError as error:
        why = str(error.strerror)
    _logger.warning("the key in %s cannot be used: %s. Other processes will replay what this one leaves", path, why)
    return secrets.token_bytes(KEY_BYTES)


def _parsed(text: str) -> bytes | None:
    try:
        key = bytes.fromhex(text.strip())
    except ValueError:
        return None
    return key[:64] if len(key) >= KEY_BYTES else None


def _make(path: Path) -> None:
    """Make the key file unless it exists. Whoever looks finds a whole one or none, and nobody else can read it."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="ascii") as stream:
            stream.write(secrets.token_hex(KEY_BYTES) + "\n")
            stream.flush()
            os.fsync(descriptor)
        os.link(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
