"""The engine inside: the live sessions of this process, and how messages reach them."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from itertools import islice
from typing import Any

from holdfast.core.decide import Message, WakeMessage
from holdfast.core.events import Event, RunningEvent
from holdfast.core.ids import check_id
from holdfast.core.needs import step_needs, upkeep_needs
from holdfast.core.records import Record, StartedRecord
from holdfast.core.state import Session
from holdfast.engine import delivery
from holdfast.engine.callers import CallerWatch
from holdfast.engine.children import ChildSessions
from holdfast.engine.errors import ContentionError, StaleError
from holdfast.engine.live_session import LiveSession
from holdfast.engine.owner import Owner
from holdfast.store.errors import LeaseHeldError


class Engine:
    """What `Holdfast` opens the door to. At most `hot_programs` sessions are kept while nothing is done with them."""

    def __init__(self, owner: Owner, *, hot_programs: int) -> None:
        self.owner = owner
        self.children = ChildSessions(owner, self)
        self._live_sessions: OrderedDict[str, LiveSession] = OrderedDict()
        self._hot_programs = hot_programs
        self._closing: set[asyncio.Task[None]] = set()
        """What closes the attachments of sessions that are forgotten."""

    async def close(self) -> None:
        """Stop what runs here and release every session, so that others can resume them at once.

        Effects that cannot be run again have some time to end. Those that do not are recorded as interrupted.
        """
        self.owner.callers.close()
        ending = [task for live in self._live_sessions.values() for task in live.unrepeatable()]
        if ending:
            await asyncio.wait(ending, timeout=self.owner.close_s)
        await self.owner.stop()
        await asyncio.gather(*(live.close() for live in self._live_sessions.values()))
        self.owner.programs.close()
        for live in self._live_sessions.values():
            self._close_attachments(live)
        while self._closing:
            await asyncio.gather(*self._closing, return_exceptions=True)
        self._live_sessions.clear()

    # --- the live sessions -------------------------------------------------------------------------

    def live(self, session_id: str) -> LiveSession:
        """A session alive in this process; it may not have been read yet."""
        live = self._live_sessions.get(session_id)
        if live is None:
            self.make_room(for_more=1)
            live = self._live_sessions[session_id] = self._new(session_id)
        else:
            self._live_sessions.move_to_end(session_id)
        return live

    def _new(self, session_id: str) -> LiveSession:
        return LiveSession(self.owner, session_id, self.children, self)

    def alive(self, session_id: str) -> LiveSession | None:
        """A session if it is alive in this process."""
        return self._live_sessions.get(session_id)

    def at_hand(self, session_id: str) -> Session | None:
        """A session as it is known here, if it is; somebody else may have written to it since."""
        live = self._live_sessions.get(session_id)
        return live.known if live is not None else None

    def under_way(self) -> list[str]:
        """The sessions with effects or a long step under way here."""
        return [session_id for session_id, live in self._live_sessions.items() if live.is_under_way]

    def held_sessions(self) -> list[str]:
        """The sessions that this process holds, or does something about."""
        return [session_id for session_id, live in self._live_sessions.items() if live.is_held or live.is_under_way]

    def waits_for_child(self, session_id: str) -> bool | None:
        """Whether a query of a session for a child is pending; None if the session is not at hand."""
        live = self._live_sessions.get(session_id)
        session = live.known if live is not None else None
        return "child" in session.pending.groups if session is not None else None

    def drop(self, session_id: str, only: delivery.Recipient | None = None) -> None:
        """Forget a session that is not there (any more); with `only`, if it is alive in no other object by now.

        One at work is left to find that out by itself.
        """
        live = self._live_sessions.get(session_id)
        if live is None or (only is not None and live is not only):
            return
        del self._live_sessions[session_id]
        if not live.lock.locked():
            live.forget()
        self._close_attachments(live)

    async def release(self, session_id: str) -> None:
        """Forget a session that is not there any more, and wait until what hangs on it is closed."""
        self.drop(session_id)
        if self._closing:
            await asyncio.gather(*self._closing, return_exceptions=True)

    def make_room(self, for_more: int = 0) -> None:
        """Forget the sessions that were not used for the longest time, if there are too many."""
        excess = len(self._live_sessions) + for_more - self._hot_programs
        if excess <= 0:
            return
        for session_id in list(islice(self._live_sessions, excess)):
            live = self._live_sessions[session_id]
            if not live.is_busy:
                del self._live_sessions[session_id]
                live.forget()
                self._close_attachments(live)

    def _close_attachments(self, live: LiveSession) -> None:
        """Close what hangs on a session, in the background."""
        if live.attachments:
            task = asyncio.get_running_loop().create_task(live.attachments.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    # --- messages ----------------------------------------------------------------------------------

    async def begin(self, session_id: str, started: StartedRecord) -> Event:
        """Start a session, and say what it says first."""
        self.owner.callers.check_open(session_id)
        check_id(session_id, "session id")
        await self.owner.programs.admit(started.program)
        for _ in range(delivery.RETRIES):
            live = self._new(session_id)
            try:
                return await live.whole(self._begin(live, started))
            except StaleError:
                continue  # what its first step writes to the shared state has changed meanwhile: it is taken anew
        raise ContentionError(session_id, delivery.RETRIES)

    async def _begin(self, live: LiveSession, started: StartedRecord) -> Event:
        event = await live.begin([started])
        self.make_room(for_more=1)
        self._live_sessions[live.id] = live
        return event

    def deliver(self, session_id: str, message: Message, wait: float | None = None) -> Coroutine[Any, Any, Event]:
        """Deliver a message to the owner of the session: this process, or another through the mailbox."""
        self.owner.callers.check_open(session_id)
        check_id(session_id, "session id")
        found = delivery.hand_in(self.owner, self.live, session_id, message, wait, wants_reply=True)
        reply: Coroutine[Any, Any, Event] = found  # type: ignore[assignment]  # it is an event, because one is wanted
        return reply

    def hand_in(self, session_id: str, message: Message, wait: float | None = None) -> Coroutine[Any, Any, object]:
        """Deliver a message to a session that is known here; nobody reads the reply."""
        return delivery.hand_in(self.owner, self.live, session_id, message, wait)

    def watch(self, session_id: str | None) -> CallerWatch:
        """Wakes a caller that waits for a session, or for any, to change; and when the engine is closed."""
        return self.owner.callers.watch(session_id)

    async def until_released(self, session_id: str) -> None:
        """Wait while this process holds a session: until then, it changes here or not at all."""
        live = self._live_sessions.get(session_id)
        if live is not None and live.is_held:
            await self.owner.callers.until_released(session_id)

    async def known(self, session_id: str) -> Session:
        """A session as it is now."""
        live = self.live(session_id)
        async with live.lock:
            return await live.refresh()

    async def event(self, session_id: str) -> Event:
        """What a session says to a host now."""
        live = self.live(session_id)
        async with live.lock:
            await live.refresh()
            return live.event()

    async def resume(self, session_id: str) -> Event:
        """Go on with a session here, and say what it says then."""
        self.owner.callers.check_open(session_id)
        for _ in range(delivery.RETRIES):
            live = self.live(session_id)
            # Maybe nothing below has to wait, and one who asks again and again must not starve others.
            await asyncio.sleep(0)
            try:
                if not await delivery.misses(self.owner, live, upkeep_needs, fresh=True):
                    await delivery.take_mail(self.owner, live)
                if not await delivery.misses(self.owner, live, step_needs):
                    await live.whole(live.attend())
                async with live.lock:
                    await live.refresh()
                    return live.event()
            except StaleError:
                continue
            except LeaseHeldError:
                return RunningEvent(session_id=session_id)
        raise ContentionError(session_id, delivery.RETRIES)

    # --- what the upkeep finds ---------------------------------------------------------------------

    def attend(self, session_id: str, *, insists: bool = True) -> Coroutine[Any, Any, bool]:
        """Go on with what was left undone, unless somebody else owns the session; False if it is not served here."""
        return delivery.attend(self.owner, self.live, session_id, insists=insists)

    async def wake(self, session_id: str) -> bool:
        """Look at what is due in a session, unless somebody else owns it; False if it is not served here."""
        for _ in range(delivery.RETRIES):
            live = self.live(session_id)
            try:
                await live.take(WakeMessage())
                return self.owner.may_run(live.session)
            except StaleError:
                continue  # it was changed by another process, and is still due
            except LeaseHeldError:
                return True
        return True

    def waits_for_worker(self, session_id: str) -> bool:
        """Whether what is due in a session, as it is known here, is left to a worker: waking it again does nothing."""
        session = self.at_hand(session_id)
        return session is not None and session.kind_fold.is_left_to_worker(session, self.owner.now())

    async def end_idle(self, session_id: str, decided: Callable[[Session], list[Record]]) -> bool:
        """Write what was decided about an idle session, and go on with what is left of it.

        False if that was nothing, or somebody was quicker.
        """
        try:
            return await self.live(session_id).write(decided)
        except (StaleError, LeaseHeldError):
            return False
