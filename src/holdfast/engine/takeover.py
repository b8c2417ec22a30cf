"""Takeover: sessions that nobody looks after any more are resumed.

There are two ways to lose an owner. One that let go of its sessions, or whose lease ran out, leaves *orphans*: they
have something to do and no owner. One that died leaves its leases behind; where the store can tell that, its sessions
are taken over as soon as it has had the time to come back.

Orphans are looked for whenever another process has changed something, and else seldom. A look asks the store which
needs its open sessions have, and lists only those that this process may move: what waits for a host is never listed.
What was seen and left is looked at again once it has changed, and by the patrol (see `patrol`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence

from holdfast.core.state import State
from holdfast.engine.engine import Engine
from holdfast.engine.errands import Errands
from holdfast.engine.upkeep_scope import UpkeepScope
from holdfast.store.contract import Store
from holdfast.store.patience import pause
from holdfast.store.session_rows import SessionFilter
from holdfast.store.upkeep import OpenSession
from holdfast.store.watch import Watch

LOOK_MS = pause(10_000)
"""Milliseconds between looks for orphans if nothing is heard of other processes: a notification may be lost."""

QUIET_MS = 20
"""Milliseconds after which a look follows on news, at most: several processes hear of the same, and should not all look
at the same moment."""

AGAIN_MS = 500
"""Milliseconds after which a look follows on one at which some session was left: the store could not be reached, or its
owner may come back."""

LOOK_SHARE = 4
"""After a look, this many times as long as it took passes before the next. What is done about orphans does not count:
that is work, and who waits for the next one should not have to wait for it."""

LOOK_REST_MS = 1_000
"""Milliseconds that pass after a look at the most: one that took long has waited for the store, not worked."""

LOOK_ROWS = 100
"""Sessions of the same needs that one look takes up: the next one follows at once if there are more. If all of them
were seen and left, it takes up as many behind those."""

SEEN = 10_000
"""Orphans that are remembered because there was nothing to be done about them here."""

LOST_MS = pause(500)
"""Milliseconds between looks for owners that have died."""

RETURN_MS = 800
"""Milliseconds that an owner which seems to be dead has for coming back: it may only have lost a connection, and what
it is doing would be done twice."""

RETURN_LOOKS = 4
"""Looks at whether it has come back, meanwhile."""


class Takeover:
    """Resumes what was left behind."""

    def __init__(self, scope: UpkeepScope) -> None:
        self._scope = scope
        self.errands = Errands()
        self._declined: set[tuple[str, int]] = set()
        """Sessions of dead owners, by epoch, that were looked at and are not resumed here."""
        self._seen: dict[str, tuple[int, int, int]] = {}
        """Orphans that were looked at, with their marks: until those change, they are left to the patrol."""
        self._is_unsure = False
        """Whether some orphan has to be looked at again soon."""
        self._changes: Watch | None = None

    def look_soon(self) -> None:
        """Look for orphans at once, and try again what was declined."""
        self._declined.clear()
        self._seen.clear()
        if self._changes is not None:
            self._changes.notify()

    # --- orphans -----------------------------------------------------------------------------------

    async def run_orphans(self, engine: Engine) -> None:
        """Resume orphans, until cancelled."""
        monotonic, random = engine.owner.clock.monotonic, engine.owner.random
        limit = LOOK_ROWS
        with engine.owner.store.watch_others() as self._changes:
            while True:
                began = monotonic()
                orphans, is_cut = await self._orphans(engine, limit)
                ended = monotonic()
                rested_at = ended + min(LOOK_SHARE * (ended - began), LOOK_REST_MS / 1000)
                has_fresh = await self._resume_orphans(orphans, engine)
                behind_seen = LOOK_ROWS + len(self._seen)
                has_more = is_cut and (has_fresh or limit < behind_seen)
                limit = behind_seen if has_more and not has_fresh else LOOK_ROWS
                if not has_more:
                    await self._changes.changed(timeout=(AGAIN_MS if self._is_unsure else LOOK_MS) / 1000)
                # What came while nothing was looked at has waited long enough for the look before.
                await asyncio.sleep(max(rested_at - monotonic(), random.random() * QUIET_MS / 1000))

    async def _orphans(self, engine: Engine, limit: int) -> tuple[list[OpenSession], bool]:
        """Some orphans that this process may move, and whether there may be more of them."""
        store, offers = engine.owner.store, engine.owner.offers
        if self._scope.only is not None:
            return await open_family(self._scope.only, store), False
        orphans = list(await store.open_mail(offers.services, limit))
        is_cut = len(orphans) == limit
        for needs in await store.open_needs(offers.services):
            if offers.may_move(needs):
                found = await store.open_sessions(needs, offers.services, limit=limit)
                is_cut |= len(found) == limit
                orphans += found
        return orphans, is_cut

    async def _resume_orphans(self, orphans: Sequence[OpenSession], engine: Engine) -> bool:
        """Resume orphans that were not looked at before; whether there were any that need no second look."""
        if self._scope.only is not None:
            await self.attend(orphans, engine)
            return False
        fresh = [each for each in orphans if self._seen.get(each.session_id) != each.mark]
        again = await self.attend(fresh, engine)
        self._is_unsure = bool(again)
        for each in fresh:
            if each.session_id in again:
                continue
            self._seen.pop(each.session_id, None)
            self._seen[each.session_id] = each.mark
        while len(self._seen) > SEEN:
            del self._seen[next(iter(self._seen))]
        return len(fresh) > len(again)

    async def attend(self, orphans: Sequence[OpenSession], engine: Engine) -> set[str]:
        """Look at orphans; gives those that have to be looked at again soon.

        The store could not be reached, somebody holds them up, or their owner has died just now, and may come back.
        """
        if not orphans:
            return set()
        positions = {each.session_id: each.position for each in orphans}
        may_return = {session_id for session_id, _ in await _lost(engine.owner.store)} & positions.keys()

        def attend(session_id: str) -> Awaitable[bool]:
            return self._scope.attempt(session_id, engine.attend, positions[session_id])

        left = [session_id for session_id in positions if session_id not in may_return]
        return may_return | await self.errands.run(left, attend)

    # --- owners that died --------------------------------------------------------------------------

    async def run_lost(self, engine: Engine) -> None:
        """Resume the sessions of owners that died, until cancelled."""
        while True:
            if lost := await _lost(engine.owner.store):
                still = await _still_lost(lost, engine.owner.store)
                self._declined &= still
                again = await self._resume([session_id for session_id, _ in sorted(still - self._declined)], engine)
                self._declined |= {each for each in still if each[0] not in again}
            await asyncio.sleep(LOST_MS / 1000)

    async def _resume(self, session_ids: list[str], engine: Engine) -> set[str]:
        """Take sessions over; gives those that have to be looked at again."""
        engine.owner.random.shuffle(session_ids)  # others do the same, and should not all begin with the same one

        async def resume(session_id: str) -> bool:
            engine.owner.takeovers += 1
            return await self._scope.attempt(session_id, engine.attend)

        return await self.errands.run(session_ids, resume)


async def open_family(only: str, store: Store) -> list[OpenSession]:
    """The open ones of a session and its children."""
    where = SessionFilter(states=[State.RUNNING, State.PAUSED], id_prefix=only)
    rows = [row for row in await store.all_sessions(where) if row.owner is None]
    return [OpenSession(row.session_id, row.position, row.epoch, 0) for row in rows]


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
