"""One session in this process: what is known of it, its program while that is hot, and the commits that change it.

Everything it holds can be lost. It is right as long as nobody else has written to the session: a commit that is refused
makes it forget what it knew, and the message is decided again on what is there now. So the journal needs no lock while
a program runs. A lease is held only where others must keep out: in long steps, and while drivers execute effects.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

import msgspec

from holdfast.core.decide import FeedMessage, GivenAnswer, KindMessage, Message, WakeMessage
from holdfast.core.errors import HoldfastError, SessionNotFoundError
from holdfast.core.events import Event
from holdfast.core.kinds import KindView
from holdfast.core.pending_queries import PendingQuery
from holdfast.core.records import InterruptedRecord, Record, RecordDraft
from holdfast.core.replay import Waking
from holdfast.core.state import PAUSED, RUNNING, Session
from holdfast.engine.attachments import Attachments
from holdfast.engine.batch import UndoneOnError
from holdfast.engine.delivery import LiveSessions, attend, hand_in
from holdfast.engine.effects import Effects, Family
from holdfast.engine.errors import StaleError
from holdfast.engine.keeper import Keeper
from holdfast.engine.owner import Owner
from holdfast.engine.program_run import ProgramRun
from holdfast.engine.replies import addressed, decided, elsewhere, event_now, reason_of, repeated, reply_now
from holdfast.engine.session_fold import SessionFold
from holdfast.engine.session_writer import SessionWriter
from holdfast.programs.contract import Step
from holdfast.programs.errors import InstanceLostError
from holdfast.store.commits import Lease
from holdfast.store.errors import LeaseHeldError, MessageTakenError, StoreUnavailableError

T = TypeVar("T")


class LiveSession:
    """A session and its program, here."""

    def __init__(self, owner: Owner, session_id: str, family: Family, others: LiveSessions) -> None:
        self.id = session_id
        self.lock = asyncio.Lock()
        self._owner = owner
        self._family = family
        self._others = others
        self.attachments = Attachments(session_id, owner.attachments)
        self._fold = SessionFold(owner, session_id)
        self._effects = Effects(owner, self, family)
        self._run = ProgramRun(owner, self._fold, self._effects, self._conclude)
        self._keeper = Keeper(owner, self)
        self._writer = SessionWriter(owner, self._fold)
        self._undone_on_error = UndoneOnError(self._drop_uncommitted)

    @property
    def session(self) -> Session:
        return self._fold.session

    @property
    def known(self) -> Session | None:
        """The session as it was when it was last looked at, if it was."""
        return self._fold.known

    @property
    def is_busy(self) -> bool:
        """Whether something would be interrupted or lost if it were forgotten."""
        is_held = self.lock.locked() or self.is_under_way or self._writer.epoch is not None
        return is_held or (bool(self.attachments) and self.attachments.are_pinned)

    @property
    def is_under_way(self) -> bool:
        """Whether effects or a long step are running here."""
        return bool(self._effects.running) or self._run.thinking is not None

    @property
    def is_stuck(self) -> bool:
        """Whether the program could go on, but not in this process."""
        return self.session.state is RUNNING and self._run.thinking is None and self._fold.waking is not None

    @property
    def is_held(self) -> bool:
        """Whether this process holds the lease."""
        return self._writer.epoch is not None

    @property
    def lease_left_s(self) -> float:
        """Seconds for which the lease is ours for certain; less than 0 if it may have run out."""
        return self._writer.lease_until_s - self._owner.clock.monotonic()

    @property
    def lease(self) -> Lease | None:
        """The lease that is held, if one is."""
        return self._writer.lease

    # --- what it knows -----------------------------------------------------------------------------

    async def load(self, *, with_program: bool = False) -> Session:
        """What the journal says. Read again only after somebody else has written.

        `with_program` rebuilds the program from the same entries. If that fails, it is tried again when it is needed.
        """
        if self._fold.known is not None:
            return self._fold.known
        try:
            session = await self._fold.load(self._run.revive if with_program else None)
            await self._effects.settle_doubts(session.pending, self._writer.epoch)
        except BaseException as error:
            self._fold.forget()
            if isinstance(error, SessionNotFoundError):
                self._others.drop(self.id, only=self)
            raise
        return session

    async def refresh(self) -> Session:
        """What the journal says now. What is known is not read again."""
        fold = self._fold
        if fold.known is None or await self._is_current():
            return await self.load()
        if fold.batch.entries:
            self.forget()
            return await self.load()
        self._undo()
        self._stop_effects()
        try:
            await fold.read_on()
        except StaleError:  # the engine was closed meanwhile
            self._owner.callers.check_open(self.id)
            return await self.load()
        except BaseException:
            self.forget()
            raise
        return fold.session

    async def view(self, *, fresh: bool = False) -> KindView | None:
        """What readers are shown; None if the session's kind has nothing of its own for them.

        It includes everything that was written here; with `fresh`, what others have written as well.
        """
        if self._fold.view is None or fresh:
            async with self.lock:
                await (self.refresh() if fresh else self.load())
                if self._fold.view is not None and not self._fold.view.is_sound:
                    await self._fold.show_again()
        return self._fold.view

    @property
    def shown(self) -> KindView | None:
        """The view as it is now, without a look at the store; None if there is none yet."""
        return self._fold.view

    @property
    def is_by_others(self) -> bool:
        """Whether another process wrote the latest known entry."""
        return self._fold.committed > self._fold.written

    async def _check_fresh(self) -> None:
        """Raise `StaleError` if somebody else has written since: what is decided may then be wrong."""
        if self._fold.known is not None and not await self._is_current():
            self.forget()
            raise StaleError(is_lost=True)

    async def _is_current(self) -> bool:
        """Whether nobody else has written since. Raises `SessionNotFoundError` if the session was deleted."""
        try:
            return await self._fold.is_current()
        except SessionNotFoundError:
            self.forget()
            self._others.drop(self.id, only=self)
            raise

    def forget(self) -> None:
        """Drop everything; the journal has it."""
        self._undo()
        self._stop_effects()
        self._fold.forget()

    def _undo(self) -> None:
        """Let go of the program, and of what was planned for the next commit."""
        self._run.stop()
        self._effects.unplan()
        for attendant in self._owner.attendants:
            attendant.undone(self.id)

    def _stop_effects(self) -> None:
        """Stop what runs here on behalf of the session, which is somebody else's now."""
        self._stop_running()
        self._writer.epoch = None
        self._owner.callers.released(self.id)

    def _stop_running(self) -> None:
        if (concluding := self._run.concluding) is not None and concluding is not asyncio.current_task():
            concluding.cancel()
        self._keeper.stop()
        self._effects.stop()

    def stop_executing(self) -> None:
        """Tell the effects under way to stop, as the lease cannot be kept. Outcomes that are known are kept."""
        self._effects.stop_executing()

    def unrepeatable(self) -> list[asyncio.Task[None]]:
        """Effects under way here that cannot simply be run again elsewhere."""
        return self._effects.unrepeatable(known.pending if (known := self.known) else {})

    async def close(self) -> None:
        """Stop what runs here, and release the session, so that others can resume it at once."""
        tasks = [*self._effects.running.values(), *self._keeper.stop()]
        tasks += [task for task in (self._run.thinking, self._run.concluding) if task is not None]
        interrupted = self._effects.interrupted(known.pending if (known := self.known) else {})
        self._undo()
        self._stop_running()
        if tasks:
            await asyncio.wait(tasks, timeout=self._owner.close_s)
        if interrupted:
            with contextlib.suppress(HoldfastError, StaleError, TimeoutError):  # then it is taken for a death
                async with asyncio.timeout(self._owner.close_s), self.lock:
                    await self._interrupt(interrupted)
        if (lease := await self._let_go()) is not None:
            with contextlib.suppress(HoldfastError):  # it runs out by itself
                await self._owner.store.release(lease)

    async def _let_go(self) -> Lease | None:
        """Forget everything, once those at work on the session are done or have had their time; gives the lease."""
        async with contextlib.AsyncExitStack() as locked:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._owner.close_s):
                    await locked.enter_async_context(self.lock)
            lease = self.lease
            self.forget()
            return lease

    async def _interrupt(self, interrupted: Sequence[InterruptedRecord]) -> None:
        """Write down that effects were stopped by a shutdown, and let go of the session."""
        session = await self.load()
        records = [record for record in interrupted if record.query_id in session.pending]
        if records and self.is_held:
            with self._undone_on_error:
                self._record(records, self._owner.now())
                await self._commit("interrupt")

    def _drop_uncommitted(self, error: BaseException) -> None:
        """Keep nothing that an error kept from being committed. Unless the session is lost, its effects go on.

        A store that is away, or whose writer was cancelled, may have written it all the same: the journal will tell.
        """
        is_lost = error.is_lost if isinstance(error, StaleError) else isinstance(error, HoldfastError)
        if not is_lost or isinstance(error, StoreUnavailableError):
            self._effects.doubt(self._fold.batch.entries, known.pending if (known := self.known) else {})
            self._undo()
            self._fold.forget()
        else:
            self.forget()

    # --- messages ----------------------------------------------------------------------------------

    async def begin(self, records: Sequence[Record]) -> Event:
        """A new session, run to its first pause."""
        async with self.lock:
            self._fold.begin()
            with self._undone_on_error:
                now = self._owner.now()
                self._record(records, now)
                await self._go_on(self.session, now)
                await self._commit("start")
            return self.event()

    def whole(self, work: Coroutine[Any, Any, T]) -> Awaitable[T]:
        """Do something to the end even if its caller is cancelled, where stopping would lose effects of the session."""
        if not self._owner.drivers.may_have_effects and not self.is_under_way:
            return work
        return self._owner.shielded(self.id, work)

    async def take(self, message: Message, takes: Sequence[int] = (), *, wants_reply: bool = True) -> Event | None:
        """Decide a message and do what follows from it; the event once that is durable, if the caller `wants_reply`."""
        await self.lock.acquire()
        try:
            if takes:
                await self._check_waiting(takes)
            owner, fold, is_feed = self._owner, self._fold, isinstance(message, FeedMessage)
            session = fold.known or await self.load(with_program=is_feed)
            if len(session.pending) > 1:
                message = addressed(message, session.pending, self.offered)
            now = owner.now()
            try:
                decision = await decided(owner, session, message, now)
            except HoldfastError:
                await self._check_fresh()
                raise
            if not decision.drafts:
                await self._check_fresh()
            if not is_feed and isinstance(message, WakeMessage) and not takes and not owner.may_run(session):
                return self.event()  # the timer is left to a process that can go on with the program
            if is_feed and decision.drafts and self._run.instance is None and not owner.may_run(session):
                raise elsewhere(owner, session)
            try:
                if is_feed and decision.drafts and (first := session.kind_fold.decide_waiting(session, now)):
                    self._record(first, now)  # before the answers let the program continue, which has to know of it
                fold.append(decision.drafts, now)
                still_waits = session.state is PAUSED
                await self._go_on(session, now)
                await self._commit_if_needed("" if owner.seam is None else reason_of(message, still_waits), takes)
            except BaseException as error:
                self._drop_uncommitted(error)
                raise
            if not wants_reply:
                return None
            if not decision.drafts and decision.is_replay:
                if isinstance(message, KindMessage):
                    return msgspec.structs.replace(self.event(), replayed=True)
                return await repeated(owner, session, max(decision.replayed))
            return reply_now(owner, session, self.offered, still_waits=still_waits) if is_feed else self.event()
        finally:
            self.lock.release()

    async def check(self, message: Message) -> Message:
        """Raise here and now if the owner would refuse a message.

        Gives it back with the ids of the queries that it is for now: it must not reach those that are asked later.
        """
        async with self.lock:
            session = await self.refresh()
            message = addressed(message, session.pending, self.offered)
            await decided(self._owner, session, message, self._owner.now())
            return message

    async def _check_waiting(self, takes: Sequence[int]) -> None:
        """Raise `MessageTakenError` for mail that is gone, before anything is touched for it."""
        if gone := set(takes) - {item.number for item in await self._owner.store.mailbox(self.id)}:
            raise MessageTakenError(self.id, min(gone))

    async def write(self, decide: Callable[[Session], list[Record]]) -> bool:
        """Append what was decided about the session; False if that is nothing."""
        async with self.lock:
            if records := decide(await self.load()):
                with self._undone_on_error:
                    now = self._owner.now()
                    self._record(records, now)
                    await self._go_on(self.session, now)
                    await self._commit("expire")
            return bool(records)

    async def attend(self) -> None:
        """Resume whatever a dead process left behind, by what is known of it: a step, an effect, a child."""
        async with self.lock:
            session = await self.load()
            if session.state in (RUNNING, PAUSED):
                with self._undone_on_error:
                    now = self._owner.now()
                    await self._go_on(session, now)
                    self._fold.append(self._effects.plan_orphans(session), now)
                    await self._commit_if_needed("takeover")

    # --- effects and lease -------------------------------------------------------------------------

    async def pending_query(self, asked: str) -> PendingQuery | None:
        """A query, with how often its effect was begun; None if it is not pending any more."""
        if self._fold.known is None or self.lock.locked():
            async with self.lock:
                await self.load()
        return self._fold.session.pending.get(asked)

    async def attempt(self, asked: str, driver: str) -> int | None:
        """The number of a new attempt, once it is durable; None if the query is not pending any more."""
        async with self.lock:
            session = await self.load()
            if asked not in session.pending:
                return None
            with self._undone_on_error:
                self._record(self._effects.new_attempt(session.pending[asked], driver), self._owner.now())
                await self._commit("attempt")
            return self.session.pending[asked].attempts

    async def answer(self, given: GivenAnswer) -> None:
        """Bring the answer of an effect to the session, also if another process owns it by now."""
        await hand_in(self._owner, self._others.live, self.id, FeedMessage([given]), is_own=True)

    async def let_go(self) -> None:
        if self.is_held and not self.is_under_way:  # it is held for nothing any more
            with contextlib.suppress(StaleError, HoldfastError):  # somebody else has it by now, or it runs out
                await self.renew()

    async def renew(self) -> None:
        """Renew the lease, or release it if nothing is under way any more."""
        async with self.lock:
            session = await self.load()
            if self.is_held:
                with self._undone_on_error:
                    self._fold.append(self._effects.unbegun_attempts(session.pending), self._owner.now())
                    await self._commit("renew")

    # --- events ------------------------------------------------------------------------------------

    def offered(self) -> list[str]:
        """Pending queries that nothing here will answer by itself."""
        session, running, drives = self._fold.session, self._effects.running, self._owner.drives
        driven = [group for group, query in session.pending.groups.items() if drives(session, query)]
        if not driven and not running:  # there may be thousands
            return list(session.pending)
        return [asked for asked, each in session.pending.items() if asked not in running and each.group not in driven]

    def event(self) -> Event:
        """What the session says to a host now."""
        return event_now(self._owner, self.session, self.offered)

    # --- running the program -----------------------------------------------------------------------

    def _record(self, records: Sequence[Record], now: int) -> None:
        """Add records that have not been encoded yet to the batch, and fold them in."""
        self._fold.append([RecordDraft(record) for record in records], now)

    async def _go_on(self, session: Session, now: int) -> None:
        """Continue the program as far as it gets. That of another service is left to others, with its answers."""
        if not self._owner.serves(session):
            return
        if session.state is PAUSED:
            await self._run.answer_own(session, now)
        if not (self._fold.history and self.is_stuck and await self._is_left_to_owner()):
            await self._run.advance(session)

    async def _is_left_to_owner(self) -> bool:
        """Whether another process holds the session, so that running its program here would be for nothing."""
        if self._writer.epoch is not None:
            return False
        row = await self._owner.store.session(self.id)
        if row.owner is None or row.owner == self._owner.name:
            return False
        if self._fold.batch.entries:
            raise LeaseHeldError(self.id, row.owner, row.lease_until or 0)
        return True

    async def _conclude(self, thought: asyncio.Future[Step], waking: Waking) -> None:
        """Wait for a step that takes long. What led to it is committed meanwhile, and the lease is held."""
        try:
            step: Step | InstanceLostError
            try:
                step = await asyncio.shield(thought)
            except InstanceLostError as error:
                step = error
            async with self.lock:
                self._run.has_thought()
                if self.session.state is RUNNING:
                    now = self._owner.now()
                    with self._undone_on_error:
                        if isinstance(step, InstanceLostError):
                            self._run.lose(step, waking)
                        else:
                            self._run.take_outcome(self.session, step, now)
                        await self._go_on(self.session, now)
                        await self._commit_if_needed("step")
        except StaleError:
            self._owner.spawn(attend(self._owner, self._others.live, self.id))
        except HoldfastError as error:
            self._owner.report(self.id, error)

    # --- commits -----------------------------------------------------------------------------------

    async def _commit_if_needed(self, reason: str, takes: Sequence[int] = ()) -> None:
        claims = self._run.thinking is not None and self._writer.epoch is None
        if self._fold.batch.entries or takes or claims or self._effects.is_planned:
            await self._commit(reason, takes)
        else:
            self._effects.begin(self.session)

    async def _commit(self, reason: str, takes: Sequence[int] = ()) -> None:
        """Write the batch; after that, begin what was waiting for it to be durable."""
        fold, owner, effects = self._fold, self._owner, self._effects
        session, batch = fold.known, fold.batch
        assert session is not None
        has_ended = session.state.is_terminal
        holds = not has_ended and (self._run.thinking is not None or effects.holds(session.pending))
        if is_worth_saving := fold.is_worth_saving:
            fold.save_batch(self._run.dump)
        due = await self._writer.write(session, reason, takes, holds=holds)
        for observer in owner.on_commit:
            observer(self.id, batch.entries)
        self.attachments.committed(batch.entries)
        if holds:
            self._keeper.start()
        elif (changes := self._keeper.changes) is not None:
            changes.notify()  # the keeper looks into the mailbox once more, and is done
        effects.begin(session, batch.abandoned)
        if is_worth_saving:
            fold.save_committed(self._run.dump)
        if due is not None and owner.on_due is not None:
            owner.on_due(self.id, due)
        for attendant in owner.attendants:
            attendant.committed(session, under_way=self.is_under_way)
        if has_ended:
            for observe in owner.on_end:
                observe(session)
            self._run.stop()
            if session.started is not None and session.started.parent is not None:
                self._family.tell(session, session.started.parent)
        if not holds:  # it may be forgotten now
            self._others.make_room()
