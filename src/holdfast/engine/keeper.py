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

RENEWALS = 3
"""Times that a lease is renewed before it would run out: two of them may come too late."""

MAIL_REST_S = 0.01
"""Seconds between looks into the mailbox of a session that is held: most of what happens to it is our own doing, and
most effects that take less need no look at all."""


class HeldSession(Recipient, Protocol):
    """A session whose lease is kept."""

    @property
    def is_held(self) -> bool: ...

    async def renew(self) -> None:
        """Renew the lease, or release it if nothing is under way any more."""
        ...


async def keep(owner: Owner, session: HeldSession) -> None:
    """Hold the lease of a session for as long as it is needed."""
    pause = owner.lease_ms / 1000 / RENEWALS
    monotonic = owner.clock.monotonic
    renewal = monotonic() + pause
    try:
        with contextlib.suppress(StaleError, LeaseHeldError), owner.store.watch(session.id) as changes:
            while True:
                await asyncio.sleep(MAIL_REST_S)
                is_held = session.is_held
                try:
                    # Also once it was let go: a sender that found the session held may have stopped looking.
                    await take_mail(owner, session)
                    if not is_held and not session.is_held:
                        break
                    if not is_held:  # it was taken again in the meantime, and nobody else keeps it
                        renewal = monotonic()
                    # Whatever else happens in the store may wake us, as often as it likes.
                    await changes.changed(timeout=max(0.0, renewal - monotonic()))
                    if monotonic() >= renewal:
                        await session.renew()
                        renewal = monotonic() + pause
                except StoreUnavailableError:  # the lease is still ours until it runs out, and effects are under way
                    await asyncio.sleep(min(FIRST_REST_S, pause / 4))
    except HoldfastError as error:
        owner.report(session.id, error)
