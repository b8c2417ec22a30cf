"""Bulk operations: a session of its own goes through many others, and goes on wherever it was if its server dies.

The order is in what that session was started with, signed with a key of the store. So nobody else can give one: neither
a client that starts the same strategy, nor a program that calls the same tool.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeAlias

import msgspec

from holdfast.core.errors import HoldfastError, InvalidValueError, SessionNotFoundError
from holdfast.engine.drivers import Attempt
from holdfast.engine.holdfast import Holdfast
from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import strategy
from holdfast.store.session_rows import SessionFilter

TOOL = "bulk_step"
BATCH = 50
"""Sessions of one step: the progress is shown after each."""

MAX_IDS = 1_000
"""Sessions that can be named one by one."""

Action: TypeAlias = Literal["cancel", "resume", "delete", "label"]


class BulkOrder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What to do, to which sessions, and for whom."""

    action: Action
    ids: list[str] | None = None
    where: SessionFilter | None = None
    reason: str | None = None
    labels: list[str] | None = None
    by: str


@strategy(name="bulk")
async def bulk(ctx: Context) -> Any:
    """Do the same to many sessions, step by step."""
    total, done, refused = ctx["matched"], 0, 0
    after: Any = None
    while True:
        step = await ctx.tool(TOOL, after=after)
        done, refused, after = done + step["done"], refused + step["refused"], step["next"]
        ctx.progress(done + refused, max(total, done + refused), f"{done} done, {refused} refused")
        if after is None:
            return {"done": done, "refused": refused}


class BulkOperations:
    """Starts bulk sessions, and makes their steps."""

    def __init__(self, holdfast: Holdfast, key: Callable[[], Awaitable[bytes]]) -> None:
        self._holdfast = holdfast
        self._key = key
        holdfast.drive(TOOL, self._step, recovery="safe")

    async def matched(self, order: BulkOrder) -> int:
        """How many sessions an order speaks of."""
        if order.ids is not None:
            return len(order.ids)
        totals = await self._holdfast.store.totals(order.where, by=())
        return totals.rows[0].sessions if totals.rows else 0

    async def start(self, order: BulkOrder, session_id: str | None) -> str:
        """Begin, and return the id of the session that does it."""
        written = msgspec.to_builtins(order)
        if session_id is not None and await self._has_begun(session_id, written):
            return session_id
        ctx = {"order": written, "grant": await self._grant(written), "matched": await self.matched(order)}
        title = f"{order.action.capitalize()} {ctx['matched']} sessions"
        event = await self._holdfast.start(bulk, ctx=ctx, id=session_id, title=title, labels=["bulk"], wait=0.0)
        return event.session_id

    async def _has_begun(self, session_id: str, written: Any) -> bool:
        """Whether this very order was given under this id before. How many sessions it spoke of then does not count."""
        try:
            session = await self._holdfast.session(session_id)
        except SessionNotFoundError:
            return False
        ctx: Any = session.started.ctx if session.started is not None else None
        return isinstance(ctx, dict) and ctx.get("order") == written

    async def _step(self, attempt: Attempt, after: Any = None) -> dict[str, Any]:
        """Do what an order says to the next sessions. Doing it again does no harm."""
        session = await self._holdfast.session(attempt.session_id)
        ctx: Any = session.started.ctx if session.started is not None else None
        written = ctx.get("order") if isinstance(ctx, dict) else None
        if written is None or not hmac.compare_digest(str(ctx.get("grant")), await self._grant(written)):
            raise InvalidValueError("bulk order", "nobody who may has given it")
        order = msgspec.convert(written, BulkOrder)
        ids, following = await self._next(order, after)
        done = 0
        for each in ids:
            if each != attempt.session_id and await self._do(order, each):
                done += 1
        return {"done": done, "refused": len(ids) - done, "next": following}

    async def _next(self, order: BulkOrder, after: Any) -> tuple[list[str], Any]:
        if order.ids is not None:
            begin = int(after or 0)
            end = begin + BATCH
            return order.ids[begin:end], end if end < len(order.ids) else None
        page = await self._holdfast.sessions(order.where, after=after, limit=BATCH)
        return [row.session_id for row in page.rows], page.next

    async def _do(self, order: BulkOrder, session_id: str) -> bool:
        """Whether it could be done."""
        holdfast = self._holdfast
        try:
            match order.action:
                case "cancel":
                    await holdfast.cancel(session_id, order.reason, by=order.by)
                case "resume":
                    await holdfast.resume(session_id, wait=0.0)
                case "delete":
                    await holdfast.delete(session_id)
                case "label":
                    row = await holdfast.store.session(session_id)
                    labels = {*row.summary.labels, *(order.labels or ())}
                    await holdfast.label(session_id, labels=sorted(labels), by=order.by)
        except HoldfastError:
            return False
        return True

    async def _grant(self, written: Any) -> str:
        body = msgspec.json.encode(written, order="sorted")
        return hmac.digest(await self._key(), b"bulk\0" + body, hashlib.sha256).hex()
