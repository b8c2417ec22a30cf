"""Takeover: sessions that nobody looks after any more are resumed, and children that nobody waits for are ended.

There are two ways to lose an owner. One that let go of its sessions, or whose lease ran out, leaves *orphans*: they
have something to do and no owner. One that died leaves its leases behind; where the store can tell that, its sessions
are taken over as soon as it has had the time to come back.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial

from holdfast.core.errors import HoldfastError
from holdfast.core.state import State
from holdfast.engine.children import answers_parent
from holdfast.engine.engine import Engine
from holdfast.engine.upkeep_scope import UpkeepScope
from holdfast.store.contract import SessionFilter, Store

ORPHANS_MS = 2_000
"""Milliseconds between looks for sessions that nobody owns."""

LOST_MS = 500
"""Milliseconds between looks for owners that have died."""

RETURN_MS = 800
"""Milliseconds that an owner which seems to be dead has for coming back: it may only have lost a connection, and what
it is doing would be done twice."""

RETURN_LOOKS = 4
"""Looks at whether it has come back, meanwhile."""

AT_ONCE = 16
"""Sessions of a dead owner that are taken over at a time: there may be hundreds, and the others have work to do."""


class Takeover:
    """Resumes what was left behind."""

    def __init__(self, scope: UpkeepScope) -> None:
        self._scope = scope
        self._declined: set[tuple[str, int]] = set()
        """Sessions of dead owners, by epoch, that were looked at and are not resumed here."""
        self._woken = asyncio.Event()

    def look_soon(self) -> None:
        """Look for orphans at once, and try again what was declined."""
        self._declined.clear()
        self._woken.set()

    async def run_orphans(self, engine: Engine) -> None:
        """Resume orphans, until cancelled."""
        while True:
            try:
                await self._resume_orphans(engine)
                await self._end_abandoned(engine)
            except HoldfastError as error:
                engine.owner.report("(all)", error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ORPHANS_MS / 1000):
                    await self._woken.wait()
            self._woken.clear()

    async def run_lost(self, engine: Engine) -> None:
        """Resume the sessions of owners that died, until cancelled."""
        while True:
            with contextlib.suppress(HoldfastError):  # the other loop says what is wrong with the store
                if lost := await _lost(engine.owner.store):
                    still = await _still_lost(lost, engine.owner.store)
                    self._declined &= still
                    await self._resume([session_id for session_id, _ in sorted(still - self._declined)], engine)
                    self._declined |= still
            await asyncio.sleep(LOST_MS / 1000)

    async def _resume(self, session_ids: list[str], engine: Engine) -> None:
        engine.owner.random.shuffle(session_ids)  # others do the same, and should not all begin with the same one
        slots = asyncio.Semaphore(AT_ONCE)

        async def resume(session_id: str) -> None:
            async with slots:
                await self._scope.attempt(session_id, engine.attend)

        await asyncio.gather(*map(resume, session_ids))

    async def _resume_orphans(self, engine: Engine) -> None:
        served = partial(SessionFilter, services=engine.owner.offers.services, id_prefix=self._scope.only)
        filters = [served(states=[State.RUNNING])]
        kinds = sorted({*engine.owner.drivers.kinds, "child"})
        filters += [served(states=[State.PAUSED], waiting_for=kind) for kind in kinds]
        filters.append(served(states=[State.PAUSED], has_mail=True))  # its owner let go too soon
        rows = [row for where in filters for row in await engine.owner.store.all_sessions(where)]
        orphans = [row for row in rows if row.owner is None]
        lost = {session_id for session_id, _ in await _lost(engine.owner.store)} if orphans else set()
        for row in orphans:
            if row.session_id not in lost:  # its owner may come back
                await self._scope.attempt(row.session_id, engine.attend, row.position)

    async def _end_abandoned(self, engine: Engine) -> None:
        """End children whose parents do not wait for them any more."""
        where = SessionFilter(
            states=[State.RUNNING, State.PAUSED],
            children=True,
            services=engine.owner.offers.services,
            id_prefix=self._scope.only,
        )
        for row in await engine.owner.store.all_sessions(where):
            parent = row.summary.parent
            if row.owner is None and parent is not None and answers_parent(row.session_id, parent):
                end = partial(engine.children.end_if_abandoned, parent_id=parent)
                await self._scope.attempt(row.session_id, end)


async def _still_lost(lost: set[tuple[str, int]], store: Store) -> set[tuple[str, int]]:
    """Those sessions whose owner is missing at every look while it has time to come back.

    One look at the end would not do: an owner that came back may have been cut off once more.
    """
    for _ in range(RETURN_LOOKS):
        await asyncio.sleep(RETURN_MS / RETURN_LOOKS / 1000)
        lost &= await _lost(store)
        if not lost:
            break
    return lost


async def _lost(store: Store) -> set[tuple[str, int]]:
    return {(lease.session_id, lease.epoch) for lease in await store.lost()}
