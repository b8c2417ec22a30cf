"""The minder: what happens to sessions because time passes, or because a process has died.

One task looks at the store: at once when a timer set here is due, every second for those set elsewhere, and now and
then for sessions that nobody owns although they have something to do. Another asks whether an owner has died, where the
store can tell, and takes over from it. What they find they hand to the engine, and the engine's commits decide who of
several processes that found the same does it.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import random
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from holdfast.core.decide import decide_expire
from holdfast.core.errors import HoldfastError
from holdfast.core.limits import DEFAULT_IDLE_TTL_MS
from holdfast.core.state import State
from holdfast.engine.children import answers_parent
from holdfast.store.contract import SessionFilter, SessionRow

if TYPE_CHECKING:
    from holdfast.engine.engine import Engine

LOOK_MS = 1_000
"""Milliseconds between looks for timers that other processes have set."""

ORPHANS_MS = 2_000
"""Milliseconds between looks for sessions that nobody owns."""

LOST_MS = 500
"""Milliseconds between looks for owners that have died."""

RETURN_MS = 400
"""Milliseconds that an owner which seems to be dead has for coming back: it may only have lost a connection, and what
it is doing would be done twice."""

TAKEOVERS_AT_ONCE = 16
"""Sessions of a dead owner that are taken over at a time: they may be hundreds, and the others have work to do."""

CLEAN_MS = 60_000
"""Milliseconds between looks for sessions that have been idle, or kept, for too long."""

BATCH = 100
"""Due sessions taken up in one look: the rest is found by the next."""

MOST_TIMERS = 10_000
"""Due times kept in memory; those past that are found by looking."""


class Minder:
    """Timers, orphans, expiry and retention. `on` False makes a process that only does what it is told.

    With `only`, nothing but that session and its children is gone on with here: a process that was given a model or
    tools for one session must not spend them on whatever else waits in the store.
    """

    def __init__(
        self,
        *,
        on: bool = True,
        only: str | None = None,
        idle_ttl_ms: int = DEFAULT_IDLE_TTL_MS,
        keep_ended_ms: int | None = None,
    ) -> None:
        self._on = on
        self._only = only
        self._idle_ttl_ms = idle_ttl_ms
        self._keep_ended_ms = keep_ended_ms
        self._due: list[int] = []
        self._known: set[int] = set()
        self._foreign: set[str] = set()
        """Sessions that are not run here: their program is not available, they are damaged, or none of ours."""
        self._undrained: set[str] = set()
        """Sessions that have something in their inboxes, which is due, and that nobody here drains now."""
        self._left: set[tuple[str, int]] = set()
        """Sessions of dead owners, by epoch, that were looked at and are not gone on with here."""
        self._woken = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._next_orphans = 0.0
        self._next_clean = 0.0

    def start(self, engine: Engine) -> None:
        if self._on:
            self._tasks = [asyncio.create_task(work(engine)) for work in (self._run, self._take_over)]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    def look_at(self, due: int) -> None:
        """A timer is due then."""
        if due in self._known or len(self._known) >= MOST_TIMERS:
            return
        self._known.add(due)
        heapq.heappush(self._due, due)
        if self._due[0] == due:
            self._woken.set()

    def look_soon(self) -> None:
        """Something changed that may let orphans go on."""
        self._next_orphans = 0.0
        self._foreign.clear()
        self._left.clear()
        self._woken.set()

    async def _run(self, engine: Engine) -> None:
        while True:
            now = engine.now()
            try:
                await self._look(engine)
            except HoldfastError as error:
                engine.report("(all)", error)
            while self._due and self._due[0] <= now:
                self._known.discard(heapq.heappop(self._due))
            patience = min(LOOK_MS, max(1, self._due[0] - engine.now())) if self._due else LOOK_MS
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience / 1000):
                    await self._woken.wait()
            self._woken.clear()

    async def _look(self, engine: Engine) -> None:
        passed_over = len(self._foreign) + len(self._undrained)
        for session_id, _ in await engine.store.due(engine.now(), BATCH + passed_over):
            if session_id not in self._undrained:
                await self._try(session_id, engine.wake)
                if engine.waits_for_worker(session_id):
                    self._undrained.add(session_id)
        clock = time.monotonic()
        if clock >= self._next_orphans:
            self._next_orphans = clock + ORPHANS_MS / 1000
            await self._adopt(engine)
        if clock >= self._next_clean:
            self._next_clean = clock + CLEAN_MS / 1000
            self._foreign.clear()
            self._undrained.clear()
            await self.clean(engine)

    async def _take_over(self, engine: Engine) -> None:
        """Go on with what dead owners have left."""
        while True:
            with contextlib.suppress(HoldfastError):  # the other task says what is wrong with the store
                if lost := await self._lost(engine):
                    await asyncio.sleep(RETURN_MS / 1000)
                    still = await self._lost(engine)
                    self._left &= still
                    await self._attend_to([session_id for session_id, _ in (lost & still) - self._left], engine)
                    self._left |= lost & still
            await asyncio.sleep(LOST_MS / 1000)

    @staticmethod
    async def _lost(engine: Engine) -> set[tuple[str, int]]:
        return {(lease.session_id, lease.epoch) for lease in await engine.store.lost()}

    async def _attend_to(self, session_ids: list[str], engine: Engine) -> None:
        random.shuffle(session_ids)  # others do the same, and should not all begin with the same one
        slots = asyncio.Semaphore(TAKEOVERS_AT_ONCE)

        async def attend(session_id: str) -> None:
            async with slots:
                await self._try(session_id, engine.attend)

        await asyncio.gather(*map(attend, session_ids))

    async def _try(self, session_id: str, act: Callable[[str], Awaitable[bool]]) -> None:
        """Do something about a session; one that cannot run here is not looked at again for a while."""
        if session_id in self._foreign:
            return
        try:
            runs_here = self._minds(session_id) and await act(session_id)
        except HoldfastError:
            runs_here = False
        if not runs_here:
            self._foreign.add(session_id)

    def _minds(self, session_id: str) -> bool:
        return self._only is None or session_id == self._only or session_id.startswith(f"{self._only}.")

    async def _adopt(self, engine: Engine) -> None:
        own = self._only
        filters = [SessionFilter(states=[State.RUNNING], id_prefix=own)]
        kinds = sorted({*engine.drivers.kinds, "child"})
        filters += [SessionFilter(states=[State.PAUSED], waiting_for=kind, id_prefix=own) for kind in kinds]
        orphans = [row.session_id for where in filters for row in await self._all(engine, where) if row.owner is None]
        lost = {session_id for session_id, _ in await self._lost(engine)} if orphans else set()
        for session_id in orphans:
            if session_id not in lost:  # its owner may come back
                await self._try(session_id, engine.attend)
        children = SessionFilter(states=[State.RUNNING, State.PAUSED], children=True, id_prefix=own)
        for row in await self._all(engine, children):
            if (
                row.owner is None
                and row.summary.parent is not None
                and answers_parent(row.session_id, row.summary.parent)
            ):
                await self._try(row.session_id, partial(engine.children.end_if_abandoned, parent_id=row.summary.parent))

    async def clean(self, engine: Engine) -> tuple[list[str], list[str]]:
        """Expire sessions that were idle for too long, delete ended ones that were kept for long enough."""
        now = engine.now()
        idle = SessionFilter(states=[State.PAUSED], updated_before=now - self._idle_ttl_ms + 1, id_prefix=self._only)
        expired = [row.session_id for row in await self._all(engine, idle) if await self._expire(engine, row, now)]
        pruned: list[str] = []
        if self._keep_ended_ms is not None and self._only is None:
            pruned = await engine.store.prune(now - self._keep_ended_ms)
        return expired, pruned

    async def _all(self, engine: Engine, where: SessionFilter) -> list[SessionRow]:
        page = await engine.store.sessions(where)
        rows = list(page.rows)
        while page.next is not None:
            page = await engine.store.sessions(where, after=page.next)
            rows += page.rows
        return rows

    async def _expire(self, engine: Engine, row: SessionRow, now: int) -> bool:
        if row.owner is not None or not self._minds(row.session_id):
            return False
        with contextlib.suppress(HoldfastError):
            return await engine.end_idle(row.session_id, lambda session: decide_expire(session, now, self._idle_ttl_ms))
        return False
