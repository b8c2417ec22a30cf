"""One session in this process: its fold, its program while that is hot, and the commits that change it.

Everything it holds can be lost. It is right as long as nobody else has written to the session, and the store tells it
when somebody has: a commit that is refused makes it forget what it knew, and the message is decided again on what is
there now. So the journal needs no lock while a program runs; the expected position is enough.

A lease is held only where others must keep out: while a step takes long, and while drivers execute effects.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.decide import FeedMessage, KindMessage, Message, WakeMessage
from holdfast.core.errors import HoldfastError
from holdfast.core.events import Event
from holdfast.core.records import AttemptedRecord, Entry, PausedRecord, Record, RecordDraft
from holdfast.core.replay import ENDS, ReplayFold, Waking
from holdfast.core.state import PAUSED, RUNNING, Session
from holdfast.core.summary import summarize
from holdfast.engine import state_tool
from holdfast.engine.batch import Batch, UndoneOnError
from holdfast.engine.effects import Effects, children_before
from holdfast.engine.errors import StaleError
from holdfast.engine.outcomes import ENDLESS, MAX_QUIET_STEPS, outcome_of
from holdfast.engine.rebuild import Revival, fold, read_on, resume
from holdfast.engine.replies import addressed, decided, event_now, reason_of, repeated, reply_now
from holdfast.engine.steps import comes_soon, rest_between_steps
from holdfast.programs.contract import AskStep, Instance, Step
from holdfast.programs.errors import DivergenceError, InstanceLostError, ProgramNotFoundError
from holdfast.store.commits import Commit, Lease
from holdfast.store.errors import (
    LeaseHeldError,
    LeaseLostError,
    MessageTakenError,
    PositionConflictError,
    StateConflictError,
)

if TYPE_CHECKING:
    from holdfast.engine.engine import Engine


class LiveSession:
    """A session and its program, here."""

    def __init__(self, engine: Engine, session_id: str) -> None:
        self.id = session_id
        self.lock = asyncio.Lock()
        self.effects = Effects(engine, self)
        self._engine = engine
        self._tracker: ReplayFold | None = None
        self._history: list[Entry] = []
        """The journal, kept until the program has been rebuilt from it."""
        self._waking: Waking | None = None
        self._instance: Instance | None = None
        self._revival = Revival(session_id, engine)
        self._thinking: asyncio.Task[None] | None = None
        self._concluding: asyncio.Task[None] | None = None
        """What continues after a step that took long."""
        self._keeper: asyncio.Task[None] | None = None
        self._epoch: int | None = None
        self._committed = 0
        self._batch = Batch()
        self._undone_on_error = UndoneOnError(self._drop_uncommitted)

    @property
    def session(self) -> Session:
        assert self._tracker is not None
        return self._tracker.session

    @property
    def known(self) -> Session | None:
        """The session as it was when it was last looked at, if it was."""
        return None if self._tracker is None else self._tracker.session

    @property
    def is_busy(self) -> bool:
        """Whether something would be interrupted if it were forgotten."""
        return self.lock.locked() or self.is_under_way or self._epoch is not None

    @property
    def is_under_way(self) -> bool:
        """Whether effects or a long step are running here."""
        return bool(self.effects.running) or self._thinking is not None

    @property
    def is_stuck(self) -> bool:
        """Whether the program could go on, but not in this process."""
        return self.session.state is RUNNING and self._thinking is None and self._waking is not None

    @property
    def lease(self) -> Lease | None:
        """The lease that is held, if one is."""
        return None if self._epoch is None else Lease(self.id, self._engine.owner, self._epoch, 0)

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """Everything that runs on behalf of the session."""
        others = (self._thinking, self._concluding, self._keeper)
        return [task for task in (*self.effects.running.values(), *others) if task is not None]

    # --- what it knows -----------------------------------------------------------------------------

    async def load(self, *, with_program: bool = False) -> Session:
        """What the journal says. Read again only after somebody else has written.

        `with_program` rebuilds the program from the same entries. If that fails, it is tried again when it is needed.
        """
        if self._tracker is None:
            history = [entry async for entry in self._engine.store.journal(self.id)]
            if with_program and not isinstance(history[-1].record, ENDS):
                with contextlib.suppress(ProgramNotFoundError, DivergenceError, InstanceLostError):
                    self._tracker, self._waking, self._instance = await self._revival.revive(history)
                    history = []
            if self._tracker is None:
                self._tracker, self._waking = fold(self.id, history)
            self._history = history
            self._committed = self.session.position
        return self._tracker.session

    async def refresh(self) -> Session:
        """What the journal says now. What is known is not read again."""
        tracker, waking = self._tracker, self._waking
        try:
            await self._check_fresh()
        except StaleError:
            if tracker is not None and tracker.session.position == self._committed:
                news = self._engine.store.journal(self.id, self._committed)
                self._waking = await read_on(tracker, waking, news)
                self._tracker, self._committed = tracker, tracker.session.position
        return await self.load()

    async def _check_fresh(self) -> None:
        """Raise `StaleError` if somebody else has written since: what is decided may then be wrong."""
        if self._tracker is not None and await self._engine.store.position(self.id) != self._committed:
            self.forget()
            raise StaleError(is_lost=True)

    def forget(self) -> None:
        """Drop everything; the journal has it."""
        for task in (self._concluding, self._keeper):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
        self._undo()
        self.effects.stop()
        self._keeper = self._epoch = None

    def _undo(self) -> None:
        """Drop what is known, and with it what was not committed. The effects that run here go on."""
        self._stop()
        self.effects.unplan()
        for attendant in self._engine.attendants:
            attendant.undone(self.id)
        self._tracker = self._waking = None
        self._revival.why = ""
        self._history, self._batch = [], Batch()

    def _drop_uncommitted(self, error: BaseException) -> None:
        """Keep nothing that an error kept from being committed."""
        if isinstance(error, StaleError) and not error.is_lost:
            self._undo()
        else:
            self.forget()

    # --- messages ----------------------------------------------------------------------------------

    async def begin(self, records: Sequence[Record]) -> Event:
        """A new session, run to its first pause."""
        async with self.lock:
            self._tracker = ReplayFold(self.id)
            with self._undone_on_error:
                self._record(records, self._engine.now())
                await self._advance()
                await self._commit("start")
            return self.event()

    async def take(self, message: Message, takes: Sequence[int] = ()) -> Event:
        """Decide a message, do what follows from it, and say so once it is durable."""
        await self.lock.acquire()
        try:
            if takes:
                await self._check_waiting(takes)
            is_feed = isinstance(message, FeedMessage)
            session = self._tracker.session if self._tracker else await self.load(with_program=is_feed)
            if len(session.pending) > 1:
                message = addressed(message, session.pending, self.offered)
            now = self._engine.now()
            try:
                decision = await decided(self._engine, session, message, now)
            except HoldfastError:
                await self._check_fresh()
                raise
            if not decision.drafts:
                await self._check_fresh()
            if not is_feed and isinstance(message, WakeMessage) and not takes and not self._engine.knows(session):
                return self.event()  # the timer is left to a process that can go on with the program
            try:
                if is_feed and decision.drafts and (first := session.kind_fold.decide_waiting(session, now)):
                    self._record(first, now)  # before the answers let the program continue, which has to know of it
                self._append(decision.drafts, now)
                asleep = session.state is PAUSED
                await self._go_on(session, now)
                await self._commit_if_needed(reason_of(message, asleep), takes)
            except BaseException as error:
                self._drop_uncommitted(error)
                raise
            if not decision.drafts and decision.is_replay:
                if isinstance(message, KindMessage):
                    return msgspec.structs.replace(self.event(), replayed=True)
                return await repeated(self._engine, self.id, max(decision.replayed))
            return reply_now(self._engine, session, self.offered, asleep=asleep) if is_feed else self.event()
        finally:
            self.lock.release()

    async def check(self, message: Message) -> Message:
        """Raise here and now if the owner would refuse a message.

        Gives it back with the ids of the queries that it is for now: it must not reach those that are asked later.
        """
        async with self.lock:
            session = await self.refresh()
            message = addressed(message, session.pending, self.offered)
            await decided(self._engine, session, message, self._engine.now())
            return message

    async def _check_waiting(self, takes: Sequence[int]) -> None:
        """Raise `MessageTakenError` for mail that is gone, before anything is touched for it."""
        if gone := set(takes) - {item.number for item in await self._engine.store.mailbox(self.id)}:
            raise MessageTakenError(self.id, min(gone))

    async def write(self, decided: Callable[[Session], list[Record]]) -> bool:
        """Append what was decided about the session; False if that is nothing."""
        async with self.lock:
            records = decided(await self.load())
            if records:
                with self._undone_on_error:
                    self._record(records, self._engine.now())
                    await self._commit("expire")
            return bool(records)

    async def attend(self) -> None:
        """Resume whatever a dead process left behind: a step, an effect, a child."""
        async with self.lock:
            session = await self.refresh()
            if session.is_terminal or not self._engine.knows(session):
                return
            with self._undone_on_error:
                await self._go_on(session, self._engine.now())
                self.effects.plan_orphans(self.session.pending)
                await self._commit_if_needed("takeover")

    async def attempts(self, asked: str) -> int | None:
        """How often the effect of a query was begun; None if the query is not pending any more."""
        async with self.lock:
            pending = (await self.load()).pending.get(asked)
            return None if pending is None else pending.attempts

    async def attempt(self, asked: str, driver: str) -> int | None:
        """The number of a new attempt, once it is durable; None if the query is not pending any more."""
        async with self.lock:
            session = await self.load()
            if asked not in session.pending:
                return None
            with self._undone_on_error:
                self._record([AttemptedRecord(query_id=asked, driver=driver)], self._engine.now())
                await self._commit("attempt")
            return self.session.pending[asked].attempts

    async def renew(self) -> None:
        """Renew the lease, or release it if nothing is under way any more."""
        async with self.lock:
            await self.load()
            if self._epoch is not None:
                with self._undone_on_error:
                    await self._commit("renew")

    # --- events ------------------------------------------------------------------------------------

    def offered(self) -> list[str]:
        """Pending queries that nothing here will answer by itself."""
        drives, running = self._engine.drives, self.effects.running
        offered = []
        for asked, pending in self.session.pending.items():
            if asked not in running and not drives(self.id, pending.query):
                offered.append(asked)
        return offered

    def event(self) -> Event:
        """What the session says to a host now."""
        return event_now(self._engine, self.session, self.offered)

    # --- running the program -----------------------------------------------------------------------

    def _record(self, records: Sequence[Record], now: int) -> None:
        """Add records that have not been encoded yet to the batch, and fold them in."""
        self._append([RecordDraft(record) for record in records], now)

    def _append(self, drafts: Sequence[RecordDraft], now: int) -> None:
        """Add records to the batch, and fold them in."""
        assert self._tracker is not None
        tracker, session, batch = self._tracker, self._tracker.session, self._batch
        for draft in drafts:
            entry = Entry(session.position + 1, now, draft.record)
            waited_for = children_before(session, draft.record)
            waking = tracker.apply(entry)
            if waking is not None:
                self._waking = waking
            batch.entries.append(entry)
            batch.bodies.append(draft.body)
            if waited_for:
                self.effects.drop_withdrawn(waited_for, session)

    async def _go_on(self, session: Session, now: int) -> None:
        if session.state is PAUSED:
            await self._answer_own(session, now)
        if not (self._history and self.is_stuck and await self._is_left_to_owner()):
            await self._advance()

    async def _is_left_to_owner(self) -> bool:
        """Whether another process holds the session, so that running its program here would be for nothing."""
        if self._epoch is not None:
            return False
        row = await self._engine.store.session(self.id)
        if row.owner is None or row.owner == self._engine.owner:
            return False
        if self._batch.entries:
            raise LeaseHeldError(self.id, row.owner, row.lease_until or 0)
        return True

    async def _advance(self) -> None:
        """Run the program for as long as it can go on, adding what it does to the batch."""
        session, steps, rested = self.session, 0, 0.0
        while session.state is RUNNING and self._waking is not None and self._thinking is None:
            waking = self._waking
            if steps == MAX_QUIET_STEPS:
                self._outcome(ENDLESS, self._engine.now())
                return
            if steps:  # most often there is one, which needs no clock
                rested = await rest_between_steps(rested)
            steps += 1
            try:
                instance = self._instance or await self._rebuild()
                if self._revival.why:
                    self._record(self._revival.said(), self._engine.now())
                self._waking = None
                step = resume(instance, waking)
                if type(step) is not AskStep and isinstance(step, Awaitable):
                    thought = asyncio.ensure_future(step)
                    self._instance = None  # not to be closed under the thread's feet, if we are cancelled here
                    is_there = await comes_soon(thought)
                    self._instance = instance
                    if not is_there:
                        self._thinking = asyncio.create_task(self._think(thought, waking))
                        return
                    step = thought.result()
            except ProgramNotFoundError:
                if not self._committed:
                    raise
                return  # the answers are kept; a process that has the program will go on
            except InstanceLostError as error:
                self._lose(error, waking)
                continue
            now = self._engine.now()
            self._outcome(step, now)
            await self._answer_own(session, now)

    async def _think(self, thought: asyncio.Future[Step], waking: Waking) -> None:
        """Wait for a step that takes long. What led to it is committed meanwhile, and the lease is held."""
        try:
            step: Step | InstanceLostError
            try:
                step = await asyncio.shield(thought)
            except InstanceLostError as error:
                step = error
            async with self.lock:
                self._thinking, self._concluding = None, asyncio.current_task()
                if self.session.state is RUNNING:
                    now = self._engine.now()
                    with self._undone_on_error:
                        if isinstance(step, InstanceLostError):
                            self._lose(step, waking)
                        else:
                            self._outcome(step, now)
                        await self._go_on(self.session, now)
                        await self._commit_if_needed("step")
        except StaleError:
            self._engine.go_on_with(self.id)
        except HoldfastError as error:
            self._engine.report(self.id, error)
        finally:
            if self._concluding is asyncio.current_task():
                self._concluding = None

    def _outcome(self, step: Step, now: int) -> None:
        session = self.session
        drafts = outcome_of(session, step, now)
        self._append(drafts, now)
        if isinstance(step, AskStep) and step.snapshot is not None:
            self._batch.snapshot = (session.position, step.snapshot)
        paused = drafts[-1].record
        if type(paused) is PausedRecord and (attempts := self.effects.plan(paused.queries, session.pending)):
            self._record(attempts, now)

    async def _answer_own(self, session: Session, now: int) -> None:
        """Answer what the program asks of the runtime itself: the durable state, and what attendants have for it.

        Writes go into the commit that records the answer.
        """
        if state_tool.is_asked(session):
            self._record(await state_tool.answers(self._engine.store, session, self._batch.writes), now)
        if session.state is PAUSED and (own := session.kind_fold.decide_waiting(session, now)):
            self._record(own, now)
        for attendant in self._engine.attendants:
            self._record(attendant.records(session, now), now)

    async def _rebuild(self) -> Instance:
        """The program as it was before the present waking."""
        entries = self._history
        if len(entries) != self._committed:  # the program was here and is lost, or more was written since
            entries = [entry async for entry in self._engine.store.journal(self.id)]
            if len(entries) != self._committed:
                raise StaleError(is_lost=True)
        *_, instance = await self._revival.revive([*entries, *self._batch.entries])
        instance.session = self.session
        self._instance, self._history = instance, []
        return instance

    def _lose(self, error: InstanceLostError, waking: Waking) -> None:
        """The program is not there any more: it is rebuilt, and woken again."""
        self._instance, self._waking = None, waking
        self._revival.lost(error)

    # --- commits -----------------------------------------------------------------------------------

    async def _commit_if_needed(self, reason: str, takes: Sequence[int] = ()) -> None:
        claims = self._thinking is not None and self._epoch is None
        if self._batch.entries or takes or claims or self.effects.is_planned:
            await self._commit(reason, takes)
        else:
            self.effects.begin(self.session)

    async def _commit(self, reason: str, takes: Sequence[int] = ()) -> None:
        """Write the batch; after that, begin what was waiting for it to be durable."""
        session, engine, batch = self.session, self._engine, self._batch
        has_ended = session.is_terminal
        holds = not has_ended and (self._thinking is not None or self.effects.holds(session.pending))
        snapshot = None if has_ended else batch.snapshot
        commit = Commit(
            session_id=self.id,
            expected=self._committed,
            entries=batch.entries,
            bodies=batch.bodies,
            summary=summarize(session),
            owner=engine.owner,
            epoch=self._epoch,
            hold_ms=engine.lease_ms if holds else 0,
            takes=takes,
            writes=batch.writes,
            snapshot=snapshot and engine.sealer.seal(self.id, *snapshot),
        )
        try:
            if engine.seam is not None:
                await engine.seam(f"before {reason}")
            receipt = await engine.store.append(commit)
            if engine.seam is not None:
                await engine.seam(f"after {reason}")
        except (PositionConflictError, LeaseLostError, StateConflictError) as error:
            raise StaleError(is_lost=not isinstance(error, StateConflictError)) from error
        self._committed, self._batch = receipt.position, Batch()
        for observer in engine.on_commit:
            observer(self.id, commit.entries)
        self._epoch = receipt.epoch if holds else None
        if holds and self._keeper is None:
            self._keeper = asyncio.create_task(engine.keep(self))
        self.effects.begin(session)
        if has_ended:
            self._stop()
        engine.committed(session, commit.summary.due_at)

    def _stop(self) -> None:
        """Let go of the program. A step in a thread cannot be interrupted, only ignored."""
        instance, self._instance = self._instance, None
        thinking, self._thinking = self._thinking, None
        if thinking is not None and thinking is not asyncio.current_task():
            thinking.cancel()
        if instance is not None and thinking is None:
            with contextlib.suppress(Exception):
                instance.close()

    def kept(self) -> None:
        """A keeper has ended; there may be another by now."""
        if self._keeper is asyncio.current_task():
            self._keeper = None
