"""Who may write: the decisions about leases and positions, shared by the stores that can read before they write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from holdfast.store.commits import Commit, StateWrite
from holdfast.store.errors import LeaseHeldError, LeaseLostError, PositionConflictError, StateConflictError


class LeaseState(NamedTuple):
    """What a store knows of a session before a write."""

    position: int
    epoch: int
    owner: str | None
    lease_until: int | None

    def holder(self, now: int) -> str | None:
        """Who holds the session at `now`."""
        live = self.owner is not None and self.lease_until is not None and self.lease_until > now
        return self.owner if live else None


NEW = LeaseState(position=0, epoch=0, owner=None, lease_until=None)


def claim_epoch(session_id: str, head: LeaseState, owner: str, now: int) -> int:
    """The epoch of a new owner, or `LeaseHeldError`."""
    holder = head.holder(now)
    if holder is not None and holder != owner:
        raise LeaseHeldError(session_id, holder, head.lease_until or now)
    return head.epoch + 1


def commit_epoch(commit: Commit, head: LeaseState, now: int) -> int:
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
