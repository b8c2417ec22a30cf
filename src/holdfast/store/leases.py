"""Who may write: the decisions about leases and positions, shared by the stores that can read before they write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import NoneType
from typing import NamedTuple

import msgspec

from holdfast.core.errors import InvalidValueError
from holdfast.core.ids import check_id
from holdfast.core.limits import MAX_INTEGER, MAX_WAIT_MS
from holdfast.core.state import State
from holdfast.core.summary import Summary
from holdfast.core.values import check_number, check_value
from holdfast.store.codec import StoredEntry, encode_entry
from holdfast.store.contract import Commit, StateWrite
from holdfast.store.errors import LeaseHeldError, LeaseLostError, PositionConflictError, StateConflictError


class Head(NamedTuple):
    """What a store knows of a session before a write."""

    position: int
    epoch: int
    owner: str | None
    lease_until: int | None

    def holder(self, now: int) -> str | None:
        """Who holds the session at `now`."""
        live = self.owner is not None and self.lease_until is not None and self.lease_until > now
        return self.owner if live else None


NEW = Head(position=0, epoch=0, owner=None, lease_until=None)


def encode_commit(commit: Commit) -> list[StoredEntry]:
    """The stored entries of a commit, or the reason why it can never be written."""
    check_id(commit.session_id, "session id")
    check_id(commit.owner, "owner")
    check_hold(commit.hold_ms)
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
        position, last = commit.snapshot.position, commit.expected + len(commit.entries)
        check_number(position, "position of a snapshot")
        if not 0 < position <= last:
            raise InvalidValueError(what, f"expected a snapshot of a position from 1 to {last}, got {position}")
        if not isinstance(commit.snapshot.data, bytes):
            kind = type(commit.snapshot.data).__name__
            raise InvalidValueError(what, f"expected the data of its snapshot to be bytes, got {kind}")
    return [encode_entry(commit.session_id, entry) for entry in commit.entries]


def check_hold(hold_ms: int) -> None:
    """Raise unless a lease can last that long."""
    check_number(hold_ms, "hold_ms", 0)
    if hold_ms > MAX_WAIT_MS:
        raise InvalidValueError("hold_ms", f"must be at most {MAX_WAIT_MS}")


def check_summary(summary: Summary) -> None:
    """Raise unless a summary can be stored and read back. Part of every commit, so it costs next to nothing."""
    for value in msgspec.structs.astuple(summary):
        kind = type(value)
        if kind is int:
            check_number(value, "summary")
        elif kind is str and not value.isascii():
            check_value(value, "summary")
        elif kind not in (str, State, NoneType):
            raise InvalidValueError("summary", f"{kind.__name__} is not expected")


def in_range(number: int) -> int:
    """A position, time or limit of a read, brought into what stores can count."""
    return max(0, min(number, MAX_INTEGER // 4))  # so that two of them can be added


def claim_epoch(session_id: str, head: Head, owner: str, now: int) -> int:
    """The epoch of a new owner, or `LeaseHeldError`."""
    holder = head.holder(now)
    if holder is not None and holder != owner:
        raise LeaseHeldError(session_id, holder, head.lease_until or now)
    return head.epoch + 1


def commit_epoch(commit: Commit, head: Head, now: int) -> int:
    """The epoch under which a commit is written, or the reason why it is refused."""
    if commit.epoch is None:
        epoch = claim_epoch(commit.session_id, head, commit.owner, now)
    elif commit.epoch != head.epoch:
        raise LeaseLostError(commit.session_id, commit.epoch, head.epoch)
    else:
        epoch = commit.epoch
    if commit.expected != head.position:
        raise PositionConflictError(commit.session_id, commit.expected, head.position)
    return epoch


def write_versions(writes: Sequence[StateWrite], version_of: Callable[[StateWrite], int]) -> list[int]:
    """The version each write of a commit gives its item; a later write of the same item follows on the earlier one."""
    now: dict[tuple[str, str], int] = {}
    versions: list[int] = []
    for write in writes:
        place = (write.namespace, write.key)
        versions.append(next_version(write, now[place] if place in now else version_of(write)))
        now[place] = 0 if write.delete else versions[-1]
    return versions


def next_version(write: StateWrite, version: int) -> int:
    """The version a state item gets by a write, or `StateConflictError`."""
    if write.expected is not None and write.expected != version:
        raise StateConflictError(write.namespace, write.key, write.expected, version)
    return version + 1


def lease_columns(owner: str, hold_ms: int, now: int) -> tuple[str | None, int | None]:
    """Owner and end of the lease as they are stored; nobody when it is not to be held."""
    return (owner, now + hold_ms) if hold_ms else (None, None)
