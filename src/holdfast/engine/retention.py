"""Retention: if asked, what was idle for too long expires, and ended sessions are deleted: old ones, or if all are too
many for the space there is."""

from __future__ import annotations

import asyncio
import logging

from holdfast.core.decide import decide_expire
from holdfast.core.state import State
from holdfast.engine.engine import Engine
from holdfast.engine.upkeep_scope import UpkeepScope
from holdfast.store.session_rows import SessionFilter, SessionRow

CLEAN_MS = 60_000
"""Milliseconds between looks for sessions that were idle, or kept, for too long."""

BUSY_MS = 1_000
"""Milliseconds until the next look after one that found much to delete."""

STEP = 50
"""Ended sessions that are deleted in one transaction: others wait for it for a few milliseconds."""

STEP_SHARE = 1
"""After such a step, this many times as long as it took passes before the next, so that others can write."""

PAGE = 200
"""Sessions that are looked at together for whether they were idle for too long."""

PAGE_SHARE = 100
"""After such a page, this many times as long as it took passes before the next: it costs 1 % of a core."""

log = logging.getLogger("holdfast.engine")


class Retention:
    """Ends and deletes what is too old, and deletes what is too much."""

    def __init__(
        self, scope: UpkeepScope, idle_ttl_ms: int | None, keep_ended_ms: int | None, max_bytes: int | None = None
    ) -> None:
        self._scope = scope
        self.idle_ttl_ms = idle_ttl_ms
        self.keep_ended_ms = keep_ended_ms
        self.max_bytes = max_bytes

    async def run(self, engine: Engine) -> None:
        """Clean now and then, until cancelled."""
        while True:
            self._scope.forget_passed_over()
            _, deleted = await self.clean(engine, page_share=PAGE_SHARE)
            await asyncio.sleep((BUSY_MS if len(deleted) > STEP else CLEAN_MS) / 1000)

    async def clean(self, engine: Engine, page_share: int = 0) -> tuple[list[str], list[str]]:
        """Expire and delete now, as far as that is wanted.

        With `page_share`, rests for as many times as long as it took to look at a page of idle sessions.
        Returns the ids of the sessions in which something expired, and of the deleted ones.
        """
        now = engine.owner.now()
        if not engine.owner.clock.is_settled:
            log.warning("nothing expires or is deleted: the clock was set a short time ago, and may be set back")
            return [], []
        expired = [] if self.idle_ttl_ms is None else await self._expire(engine, now, page_share)
        deleted: list[str] = []
        if self._scope.only is None:
            if self.keep_ended_ms is not None:
                deleted += await self._delete(engine, now - self.keep_ended_ms)
            if self.max_bytes is not None:
                deleted += await self._delete(engine, now, self.max_bytes)
        if deleted:
            await self._give_back_space(engine)
        return expired, deleted

    async def _delete(self, engine: Engine, ended_before: int, max_bytes: int | None = None) -> list[str]:
        """Delete what ended before a time, the longest ended first, in small steps.

        With `max_bytes`, only for as long as the store is larger than that.
        """
        store, services, monotonic = engine.owner.store, engine.owner.offers.services, engine.owner.clock.monotonic
        deleted: list[str] = []
        while True:
            began = monotonic()
            if max_bytes is not None and not await store.is_larger(max_bytes):
                return deleted
            gone = await store.prune(ended_before, STEP, services=services)
            deleted += gone
            if len(gone) < STEP:
                break
            await asyncio.sleep(STEP_SHARE * (monotonic() - began))
        if max_bytes is not None and await store.is_larger(max_bytes):
            log.warning("the store is larger than %d bytes, although no session is left that has ended", max_bytes)
        return deleted

    @staticmethod
    async def _give_back_space(engine: Engine) -> None:
        monotonic = engine.owner.clock.monotonic
        while True:
            began = monotonic()
            if not await engine.owner.store.give_back_space():
                return
            await asyncio.sleep(STEP_SHARE * (monotonic() - began))

    async def _expire(self, engine: Engine, now: int, page_share: int) -> list[str]:
        assert self.idle_ttl_ms is not None
        monotonic = engine.owner.clock.monotonic
        where = SessionFilter(
            states=[State.PAUSED], services=engine.owner.offers.services, id_prefix=self._scope.only
        )  # without their times: those are in no index, as every commit would have to change it
        expired: list[str] = []
        after: str | None = None
        while True:
            began = monotonic()
            page = await engine.owner.store.sessions(where, after=after, limit=PAGE)
            for row in page.rows:
                is_old = row.summary.updated_at <= now - self.idle_ttl_ms
                expired += [row.session_id] if is_old and await self._expire_one(engine, now, row) else []
            after = page.next
            if after is None:
                return expired
            await asyncio.sleep(page_share * (monotonic() - began))

    async def _expire_one(self, engine: Engine, now: int, row: SessionRow) -> bool:
        ttl_ms = self.idle_ttl_ms
        if ttl_ms is None or row.owner is not None or not self._scope.includes(row.session_id):
            return False
        try:
            return await engine.end_idle(row.session_id, lambda session: decide_expire(session, now, ttl_ms))
        except Exception as error:  # one session must not keep the others from their end
            engine.owner.report(row.session_id, error)
            return False
