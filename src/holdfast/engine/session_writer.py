"""`SessionWriter`: appends what was decided about one session to its journal, under the lease where one is held."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.state import Session
from holdfast.core.summary import summarize
from holdfast.engine.errors import StaleError
from holdfast.engine.owner import Owner
from holdfast.engine.session_fold import SessionFold
from holdfast.store.commits import Commit, Lease
from holdfast.store.errors import LeaseLostError, PositionConflictError, StateConflictError


class SessionWriter:
    """Makes the commits of one session, and has its lease."""

    def __init__(self, owner: Owner, fold: SessionFold) -> None:
        self._owner = owner
        self._fold = fold
        self.epoch: int | None = None
        """That of the lease, while it is held."""
        self.lease_until_s = 0.0
        """Until when the lease is ours for certain, by the monotonic clock: it runs from the moment of the commit."""

    @property
    def lease(self) -> Lease | None:
        """The lease that is held, if one is."""
        return None if self.epoch is None else Lease(self._fold.id, self._owner.name, self.epoch, 0)

    async def write(self, session: Session, reason: str, takes: Sequence[int], *, holds: bool) -> int | None:
        """Commit the batch, after which the session is like this; returns when the session is due next (unix ms).

        `holds` says whether the lease is held from then on. `StaleError` if others have written first.
        """
        fold, owner = self._fold, self._owner
        batch = fold.batch
        snapshot = None if session.state.is_terminal else batch.snapshot
        commit = Commit(
            session_id=fold.id,
            expected=fold.committed,
            entries=batch.entries,
            bodies=batch.bodies,
            summary=summarize(session),
            owner=owner.name,
            epoch=self.epoch,
            hold_ms=owner.lease_ms if holds else 0,
            takes=takes,
            writes=batch.writes,
            snapshot=snapshot and owner.sealer.seal(fold.id, *snapshot),
            checkpoint=batch.checkpoint or fold.checkpoint,
            segment=fold.segment,
        )
        try:
            if owner.seam is not None:
                await owner.seam(f"before {reason}")
            sent_s = owner.clock.monotonic() if holds else 0.0
            receipt = await owner.store.append(commit)
            if owner.seam is not None:
                await owner.seam(f"after {reason}")
        except (PositionConflictError, LeaseLostError, StateConflictError) as error:
            raise StaleError(is_lost=not isinstance(error, StateConflictError)) from error
        fold.settle(receipt.position)
        if holds:
            self.epoch = receipt.epoch
            self.lease_until_s = sent_s + owner.lease_ms / 1000
        else:
            self.epoch = None
            owner.callers.released(fold.id)
        return commit.summary.due_at
