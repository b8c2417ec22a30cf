"""Checkpoints of live sessions: what a session, its program and its view are, so that a journal need not be read again.

They are a cache. One that is missing, damaged, forged, of another version or in doubt in any way costs a reading of the
whole journal, and nothing else. What its seal fits is trusted, and is decoded when it is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import msgspec

from holdfast.core.errors import JournalError, TransitionError
from holdfast.core.kinds import KindView, find_kind
from holdfast.core.replay import ReplayFold
from holdfast.core.state import Session
from holdfast.engine.seals import Sealer
from holdfast.store.commits import Checkpoint
from holdfast.store.contract import Store
from holdfast.zstd import compress, decompress

CHECKPOINT_RECORDS = 128
"""Records between two checkpoints, about 32 turns: more than that is never read and folded to look at a session."""

PACKED_BYTES = 64 * 1024
"""Bytes from which a checkpoint is packed: packing a small one costs more than all the rest of it, and saves little."""

MAX_STATE_BYTES = 1024 * 1024 * 1024
"""Bytes of a checkpoint before it was packed: far above what sessions hold, and a limit to what a damaged one fills."""

FORMAT = 1
"""Changes whenever the parts of a checkpoint do. Each part has a format of its own, too."""


class SavedSession(msgspec.Struct, frozen=True, array_like=True):
    """The state in a checkpoint, each part in the form of whoever it belongs to."""

    format: int
    fold: bytes
    program: bytes
    """Empty if programs of its kind are run again."""
    view: bytes
    """Empty if sessions of its kind have none."""

    def checkpoint(self, position: int) -> Checkpoint:
        """The checkpoint of this state, which follows from the journal up to a position."""
        state = _encoder.encode(self)
        return Checkpoint(position, _PLAIN + state if len(state) < PACKED_BYTES else _PACKED + compress(state))


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(SavedSession)

_PLAIN, _PACKED = b"=", b"z"
"""What a checkpoint begins with."""


class SessionReader(Protocol):
    """Whoever reads sessions: the owner of some, or somebody who only looks."""

    @property
    def store(self) -> Store: ...
    @property
    def sealer(self) -> Sealer: ...
    @property
    def keeps_all_views(self) -> bool: ...


@dataclass(frozen=True)
class RestoredSession:
    """A session from its checkpoint, without what was written after that."""

    position: int
    tracker: ReplayFold
    view: KindView | None
    saved: SavedSession


async def restored_session(reader: SessionReader, session_id: str) -> RestoredSession | None:
    """A session as its checkpoint has it; None if there is none that can be used."""
    found = await reader.store.checkpoint(session_id)
    if found is None:
        return None
    checkpoint, segments = found
    opened = reader.sealer.open_checkpoint(session_id, checkpoint, segments)
    if opened is None:
        return None
    state, parts = opened
    saved = saved_in(state)
    tracker = ReplayFold.restore(session_id, saved.fold) if saved is not None else None
    if saved is None or tracker is None or tracker.session.position != checkpoint.position:
        return None
    kind, view = find_kind(tracker.session.program_kind), None
    if kind is not None and kind.view is not None:
        view = kind.view.restore(session_id, saved.view, parts, keep_all=reader.keeps_all_views)
        if view is None or view.position != checkpoint.position:
            return None
    return RestoredSession(checkpoint.position, tracker, view, saved)


async def folded_session(reader: SessionReader, session_id: str) -> Session:
    """A session as its journal says, for whoever only looks: by its checkpoint, if there is one that can be used."""
    restored = await restored_session(reader, session_id)
    if restored is not None:
        try:
            for entry in await reader.store.entries(session_id, restored.position):
                restored.tracker.apply(entry)
        except (JournalError, TransitionError):
            pass  # the checkpoint is not of this journal
        else:
            return restored.tracker.session
    return await reader.store.load(session_id)


def saved_in(state: bytes) -> SavedSession | None:
    """What a checkpoint holds; None if it cannot be read, or another version wrote it."""
    try:
        plain = decompress(state[1:], MAX_STATE_BYTES) if state.startswith(_PACKED) else state[1:]
        saved = _decoder.decode(plain)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return saved if saved.format == FORMAT else None
