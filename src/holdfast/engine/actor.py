"""One session in this process: its fold, its program while that is hot, and the commits that change it.

Everything an actor holds can be lost. It is right as long as nobody else has written to the session, and the store
tells it when somebody has: a commit that is refused makes the actor forget what it knew, and the message is decided
again on what is there now. So the journal needs no lock while a program runs; the expected position is enough.

A lease is held only where others must keep out: while a step takes long, and while drivers execute effects.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, assert_never

from holdfast.core.decide import (
    CancelMessage,
    Decision,
    FeedMessage,
    Given,
    Message,
    WakeMessage,
    decide,
    decide_complete,
    decide_fail,
    decide_pause,
)
from holdfast.core.errors import BudgetExceededError, HoldfastError, InvalidValueError
from holdfast.core.events import AcceptedEvent, Event, event_of, paused_event, reply_after, reply_of
from holdfast.core.queries import ChildQuery, Failure, Query, ToolQuery
from holdfast.core.records import (
    AnsweredRecord,
    AttemptedRecord,
    CompletedRecord,
    Entry,
    FailedRecord,
    PausedRecord,
    Record,
    RefusedRecord,
)
from holdfast.core.replay import OUTCOMES, Tracker, Waking
from holdfast.core.state import Session, State
from holdfast.core.summary import summarize
from holdfast.core.values import checked, preview
from holdfast.engine import state_tool
from holdfast.engine.drivers import Driver
from holdfast.programs.context import STATE_TOOL
from holdfast.programs.contract import Asked, Instance, Raised, Returned, Step
from holdfast.programs.errors import DivergenceError, ProgramNotFoundError
from holdfast.programs.native import PROMPT_MS
from holdfast.store.contract import Commit, Lease, StateWrite
from holdfast.store.errors import LeaseLostError, PositionConflictError, StateConflictError

if TYPE_CHECKING:
    from holdfast.engine.engine import Engine


class StaleError(Exception):
    """Somebody else wrote to the session first: decide again."""


class Actor:
    """A session and its program, here."""

    def __init__(self, engine: Engine, session_id: str) -> None:
        self.id = session_id
        self.lock = asyncio.Lock()
        self.effects: dict[str, asyncio.Task[None]] = {}
        self.slotted: dict[str, Driver] = {}
        """Queries for whose effects a driver's slot is taken."""
        self.recovering: set[str] = set()
        """Queries that a process which is gone has attempted."""
        self._engine = engine
        self._tracker: Tracker | None = None
        self._history: list[Entry] = []
        """The journal, kept until the program has been rebuilt from it."""
        self._waking: Waking | None = None
        self._instance: Instance | None = None
        self._thinking: asyncio.Task[None] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._epoch: int | None = None
        self._committed = 0
        self._batch: list[Entry] = []
        self._writes: list[StateWrite] = []
        self._launches: list[Query] = []

    @property
    def session(self) -> Session:
        assert self._tracker is not None
        return self._tracker.session

    @property
    def is_busy(self) -> bool:
        """Whether something would be interrupted if the actor were forgotten."""
        return self.lock.locked() or bool(self.effects) or self._thinking is not None or self._epoch is not None

    @property
    def lease(self) -> Lease | None:
        """The lease that is held, if one is."""
        return None if self._epoch is None else Lease(self.id, self._engine.owner, self._epoch, 0)

    # --- beginnings --------------------------------------------------------------------------------

    async def begin(self, records: Sequence[Record]) -> Event:
        """A new session, run to its first pause."""
        async with self.lock:
            self._tracker = Tracker(self.id)
            with self._undone_on_error():
                self._record(records)
                await self._advance()
                await self._commit("start")
            return self.event()

    @contextlib.contextmanager
    def _undone_on_error(self) -> Iterator[None]:
        """Nothing that was not committed is kept."""
        try:
            yield
        except BaseException:
            self.forget()
            raise

    async def load(self) -> Session:
        """What the journal says. Read again only after somebody else has written."""
        if self._tracker is None:
            entries = [entry async for entry in self._engine.store.journal(self.id)]
            tracker = Tracker(self.id)
            waking: Waking | None = None
            for entry in entries:
                if isinstance(entry.record, OUTCOMES):
                    waking = None
                waking = tracker.apply(entry) or waking
            self._tracker, self._history, self._waking = tracker, entries, waking
            self._committed = tracker.session.position
        return self._tracker.session

    async def refresh(self) -> Session:
        """What the journal says now."""
        with contextlib.suppress(StaleError):
            await self._check_fresh()
        return await self.load()

    async def _check_fresh(self) -> None:
        """Raise `StaleError` if somebody else has written since: what is decided may then be wrong."""
        if self._tracker is not None and await self._engine.store.position(self.id) != self._committed:
            self.forget()
            raise StaleError

    def forget(self) -> None:
        """Drop everything; the journal has it."""
        self._close_instance()
        for task in (*self.effects.values(), self._thinking, self._keeper):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
        for asked in [asked for asked in self.slotted if asked not in self.effects]:
            self.slotted.pop(asked).slots.give_back()
        self.effects = {}
        self.recovering = set()
        self._tracker = self._instance = self._thinking = self._keeper = self._waking = self._epoch = None
        self._history, self._batch, self._writes, self._launches = [], [], [], []

    # --- messages ----------------------------------------------------------------------------------

    async def take(self, message: Message, takes: Sequence[int] = ()) -> Event:
        """Decide a message, do what follows from it, and say so once it is durable."""
        async with self.lock:
            session = await self.load()
            try:
                decision = decide(session, message, self._engine.now())
            except HoldfastError:
                await self._check_fresh()
                raise
            if not decision.records:
                await self._check_fresh()
            if isinstance(message, WakeMessage) and not self._engine.knows(session):
                return self.event()  # the timer is left to a process that can go on with the program
            with self._undone_on_error():
                self._record(decision.records)
                asleep = session.state is State.PAUSED
                await self._advance()
                if decision.records or takes:
                    await self._commit(_reason(message, asleep), takes)
            if decision.is_replay:
                return await self._repeat(decision)
            if not isinstance(message, FeedMessage):
                return self.event()
            return self._accepted() if asleep else self._reply()

    async def write(self, decided: Callable[[Session], list[Record]]) -> bool:
        """Append what a decision about the session comes to; False if that is nothing."""
        async with self.lock:
            records = decided(await self.load())
            with self._undone_on_error():
                self._record(records)
                if records:
                    await self._commit("minder")
            return bool(records)

    async def attend(self) -> None:
        """Go on with whatever a process that is gone has left: a step, an effect, a child."""
        async with self.lock:
            session = await self.refresh()
            if session.is_terminal:
                return
            with self._undone_on_error():
                if session.state is State.RUNNING and self._thinking is None:
                    await self._advance()
                orphans = self._orphans()
                self._launches += [query for query in orphans if not isinstance(query, ChildQuery)]
                if self._batch or self._launches or self._thinking is not None:
                    await self._commit("takeover")
            for query in orphans:
                if isinstance(query, ChildQuery):
                    self._engine.begin_child(self.id, query)

    async def _repeat(self, decision: Decision) -> Event:
        entries = [entry async for entry in self._engine.store.journal(self.id)]
        return reply_after(self.id, entries, max(decision.replayed))

    # --- events ------------------------------------------------------------------------------------

    def offered(self) -> list[str]:
        """Pending queries that nothing here will answer by itself."""
        return [asked for asked, pending in self.session.pending.items() if not self._is_driven(pending.query)]

    def _is_driven(self, query: Query) -> bool:
        return query.id in self.effects or self._engine.drives(query)

    def event(self) -> Event:
        """What the session has to say to a host now."""
        session = self.session
        if session.state is State.PAUSED and (offered := self.offered()):
            return paused_event(self.id, [session.pending[asked] for asked in offered])
        if session.state is State.PAUSED:
            return self._engine.running_event(session)
        return event_of(session, self._engine.now())

    def _reply(self) -> Event:
        event = reply_of(self.session, self._engine.now())
        return self._accepted() if isinstance(event, AcceptedEvent) else self.event()

    def _accepted(self) -> Event:
        return AcceptedEvent(session_id=self.id, remaining=self.offered())

    @property
    def is_stuck(self) -> bool:
        """Whether the program could go on, but not in this process."""
        return self.session.state is State.RUNNING and self._thinking is None and self._waking is not None

    # --- running the program -----------------------------------------------------------------------

    def _record(self, records: Sequence[Record]) -> None:
        """Add records to the batch, and fold them in."""
        assert self._tracker is not None
        for record in records:
            entry = Entry(self._tracker.session.position + 1, self._engine.now(), record)
            self._waking = self._tracker.apply(entry) or self._waking
            self._batch.append(entry)

    async def _advance(self) -> None:
        """Run the program for as long as it can go on, adding what it does to the batch."""
        while self.session.state is State.RUNNING and self._waking is not None:
            try:
                instance = self._instance or await self._rebuild()
            except ProgramNotFoundError:
                if not self._committed:
                    raise
                return  # the answers are kept; a process that has the program will go on
            waking, self._waking = self._waking, None
            step = _resume(instance, waking)
            if isinstance(step, Awaitable):
                thought = asyncio.ensure_future(step)
                done, _ = await asyncio.wait({thought}, timeout=PROMPT_MS / 1000)
                if not done:
                    self._thinking = asyncio.create_task(self._think(thought))
                    return
                step = thought.result()
            self._outcome(step)
            await self._answer_state()

    async def _think(self, thought: asyncio.Future[Step]) -> None:
        """Wait for a step that takes long. What led to it is committed meanwhile, and the lease is held."""
        try:
            step = await asyncio.shield(thought)
            async with self.lock:
                self._thinking = None
                if self.session.state is State.RUNNING:
                    with self._undone_on_error():
                        self._outcome(step)
                        await self._answer_state()
                        await self._advance()
                        await self._commit("step")
        except StaleError:
            pass
        except HoldfastError as error:
            self._engine.report(self.id, error)

    def _outcome(self, step: Step) -> None:
        session, now = self.session, self._engine.now()
        self._record([checked(note, "note") for note in step.notes])
        match step:
            case Asked():
                try:
                    paused = decide_pause(session, step.queries, now, wake=step.wake, withdrawn=step.withdrawn)
                except (BudgetExceededError, InvalidValueError) as error:
                    self._record([RefusedRecord(queries=len(step.queries), failure=Failure(str(error), error.kind))])
                    return
                self._record([paused])
                self._drive(paused.queries)
            case Returned(result=result):
                self._record([decide_complete(session, result)])
            case Raised(error=error_text, kind=kind):
                self._record([decide_fail(session, error_text, kind)])

    async def _answer_state(self) -> None:
        """Answer what the program asks of the durable state; writes go into the commit that records the answer."""
        for asked, pending in list(self.session.pending.items()):
            query = pending.query
            if isinstance(query, ToolQuery) and query.name == STATE_TOOL:
                answer, write = await state_tool.answer(self._engine.store, query, self._writes)
                if write is not None:
                    self._writes.append(write)
                self._record([AnsweredRecord(query_id=asked, answer=answer, by="state")])

    async def _rebuild(self) -> Instance:
        """The program as it was before the present waking, by running it again on its journal."""
        self._instance = None
        tracker = Tracker(self.id)
        instance: Instance | None = None
        waking: Waking | None = None
        for entry in self._history or self._batch[:1]:
            if isinstance(entry.record, OUTCOMES) and waking is not None and instance is not None:
                step = _resume(instance, waking)
                _compare(self.id, entry, await step if isinstance(step, Awaitable) else step)
                waking = None
            waking = tracker.apply(entry) or waking
            if instance is None:
                instance = self._engine.create(tracker.session)
        assert instance is not None
        instance.session = self.session
        self._instance, self._history = instance, []
        return instance

    # --- effects -----------------------------------------------------------------------------------

    def _drive(self, queries: Sequence[Query]) -> None:
        """Begin what drivers here answer. Where a slot is free, the attempt is recorded with the pause itself."""
        for query in queries:
            if isinstance(query, ChildQuery):
                self._launches.append(query)
            elif (driver := self._engine.drivers.find(query)) is not None and query.id in self.session.pending:
                self._launches.append(query)
                if driver.slots.try_take():
                    self.slotted[query.id] = driver
                    self._record([AttemptedRecord(query_id=query.id, driver=driver.name)])

    def _orphans(self) -> list[Query]:
        """Pending queries that should be under way here, and are not."""
        orphans = [
            pending
            for asked, pending in self.session.pending.items()
            if self._engine.attends(pending.query, pending.attempts) and asked not in self.effects
        ]
        self.recovering |= {pending.query.id for pending in orphans if pending.attempts}
        return [pending.query for pending in orphans]

    async def attempt(self, asked: str, driver: str) -> int | None:
        """The number of a new attempt, once it is durable; None if the query is not pending any more."""
        async with self.lock:
            session = await self.load()
            if asked not in session.pending:
                return None
            with self._undone_on_error():
                self._record([AttemptedRecord(query_id=asked, driver=driver)])
                await self._commit("attempt")
            return self.session.pending[asked].attempts

    async def settle(self, given: Given, by: str) -> None:
        """Take the answer of an effect."""
        self.effects.pop(given.query_id or "", None)
        await self._engine.deliver(self.id, FeedMessage([given], by))

    # --- commits -----------------------------------------------------------------------------------

    async def _commit(self, reason: str, takes: Sequence[int] = ()) -> None:
        """Write the batch; after that, begin what was waiting for it to be durable."""
        session = self.session
        launches, self._launches = self._launches, []
        driven = [query for query in launches if not isinstance(query, ChildQuery)]
        holds = not session.is_terminal and bool(self._thinking or self.effects or driven)
        commit = Commit(
            session_id=self.id,
            expected=self._committed,
            entries=self._batch,
            summary=summarize(session),
            owner=self._engine.owner,
            epoch=self._epoch,
            hold_ms=self._engine.lease_ms if holds else 0,
            takes=takes,
            writes=self._writes,
        )
        try:
            await self._engine.seam(f"before {reason}")
            receipt = await self._engine.store.append(commit)
            await self._engine.seam(f"after {reason}")
        except (PositionConflictError, LeaseLostError, StateConflictError) as error:
            raise StaleError from error
        self._committed, self._batch, self._writes = receipt.position, [], []
        self._epoch = receipt.epoch if holds else None
        if not holds and self._keeper is not None and self._keeper is not asyncio.current_task():
            self._keeper.cancel()
            self._keeper = None
        if holds and self._keeper is None:
            self._keeper = asyncio.create_task(self._engine.keep(self))
        for query in launches:
            if isinstance(query, ChildQuery):
                self._engine.begin_child(self.id, query)
            elif query.id in session.pending and query.id not in self.effects:
                self.effects[query.id] = asyncio.create_task(self._engine.execute(self, query))
        if session.is_terminal:
            self._end()
        self._engine.committed(session)

    def _end(self) -> None:
        for task in self.effects.values():
            if task is not asyncio.current_task():
                task.cancel()
        self.effects = {}
        if self._thinking is not None and self._thinking is not asyncio.current_task():
            self._thinking.cancel()
        self._close_instance()
        self._thinking = None

    def _close_instance(self) -> None:
        instance, self._instance = self._instance, None
        if instance is not None and self._thinking is None:  # a step in a thread cannot be interrupted, only ignored
            with contextlib.suppress(Exception):
                instance.close()

    async def renew(self) -> None:
        """Hold on to the lease, with a commit of nothing."""
        async with self.lock:
            if self._epoch is not None:
                with self._undone_on_error():
                    await self._commit("renew")


