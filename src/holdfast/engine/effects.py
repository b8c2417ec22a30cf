"""What is under way here for the queries of one session: the effects of drivers, and its children."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from holdfast.core.decide import GivenAnswer
from holdfast.core.errors import HoldfastError, InvalidValueError
from holdfast.core.pending_queries import PendingQuery
from holdfast.core.queries import ChildQuery, Query
from holdfast.core.records import (
    AttemptedRecord,
    Entry,
    InterruptedRecord,
    Parent,
    PausedRecord,
    Record,
    RecordDraft,
    attempted_in,
    attempted_pause,
)
from holdfast.core.state import Session
from holdfast.engine.drivers import CUT_OFF, DIED, SHUT_DOWN, UNHEARD, Attempt, Driver, failure_of, given_up
from holdfast.engine.errors import StaleError
from holdfast.engine.owner import Owner
from holdfast.engine.permits import Permit
from holdfast.engine.slots import EffectSlot, current_slot
from holdfast.engine.store_trouble import insist
from holdfast.store.errors import LeaseHeldError


class EffectSession(Protocol):
    """What effects need of the session that they are for."""

    @property
    def id(self) -> str: ...

    async def pending_query(self, asked: str) -> PendingQuery | None:
        """A query, with how often its effect was begun; None if it is not pending any more."""
        ...

    async def attempt(self, asked: str, driver: str) -> int | None:
        """The number of a new attempt, once it is durable; None if the query is not pending any more."""
        ...

    @property
    def lease_left_s(self) -> float:
        """Seconds for which the lease is ours for certain; less than 0 if it may have run out."""
        ...

    async def renew(self) -> None:
        """Renew the lease; `StaleError` if somebody else has the session."""
        ...

    async def answer(self, given: GivenAnswer) -> None:
        """Answer a query, here or wherever the session is owned by now."""
        ...

    async def let_go(self) -> None:
        """Release the session if it is held for nothing any more."""
        ...


class Children(Protocol):
    """What becomes of the children that a session asks for."""

    def take_up(self, parent: str, query: ChildQuery) -> None:
        """Start the session that a query asks for; or go on with it, or tell its parent what became of it."""
        ...

    def drop(self, parent: Session, asked: str) -> None:
        """End the session of a query that nobody waits for any more."""
        ...


class Family(Children, Protocol):
    """The children and the parent of a session."""

    def tell(self, child: Session, parent: Parent) -> None:
        """Tell a parent that its child has ended."""
        ...


class Effects:
    """The effects of one session. They are planned with a commit, and begin once that is durable."""

    def __init__(self, owner: Owner, session: EffectSession, children: Children) -> None:
        self._owner = owner
        self._session = session
        self._children = children
        self.running: dict[str, asyncio.Task[None]] = {}
        """Those under way, by query."""
        self._slots: dict[str, EffectSlot] = {}
        """The slots that are taken, by query."""
        self._permits: dict[str, Permit] = {}
        """The permits that planned effects need, by query."""
        self._recovering: set[str] = set()
        """Queries that a process which is gone has attempted."""
        self._known: set[str] = set()
        """Queries whose effects have ended, and whose outcomes are on their way to the journal."""
        self._attempts: dict[str, int] = {}
        """The attempts that are under way, by query."""
        self._stopped: dict[str, int] = {}
        """The latest attempts, by query, that this process has stopped, and so did not die of."""
        self._doubted: dict[str, int] = {}
        """Attempts, by query, of which the store did not say whether it has them. They were not begun."""
        self._unbegun: dict[str, int] = {}
        """Those of them that it has, as it has turned out."""
        self._planned: list[Query] = []

    # --- planning -----------------------------------------------------------------------------------

    def plan(self, session: Session, outcome: RecordDraft) -> list[RecordDraft]:
        """Plan what is answered here of a pause, and give it back with the attempts for which a slot is free."""
        attempts: list[RecordDraft] = []
        paused = outcome.record
        if type(paused) is not PausedRecord or self._begins_nothing(session):
            return [outcome]
        for query in paused.queries:
            if query.kind == "child":
                self._planned.append(query)
            elif (driver := self._owner.driver_of(session, query)) is not None:
                self._planned.append(query)
                if not self._needs_permit(session, query) and self._try_take(query.id, driver):
                    attempts.append(RecordDraft(AttemptedRecord(query_id=query.id, driver=driver.name)))
        if attempts and len(attempts) == len(paused.queries):
            return [attempted_pause(paused, outcome.body)]
        return [outcome, *attempts]

    def plan_orphans(self, session: Session) -> list[RecordDraft]:
        """Plan what should be under way here, and is not.

        What may simply be run again gets its attempt recorded with the takeover, where a slot is free.
        """
        attempts: list[RecordDraft] = []
        if self._begins_nothing(session):
            return attempts
        for asked, each in session.pending.items():
            query = each.query
            if asked in self.running or asked in self._slots or query in self._planned:
                continue
            if not self._owner.attends(session, query, each.attempts):
                continue
            self._planned.append(query)
            driver = self._owner.driver_of(session, query)
            if driver is None:
                continue  # a child
            may_run = not each.attempts or (driver.may_repeat and not self._is_given_up(each, driver))
            needs_permit = self._needs_permit(session, query)
            if may_run and not needs_permit and self._try_take(asked, driver):
                attempts += map(RecordDraft, self.new_attempt(each, driver.name))
            elif each.attempts:
                self._recovering.add(asked)
        return attempts

    def _begins_nothing(self, session: Session) -> bool:
        """Whether effects of a session are left to others. Turns of agents end where they have begun."""
        return self._owner.callers.is_closed or (self._owner.offers.is_draining and not session.kind_fold.turns)

    def _needs_permit(self, session: Session, query: Query) -> bool:
        """Whether an effect needs a permit of the fleet: then its attempt is recorded once it has that."""
        if not self._owner.permits.limits:
            return False
        permit = self._owner.permits.permit(session, query)
        if permit is not None:
            self._permits[query.id] = permit
        return permit is not None

    def _try_take(self, asked: str, driver: Driver) -> bool:
        """Take a slot for an effect if one is free."""
        slot = EffectSlot(driver.slots, self._session.id)
        if slot.try_take():
            self._slots[asked] = slot
            return True
        return False

    def holds(self, pending: Mapping[str, PendingQuery]) -> bool:
        """Whether others must keep out of the session, because effects are under way or about to be."""
        for query in self._planned:
            if query.kind != "child" and query.id in pending:
                return True
        return bool(self.running) and not pending.keys().isdisjoint(self.running)

    @property
    def is_planned(self) -> bool:
        """Whether effects wait for a commit. Children need none: whoever finds one missing starts it."""
        return any(query.kind != "child" for query in self._planned)

    # --- attempts that may be recorded ---------------------------------------------------------------

    def doubt(self, entries: Sequence[Entry], pending: Mapping[str, PendingQuery]) -> None:
        """Do not begin the attempts among these entries: the store did not say whether it has them.

        The journal is read again as soon as it can be, while the store can still tell whose they are.
        """
        in_doubt = [asked for entry in entries for asked in attempted_in(entry.record) if asked in pending]
        self._doubted |= {asked: pending[asked].attempts for asked in in_doubt}
        if in_doubt and not self._owner.callers.is_closed:
            self._owner.spawn(self._look_again(in_doubt[0]))

    async def _look_again(self, asked: str) -> None:
        with contextlib.suppress(HoldfastError, StaleError):  # whoever goes on with the session reads its journal
            await insist(self._session.pending_query, asked)

    async def settle_doubts(self, pending: Mapping[str, PendingQuery], epoch: int | None) -> None:
        """The journal was read again: find out whether the attempts in doubt that it has are ours.

        They are if nobody else has had the session since; `epoch` is that of the lease which is held. Otherwise an
        attempt with the number of ours may be that of a process which has died of it.
        """
        if not self._doubted:
            return
        row = await self._owner.store.session(self._session.id)
        known, self._doubted = {**self._unbegun, **self._doubted}, {}
        if row.owner == self._owner.name or row.epoch == epoch:
            self._unbegun = {asked: number for asked, number in known.items() if asked in pending}

    def new_attempt(self, pending: PendingQuery, driver: str) -> list[Record]:
        """What there is to record of a new attempt, and of the latest one if this process knows that it did not die of
        it."""
        asked = pending.query.id
        attempted = AttemptedRecord(query_id=asked, driver=driver)
        if self._is_unbegun(pending):
            return [InterruptedRecord(asked, was_begun=False), attempted]
        return [InterruptedRecord(asked), attempted] if self._was_stopped(pending) else [attempted]

    def _deaths(self, pending: PendingQuery) -> int:
        """How many processes in a row have died while they attempted a query."""
        return 0 if self._was_stopped(pending) else pending.deaths - self._is_unbegun(pending)

    def _is_given_up(self, pending: PendingQuery, driver: Driver) -> bool:
        """Whether so many processes have died of an effect that it is not run again."""
        return not driver.is_harmless and self._deaths(pending) >= self._owner.max_deaths

    def unbegun_attempts(self, pending: Mapping[str, PendingQuery]) -> list[RecordDraft]:
        """What there is to record if nothing more is done here: that attempts of ours were not begun."""
        if not self._unbegun:
            return []
        waiting = {query.id for query in self._planned} | self.running.keys()
        released = [asked for asked, each in pending.items() if asked not in waiting and self._is_unbegun(each)]
        for asked in released:
            del self._unbegun[asked]
        return [RecordDraft(InterruptedRecord(asked, was_begun=False)) for asked in released]

    def _was_stopped(self, pending: PendingQuery) -> bool:
        """Whether the latest attempt at a query is one of ours that was told to stop."""
        return bool(pending.attempts) and self._stopped.get(pending.query.id) == pending.attempts

    def _is_unbegun(self, pending: PendingQuery) -> bool:
        """Whether the latest attempt at a query is one of ours that was not begun."""
        return bool(pending.attempts) and self._unbegun.get(pending.query.id) == pending.attempts

    # --- beginning and stopping ---------------------------------------------------------------------

    def begin(self, session: Session, abandoned: Sequence[str] = ()) -> None:
        """Begin what was planned and has become durable; stop what is not waited for any more.

        `abandoned` are child queries that were waited for until now.
        """
        if not self._planned and not self.running and not abandoned:
            return
        planned, self._planned = self._planned, []
        pending = session.pending
        for query in planned:
            if query.id not in pending:
                self._permits.pop(query.id, None)
                if query.id in self._slots and query.id not in self.running:
                    self._slots.pop(query.id).end()
            elif isinstance(query, ChildQuery):
                self._children.take_up(session.id, query)
            elif query.id not in self.running:
                work = self._execute(query, pending[query.id], self._permits.pop(query.id, None))
                self.running[query.id] = asyncio.get_running_loop().create_task(work)
        for asked, task in list(self.running.items()):
            if asked not in pending:
                del self.running[asked]
                if task is not asyncio.current_task():  # which has just brought its answer
                    self._cancel(asked, task)
                self._attempts.pop(asked, None)
                self._stopped.pop(asked, None)
        for asked in abandoned:
            self._children.drop(session, asked)

    def unplan(self) -> None:
        """Forget what was planned. What is under way continues."""
        for asked in [asked for asked in self._slots if asked not in self.running]:
            self._slots.pop(asked).end()
        self._planned, self._permits = [], {}

    def stop(self) -> None:
        """Stop what is under way."""
        for asked, task in self.running.items():
            if task is not asyncio.current_task():
                self._cancel(asked, task)
        self.running, self._recovering, self._attempts = {}, set(), {}

    def _cancel(self, asked: str, task: asyncio.Task[None]) -> None:
        """Stop an effect, and return its slot: a task that is cancelled before it has begun never would."""
        task.cancel()
        if (number := self._attempts.pop(asked, None)) is not None:
            self._stopped[asked] = number
        if (slot := self._slots.pop(asked, None)) is not None:
            slot.end()

    def stop_executing(self) -> None:
        """Stop what is under way and has no outcome yet, as the lease cannot be kept."""
        for asked in [asked for asked in self.running if asked not in self._known]:
            self._cancel(asked, self.running.pop(asked))
            left_s = max(0.0, self._session.lease_left_s)
            why = f"{asked} is told to stop: the store is away, and the lease of the session runs out in {left_s:.1f} s"
            self._owner.report(self._session.id, HoldfastError(why))

    def unrepeatable(self, pending: Mapping[str, PendingQuery]) -> list[asyncio.Task[None]]:
        """Those under way that cannot simply be run again elsewhere."""
        tasks = []
        for asked, task in self.running.items():
            driver = self._owner.drivers.find(self._session.id, pending[asked].query) if asked in pending else None
            if driver is not None and not driver.may_repeat:
                tasks.append(task)
        return tasks

    def interrupted(self, pending: Mapping[str, PendingQuery]) -> list[InterruptedRecord]:
        """What there is to record of those under way if they are stopped now, without an outcome."""
        begun = [asked for asked in self.running if asked in pending and asked not in self._recovering]
        return [InterruptedRecord(query_id=asked) for asked in begun if pending[asked].deaths]

    # --- one effect ---------------------------------------------------------------------------------

    async def _execute(self, query: Query, pending: PendingQuery | None, permit: Permit | None) -> None:
        """Run the effect of a query, as it was asked, and bring its answer home."""
        session_id = self._session.id
        driver = self._owner.drivers.find(session_id, query)
        if driver is None:
            return
        taken = self._slots.get(query.id)
        slot = taken or self._slots.setdefault(query.id, EffectSlot(driver.slots, session_id, permit))
        current_slot.set(slot)
        try:
            try:
                if taken is None:
                    await slot.take()
                if self._owner.callers.is_closed:
                    return
                if taken is None:  # much may have happened meanwhile
                    pending = await insist(self._session.pending_query, query.id)
                given = await self._effect(pending, driver) if pending is not None else None
            finally:
                slot.end()
                if self._slots.get(query.id) is slot:
                    del self._slots[query.id]
            if given is not None:
                self._known.add(query.id)
                await self._bring(given)
        except (StaleError, LeaseHeldError):
            pass  # somebody else owns the session now, and continues it
        except HoldfastError as error:
            self._owner.report(session_id, error)
        finally:
            self._known.discard(query.id)
            task = self.running.get(query.id)
            if task is not None and task is asyncio.current_task():
                del self.running[query.id]
                self._attempts.pop(query.id, None)
                self._owner.spawn(self._session.let_go())

    async def _bring(self, given: GivenAnswer) -> None:
        """Bring an answer home; one that cannot be kept is a failure of its driver."""
        try:
            await insist(self._session.answer, given)
        except InvalidValueError as error:
            failure = failure_of(error, given.query_id)
            await insist(self._session.answer, failure)

    async def _effect(self, pending: PendingQuery, driver: Driver) -> GivenAnswer | None:
        query = pending.query
        attempt = Attempt(self._session.id, query.id, pending.attempts)
        if query.id in self._recovering:
            self._recovering.discard(query.id)
            deaths = self._deaths(pending)
            was_stopped, is_unbegun = self._was_stopped(pending), self._is_unbegun(pending)
            why = UNHEARD if is_unbegun else CUT_OFF if was_stopped else DIED if deaths else SHUT_DOWN
            if (given := await driver.recover(query, attempt, why)) is not None:
                return given
            if self._is_given_up(pending, driver):
                return given_up(driver.name, query.id, deaths)
            fresh = False
        else:
            fresh = bool(pending.attempts)
        if not fresh:
            number = await insist(self._session.attempt, query.id, driver.name)
            if number is None:
                return None
            attempt = msgspec.structs.replace(attempt, number=number)
        self._attempts[query.id] = attempt.number
        seam = self._owner.seam
        if seam is not None:
            await seam("before effect")
        if self._session.lease_left_s <= 0:  # this process stood still, or the store replied late
            await insist(self._session.renew)
        self._unbegun.pop(query.id, None)
        given = await insist(driver.run, query, attempt)
        if seam is not None:
            await seam("after effect")
        return given
