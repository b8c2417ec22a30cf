"""The engine inside: the live sessions of this process, and how messages, effects and children reach them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from itertools import islice
from typing import Any, Protocol, TypeAlias, TypeVar

import msgspec

from holdfast.core.decide import FeedMessage, GivenAnswer, Message, WakeMessage
from holdfast.core.errors import HoldfastError, InvalidValueError, SessionNotFoundError
from holdfast.core.events import Event, RunningEvent
from holdfast.core.ids import check_id
from holdfast.core.queries import ChildQuery, Query
from holdfast.core.records import Entry, Program, Record, StartedRecord
from holdfast.core.state import Session, State
from holdfast.engine.children import ChildSessions
from holdfast.engine.drivers import Attempt, Driver, Drivers
from holdfast.engine.errors import ContentionError, StaleError
from holdfast.engine.live_session import LiveSession
from holdfast.engine.snapshots import Sealer
from holdfast.engine.state_tool import asks_state
from holdfast.engine.upkeep import Upkeep
from holdfast.programs.contract import Instance, ProgramKind, SnapshotKind
from holdfast.programs.errors import ProgramNotFoundError
from holdfast.store.contract import Store
from holdfast.store.errors import LeaseHeldError, MessageTakenError

log = logging.getLogger("holdfast.engine")

T = TypeVar("T")

RETRIES = 20
"""How often a message is decided again because somebody else wrote first, before that is an error."""

OWNER_LOOK_S = 1.0
"""Seconds after which a sender that waits for the owner to take a message checks that the owner still lives."""

RENEWALS = 3
"""Times that a lease is renewed before it would run out: two of them may come too late."""

MIN_LEASE_MS = 30
"""The shortest lease. A process that is busy for 10 ms must not lose its sessions for that."""

Observer: TypeAlias = Callable[[str, Sequence[Entry]], None]
"""Called with the session and the entries of a commit."""

Seam: TypeAlias = Callable[[str], Awaitable[None]]
"""Called at every durable boundary with its name; tests die there."""

MAIL_REST_S = 0.01
"""Seconds between looks into the mailbox of a session that is held: most of what happens to it is our own doing, and
most effects that take less need no look at all."""


class Attendant(Protocol):
    """Something in this process that adds records to sessions by itself, as a worker begins turns of agents."""

    def records(self, session: Session, now: int) -> Sequence[Record]:
        """What it adds to a session that is about to wait, in the same commit."""

    def committed(self, session: Session, *, under_way: bool) -> None:
        """A commit of a session was made here; `under_way` if effects or a step of it are running."""

    def undone(self, session_id: str) -> None:
        """What was to be committed was refused, or given up."""


class Engine:
    """What `Holdfast` opens the door to."""

    def __init__(self, store: Store, *, hot_programs: int, lease_ms: int, upkeep: Upkeep, seam: Seam | None) -> None:
        self.store = store
        self.owner = f"{socket.gethostname()[:60]}.{os.getpid()}.{secrets.token_hex(4)}"
        if lease_ms < MIN_LEASE_MS:
            raise InvalidValueError("lease_ms", f"a lease lasts at least {MIN_LEASE_MS} ms, got {lease_ms}")
        self.lease_ms = lease_ms
        self.drivers = Drivers()
        self.attendants: list[Attendant] = []
        """What adds records to sessions of this process by itself."""
        self.upkeep = upkeep
        self.sealer = Sealer()
        self.children = ChildSessions(self)
        self._kinds: dict[str, ProgramKind] = {}
        self._live_sessions: OrderedDict[str, LiveSession] = OrderedDict()
        self._hot_programs = hot_programs
        self.seam = seam
        self.on_commit: list[Observer] = []
        """Told of every commit that was made here, as soon as it is durable."""
        self.on_close: list[Callable[[], Awaitable[None]]] = []
        self._background: set[asyncio.Task[Any]] = set()
        self._last_now = 0

    async def open(self) -> None:
        await self.store.open()
        self.upkeep.start(self)

    async def close(self) -> None:
        """Stop what runs here and release every session, so that others can resume them at once."""
        await self.upkeep.stop()
        for task in list(self._background):
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        for live in list(self._live_sessions.values()):
            lease, tasks = live.lease, live.tasks
            live.forget()
            await asyncio.gather(*tasks, return_exceptions=True)
            if lease is not None:
                with contextlib.suppress(HoldfastError):
                    await self.store.release(lease)
        self._live_sessions.clear()
        for kind in self._kinds.values():
            kind.close()
        for last in self.on_close:
            await last()
        await self.store.close()

    def add_kind(self, kind: ProgramKind) -> None:
        """Make a kind of program known."""
        self._kinds[kind.kind] = kind

    def drop(self, session_id: str, only: LiveSession | None = None) -> None:
        """Forget a session that is not there (any more); with `only`, if it is alive in no other object by now.

        One at work is left to find that out by itself.
        """
        live = self._live_sessions.get(session_id)
        if live is None or (only is not None and live is not only):
            return
        del self._live_sessions[session_id]
        if not live.lock.locked():
            live.forget()

    # --- what live sessions and the upkeep call -----------------------------------------------------------------

    def now(self) -> int:
        """Unix milliseconds; never earlier than the last time it was asked."""
        now = time.time_ns() // 1_000_000
        if now < self._last_now:
            return self._last_now
        self._last_now = now
        return now

    def create(self, session: Session) -> Instance:
        assert session.started is not None
        return self._kind(session.started.program).create(session)

    def has_snapshots(self, program: Program) -> bool:
        """Whether programs of this kind can go on from a snapshot."""
        return isinstance(self._kind(program), SnapshotKind)

    async def restore(self, session: Session, outcome: int) -> Instance:
        """The program as it was after its outcome at a position, from its snapshot.

        `SnapshotUnusableError`, with the reason, if it cannot be had.
        """
        assert session.started is not None
        kind = self._kind(session.started.program)
        assert isinstance(kind, SnapshotKind)
        state = self.sealer.open(session.id, outcome, await self.store.snapshot(session.id))
        return kind.restore(session, state)

    def _kind(self, program: Program) -> ProgramKind:
        kind = self._kinds.get(program.kind)
        if kind is None:
            raise ProgramNotFoundError(program.name, f"programs of the kind '{program.kind}' do not run here")
        return kind

    def drives(self, session_id: str, query: Query) -> bool:
        """Whether a query is answered here without a host."""
        if query.kind in ("timer", "child") or asks_state(query):
            return True
        driver = self.drivers.find(session_id, query)
        return driver is not None and driver.recovery != "ask"

    def attends(self, session_id: str, query: Query, attempts: int) -> bool:
        """Whether a pending query should be under way here."""
        if isinstance(query, ChildQuery):
            return True
        driver = self.drivers.find(session_id, query)
        return driver is not None and not (attempts and driver.recovery == "ask")

    def knows(self, session: Session) -> bool:
        """Whether the session's program can be run here."""
        program = session.started.program if session.started else None
        kind = self._kinds.get(program.kind) if program else None
        return program is not None and kind is not None and kind.knows(program)

    def running_event(self, session: Session) -> RunningEvent:
        """The event of a session that needs no host now, with the reason why it stands still here, if it does."""
        waits: list[str] = sorted({p.query.kind for p in session.pending.values()})
        why = ""
        if session.state is State.RUNNING and not self.knows(session) and session.started is not None:
            why = f"program '{session.started.program.name}' is not available here; a process that has it will go on"
        return RunningEvent(session_id=session.id, waits_for=waits, why=why)

    def committed(self, session: Session, due: int | None) -> None:
        """A commit of a session, which is due then, is durable: set its timer, and tell its parent if it has ended."""
        if due is not None:
            self.upkeep.timers.add(due)
        if self.attendants:
            live = self._live_sessions.get(session.id)
            under_way = live is not None and live.is_under_way
            for attendant in self.attendants:
                attendant.committed(session, under_way=under_way)
        if session.is_terminal and session.started is not None and session.started.parent is not None:
            self.children.tell(session, session.started.parent)
        self._evict()

    def live(self, session_id: str) -> LiveSession:
        """A session alive in this process; it may not have been read yet."""
        live = self._live_sessions.get(session_id)
        if live is None:
            live = self._live_sessions[session_id] = LiveSession(self, session_id)
        else:
            self._live_sessions.move_to_end(session_id)
        return live

    def at_hand(self, session_id: str) -> Session | None:
        """A session as it is known here, if it is; somebody else may have written to it since."""
        live = self._live_sessions.get(session_id)
        return live.known if live is not None else None

    async def known(self, session_id: str) -> Session:
        """A session as it is now."""
        live = self.live(session_id)
        try:
            async with live.lock:
                return await live.refresh()
        except SessionNotFoundError:
            self.drop(session_id, only=live)
            raise

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Do something in the background, for as long as the engine is open."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    def report(self, session_id: str, error: BaseException) -> None:
        log.error("session '%s': %s", session_id, error)

    async def deliver(self, session_id: str, message: Message, wait: float | None = None) -> Event:
        """Deliver a message to the owner of the session: this process, or another through the mailbox."""
        check_id(session_id, "session id")
        takes: list[int] = []
        key = ""
        for _ in range(RETRIES):
            live = self.live(session_id)
            try:
                event = await self._whole(live, live.take(message, takes))
                return msgspec.structs.replace(event, replayed=False) if key else event
            except StaleError:
                continue
            except MessageTakenError:
                takes = []
            except SessionNotFoundError:
                self.drop(session_id, only=live)
                raise
            except LeaseHeldError:
                message = await live.check(message)
                key = key or f"m-{secrets.token_hex(12)}"
                posted = await self._post(session_id, key, message, wait)
                if isinstance(posted, RunningEvent):
                    return posted
                takes = posted
                async with live.lock:
                    await live.refresh()  # the owner has written since
            except HoldfastError:
                if takes:
                    await self._refuse_mail(live, takes)
                raise
        raise ContentionError(session_id, RETRIES)

    def _whole(self, live: LiveSession, work: Coroutine[Any, Any, T]) -> Awaitable[T]:
        """Do something to the end, even if its caller is cancelled, where stopping would lose effects.

        Effects that run already would be lost, and so would those whose attempt was just recorded.
        """
        return self._shielded(work) if self.drivers.may_have_effects or live.is_under_way else work

    async def _shielded(self, work: Coroutine[Any, Any, T]) -> T:
        task = self.spawn(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody else asks for it
            raise

    async def wake(self, session_id: str) -> bool:
        """Look at what is due in a session, unless somebody else owns it; False if it cannot run here."""
        live = self.live(session_id)
        with contextlib.suppress(StaleError, LeaseHeldError):
            await live.take(WakeMessage())
            return self.knows(live.session)
        return True

    def waits_for_worker(self, session_id: str) -> bool:
        """Whether what is due in a session, as it is known here, is left to a worker: waking it again does nothing."""
        session = self.at_hand(session_id)
        return session is not None and session.kind_fold.is_left_to_worker(session, self.now())

    async def end_idle(self, session_id: str, decided: Callable[[Session], list[Record]]) -> bool:
        """Write what was decided about an idle session; False if that was nothing, or somebody was quicker."""
        try:
            return await self.live(session_id).write(decided)
        except (StaleError, LeaseHeldError):
            return False

    async def attend(self, session_id: str) -> bool:
        """Go on with what was left undone, unless somebody else owns the session; False if it cannot run here."""
        for _ in range(RETRIES):
            live = self.live(session_id)
            try:
                await self._take_mail(live)
                await live.attend()
                return self.knows(live.session)
            except (StaleError, MessageTakenError):
                continue  # what was known of it here was out of date: nobody else may be left to look at it
            except (LeaseHeldError, ProgramNotFoundError):
                return True
        return True

    def go_on_with(self, session_id: str) -> None:
        """Attend to a session soon."""
        self.spawn(self.attend(session_id))

    async def execute(self, live: LiveSession, query: Query) -> None:
        """Run the effect of a query and bring its answer home."""
        driver = self.drivers.find(live.id, query)
        if driver is None:
            return
        try:
            if query.id not in live.effects.slotted:
                await driver.slots.take()
                live.effects.slotted[query.id] = driver
            try:
                given = await self._effect(live, query, driver)
            finally:
                if live.effects.slotted.pop(query.id, None) is not None:
                    driver.slots.give_back()
            if given is not None:
                await self.deliver(live.id, FeedMessage([given], driver.name))
        except (StaleError, LeaseHeldError):
            pass  # somebody else owns the session now, and continues it
        except HoldfastError as error:
            self.report(live.id, error)
        finally:
            if live.effects.running.get(query.id) is asyncio.current_task():
                del live.effects.running[query.id]
                self.spawn(self._let_go(live))

    async def _let_go(self, live: LiveSession) -> None:
        """Release a session that is held for nothing any more."""
        if live.lease is not None and not live.is_under_way:
            with contextlib.suppress(StaleError, HoldfastError):
                await live.renew()

    async def keep(self, live: LiveSession) -> None:
        """Hold a lease, and take the messages that others send meanwhile."""
        pause = self.lease_ms / 1000 / RENEWALS
        renewal = time.monotonic() + pause
        try:
            with contextlib.suppress(StaleError, LeaseHeldError), self.store.watch(live.id) as changes:
                while True:
                    await asyncio.sleep(MAIL_REST_S)
                    if live.lease is None:
                        break
                    await self._take_mail(live)
                    # Whatever else happens in the store may wake us, as often as it likes.
                    await changes.changed(timeout=max(0.0, renewal - time.monotonic()))
                    if time.monotonic() >= renewal:
                        await live.renew()
                        renewal = time.monotonic() + pause
                await self._take_mail(live)  # its sender, who found the session held, may have stopped looking
        except HoldfastError as error:
            self.report(live.id, error)
        finally:
            live.kept()

    # --- inside ----------------------------------------------------------------------------------------

    async def _take_mail(self, live: LiveSession) -> None:
        for item in await self.store.mailbox(live.id):
            try:
                await live.take(item.message, takes=[item.number])
            except LeaseHeldError:
                raise
            except MessageTakenError:
                continue
            except HoldfastError:
                await self._refuse_mail(live, [item.number])

    async def _refuse_mail(self, live: LiveSession, takes: list[int]) -> None:
        """Take refused messages out of the way: their senders decide them again, and find out why."""
        with contextlib.suppress(MessageTakenError):
            await live.take(WakeMessage(), takes)

    def _evict(self) -> None:
        excess = len(self._live_sessions) - self._hot_programs
        if excess <= 0:
            return
        for session_id in list(islice(self._live_sessions, excess)):
            if not self._live_sessions[session_id].is_busy:
                self._live_sessions.pop(session_id).forget()

    async def begin(self, session_id: str, started: StartedRecord) -> Event:
        """Start a session, and say what it says first."""
        check_id(session_id, "session id")
        await self._kind(started.program).admit(started.program)
        live = LiveSession(self, session_id)
        return await self._whole(live, self._begin(live, started))

    async def _begin(self, live: LiveSession, started: StartedRecord) -> Event:
        event = await live.begin([started])
        self._live_sessions[live.id] = live
        return event

    async def event(self, session_id: str) -> Event:
        """What a session says to a host now."""
        live = self.live(session_id)
        async with live.lock:
            await live.refresh()
            return live.event()

    async def resume(self, session_id: str) -> Event:
        for _ in range(RETRIES):
            live = self.live(session_id)
            try:
                await self._take_mail(live)
                await self._whole(live, live.attend())
                async with live.lock:
                    await live.refresh()
                    return live.event()
            except StaleError:
                continue
            except LeaseHeldError:
                return RunningEvent(session_id=session_id)
            except SessionNotFoundError:
                self.drop(session_id, only=live)
                raise
        raise ContentionError(session_id, RETRIES)

    async def _post(self, session_id: str, key: str, message: Message, wait: float | None) -> RunningEvent | list[int]:
        """Send a message to the owner, and wait until it is taken.

        Afterwards it is decided again here: what the owner has done is then a replay, or was refused. If the owner has
        let go without taking it, its number is given back, to be taken with that decision.
        """
        receipt = await self.store.send(session_id, key, message, self.now())
        deadline = None if wait is None else time.monotonic() + wait
        with self.store.watch(session_id) as changes:
            while True:
                row = await self.store.session(session_id)
                waiting = {item.number for item in await self.store.mailbox(session_id)}
                if receipt.number not in waiting:
                    return []
                if row.owner is None:
                    return [receipt.number]
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return RunningEvent(session_id=session_id)
                pause = min(OWNER_LOOK_S, max(0.05, ((row.lease_until or 0) - self.now()) / 1000))
                await changes.changed(timeout=pause if left is None else min(pause, left))

    async def _effect(self, live: LiveSession, query: Query, driver: Driver) -> GivenAnswer | None:
        begun = await live.attempts(query.id)
        if begun is None:
            return None
        attempt = Attempt(live.id, query.id, begun)
        if query.id in live.effects.recovering:
            live.effects.recovering.discard(query.id)
            if (given := await driver.recover(query, attempt)) is not None:
                return given
            fresh = False
        else:
            fresh = bool(begun)
        if not fresh:
            number = await live.attempt(query.id, driver.name)
            if number is None:
                return None
            attempt = msgspec.structs.replace(attempt, number=number)
        if self.seam is not None:
            await self.seam("before effect")
        given = await driver.run(query, attempt)
        if self.seam is not None:
            await self.seam("after effect")
        return given
