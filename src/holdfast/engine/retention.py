"""Retention: if asked, what was idle for too long expires, and ended sessions kept for long enough are deleted."""

from __future__ import annotations

import asyncio
import contextlib

from holdfast.core.decide import decide_expire
from holdfast.core.errors import HoldfastError
from holdfast.core.state import State
from holdfast.engine.engine import Engine
from holdfast.engine.upkeep_scope import UpkeepScope
from holdfast.store.contract import SessionFilter

CLEAN_MS = 60_000
"""Milliseconds between looks for sessions that were idle, or kept, for too long."""


class Retention:
    """Ends and deletes what is too old."""

    def __init__(self, scope: UpkeepScope, idle_ttl_ms: int | None, keep_ended_ms: int | None) -> None:
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
        """Expire and delete now, as far as that is wanted.

        Returns the ids of the sessions in which something expired, and of the deleted ones.
        """
        now = engine.owner.now()
        expired = [] if self._idle_ttl_ms is None else await self._expire(engine, now, self._idle_ttl_ms)
        deleted: list[str] = []
        if self._keep_ended_ms is not None and self._scope.only is None:
            services = engine.owner.offers.services
            deleted = await engine.owner.store.prune(now - self._keep_ended_ms, services=services)
        return expired, deleted

    async def _expire(self, engine: Engine, now: int, ttl_ms: int) -> list[str]:
        idle = SessionFilter(
            states=[State.PAUSED],
            services=engine.owner.offers.services,
            updated_before=now - ttl_ms + 1,
            id_prefix=self._scope.only,
        )
        expired: list[str] = []
        for row in await engine.owner.store.all_sessions(idle):
            if row.owner is not None or not self._scope.includes(row.session_id):
                continue
            with contextlib.suppress(HoldfastError):
                if await engine.end_idle(row.session_id, lambda session: decide_expire(session, now, ttl_ms)):
                    expired.append(row.session_id)
        return expired
