"""Retention: sessions that were idle for too long expire, and ended ones that were kept long enough are deleted."""

from __future__ import annotations

import asyncio
import contextlib

from holdfast.core.decide import decide_expire
from holdfast.core.errors import HoldfastError
from holdfast.core.state import State
from holdfast.engine.engine import Engine
from holdfast.engine.upkeep_scope import UpkeepScope
from holdfast.store.contract import SessionFilter, SessionRow

CLEAN_MS = 60_000
"""Milliseconds between looks for sessions that were idle, or kept, for too long."""


class Retention:
    """Ends and deletes what is too old."""

    def __init__(self, scope: UpkeepScope, idle_ttl_ms: int, keep_ended_ms: int | None) -> None:
        self._scope = scope
        self._idle_ttl_ms = idle_ttl_ms
        self._keep_ended_ms = keep_ended_ms

    async def run(self, engine: Engine) -> None:
        """Clean now and then, until cancelled."""
        while True:
            self._scope.forget_passed_over()
            try:
                await self.clean(engine)
            except HoldfastError as error:
                engine.owner.report("(all)", error)
            await asyncio.sleep(CLEAN_MS / 1000)

    async def clean(self, engine: Engine) -> tuple[list[str], list[str]]:
        """Expire and delete now. Returns the ids of the expired and of the deleted sessions."""
        now = engine.owner.now()
        own = self._scope.only
        idle = SessionFilter(states=[State.PAUSED], updated_before=now - self._idle_ttl_ms + 1, id_prefix=own)
        rows = await engine.owner.store.all_sessions(idle)
        expired = [row.session_id for row in rows if await self._expire(engine, row, now)]
        deleted: list[str] = []
        if self._keep_ended_ms is not None and own is None:
            deleted = await engine.owner.store.prune(now - self._keep_ended_ms)
        return expired, deleted

    async def _expire(self, engine: Engine, row: SessionRow, now: int) -> bool:
        if row.owner is not None or not self._scope.includes(row.session_id):
            return False
        with contextlib.suppress(HoldfastError):
            return await engine.end_idle(row.session_id, lambda session: decide_expire(session, now, self._idle_ttl_ms))
        return False
