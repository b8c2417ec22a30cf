"""The engine inside: the actors of this process, and how messages, effects and children reach them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from itertools import islice
from typing import Any, TypeAlias, TypeVar

import msgspec

from holdfast.core.decide import CancelMessage, FeedMessage, Given, Message, WakeMessage, decide_start
from holdfast.core.errors import HoldfastError, SessionExistsError, SessionNotFoundError
from holdfast.core.events import Event, PausedEvent, RunningEvent
from holdfast.core.ids import check_id
from holdfast.core.queries import Answer, ChildQuery, Failure, Query, TimerQuery, ToolQuery, Value, kind_of
from holdfast.core.records import CancelledRecord, CompletedRecord, Parent, Program, Record, StartedRecord
from holdfast.core.state import Session, State
from holdfast.engine.actor import Actor
from holdfast.engine.drivers import Attempt, Driver, Drivers
from holdfast.engine.errors import ContentionError, StaleError
from holdfast.engine.minder import Minder
from holdfast.programs.context import STATE_TOOL
from holdfast.programs.contract import Instance, ProgramKind
from holdfast.programs.errors import ProgramNotFoundError
from holdfast.store.contract import Store
from holdfast.store.errors import LeaseHeldError, MessageTakenError

log = logging.getLogger("holdfast.engine")

T = TypeVar("T")

CHILD_LOOK_MS = 100
"""Milliseconds between looks at whether the children that a session waits for need a host."""

RETRIES = 20
"""How often a message is decided again because somebody else wrote first, before that is an error."""

Seam: TypeAlias = Callable[[str], Awaitable[None]]
"""Called at every durable boundary with its name; tests die there."""


class Engine:
    """What `Holdfast` opens the door to."""

    def __init__(self, store: Store, *, hot_programs: int, lease_ms: int, minder: Minder, seam: Seam | None) -> None:
        self.store = store
        self.owner = f"{socket.gethostname()[:60]}.{os.getpid()}.{secrets.token_hex(4)}"
        self.lease_ms = lease_ms
        self.drivers = Drivers()
        self.minder = minder
        self._kinds: dict[str, ProgramKind] = {}
        self._actors: OrderedDict[str, Actor] = OrderedDict()
        self._hot_programs = hot_programs
        self._seam = seam
        self._background: set[asyncio.Task[Any]] = set()
        self._last_now = 0

    async def open(self) -> None:
        await self.store.open()
        self.minder.start(self)

    async def close(self) -> None:
        """Stop what runs here, and let go of every session, so that others can go on at once."""
        await self.minder.stop()
        for task in list(self._background):
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        for actor in list(self._actors.values()):
            lease, tasks = actor.lease, actor.tasks
            actor.forget()
            await asyncio.gather(*tasks, return_exceptions=True)
            if lease is not None:
                with contextlib.suppress(HoldfastError):
                    await self.store.release(lease)
        self._actors.clear()
        for kind in self._kinds.values():
            kind.close()
        await self.store.close()

    def add_kind(self, kind: ProgramKind) -> None:
        """Make a kind of program known."""
        self._kinds[kind.kind] = kind

    def drop(self, session_id: str, only: Actor | None = None) -> None:
        """Forget a session that is not there (any more); with `only`, if it has no other actor by now.

        An actor at work is left to find that out by itself.
        """
        actor = self._actors.get(session_id)
        if actor is None or (only is not None and actor is not only):
            return
        del self._actors[session_id]
        if not actor.lock.locked():
            actor.forget()

    # --- what actors and the minder call -----------------------------------------------------------------

    def now(self) -> int:
        """Unix milliseconds; never earlier than the last time it was asked."""
        self._last_now = max(self._last_now, time.time_ns() // 1_000_000)
        return self._last_now

    async def seam(self, name: str) -> None:
        if self._seam is not None:
            await self._seam(name)

    def create(self, session: Session) -> Instance:
        program = session.started.program if session.started else None
        kind = self._kinds.get(program.kind) if program else None
        if program is None or kind is None:
            raise ProgramNotFoundError(str(program and program.name), "programs of its kind do not run here")
        return kind.create(session)

    def drives(self, query: Query) -> bool:
        """Whether a query is answered here without a host."""
        if isinstance(query, (TimerQuery, ChildQuery)):
            return True
        if isinstance(query, ToolQuery) and query.name == STATE_TOOL:
            return True
        driver = self.drivers.find(query)
        return driver is not None and driver.recovery != "ask"

    def attends(self, query: Query, attempts: int) -> bool:
        """Whether a pending query should be under way here."""
        if isinstance(query, ChildQuery):
            return True
        driver = self.drivers.find(query)
        return driver is not None and not (attempts and driver.recovery == "ask")

    def knows(self, session: Session) -> bool:
        """Whether the session's program can be run here."""
        program = session.started.program if session.started else None
        kind = self._kinds.get(program.kind) if program else None
        return program is not None and kind is not None and kind.knows(program)

    def running_event(self, session: Session) -> RunningEvent:
        """What is said of a session that needs no host now, and why it may stand still here."""
        waits: list[str] = sorted({kind_of(p.query) for p in session.pending.values()})
        why = ""
        if session.state is State.RUNNING and not self.knows(session) and session.started is not None:
            why = f"program '{session.started.program.name}' is not available here; a process that has it will go on"
        return RunningEvent(session_id=session.id, waits_for=waits, why=why)

    def committed(self, session: Session) -> None:
        """A commit of a session is durable: set its timers, and tell its parent if it has ended."""
        if (due := session.next_due()) is not None:
            self.minder.look_at(due)
        if session.is_terminal and session.started is not None and session.started.parent is not None:
            self._spawn(self._tell_parent(session, session.started.parent))
        self._evict()

    def report(self, session_id: str, error: BaseException) -> None:
        log.error("session '%s': %s", session_id, error)

    async def deliver(self, session_id: str, message: Message, wait: float | None = None) -> Event:
        """Bring a message to whoever owns the session: this process, or another through the mailbox."""
        check_id(session_id, "session id")
        takes: list[int] = []
        key = ""
        for _ in range(RETRIES):
            actor = self._actor(session_id)
            try:
                event = await self._whole(actor, actor.take(message, takes))
                return msgspec.structs.replace(event, replayed=False) if key else event
            except StaleError:
                continue
            except MessageTakenError:
                takes = []
            except SessionNotFoundError:
                self.drop(session_id, only=actor)
                raise
            except LeaseHeldError:
                message = await actor.check(message)
                key = key or f"m-{secrets.token_hex(12)}"
                posted = await self._post(session_id, key, message, wait)
                if isinstance(posted, RunningEvent):
                    return posted
                takes = posted
                async with actor.lock:
                    await actor.refresh()  # the owner has written since
            except HoldfastError:
                if takes:
                    await self._refuse_mail(actor, takes)
                raise
        raise ContentionError(session_id, RETRIES)

    async def _whole(self, actor: Actor, work: Coroutine[Any, Any, T]) -> T:
        """Do something that whoever asked for it may give up, without that it stops where effects would be lost.

        Those that run already would be; and so would those whose beginning has just been recorded.
        """
        if not actor.is_under_way and not self.drivers:
            return await work
        return await asyncio.shield(self._spawn(work))

    async def wake(self, session_id: str) -> bool:
        """Look at what is due in a session, unless somebody else owns it; False if it cannot run here."""
        actor = self._actor(session_id)
        with contextlib.suppress(StaleError, LeaseHeldError):
            await actor.take(WakeMessage())
            return self.knows(actor.session)
        return True

    async def end_idle(self, session_id: str, decided: Callable[[Session], list[Record]]) -> bool:
        """Write what the minder decided about a session; False if that was nothing, or somebody was quicker."""
        try:
            return await self._actor(session_id).write(decided)
        except (StaleError, LeaseHeldError):
            return False

    async def attend(self, session_id: str) -> bool:
        """Go on with what was left undone, unless somebody else owns the session; False if it cannot run here."""
        actor = self._actor(session_id)
        with contextlib.suppress(StaleError, LeaseHeldError, MessageTakenError, ProgramNotFoundError):
            await self._take_mail(actor)
            await actor.attend()
            return self.knows(actor.session)
        return True

    def go_on_with(self, session_id: str) -> None:
        """Attend to a session soon."""
        self._spawn(self.attend(session_id))

    async def execute(self, actor: Actor, query: Query) -> None:
        """Run the effect of a query and bring its answer home."""
        driver = self.drivers.find(query)
        if driver is None:
            return
        try:
            if query.id not in actor.slotted:
                await driver.slots.take()
                actor.slotted[query.id] = driver
            try:
                given = await self._effect(actor, query, driver)
            finally:
                if actor.slotted.pop(query.id, None) is not None:
                    driver.slots.give_back()
            if given is not None:
                await self.deliver(actor.id, FeedMessage([given], driver.name))
        except (StaleError, LeaseHeldError):
            pass  # somebody else owns the session now, and goes on with it
        except HoldfastError as error:
            self.report(actor.id, error)
        finally:
            if actor.effects.get(query.id) is asyncio.current_task():
                del actor.effects[query.id]
                self._spawn(self._let_go(actor))

    async def _let_go(self, actor: Actor) -> None:
        """Release a session that is held for nothing any more."""
        if actor.lease is not None and not actor.is_under_way:
            with contextlib.suppress(StaleError, HoldfastError):
                await actor.renew()

    def begin_child(self, parent: str, query: ChildQuery) -> None:
        """Start the session that a query asks for, or find out what became of it."""
        self._spawn(self._run_child(parent, query))

    def drop_child(self, parent: Session, asked: str) -> None:
        """End the session of a query that nobody waits for any more."""
        self._spawn(self._cancel_child(parent, asked))

    async def end_if_abandoned(self, child_id: str, parent_id: str) -> bool:
        """End a child whose parent does not wait for it: a process may have died before it could tell it so."""
        try:
            row = await self.store.session(parent_id)
            asked = child_id.removeprefix(f"{parent_id}.")
            if "child" in row.summary.waiting_for and asked in (await self.store.load(parent_id)).pending:
                return True
            await self._cancel_child(await self.store.load(parent_id), asked)
        except SessionNotFoundError:
            await self.deliver(child_id, CancelMessage(f"its parent {parent_id} is gone"))
        return True

    async def _cancel_child(self, parent: Session, asked: str) -> None:
        reason = f"its parent {parent.id} does not wait for it any more"
        if isinstance(parent.ended, CancelledRecord):
            reason = f"its parent {parent.id} was cancelled: {parent.ended.reason or 'no reason was given'}"
        with contextlib.suppress(HoldfastError):
            await self.deliver(child_session_id(parent.id, asked), CancelMessage(reason))

    async def keep(self, actor: Actor) -> None:
        """Hold a lease, and take the messages that others send meanwhile."""
        pause = self.lease_ms / 3000
        renewal = time.monotonic() + pause
        try:
            with contextlib.suppress(StaleError, LeaseHeldError), self.store.watch(actor.id) as changes:
                while actor.lease is not None:
                    await self._take_mail(actor)
                    # Whatever else happens in the store may wake us, as often as it likes.
                    await changes.changed(timeout=max(0.0, renewal - time.monotonic()))
                    if time.monotonic() >= renewal:
                        await actor.renew()
                        renewal = time.monotonic() + pause
        except HoldfastError as error:
            self.report(actor.id, error)
        finally:
            actor.kept()

    # --- inside ----------------------------------------------------------------------------------------

    async def _take_mail(self, actor: Actor) -> None:
        for item in await self.store.mailbox(actor.id):
            try:
                await actor.take(item.message, takes=[item.number])
            except LeaseHeldError:
                raise
            except MessageTakenError:
                continue
            except HoldfastError:
                await self._refuse_mail(actor, [item.number])

    async def _refuse_mail(self, actor: Actor, takes: list[int]) -> None:
        """Take refused messages out of the way: their senders decide them again, and find out why."""
        with contextlib.suppress(MessageTakenError):
            await actor.take(WakeMessage(), takes)

    def _actor(self, session_id: str) -> Actor:
        actor = self._actors.get(session_id)
        if actor is None:
            actor = self._actors[session_id] = Actor(self, session_id)
        else:
            self._actors.move_to_end(session_id)
        return actor

    def _evict(self) -> None:
        excess = len(self._actors) - self._hot_programs
        if excess <= 0:
            return
        for session_id in list(islice(self._actors, excess)):
            if not self._actors[session_id].is_busy:
                self._actors.pop(session_id).forget()

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    async def start(self, session_id: str, started: StartedRecord, wait: float | None = None) -> Event:
        check_id(session_id, "session id")
        actor = Actor(self, session_id)
        event = await self._whole(actor, self._begin(actor, started))
        return await self.until_needed(session_id, event, wait)

    async def _begin(self, actor: Actor, started: StartedRecord) -> Event:
        event = await actor.begin([started])
        self._actors[actor.id] = actor
        return event

    async def resume(self, session_id: str) -> Event:
        for _ in range(RETRIES):
            actor = self._actor(session_id)
            try:
                await self._take_mail(actor)
                await self._whole(actor, actor.attend())
                async with actor.lock:
                    await actor.refresh()
                    return actor.event()
            except StaleError:
                continue
            except LeaseHeldError:
                return RunningEvent(session_id=session_id)
            except SessionNotFoundError:
                self.drop(session_id, only=actor)
                raise
        raise ContentionError(session_id, RETRIES)

    async def until_needed(self, session_id: str, event: Event, wait: float | None) -> Event:
        """Wait while the session goes on by itself."""
        if not isinstance(event, RunningEvent):
            return event
        deadline = None if wait is None else time.monotonic() + wait
        with self.store.watch(session_id) as changes:
            while isinstance(event, RunningEvent):
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    break
                actor = self._actor(session_id)
                async with actor.lock:
                    await actor.refresh()
                    event = actor.event()
                    stuck = actor.is_stuck and (await self.store.session(session_id)).owner is None
                if stuck or self._waits_for_host_of_child(actor):
                    break
                if isinstance(event, RunningEvent):
                    pause = CHILD_LOOK_MS / 1000 if "child" in event.waits_for else None
                    await changes.changed(timeout=min((t for t in (left, pause) if t is not None), default=None))
        return event

    def _waits_for_host_of_child(self, actor: Actor) -> bool:
        """Whether a session stands still because every child it waits for, or one of theirs, needs a host."""
        pending = [p.query for p in actor.session.pending.values() if not isinstance(p.query, TimerQuery)]
        if not pending or not all(isinstance(query, ChildQuery) for query in pending):
            return False
        for query in pending:
            child = self._actors.get(child_session_id(actor.id, query.id))
            if child is None or not child.is_loaded or child.lock.locked():
                return False
            if not isinstance(child.event(), PausedEvent) and not self._waits_for_host_of_child(child):
                return False
        return True

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
                pause = max(0.05, ((row.lease_until or 0) - self.now()) / 1000)
                await changes.changed(timeout=pause if left is None else min(pause, left))

    async def _effect(self, actor: Actor, query: Query, driver: Driver) -> Given | None:
        begun = await actor.attempts(query.id)
        if begun is None:
            return None
        attempt = Attempt(actor.id, query.id, begun)
        if query.id in actor.recovering:
            actor.recovering.discard(query.id)
            if (given := await driver.recover(query, attempt)) is not None:
                return given
            fresh = False
        else:
            fresh = bool(begun)
        if not fresh:
            number = await actor.attempt(query.id, driver.name)
            if number is None:
                return None
            attempt = msgspec.structs.replace(attempt, number=number)
        await self.seam("before effect")
        given = await driver.run(query, attempt)
        await self.seam("after effect")
        return given

    async def _run_child(self, parent: str, query: ChildQuery) -> None:
        child_id = child_session_id(parent, query.id)
        try:
            session = await self.store.load(child_id)
        except SessionNotFoundError:
            await self._start_child(child_id, parent, query)
        except HoldfastError as error:
            self.report(child_id, error)
        else:
            if session.is_terminal:
                await self._tell_parent(session, Parent(parent, query.id))
            else:
                await self.attend(child_id)

    async def _start_child(self, child_id: str, parent: str, query: ChildQuery) -> None:
        started = decide_start(
            Program(kind="native", name=query.program, source=query.source),
            ctx=query.ctx,
            parent=Parent(parent, query.id),
            seed=secrets.randbits(53),
        )
        try:
            await self.start(child_id, started, wait=0)
            await self.end_if_abandoned(child_id, parent)
        except SessionExistsError:
            pass  # another process was quicker
        except HoldfastError as error:
            failure = Failure(f"child session {child_id} cannot be started: {error}", error.kind)
            with contextlib.suppress(HoldfastError):
                await self.deliver(parent, FeedMessage([Given(failure, query.id)], child_id))

    async def _tell_parent(self, child: Session, parent: Parent) -> None:
        answer: Answer
        if isinstance(child.ended, CompletedRecord):
            answer = Value(value=child.ended.result)
        else:
            why = getattr(child.ended, "error", None) or getattr(child.ended, "reason", None) or "no reason given"
            answer = Failure(f"child session {child.id} {child.state}: {why}", f"child_{child.state}")
        with contextlib.suppress(HoldfastError):
            await self.deliver(parent.session_id, FeedMessage([Given(answer, parent.query_id)], child.id))


def child_session_id(parent: str, asked: str) -> str:
    """The id of a child session: the same whenever its query is taken up again."""
    return f"{parent}.{asked}"
