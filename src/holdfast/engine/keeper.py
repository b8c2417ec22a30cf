"""Keeping a lease: it is renewed in time, and what others send meanwhile is taken.

While the store is away, effects go on, for as long as the lease can still be ours. A while before it runs out they are
told to stop: once it has, another process may begin them anew.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Protocol

from holdfast.core.errors import HoldfastError
from holdfast.engine.delivery import Recipient, take_mail
from holdfast.engine.errors import StaleError
from holdfast.engine.owner import Owner
from holdfast.engine.store_trouble import FIRST_REST_S
from holdfast.store.errors import LeaseHeldError, StoreUnavailableError
from holdfast.store.patience import patience
from holdfast.store.supervisor import StandingTask
from holdfast.store.watch import Watch

RENEWALS = 3
"""Times that a lease is renewed before it would run out: two of them may come too late."""

STOP_SHARE = 0.1
"""Share of a lease that effects have to stop in, when it cannot be renewed: others begin them when it has run out."""

MAIL_REST_S = patience(0.01)
"""Seconds between looks into the mailbox of a session that is held, however often others write to it."""

BEGIN_S = patience(0.05)
"""Seconds from a lease to the first such look. A message that comes sooner waits for it: nobody notices that, and most
turns of a fast model are over by then."""


class HeldSession(Recipient, Protocol):
    """A session whose lease is kept."""

    @property
    def is_held(self) -> bool: ...

    @property
    def lease_left_s(self) -> float:
        """Seconds for which the lease is ours for certain; less than 0 if it may have run out."""
        ...

    def stop_executing(self) -> None:
        """Tell the effects under way to stop, as the lease cannot be kept. Outcomes that are known are kept."""
        ...

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
        self._stop_s = owner.lease_ms / 1000 * STOP_SHARE
        self._rest_s = min(MAIL_REST_S, self._pause_s / 2)
        self._begin_s = min(BEGIN_S, self._pause_s / 2)
        self._timer: asyncio.TimerHandle | None = None
        self._task: StandingTask | None = None
        self.changes: Watch | None = None
        """What wakes the task, while it is at work: mail, and the end of the lease. Own commits bring no mail."""

    def start(self) -> None:
        """The session is held: keep its lease, if that is not about to be done."""
        if self._timer is None and (self._task is None or not self._task.is_started):
            self._timer = asyncio.get_running_loop().call_later(self._begin_s, self._begin)

    def stop(self) -> list[asyncio.Task[None]]:
        """Keep it no longer. Gives back what is still running, if anything is: it ends soon."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        return self._task.cancel() if self._task is not None else []

    def _begin(self) -> None:
        self._timer = None
        if self._task is None:
            self._task = self._owner.supervisor.task(f"keeping the lease of session '{self._session.id}'", self._keep)
        self._task.start()

    async def _keep(self) -> None:
        owner, session = self._owner, self._session
        monotonic = owner.clock.monotonic
        renewal = monotonic() + self._pause_s - self._begin_s
        with contextlib.suppress(StaleError, LeaseHeldError), self._watch() as changes:
            while True:
                is_held = session.is_held
                try:
                    # Also once it was let go: a sender that found the session held may have stopped looking.
                    has_looked = await self._take_mail(renewal - monotonic())
                    if has_looked and not is_held and not session.is_held:
                        break
                    if not is_held:  # it was taken again in the meantime, and nobody else keeps it
                        renewal = monotonic()
                    await changes.changed(timeout=max(0.0, renewal - monotonic()))
                    if monotonic() >= renewal:
                        await self._renew()
                        renewal = monotonic() + self._pause_s
                except (StoreUnavailableError, TimeoutError):  # the lease is ours until it runs out
                    if session.is_held and session.lease_left_s <= self._stop_s:
                        session.stop_executing()
                    await asyncio.sleep(min(FIRST_REST_S, self._pause_s / 4))
                except HoldfastError as error:
                    owner.report(session.id, error)  # of this session, and not of how it is kept
                    break
                await asyncio.sleep(self._rest_s)

    @contextlib.contextmanager
    def _watch(self) -> Iterator[Watch]:
        with self._owner.store.watch(self._session.id, own=False) as changes:
            self.changes = changes
            try:
                yield changes
            finally:
                self.changes = None

    async def _renew(self) -> None:
        """Renew the lease; `TimeoutError` if the store has not replied when effects have to be told to stop."""
        left_s = self._session.lease_left_s - self._stop_s
        async with asyncio.timeout(left_s if left_s > 0 else None):
            await self._session.renew()

    async def _take_mail(self, within_s: float) -> bool:
        """Take what others have sent; False if the mailbox could not be read in that time, as the lease cannot wait."""
        try:
            await take_mail(self._owner, self._session, max(self._rest_s, within_s))
        except TimeoutError:
            return False
        return True
