"""What a program is to the engine: something that is resumed, and then asks, returns or raises.

An instance is one live run of a program. It holds nothing that cannot be lost: made anew and resumed with the same
answers in the same order, it takes the same steps. It does no I/O and never waits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Sequence
from typing import Any, Protocol, TypeAlias, TypeGuard, runtime_checkable

import msgspec

from holdfast.core.queries import Answer, Failure, Query
from holdfast.core.records import (
    Entry,
    KindRecord,
    LoggedRecord,
    PatchedRecord,
    Program,
    ProgressedRecord,
    StatRecord,
)
from holdfast.core.replay import Waking
from holdfast.core.state import Session
from holdfast.core.values import Json
from holdfast.core.wake import Wake

Note: TypeAlias = LoggedRecord | ProgressedRecord | StatRecord | PatchedRecord | KindRecord
"""What a program says beside its questions; appended before the outcome of the step that said it."""


class AskStep(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The program waits: for these queries, and for those it asked before."""

    queries: list[Query]
    """With their ids, counted on from the queries before."""
    wake: Wake = "all"
    withdrawn: list[str] = []
    notes: list[Note] = []
    where: object = ""
    """The place in the program's source that asked, for people: `str` of it says which."""
    snapshot: bytes | None = None
    """The state of the waiting program, from which any process can resume it; None if its kind has no snapshots."""


class ReturnStep(msgspec.Struct, frozen=True, kw_only=True):
    """The program is over, with a result."""

    result: Json
    notes: list[Note] = []


class RaiseStep(msgspec.Struct, frozen=True, kw_only=True):
    """The program is over, with an error."""

    error: str
    kind: str = "error"
    notes: list[Note] = []


Step: TypeAlias = AskStep | ReturnStep | RaiseStep


class Fold(Protocol):
    """What a program may know about itself: its session, as it is when the program is resumed.

    It costs something to look at during a replay: the journal is folded up to there only if somebody does.
    """

    @property
    def session(self) -> Session: ...


class Instance(Protocol):
    """One live run. It may vanish with whatever runs it: then a step raises `InstanceLostError`, and it is rebuilt."""

    fold: Fold

    def resume(self, at: int, answers: Sequence[tuple[str, Answer]]) -> Step | Awaitable[Step]:
        """Go on at `at` with these answers (none at the start) until the program asks, returns or raises."""
        ...

    def refuse(self, at: int, failure: Failure) -> Step | Awaitable[Step]:
        """Go on after the queries of the last step could not be asked: each of them fails with `failure`."""
        ...

    def close(self) -> None:
        """Let go of whatever the run holds. The instance is not used again."""
        ...


class ReplayableInstance(Instance, Protocol):
    """An instance that is rebuilt faster by taking many recorded steps in one go."""

    def step_request(self, waking: Waking) -> Any:
        """What a waking comes to, with what the program may know of its session as it is now."""
        ...

    def replay(self, requests: list[Any]) -> Awaitable[list[Step]]:
        """Begin to take the steps of these requests, after all that were begun before."""
        ...


class FollowingInstance(Instance, Protocol):
    """An instance that in a replay takes from the journal what it cannot, or need not, do again."""

    recorded_notes: Sequence[KindRecord] | None
    """What the journal has for the step that is taken next, beside its outcome; None if it is not recorded yet."""


@runtime_checkable
class VersionedInstance(Instance, Protocol):
    """An instance of a program whose code may be another one than that which the session began with."""

    recorded_patches: Collection[str] | None
    """The patches that the journal has for the step that is taken next; None if that step is not recorded yet."""

    @property
    def version(self) -> str:
        """The version of the code that is here."""
        ...

    @property
    def file(self) -> str:
        """The file that the code comes from."""
        ...


class ProgramKind(Protocol):
    """A kind of program: how its instances are made."""

    kind: str

    def knows(self, program: Program) -> bool:
        """Whether the program can be run in this process."""
        ...

    async def admit(self, program: Program) -> None:
        """Raise, with all that is wrong, if no session of this program should be started."""
        ...

    def create(self, fold: Fold) -> Instance:
        """A new instance for a session that has started, not yet resumed.

        Raises `ProgramNotFoundError` if the program cannot be found here.
        """
        ...

    def close(self) -> None:
        """Let go of whatever the kind holds."""
        ...


@runtime_checkable
class CheckableKind(ProgramKind, Protocol):
    """A kind that can say why a program cannot be run in this process."""

    def check(self, program: Program) -> None:
        """Raise `ProgramNotFoundError`, with the reason, if the program cannot be run here."""
        ...


class SnapshotKind(ProgramKind, Protocol):
    """A kind whose instances say what they are when they wait, so that they need not be run again to be rebuilt."""

    def restore(self, fold: Fold, snapshot: bytes) -> Instance:
        """The instance that waits as it did when it gave this snapshot.

        Raises `SnapshotUnusableError`, now or when the instance is resumed, if it cannot be had.
        """
        ...


class RareSnapshotKind(SnapshotKind, Protocol):
    """A kind whose instances have snapshots only at times: elsewhere they are rebuilt without."""

    def waits_with_snapshot(self, session: Session) -> bool:
        """Whether a session waits at a place where its instance gave a snapshot."""
        ...


class JournalReader(Protocol):
    """What of a store is needed to read single records."""

    async def read(self, session_id: str, after: int = 0, limit: int = ...) -> list[Entry]: ...


class JournalReadingKind(ProgramKind, Protocol):
    """A kind whose instances read values from the journals of their sessions when they need them."""

    journal: JournalReader | None


class CheckpointKind(ProgramKind, Protocol):
    """A kind whose waiting instances are small: checkpoints keep them, so they need not be run again from the start."""

    def dump_instance(self, instance: Instance) -> bytes | None:
        """All that an instance remembers, while it waits for answers; None if it cannot be kept just now."""
        ...

    def restore_instance(self, fold: Fold, state: bytes) -> Instance | None:
        """The instance that waits as it did when it was dumped; None if another version has dumped it."""
        ...


# `isinstance` of a protocol looks at each of its members, and costs more than a step of a program.


def is_replayable(instance: Instance) -> TypeGuard[ReplayableInstance]:
    """Whether an instance is a `ReplayableInstance`."""
    return hasattr(instance, "step_request")


def is_versioned(instance: Instance) -> TypeGuard[VersionedInstance]:
    """Whether an instance is a `VersionedInstance`."""
    return hasattr(instance, "recorded_patches")


def is_snapshot_kind(kind: ProgramKind | None) -> TypeGuard[SnapshotKind]:
    """Whether a kind is a `SnapshotKind`."""
    return hasattr(kind, "restore")


def is_following(instance: Instance) -> TypeGuard[FollowingInstance]:
    """Whether an instance is a `FollowingInstance`."""
    return hasattr(instance, "recorded_notes")


def has_rare_snapshots(kind: ProgramKind) -> TypeGuard[RareSnapshotKind]:
    """Whether a kind is a `RareSnapshotKind`."""
    return hasattr(kind, "waits_with_snapshot")


def reads_journal(kind: ProgramKind) -> TypeGuard[JournalReadingKind]:
    """Whether a kind is a `JournalReadingKind`."""
    return hasattr(kind, "journal")


def is_checkpoint_kind(kind: ProgramKind | None) -> TypeGuard[CheckpointKind]:
    """Whether a kind is a `CheckpointKind`."""
    return hasattr(kind, "restore_instance")
