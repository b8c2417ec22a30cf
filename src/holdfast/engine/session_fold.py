"""`SessionFold`: a session as this process knows it, the view of it, and the batch of what is about to be added.

All of it can be lost: the journal has what is committed, and what is not was promised to nobody. The fold is ahead of
the journal by the batch. The view never is: it is advanced with what was committed or read, and with nothing else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from holdfast.core.errors import JournalError, TransitionError
from holdfast.core.ids import child_session_id
from holdfast.core.kinds import KindView, find_kind
from holdfast.core.records import AnsweredRecord, Entry, PausedRecord, Record, RecordDraft
from holdfast.core.replay import ENDS, ReplayFold, Waking
from holdfast.core.state import PAUSED, Session
from holdfast.engine.batch import Batch
from holdfast.engine.checkpoints import CHECKPOINT_RECORDS, FORMAT, RestoredSession, SavedSession, restored_session
from holdfast.engine.errors import StaleError
from holdfast.engine.owner import Owner
from holdfast.engine.rebuild import fold, read_on
from holdfast.store.commits import Checkpoint, Segment

Revive: TypeAlias = Callable[[Sequence[Entry]], Awaitable[tuple[ReplayFold, Waking | None] | None]]
"""Folds a journal while it runs the program again; None if the program cannot be had."""

Dump: TypeAlias = Callable[[], bytes | None]
"""Writes down the program as it waits; None if that cannot be done now."""

_ENDS = frozenset(ENDS)


class SessionFold:
    """The journal of one session, folded as far as it is known here."""

    def __init__(self, owner: Owner, session_id: str) -> None:
        self.id = session_id
        self._owner = owner
        self._store = owner.store
        self._tracker: ReplayFold | None = None
        self.known: Session | None = None
        """The session as it was when it was last looked at, if it was."""
        self.waking: Waking | None = None
        """The waking that has no outcome yet."""
        self.committed = 0
        """The last position that is known to be in the journal."""
        self.written = 0
        """The last position that was written here."""
        self.view: KindView | None = None
        """What readers are shown, if the session's kind has something of its own for them."""
        self.batch = Batch()
        self.saved: SavedSession | None = None
        """The checkpoint that `history` follows on; None if that is the whole journal."""
        self.history: list[Entry] = []
        """What is committed, kept until the program has been rebuilt from it."""
        self._saved_at = 0
        """The position of the latest checkpoint."""
        self.checkpoint: Checkpoint | None = None
        self.segment: Segment | None = None
        """What the next commit takes along of a session with a view."""

    @property
    def session(self) -> Session:
        assert self.known is not None
        return self.known

    def begin(self) -> None:
        """Begin the journal of a new session."""
        self._tracker = ReplayFold(self.id)
        self.known = self._tracker.session

    async def load(self, revive: Revive | None = None) -> Session:
        """Read the journal: all of it, or what follows on the checkpoint.

        With `revive`, the program is rebuilt from the whole journal in the same pass.
        """
        restored = await restored_session(self._owner, self.id)
        if restored is not None and (self.view is None or self.view.position >= restored.position):
            try:
                return await self._load_after(restored)
            except (JournalError, TransitionError):
                pass  # the checkpoint is not of this journal
        history = await self._store.entries(self.id)
        revived = None
        if revive is not None and not isinstance(history[-1].record, ENDS):
            revived = await revive(history)
        self._tracker, self.waking = revived or await fold(self.id, history)
        self.history, self.saved, self._saved_at = [] if revived else history, None, 0
        self.known = session = self._tracker.session
        self.committed = session.position
        self._show(history)
        return session

    async def _load_after(self, restored: RestoredSession) -> Session:
        """Fold what follows on a checkpoint."""
        tail = await self._store.entries(self.id, restored.position)
        self.waking = read_on(restored.tracker, None, tail)
        self._tracker, self.history = restored.tracker, tail
        self.saved, self._saved_at = restored.saved, restored.position
        self.known = session = restored.tracker.session
        self.committed = session.position
        if self.view is None and restored.view is not None:
            self.view = restored.view
            for entry in tail:
                self.view.apply(entry)
        else:
            self._show(tail)
        return session

    async def read_on(self) -> None:
        """Fold what others have written since; what was about to be added is none of it.

        Raises `StaleError` if all was forgotten meanwhile.
        """
        tracker = self._tracker
        assert tracker is not None
        news = await self._store.entries(self.id, self.committed)
        if self._tracker is not tracker:
            raise StaleError(is_lost=True)
        self.waking = read_on(tracker, self.waking, news)
        self.committed = tracker.session.position
        self._show(news)
        if self.history:
            self.history += news

    async def show_again(self) -> None:
        """Make the view again, from the whole journal; it forgets nothing from then on."""
        kind = find_kind(self.session.program_kind)
        assert kind is not None
        assert kind.view is not None
        view = kind.view(self.id, keep_all=True)
        async for entry in self._store.journal(self.id):
            view.apply(entry)
        self.view = view

    async def is_current(self) -> bool:
        """Whether nobody else has written since."""
        return await self._store.position(self.id) == self.committed

    async def entries(self) -> list[Entry]:
        """The whole journal as it is known, with the batch; what is not at hand is read again."""
        at_hand = self.history
        missing = self.committed - len(at_hand)
        before = await self._store.entries(self.id, until=missing) if missing else []
        if len(before) != missing:
            raise StaleError(is_lost=True)
        return [*before, *at_hand, *self.batch.entries]

    async def entries_saved(self) -> tuple[SavedSession, list[Entry]] | None:
        """A checkpoint, and the entries that follow on it with the batch; None if there is none."""
        saved, entries = self.saved, self.history
        if saved is None or self._saved_at + len(entries) != self.committed:
            restored = await restored_session(self._owner, self.id)
            if restored is None:
                return None
            saved = restored.saved
            entries = await self._store.entries(self.id, restored.position)
            if restored.position + len(entries) != self.committed:
                raise StaleError(is_lost=True)
        return saved, [*entries, *self.batch.entries]

    # --- checkpoints --------------------------------------------------------------------------------

    @property
    def is_worth_saving(self) -> bool:
        """Whether the program waits, and enough was added since the last checkpoint."""
        added = self.committed + len(self.batch.entries) - self._saved_at
        return added >= CHECKPOINT_RECORDS and self.session.state is PAUSED

    def save_batch(self, dump: Dump) -> None:
        """Make a checkpoint of the session after the batch, to be committed with it.

        Not of a session with a view, which is never ahead of the journal; before its first commit none is known.
        """
        if self.view is None and self.committed and (program := dump()) is not None:
            self.batch.checkpoint = self._checkpoint(program, b"")

    def save_committed(self, dump: Dump) -> None:
        """Make one of the session with its view, both as they were committed, for the next commit to take along."""
        if self.view is None or (program := dump()) is None:
            return
        segment, view = self.view.segment(), self.view.dump()
        if segment is not None:
            part = Segment(segment.after, segment.position, segment.data)
            self.segment = self._owner.sealer.seal_segment(self.id, part)
        if view is not None:
            self.checkpoint = self._checkpoint(program, view)
            self._saved_at = self.committed

    def _checkpoint(self, program: bytes, view: bytes) -> Checkpoint:
        assert self._tracker is not None
        saved = SavedSession(FORMAT, self._tracker.dump(), program, view)
        return self._owner.sealer.seal_checkpoint(self.id, saved.checkpoint(self.session.position))

    def forget_history(self) -> None:
        """The program has been rebuilt: the entries are not needed for that any more."""
        self.history = []

    def append(self, drafts: Sequence[RecordDraft], now: int) -> None:
        """Add records to the batch, and fold them in.

        The clocks of owners differ; the times of a journal do not fall.
        """
        assert self._tracker is not None
        tracker, session, batch = self._tracker, self._tracker.session, self.batch
        now = max(now, session.metrics.last_activity_at)
        for draft in drafts:
            record = draft.record
            entry = Entry(session.position + 1, now, record)
            waited_for = _children_left_by(session, record) if "child" in session.pending.groups else ()
            waking = tracker.apply(entry)
            if waking is not None:
                self.waking = waking
            batch.entries.append(entry)
            batch.bodies.append(draft.body)
            if waited_for:
                batch.abandoned += [asked for asked in waited_for if asked not in session.pending]

    def settle(self, position: int) -> None:
        """The batch is in the journal, which now ends at a position."""
        entries = self.batch.entries
        if self.history:
            self.history += entries
        self.checkpoint = self.segment = None
        if self.batch.checkpoint is not None:
            self._saved_at = self.batch.checkpoint.position
        is_first = not self.committed
        self.committed = self.written = position
        self.batch = Batch()
        if self.view is not None or is_first:
            self._show(entries)

    def forget(self) -> None:
        """Drop what is known, and with it what was not committed. What is shown stays: all of that is durable."""
        self._tracker = self.known = self.waking = None
        self.history, self.saved, self.batch = [], None, Batch()

    def _show(self, entries: Sequence[Entry]) -> None:
        """Advance the view with entries that are durable. Those that it has already are passed over."""
        view = self.view
        if view is None:
            kind = find_kind(self.session.program_kind)
            if kind is not None and kind.view is not None:
                view = self.view = kind.view(self.id, keep_all=self._owner.keeps_all_views)
                for entry in entries:
                    view.apply(entry)
            return
        observers = self._owner.view_observers.get(self.id, ())
        for entry in entries:
            if entry.position != view.position + 1:
                continue
            if not observers:
                view.apply(entry)
                continue
            reactions = [observer(view, entry) for observer in observers]
            view.apply(entry)
            for react in reactions:
                if react is not None:
                    react()


def _children_left_by(session: Session, record: Record) -> Sequence[str]:
    """The child queries that wait, and that a record may end otherwise than by an answer of the child."""
    if type(record) is AnsweredRecord:
        asked = record.query_id
        pending = session.pending.get(asked)
        is_child = pending is not None and pending.query.kind == "child"
        return [asked] if is_child and record.by != child_session_id(session.id, asked) else ()
    may_abandon = record.withdrawn if type(record) is PausedRecord else type(record) in _ENDS
    if not may_abandon:
        return ()
    return [asked for asked, pending in session.pending.items() if pending.query.kind == "child"]
