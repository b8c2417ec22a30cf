"""`ProgramKinds`: the kinds of program that run in this process, and how their instances are made and restored."""

from __future__ import annotations

from holdfast.core.records import Program
from holdfast.core.state import Session
from holdfast.engine.seals import Sealer
from holdfast.programs.contract import (
    Fold,
    Instance,
    ProgramKind,
    has_rare_snapshots,
    is_checkpoint_kind,
    is_snapshot_kind,
    reads_journal,
)
from holdfast.programs.errors import ProgramNotFoundError
from holdfast.programs.kinds import new_kind
from holdfast.store.contract import Store


class ProgramKinds:
    """Where the programs of an engine come from."""

    def __init__(self, store: Store, sealer: Sealer) -> None:
        self._store = store
        self._sealer = sealer
        self._kinds: dict[str, ProgramKind] = {}

    def add(self, kind: ProgramKind) -> None:
        """Run programs of a kind by this one, and not by that of every engine."""
        self._kinds[kind.kind] = kind
        if reads_journal(kind):
            kind.journal = self._store

    def knows(self, session: Session) -> bool:
        """Whether the program of a session can be run here."""
        program = session.started.program if session.started else None
        kind = self._find(program.kind) if program else None
        return program is not None and kind is not None and kind.knows(program)

    async def admit(self, program: Program) -> None:
        """Raise, with all that is wrong, if no session of this program should be started."""
        await self._kind(program).admit(program)

    def create(self, fold: Fold) -> Instance:
        """A new instance of a session's program."""
        session = fold.session
        assert session.started is not None
        return self._kind(session.started.program).create(fold)

    def has_snapshots(self, program: Program) -> bool:
        """Whether programs of this kind can go on from a snapshot."""
        return is_snapshot_kind(self._kind(program))

    def waits_with_snapshot(self, session: Session) -> bool:
        """Whether a session of a kind that has snapshots should have one now: some have them only at times."""
        kind = self._find(session.program_kind)
        return is_snapshot_kind(kind) and (not has_rare_snapshots(kind) or kind.waits_with_snapshot(session))

    async def restore(self, fold: Fold, outcome: int) -> Instance:
        """The program as it was after its outcome at a position, from its snapshot.

        `SnapshotUnusableError`, with the reason, if it cannot be had.
        """
        session = fold.session
        assert session.started is not None
        kind = self._kind(session.started.program)
        assert is_snapshot_kind(kind)
        state = self._sealer.open(session.id, outcome, await self._store.snapshot(session.id))
        return kind.restore(fold, state)

    def has_checkpoints(self, session: Session) -> bool:
        """Whether a checkpoint keeps the program of a session, so that it need not be run again from the start."""
        return is_checkpoint_kind(self._find(session.program_kind))

    def dump_instance(self, session: Session, instance: Instance) -> bytes | None:
        """A waiting program for a checkpoint: empty if its kind is run again, None if it cannot be kept just now."""
        kind = self._find(session.program_kind)
        return kind.dump_instance(instance) if is_checkpoint_kind(kind) else b""

    def restore_instance(self, fold: Fold, state: bytes) -> Instance | None:
        """The program as it waited when it was dumped; None if that cannot be used."""
        kind = self._find(fold.session.program_kind)
        return kind.restore_instance(fold, state) if is_checkpoint_kind(kind) else None

    def close(self) -> None:
        """Let go of whatever the kinds hold."""
        for kind in self._kinds.values():
            kind.close()

    def _kind(self, program: Program) -> ProgramKind:
        kind = self._find(program.kind)
        if kind is None:
            raise ProgramNotFoundError(program.name, f"programs of the kind '{program.kind}' do not run here")
        return kind

    def _find(self, name: str) -> ProgramKind | None:
        """A kind by its name; made when a program of it is first needed, because some take long to import."""
        kind = self._kinds.get(name)
        if kind is None and (kind := new_kind(name)) is not None:
            self.add(kind)
        return kind
