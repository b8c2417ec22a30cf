"""The sweep: finds what nobody was nudged for, and nudges somebody. One for the whole fleet, as its engine arranges.

Every second it looks for leases that have ended without their holder, and for timers that are late; every ten, for all
else that should be under way and is not. So a fleet asks its database no more often than one process would by itself.

It also tells the engine of timers, a minute before their time: until then, a session that sleeps is a row in a database
and no more (docs/decisions/044-timers-within-a-minute.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.core.needs import parse_needs
from holdfast.engine.engine import Engine
from holdfast.engine.errands import Errands
from holdfast.engine.patrol import Patrol
from holdfast.engine.upkeep_scope import UpkeepScope
from holdfast.store.upkeep import OpenSession

EVERY_MS = 1_000
"""Milliseconds between two sweeps."""

WHOLE_EVERY = 10
"""Of so many sweeps, one looks for everything."""

LATE_MS = 1_000
"""Milliseconds after which a timer is late: the engine was to bring it in time."""

LATEST_MS = 5_000
"""Milliseconds after which a late timer is left to the sweeps that look for everything."""

MOST = 1_000
"""Sessions of the same needs that one sweep nudges at most; the next one goes on from there."""

AHEAD_MS = 60_000
"""Milliseconds before its time that the engine is told of a timer."""

OVERLAP_MS = 30_000
"""Milliseconds of timers that the engine is told of by one sweep: so two may be left out before one is missed, which
then is late by a second or two."""


class Sweep:
    """Looks for what was missed."""

    def __init__(self, engine: Engine, nudge: Callable[[str], None], nudge_at: Callable[[str, int], None]) -> None:
        """`nudge` tells somebody of each session that is found, and `nudge_at` of each that is due soon."""
        self._engine = engine
        self._nudge = nudge
        self._nudge_at = nudge_at
        self._has_looked_ahead = False
        self.errands = Errands()
        self._patrol = Patrol(UpkeepScope(None), self.errands, self._nudge_each)
        self._places: dict[str, int] = {}
        """The number of the session that the last look at each needs came to."""

    async def run(self, number: int) -> None:
        """Look for what was missed; each sweep has a number, and some look for more."""
        owner = self._engine.owner
        store, services = owner.store, owner.offers.services
        is_whole = number % WHOLE_EVERY == 0
        now = owner.now()
        for lease in await store.lost():
            owner.takeovers += 1
            self._nudge(lease.session_id)
        has_released = await store.release_expired() > 0
        for session_id, _ in await store.due(
            now - LATE_MS, MOST, services=services, after=-1 if is_whole else now - LATEST_MS
        ):
            self._nudge(session_id)
        if is_whole or has_released:
            await self._nudge_each(await store.open_mail(services, MOST), self._engine)
            for needs in await store.open_needs(services):
                if self._may_be_moved(needs):
                    await self._nudge_open(needs)
        if is_whole:
            await self._look_ahead(now)
            await self._patrol.once(self._engine)

    async def _look_ahead(self, now: int) -> None:
        """Tell of the timers whose time comes within a minute. The first look here is for all of them, as the sweeps
        before may have been left out; the next ones are for those that have come so near since the last few."""
        store, services = self._engine.owner.store, self._engine.owner.offers.services
        after = now + AHEAD_MS - OVERLAP_MS if self._has_looked_ahead else now
        while True:
            found = await store.due(now + AHEAD_MS, MOST, services=services, after=after)
            for session_id, due in found:
                self._nudge_at(session_id, due)
            if len(found) < MOST or found[-1][1] - 1 <= after:
                break
            after = found[-1][1] - 1  # others may have the same time
        self._has_looked_ahead = True

    def _may_be_moved(self, needs: str) -> bool:
        """Whether a process like this one may move a session with these needs: fleets are alike."""
        offers = self._engine.owner.offers
        row = parse_needs(needs)
        if offers.may_move(needs):
            return True
        return bool(row.words - {"human", "child"}) and all(map(offers.may_meet, row.named))

    async def _nudge_open(self, needs: str) -> None:
        """Nudge open sessions with these needs. Most will be on their way, and then nothing comes of it."""
        owner = self._engine.owner
        place = self._places.pop(needs, None)
        found = await owner.store.open_sessions(needs, owner.offers.services, before=place, limit=MOST)
        if len(found) == MOST:
            self._places[needs] = found[-1].number
        await self._nudge_each(found, self._engine)

    async def _nudge_each(self, found: Sequence[OpenSession], engine: Engine) -> None:
        for each in found:
            self._nudge(each.session_id)


def next_sweep(number: int, now: int) -> int:
    """The number of the sweep that follows on one, or comes next if there was none: it counts seconds.

    Sweeps that are late are left out, unless one of them looks for everything.
    """
    following = now // EVERY_MS + 1
    last_whole = following - following % WHOLE_EVERY
    if 0 <= number < last_whole:
        return last_whole
    return max(following, number + 1)
