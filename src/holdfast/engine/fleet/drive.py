"""`Drives`: sessions that the engine has brought to this process, each driven until nothing of it is under way here.

A drive never waits for timers, children or hosts: somebody is nudged when those have come. It tells the engine nothing
but that it is over, or that the session has to be brought to somebody again.
"""

from __future__ import annotations

import asyncio
import logging

from holdfast.core.errors import HoldfastError
from holdfast.core.needs import explain_missing, missing_needs
from holdfast.core.state import Session
from holdfast.engine.callers import CallerWatch
from holdfast.engine.dispatch import Dispatch
from holdfast.engine.engine import Engine
from holdfast.engine.fleet.commits import due_of, is_left_to_processes
from holdfast.engine.process_rows import processes
from holdfast.store.errors import StoreUnavailableError

log = logging.getLogger("holdfast.dispatch")

RETURN_MS = 150
"""Milliseconds that an owner which seems to be dead has for coming back. The engine's own connection to it is mostly
gone as well by then, so that this is less than where only the store tells."""

RETURN_LOOKS = 3
"""Looks at whether it has come back, meanwhile."""

LOOK_S = 0.5
"""Seconds between looks at whether a drive is over, if nothing is heard of it."""


SOON_S = 0.01
"""Seconds between looks after something has happened: the effect that has just been answered is about to end."""


class BringAgainError(Exception):
    """The session is to be brought to somebody again, here or elsewhere."""


class Drive:
    """One session that is driven here."""

    def __init__(self) -> None:
        self.is_wanted = True
        """Whether to look at the session once more."""
        self.changes: CallerWatch | None = None

    def ask_again(self) -> None:
        """Somebody else was nudged for it as well."""
        self.is_wanted = True
        if self.changes is not None:
            self.changes.notify()


class Drives:
    """What is driven here now, so much of it at a time."""

    def __init__(self, engine: Engine, dispatch: Dispatch, most: int) -> None:
        self._engine = engine
        self._dispatch = dispatch
        self._places = asyncio.Semaphore(most)
        self.under_way: dict[str, Drive] = {}
        """The sessions that are driven here."""
        self.is_refusing = False
        """Whether no more sessions are taken: this process is about to end."""
        self._is_over = asyncio.Event()

    async def drive(self, session_id: str) -> None:
        """Go on with a session as far as that is possible here now. `BringAgainError` if somebody else has to try."""
        if self.is_refusing:
            raise BringAgainError("this worker is about to end")
        if (other := self.under_way.get(session_id)) is not None:
            other.ask_again()  # who drives it has another look, so nobody has to wait
            return
        drive = self.under_way[session_id] = Drive()
        try:
            async with self._places:
                while drive.is_wanted and not self.is_refusing:
                    drive.is_wanted = False
                    await self._drive(session_id, drive)
        except StoreUnavailableError as error:
            raise BringAgainError(str(error)) from None
        except HoldfastError as error:
            if self._engine.owner.callers.is_closed:
                raise BringAgainError("this worker has ended") from None
            log.info("session '%s' is not driven: %s", session_id, error)
        finally:
            del self.under_way[session_id]
            self._is_over.set()
        if drive.is_wanted:
            raise BringAgainError("this worker is about to end")

    async def until_idle(self) -> None:
        """Wait until nothing is driven here any more."""
        while self.under_way:
            self._is_over.clear()
            await self._is_over.wait()

    # --- one session -------------------------------------------------------------------------------

    async def _drive(self, session_id: str, drive: Drive) -> None:
        engine = self._engine
        before = engine.at_hand(session_id)
        began_at = before.position if before is not None else -1
        await self._give_time_to_return(session_id)
        is_served = await engine.attend(session_id)
        session = engine.at_hand(session_id)
        if session is None or session.is_terminal:
            return
        if not is_served:
            await self._leave_to_others(session)
            return
        due = due_of(session)
        if due is not None and due <= engine.owner.now():
            await engine.wake(session_id)
        await self._until_idle(session_id, drive)
        self._tell_what_is_left(session_id, began_at)

    async def _give_time_to_return(self, session_id: str) -> None:
        """Let an owner that has only lost its connection come back: what it is doing would be done twice."""
        store = self._engine.owner.store
        for _ in range(RETURN_LOOKS):
            if all(lease.session_id != session_id for lease in await store.lost()):
                return
            await asyncio.sleep(RETURN_MS / RETURN_LOOKS / 1000)

    async def _leave_to_others(self, session: Session) -> None:
        """Raise `BringAgainError` if a process that is here has what this one lacks. Else the sweep will find one."""
        owner = self._engine.owner
        needs = missing_needs(session, owner.offers)
        now = owner.now()
        for row in await processes(owner.store, beside=owner.name):
            if row.is_here(now) and all(row.offers.meets(session, need) for need in needs):
                raise BringAgainError(f"{explain_missing(needs)}: {row.name} does")
        log.info("session '%s' is left: it %s", session.id, explain_missing(needs) if needs else "is not served here")

    async def _until_idle(self, session_id: str, drive: Drive) -> None:
        if not self._is_under_way(session_id):
            return
        with self._engine.watch(session_id) as drive.changes:
            has_changed = False
            while self._is_under_way(session_id) and not drive.is_wanted:
                has_changed = await drive.changes.changed(timeout=SOON_S if has_changed else LOOK_S)
        drive.changes = None

    def _is_under_way(self, session_id: str) -> bool:
        engine = self._engine
        live = engine.alive(session_id)
        if live is not None and (live.is_under_way or live.is_held):
            return True
        is_in_line = engine.owner.is_in_line
        return engine.children.is_busy_with(session_id) or (is_in_line is not None and is_in_line(session_id))

    def _tell_what_is_left(self, session_id: str, began_at: int) -> None:
        session = self._engine.at_hand(session_id)
        if session is None or session.is_terminal:
            return
        if (due := due_of(session)) is not None:
            self._dispatch.nudge_at(session_id, due)
        if session.position > began_at and is_left_to_processes(session, self._engine):
            self._dispatch.nudge(session_id, session.position)
