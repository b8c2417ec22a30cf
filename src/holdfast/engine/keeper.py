"""Keeping a lease: it is renewed in time, and what others send meanwhile is taken."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Protocol

from holdfast.core.errors import HoldfastError
from holdfast.engine.delivery import Recipient, take_mail
from holdfast.engine.errors import StaleError
from holdfast.engine.owner import Owner
from holdfast.engine.store_trouble import FIRST_REST_S
from holdfast.store.errors import LeaseHeldError, StoreUnavailableError
from holdfast.store.patience import patience

RENEWALS = 3
"""Times that a lease is renewed before it would run out: two of them may come too late."""

MAIL_REST_S = patience(0.01)
"""Seconds between looks into the mailbox of a session that is held: most of what happens to it is our own doing."""


class HeldSession(Recipient, Protocol):
    """A session whose lease is kept."""

    @property
    def is_held(self) -> bool: ...

    async def renew(self) -> None:
        """Renew the lease, or release it if nothing is under way any more."""
        ...


class Keeper:
    """Keeps the lease of one session while it is held.

    It begins a little later than the lease: most leases are held for less, and need neither a renewal nor a task. A
    look into the mailbox follows in any case, as a sender that found the session held may have stopped looking.
    """

    def __init__(self, owner: Owner, session: HeldSession) -> None:
        self._owner = owner
        self._session = session
        self._pause_s = owner.lease_ms / 1000 / RENEWALS
        self._rest_s = min(MAIL_REST_S, self._pause_s / 2)
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """The session is held: keep its lease, if that is not about to be done."""
        if self._timer is None and self._task is None:
            self._timer = asyncio.get_running_loop().call_later(self._rest_s, self._begin)

    def stop(self) -> list[asyncio.Task[None]]:
        """Keep it no longer. Gives back what is still running, if anything is: it ends soon."""
        if self._timer is not None:
            self._timer.cancel()
        task, self._timer, self._task = self._task, None, None
        if task is None or task is asyncio.current_task():
            return []
        task.cancel()
        return [task]

    def _begin(self) -> None:
        self._timer, self._task = None, asyncio.create_task(self._keep())

    async def _keep(self) -> None:
        owner, session = self._owner, self._session
        monotonic = owner.clock.monotonic
        renewal = monotonic() + self._pause_s - self._rest_s
        try:
            with contextlib.suppress(StaleError, LeaseHeldError), owner.store.watch(session.id) as changes:
                while True:
                    is_held = session.is_held
                    try:
                        # Also once it was let go: a sender that found the session held may have stopped looking.
                        has_looked = await self._take_mail(renewal - monotonic())
                        if has_looked and not is_held and not session.is_held:
                            break
                        if not is_held:  # it was taken again in the meantime, and nobody else keeps it
                            renewal = monotonic()
                        # Whatever else happens in the store may wake us, as often as it likes.
                        await changes.changed(timeout=max(0.0, renewal - monotonic()))
                        if monotonic() >= renewal:
                            await session.renew()
                            renewal = monotonic() + self._pause_s
                    except StoreUnavailableError:  # the lease is ours until it runs out, and effects are under way
                        await asyncio.sleep(min(FIRST_REST_S, self._pause_s / 4))
                    await asyncio.sleep(self._rest_s)
        except HoldfastError as error:
            owner.report(session.id, error)
        finally:
            if self._task is asyncio.current_task():  # there may be another by now
                self._task = None

    async def _take_mail(self, within_s: float) -> bool:
        """Take what others have sent; False if the mailbox could not be read in that time, as the lease cannot wait."""
        try:
            await take_mail(self._owner, self._session, max(self._rest_s, within_s))
        except TimeoutError:
            return False
        return True
