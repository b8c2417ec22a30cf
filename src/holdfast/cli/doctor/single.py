"""Sessions that `doctor` looks at one by one: what is wrong is repaired or explained, and why one does not move."""

from __future__ import annotations

import contextlib
import time

from holdfast.cli.doctor.report import CheckedPart, Finding, Report
from holdfast.core.errors import HoldfastError, JournalError, SessionNotFoundError, TransitionError
from holdfast.core.state import Session
from holdfast.core.summary import Summary, summarize
from holdfast.engine.waits import messages_left, wait_for_limits, wait_of
from holdfast.store import Store
from holdfast.store.errors import CorruptSessionError
from holdfast.store.permits import PermitWait

_TRIES = 5
"""How often a session is read again because it changed while it was being checked."""


class Checkup:
    """Adds to a report what is wrong with sessions, and to a part of it why they do not move."""

    def __init__(self, store: Store, report: Report, part: CheckedPart, dry_run: bool) -> None:
        self._store = store
        self._report = report
        self._part = part
        self._dry_run = dry_run

    async def check(self, session_id: str) -> None:
        """Check a session that may be damaged, and repair its summary."""
        try:
            fault, session = await self._repair_summary(session_id)
        except SessionNotFoundError:
            return  # deleted after it was listed
        except (CorruptSessionError, JournalError, TransitionError) as error:
            last = await self._last_sound_position(session_id)
            self._report.damaged.append(Finding(session_id, str(error), _advice(session_id, last)))
        else:
            if fault:
                self._report.repaired.append(Finding(session_id, fault))
            if session is not None:
                await self._explain(session)
        self._report.sessions += 1

    async def explain_mail(self, session_id: str) -> None:
        """Note why a sound session with messages does not move."""
        with contextlib.suppress(HoldfastError):  # it may have been deleted, or damaged, after it was checked
            await self._explain(await self._store.load(session_id))

    async def explain_limits(self, most: int) -> None:
        """Note what waits for a limit of the fleet. Such sessions have an owner, and move by themselves."""
        in_line: dict[str, list[PermitWait]] = {}
        for each in await self._store.permit_waits(limit=most):
            in_line.setdefault(each.session_id, []).append(each)
        for session_id, waits in in_line.items():
            try:
                service = (await self._store.session(session_id)).summary.service
            except HoldfastError:
                continue  # deleted, or damaged: that is said elsewhere
            self._part.add_still(session_id, service, wait_for_limits(waits))

    async def _explain(self, session: Session) -> None:
        """Note why a session does not move."""
        if session.is_terminal or (await self._store.session(session.id)).owner is not None:
            return
        mail = await messages_left(self._store, session.id)
        wait = wait_of(session, self._report.processes, int(time.time() * 1000), mail)
        if wait is not None and session.started is not None:
            self._part.add_still(session.id, session.started.service, wait)

    async def _repair_summary(self, session_id: str) -> tuple[str, Session | None]:
        """Repair the summary of a session, and say what was wrong with it (an empty text if nothing was); the session
        too.

        Without the session if it is so busy that it must be sound: its owner reads it all the time.
        """
        store = self._store
        for _ in range(_TRIES):
            session = await store.load(session_id)  # reads every record, and every value stored beside it
            right = summarize(session)
            try:
                row = await store.session(session_id)
            except CorruptSessionError as error:
                if not self._dry_run:
                    await store.repair(session_id, right)
                return str(error), session
            if row.position < session.position:  # it was read later, and the journal only grows
                why = f"it says that the journal ends at position {row.position}, but that has {session.position}"
                raise CorruptSessionError(session_id, "its summary", why)
            if row.position > session.position:
                continue
            if row.summary == right:
                return "", session
            fields = [f for f in Summary.__struct_fields__ if getattr(row.summary, f) != getattr(right, f)]
            if not self._dry_run:
                await store.repair(session_id, right)
            return "; ".join(f"{f} was {getattr(row.summary, f)!r}, is {getattr(right, f)!r}" for f in fields), session
        return "", None

    async def _last_sound_position(self, session_id: str) -> int:
        """The position up to which a journal can be read and folded, and a fork of it be made."""
        session = Session(session_id)
        try:
            end = await self._store.position(session_id)
            while session.position < end and (entries := await self._store.read(session_id, session.position, 1)):
                session.apply(entries[0])
        except HoldfastError:
            pass
        return session.position


def _advice(session_id: str, last: int) -> str:
    if last == 0:
        return f"None of it can be used. Import it from a backup, or `holdfast delete {session_id}`."
    return (
        f"Its records up to {last} are sound: `holdfast fork {session_id} --at {last}` continues from there."
        f" Or import it from a backup, or `holdfast delete {session_id}`."
    )
