"""The patrol: parents that have missed the end of a child, and children whose parents do not wait for them any more.

No row tells which these are, so the patrol walks past all parents and children, some at a time, round and round. It
reads the journals of as many as one step passes at once, and looks more closely only where they do not agree: where
all is well, a step takes a handful of statements, however many sessions wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeAlias

from holdfast.core.ids import child_session_id
from holdfast.core.needs import parse_needs
from holdfast.core.queries import ChildQuery
from holdfast.core.state import Session, State
from holdfast.engine.children import answers_parent
from holdfast.engine.engine import Engine
from holdfast.engine.errands import Errands
from holdfast.engine.takeover import open_family
from holdfast.engine.upkeep_scope import UpkeepScope
from holdfast.store.contract import Store
from holdfast.store.patience import pause
from holdfast.store.upkeep import OpenChild, OpenSession

PATROL_MS = pause(2_000)
"""Milliseconds between steps of the patrol, at least."""

PATROL_ROWS = 20
"""Sessions of each kind that one step of the patrol passes: some milliseconds of reading."""

PATROL_LOOKS = 10
"""Sessions of each kind that one step looks at more closely: that takes some statements for each."""

PATROL_ENTRIES = 100
"""Entries of the longest journal that is read in passing. Sessions with longer ones are looked at more closely, which
reads no more of them than is new."""

PATROL_SHARE = 300
"""After a step of the patrol, this many times as long as it took passes before the next: it costs 0.3 % of a core."""

PATROL_REST_MS = 4_000
"""Milliseconds that pass after a step at the most: one that took long has waited for the store, not worked."""

CHILDREN = ""
"""Where the patrol is among the children; among others it is known by their needs, of which none are empty."""

Attend: TypeAlias = Callable[[Sequence[OpenSession], Engine], Awaitable[object]]


class Patrol:
    """Walks past what may have been forgotten."""

    def __init__(self, scope: UpkeepScope, errands: Errands, attend: Attend) -> None:
        self._scope = scope
        self._errands = errands
        self._attend = attend
        self._places: dict[str, int] = {}
        """The number of the session that the last step came to."""

    async def run(self, engine: Engine) -> None:
        """Release leases that have run out, and look after parents, children and the rest, until cancelled."""
        monotonic = engine.owner.clock.monotonic
        while True:
            began = monotonic()
            await self.once(engine)
            rest = min(PATROL_SHARE * (monotonic() - began), PATROL_REST_MS / 1000)
            await asyncio.sleep(max(PATROL_MS / 1000, rest))

    async def once(self, engine: Engine) -> None:
        """Release leases that have run out, and pass some parents and children."""
        await engine.owner.store.release_expired()
        await self._step(engine)

    async def _step(self, engine: Engine) -> None:
        store, offers = engine.owner.store, engine.owner.offers
        for needs in await store.open_needs(offers.services) if self._scope.only is None else ():
            may_move = offers.may_move(needs)
            if may_move or "child" in parse_needs(needs).words:
                place = self._places.get(needs)
                found = await store.open_sessions(needs, offers.services, before=place, limit=PATROL_ROWS)
                doubtful = found if may_move else await _doubtful_parents(found, store)
                self._walk_on(needs, [each.number for each in found], [each.number for each in doubtful])
                await self._attend(doubtful[:PATROL_LOOKS], engine)
        if self._scope.only is not None:
            await self._attend(await open_family(self._scope.only, store), engine)
        await self._end_abandoned(engine)

    async def _end_abandoned(self, engine: Engine) -> None:
        store = engine.owner.store
        place = self._places.get(CHILDREN)
        found = await store.open_children(engine.owner.offers.services, before=place, limit=PATROL_ROWS)
        doubtful = await _doubtful_children(found, store)
        self._walk_on(CHILDREN, [each.number for each in found], [each.number for each in doubtful])
        parents = {child.session_id: child.parent for child in doubtful[:PATROL_LOOKS]}

        def end_if_abandoned(session_id: str) -> Awaitable[bool]:
            end = partial(engine.children.end_if_abandoned, parent_id=parents[session_id])
            return self._scope.attempt(session_id, end)

        await self._errands.run(parents, end_if_abandoned)

    def _walk_on(self, place: str, found: Sequence[int], doubtful: Sequence[int]) -> None:
        """Begin after the last one that was passed, or looked at, the next time; or with the newest again."""
        self._places.pop(place, None)
        if len(doubtful) > PATROL_LOOKS:
            self._places[place] = doubtful[PATROL_LOOKS - 1]
        elif len(found) == PATROL_ROWS:
            self._places[place] = found[-1]


async def _doubtful_parents(found: Sequence[OpenSession], store: Store) -> list[OpenSession]:
    """Those that wait for a child which does not live, or is not known to."""
    parents = await store.load_sound([each.session_id for each in found], PATROL_ENTRIES) if found else []
    awaited = {parent.id: _awaited_children(parent) for parent in parents}
    children = [child for asked in awaited.values() for child in asked]
    loaded = await store.load_sound(children, PATROL_ENTRIES) if children else []
    living = {child.id for child in loaded if child.state in (State.RUNNING, State.PAUSED)}
    well = {parent for parent, asked in awaited.items() if living.issuperset(asked)}
    return [each for each in found if each.session_id not in well]


async def _doubtful_children(found: Sequence[OpenChild], store: Store) -> list[OpenChild]:
    """Those whose parent does not wait for them, or is not known to."""
    answering = [each for each in found if answers_parent(each.session_id, each.parent)]
    parents = list(dict.fromkeys(each.parent for each in answering))
    loaded = await store.load_sound(parents, PATROL_ENTRIES) if parents else []
    awaited = {child_session_id(parent.id, asked) for parent in loaded for asked in parent.pending}
    return [each for each in answering if each.session_id not in awaited]


def _awaited_children(parent: Session) -> list[str]:
    asked = [asked for asked, pending in parent.pending.items() if isinstance(pending.query, ChildQuery)]
    return [child_session_id(parent.id, each) for each in asked]