def _reason(message: Message, asleep: bool) -> str:
    match message:
        case FeedMessage():
            return "partial feed" if asleep else "feed"
        case CancelMessage():
            return "cancel"
        case WakeMessage():
            return "timer"
        case _:
            assert_never(message)


def _resume(instance: Instance, waking: Waking) -> Step | Awaitable[Step]:
    if waking.refusal is not None:
        return instance.refuse(waking.at, waking.refusal)
    return instance.resume(waking.at, waking.answers)


def _compare(session_id: str, entry: Entry, step: Step) -> None:
    """Raise `DivergenceError` unless a replayed step is what was recorded."""
    record = entry.record
    match record, step:
        case PausedRecord(), Asked():
            if record.queries == step.queries and sorted(record.withdrawn) == sorted(step.withdrawn):
                return
        case RefusedRecord(), Asked():
            if record.queries == len(step.queries):
                return
        case CompletedRecord(), Returned():
            if record.result == step.result:
                return
        case FailedRecord(), Raised():
            return
        case _:
            pass
    where = step.where if isinstance(step, Asked) else ""
    raise DivergenceError(session_id, entry.position, _told(record), _told(step), where)


def _told(what: Record | Step) -> str:
    match what:
        case PausedRecord(queries=list(queries)) | Asked(queries=queries):
            return "; ".join(f"{query.id} {preview(query)}" for query in queries) or "nothing new"
        case CompletedRecord(result=result) | Returned(result=result):
            return f"the result {preview(result)}"
        case FailedRecord(error=error) | Raised(error=error):
            return f"the error {error}"
        case _:
            return preview(what)
