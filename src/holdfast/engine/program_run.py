"""`ProgramRun`: the program of one session while it is hot: its instance, its steps, and how it comes back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from holdfast.core.errors import JournalError, TransitionError
from holdfast.core.records import AdoptedRecord, Entry, RecordDraft, StartedRecord
from holdfast.core.replay import LazyReplayFold, ReplayFold, Waking
from holdfast.core.state import PAUSED, RUNNING, Session
from holdfast.engine import state_tool
from holdfast.engine.effects import Effects
from holdfast.engine.full_collections import LONG_RECORDS, no_full_collections
from holdfast.engine.outcomes import ENDLESS, MAX_QUIET_STEPS, outcome_of
from holdfast.engine.owner import Owner
from holdfast.engine.rebuild import IN_ROW, ReplayOrigin, Revival, last_outcome
from holdfast.engine.session_fold import SessionFold
from holdfast.engine.steps import comes_soon, rest_between_steps
from holdfast.programs.contract import AskStep, Instance, Step
from holdfast.programs.errors import DivergenceError, InstanceLostError, ProgramNotFoundError

Conclude: TypeAlias = Callable[[asyncio.Future[Step], Waking], Awaitable[None]]
"""Waits for a step that takes long, and does what follows from it."""


class ProgramRun:
    """Runs the program of one session, and adds what it does to the batch."""

    def __init__(self, owner: Owner, fold: SessionFold, effects: Effects, conclude: Conclude) -> None:
        self._owner = owner
        self._fold = fold
        self._effects = effects
        self._conclude = conclude
        self.instance: Instance | None = None
        """The program itself, while it is here, ready to continue."""
        self._revival = Revival(fold.id, owner.programs)
        self.thinking: asyncio.Task[None] | None = None
        """What waits for a step that takes long."""
        self.concluding: asyncio.Task[None] | None = None
        """What continues after such a step."""

    async def revive(self, history: Sequence[Entry]) -> tuple[ReplayFold, Waking | None] | None:
        """Rebuild the program from its journal, and fold that. If it fails, it is tried again when it is needed."""
        started = history[0].record
        if not isinstance(started, StartedRecord) or started.service not in self._owner.offers.services:
            return None  # it is run by those who serve it
        own = history[started.imported.position :] if started.imported is not None else ()
        if started.imported is not None and not any(type(entry.record) is AdoptedRecord for entry in own):
            return None  # it is run by nobody
        try:
            tracker, waking, instance = await self._revival.revive(history)
        except (ProgramNotFoundError, DivergenceError, InstanceLostError):
            return None
        instance.fold, self.instance = self._fold, instance
        while True:
            if not tracker.fold_some(IN_ROW):
                break
            await asyncio.sleep(0)
        return tracker.folded(), waking

    async def advance(self, session: Session) -> None:
        """Run the program for as long as it can go on."""
        fold, steps, rested = self._fold, 0, 0.0
        while session.state is RUNNING and fold.waking is not None and self.thinking is None:
            waking = fold.waking
            if steps == MAX_QUIET_STEPS:
                self.take_outcome(session, ENDLESS, self._owner.now())
                return
            if steps:  # most often there is one, which needs no clock
                rested = await rest_between_steps(rested)
            steps += 1
            try:
                instance = self.instance or await self._rebuild()
                if self._revival.why:
                    self._fold.append([RecordDraft(note) for note in self._revival.said()], self._owner.now())
                fold.waking = None
                step = (
                    instance.resume(waking.at, waking.answers)
                    if waking.refusal is None
                    else instance.refuse(waking.at, waking.refusal)
                )
                if type(step) is not AskStep and isinstance(step, Awaitable):
                    thought = asyncio.ensure_future(step)
                    self.instance = None  # not to be closed under the thread's feet, if we are cancelled here
                    is_there = await comes_soon(thought)
                    self.instance = instance
                    if not is_there:
                        self.thinking = asyncio.create_task(self._think(thought, waking))
                        return
                    step = thought.result()
            except ProgramNotFoundError:
                if not fold.committed:
                    raise
                return  # the answers are kept; a process that has the program will go on
            except InstanceLostError as error:
                self.lose(error, waking)
                continue
            now = self._owner.now()
            self.take_outcome(session, step, now)
            await self.answer_own(session, now)

    async def _think(self, thought: asyncio.Future[Step], waking: Waking) -> None:
        try:
            await self._conclude(thought, waking)
        finally:
            if self.concluding is asyncio.current_task():
                self.concluding = None

    def has_thought(self) -> None:
        """The step that took long is there: what continues is the present task."""
        self.thinking, self.concluding = None, asyncio.current_task()

    def take_outcome(self, session: Session, step: Step, now: int) -> None:
        """Add the outcome of a step, and plan the effects of what it asks."""
        fold = self._fold
        drafts = outcome_of(session, step, now)
        drafts[-1], *attempts = self._effects.plan(session, drafts[-1])
        fold.append(drafts, now)
        if isinstance(step, AskStep) and step.snapshot is not None:
            fold.batch.snapshot = (session.position, step.snapshot)
        if attempts:
            fold.append(attempts, now)

    async def answer_own(self, session: Session, now: int) -> None:
        """Answer what the program asks of the runtime itself: the durable state, and what attendants have for it.

        Writes go into the commit that records the answer.
        """
        fold = self._fold
        if state_tool.GROUP in session.pending.groups:
            answers = await state_tool.answers(self._owner.store, session, fold.batch.writes)
            fold.append([RecordDraft(answer) for answer in answers], now)
        if session.state is PAUSED and (own := session.kind_fold.decide_waiting(session, now)):
            fold.append([RecordDraft(record) for record in own], now)
        for attendant in self._owner.attendants:
            if records := attendant.records(session, now):
                fold.append([RecordDraft(record) for record in records], now)

    async def _rebuild(self) -> Instance:
        """The program as it was before the present waking."""
        instance = await self._rebuild_saved()
        if instance is None:
            is_long = self._fold.committed >= LONG_RECORDS
            with no_full_collections if is_long else contextlib.nullcontext():
                instance = await self._replayed()
        instance.fold, self.instance = self._fold, instance
        self._fold.forget_history()
        return instance

    async def _replayed(self) -> Instance:
        """The same by running it again from the start; nothing of the journal stays in memory."""
        _, _, instance = await self._revival.revive(await self._fold.entries())
        return instance

    async def _rebuild_saved(self) -> Instance | None:
        """The same by means of the checkpoint, which saves the replay up to there; None if that cannot be done."""
        fold = self._fold
        is_kept = fold.committed > 0 and self._owner.programs.has_checkpoints(fold.session)
        found = await fold.entries_saved() if is_kept else None
        begun = ReplayFold.restore(fold.id, found[0].fold) if found is not None else None
        if found is None or begun is None:
            return None
        saved, entries = found
        tracker = LazyReplayFold(begun)
        if (outcome := last_outcome(entries)) and self._owner.programs.waits_with_snapshot(fold.session):
            from_snapshot = await self._revival.restored(fold, outcome)
            if from_snapshot is not None:
                return from_snapshot
        try:
            waiting = self._owner.programs.restore_instance(tracker, saved.program)
            if waiting is None:
                return None
            *_, instance = await self._revival.revive(entries, ReplayOrigin(tracker, waiting))
        except (DivergenceError, JournalError, ProgramNotFoundError, TransitionError):
            return None  # the checkpoint is in doubt: the whole journal says what is wrong
        return instance

    def dump(self) -> bytes | None:
        """The program as it waits, for a checkpoint; empty if its kind is run again, None if it cannot be had now."""
        if self.instance is None:
            return None
        return self._owner.programs.dump_instance(self._fold.session, self.instance)

    def lose(self, error: InstanceLostError, waking: Waking) -> None:
        """The program is not there any more: it is rebuilt, and woken again."""
        self.instance, self._fold.waking = None, waking
        self._revival.lost(error)

    def stop(self) -> None:
        """Let go of the program. A step in a thread cannot be interrupted, only ignored."""
        instance, self.instance = self.instance, None
        thinking, self.thinking = self.thinking, None
        self._revival.why = ""
        if thinking is not None and thinking is not asyncio.current_task():
            thinking.cancel()
        if instance is not None and thinking is None:
            with contextlib.suppress(Exception):
                instance.close()
