"""Seals of snapshots, checkpoints and segments: only what this user's processes wrote, for this session and this place
in it, is restored.

A snapshot is a program's whole state, and a checkpoint that of its session: whoever could forge one could have a
session go on as it never went, and write that into its journal. So each carries a keyed digest of itself, of its
session and of its position; the key lies outside the store. One that does not fit is no error: what it would have saved
is read from the journal instead.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
from collections.abc import Sequence
from hashlib import blake2b
from logging import getLogger
from pathlib import Path

from holdfast.programs.errors import SnapshotUnusableError
from holdfast.programs.paths import home
from holdfast.store.commits import Checkpoint, Segment, Snapshot

KEY_VARIABLE = "HOLDFAST_SNAPSHOT_KEY"
"""Names the key's hex where several machines share a store. They must all have the same, or each replays what the
others have left, and reads whole journals."""

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
        self._has_warned = False

    def seal(self, session_id: str, position: int, state: bytes) -> Snapshot | None:
        """What to keep of a program that waits after `position`; None if it is too large to be worth it."""
        if len(state) > MAX_SNAPSHOT_BYTES:
            return None
        return Snapshot(
            position, b"".join((_MAGIC, self._digest(_place("snapshot", session_id, position), state), state))
        )

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
        if not self._fits(snapshot.data[len(_MAGIC) : head], _place("snapshot", session_id, position), state):
            raise SnapshotUnusableError("its snapshot was not sealed with the key of this home, or was changed")
        return state

    def seal_checkpoint(self, session_id: str, checkpoint: Checkpoint) -> Checkpoint:
        """A checkpoint with its seal."""
        digest = self._digest(_place("checkpoint", session_id, checkpoint.position), checkpoint.state)
        return Checkpoint(checkpoint.position, digest + checkpoint.state)

    def seal_segment(self, session_id: str, segment: Segment) -> Segment:
        """A segment with its seal."""
        digest = self._digest(_place("segment", session_id, segment.position, segment.after), segment.data)
        return Segment(segment.after, segment.position, digest + segment.data)

    def open_checkpoint(
        self, session_id: str, checkpoint: Checkpoint, segments: Sequence[Segment]
    ) -> tuple[bytes, list[bytes]] | None:
        """The state in a checkpoint, and the data in its segments; None unless the seal of each fits."""
        places = [_place("segment", session_id, each.position, each.after) for each in segments]
        state = self._opened(_place("checkpoint", session_id, checkpoint.position), checkpoint.state)
        parts = [self._opened(place, each.data) for place, each in zip(places, segments, strict=True)]
        sound = [part for part in parts if part is not None]
        if state is not None and len(sound) == len(parts):
            return state, sound
        if not self._has_warned:
            self._has_warned = True
            _logger.warning(
                "a checkpoint of session '%s' was sealed with another key, or was changed: its whole journal is read. "
                "Processes that share a store need the same %s",
                *(session_id, KEY_VARIABLE),
            )
        return None

    def _opened(self, place: bytes, sealed: bytes) -> bytes | None:
        data = sealed[_DIGEST_BYTES:]
        return data if self._fits(sealed[:_DIGEST_BYTES], place, data) else None

    def _fits(self, digest: bytes, place: bytes, data: bytes) -> bool:
        return hmac.compare_digest(digest, self._digest(place, data))

    def _digest(self, place: bytes, data: bytes) -> bytes:
        if self._key is None:
            self._key = _load_key()
        digest = blake2b(b"%b/%d/" % (place, len(data)), key=self._key, digest_size=_DIGEST_BYTES)
        digest.update(data)
        return digest.digest()


def _place(what: str, session_id: str, position: int, after: int = 0) -> bytes:
    """What a seal is for beside the data: a part of one session, at one place in its journal."""
    return f"{what}/{after}/{position}/{session_id}".encode()


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
        if (key := _parsed(path.read_bytes().decode(errors="replace"))) is not None:
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
