"""Commits: what one change of a session consists of, and what makes one that can never be written."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from types import NoneType

import msgspec

from holdfast.core.errors import InvalidValueError
from holdfast.core.ids import check_id
from holdfast.core.labels import check_labels
from holdfast.core.limits import MAX_WAIT_MS
from holdfast.core.records import Entry
from holdfast.core.state import State
from holdfast.core.summary import Summary
from holdfast.core.values import Json, check_number, check_value
from holdfast.store.limits import DEFAULT_LEASE_MS


class Lease(msgspec.Struct, frozen=True):
    """The right to write to a session, as long as no later epoch exists."""

    session_id: str
    owner: str
    epoch: int
    until: int


class StateWrite(msgspec.Struct, frozen=True, kw_only=True):
    """A state item to be written, or deleted, with a commit."""

    namespace: str
    key: str
    value: Json = None
    delete: bool = False
    expected: int | None = None
    """The version the item must be at (0: it must not exist); None: whatever it is."""


class Snapshot(msgspec.Struct, frozen=True):
    """A program's own state, from which it can be resumed without running it again. It may be lost at any time."""

    position: int
    """Of the record it is the state after."""
    data: bytes
    """Stored as they are: whoever writes them packs, protects and checks them."""


class Checkpoint(msgspec.Struct, frozen=True):
    """What follows from a journal up to a position, so that it need not be read again. It may be lost at any time."""

    position: int
    """Of the last record that is in it."""
    state: bytes
    """Stored as they are: whoever writes them packs them, and knows their format."""


class Segment(msgspec.Struct, frozen=True):
    """What one part of a journal added to the view of a session: written once, and never changed.

    The first one begins after position 0, and each further one where the one before ends.
    """

    after: int
    """Position of the last record before this part."""
    position: int
    """Position of its last record."""
    data: bytes
    """Stored as they are, like the state of a checkpoint."""


class Commit(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One change of one session: everything in it happens, or nothing."""

    session_id: str
    expected: int
    """Position of the last entry the writer knows. 0 creates the session."""
    entries: Sequence[Entry]
    bodies: Sequence[bytes | None] = ()
    """The JSON of each entry's record, as `core.decide` made it when it checked the record: stored as it is. Where that
    is None, the store checks and encodes the record. Whoever gives bodies has made the commit of decisions and of the
    fold after them, and vouches for it: it is not checked again. Without any, as from tools, everything is checked."""
    summary: Summary
    """The session's summary after these entries."""
    owner: str
    epoch: int | None = None
    """The epoch the writer holds; None claims the session in this same commit."""
    hold_ms: int = DEFAULT_LEASE_MS
    """How long the writer stays the owner from now on; 0 lets go of the session."""
    takes: Sequence[int] = ()
    """Numbers of mailbox messages that these entries are the outcome of."""
    writes: Sequence[StateWrite] = ()
    """State items to be written in the same transaction, in this order."""
    snapshot: Snapshot | None = None
    """Replaces the session's snapshot; None leaves it as it is. A session that has ended has no snapshot."""
    checkpoint: Checkpoint | None = None
    """Replaces the session's checkpoint; None leaves it as it is."""
    segment: Segment | None = None
    """Added to the session's segments. Those that end after its beginning go: they are being written anew."""


class CommitReceipt(msgspec.Struct, frozen=True, gc=False):
    """Proof that a commit is durable."""

    session_id: str
    position: int
    epoch: int


def check_commit(commit: Commit) -> None:
    """Raise the reason why a commit can never be written, if there is one. Its records are checked when encoded."""
    check_id(commit.session_id, "session id")
    check_id(commit.owner, "owner")
    _check_hold(commit.hold_ms)
    check_number(commit.expected, "expected position", 0)
    check_summary(commit.summary)
    for number in commit.takes:
        check_number(number, "message number")
    what = f"commit to session '{commit.session_id}'"
    if commit.expected == 0 and not commit.entries:
        raise InvalidValueError(what, "a session cannot be created without an entry")
    for write in commit.writes:
        check_id(write.namespace, "state namespace")
        check_id(write.key, "state key")
        check_value(write.value, f"state '{write.namespace}/{write.key}'")
    for expected, entry in enumerate(commit.entries, commit.expected + 1):
        if entry.position != expected:
            raise InvalidValueError(what, f"expected an entry at position {expected}, got {entry.position}")
    if commit.snapshot is not None:
        _check_kept(commit, "snapshot", commit.snapshot.position, commit.snapshot.data)
    if commit.checkpoint is not None:
        _check_kept(commit, "checkpoint", commit.checkpoint.position, commit.checkpoint.state)
    if commit.segment is not None:
        check_number(commit.segment.after, "beginning of a segment", 0)
        _check_kept(commit, "segment", commit.segment.position, commit.segment.data, commit.segment.after)


def check_fork(source: str, at: int, commit: Commit) -> None:
    """Raise the reason why a fork can never be made, if there is one."""
    check_id(source, "session id")
    check_number(at, "position of a fork")
    check_commit(commit)
    if commit.expected != 0 or len(commit.entries) != 1:
        raise InvalidValueError(f"fork of session '{source}'", "it is created with one entry of its own, the first")


def _check_kept(commit: Commit, name: str, position: int, data: bytes, after: int = 0) -> None:
    """Raise unless what is kept beside the journal is bytes, of a position that the journal has after the commit."""
    what = f"commit to session '{commit.session_id}'"
    first, last = after + 1, commit.expected + len(commit.entries)
    check_number(position, f"position of a {name}")
    if not first <= position <= last:
        raise InvalidValueError(what, f"expected a {name} of a position from {first} to {last}, got {position}")
    if not isinstance(data, bytes):
        raise InvalidValueError(what, f"expected the data of its {name} to be bytes, got {type(data).__name__}")


def _check_hold(hold_ms: int) -> None:
    """Raise unless a lease can last that long."""
    check_number(hold_ms, "hold_ms", 0)
    if hold_ms > MAX_WAIT_MS:
        raise InvalidValueError("hold_ms", f"must be at most {MAX_WAIT_MS}")


def check_summary(summary: Summary) -> None:
    """Raise unless a summary can be stored and read back."""
    for value in msgspec.structs.astuple(summary):
        kind = type(value)
        if kind is int:
            check_number(value, "summary")
        elif kind is str and not value.isascii():
            check_value(value, "summary")
        elif kind is tuple:
            check_labels(value)
        elif kind is float and not isfinite(value):
            raise InvalidValueError("summary", "what it cost is no number")
        elif kind not in (str, State, NoneType, float):
            raise InvalidValueError("summary", f"{kind.__name__} is not expected")
