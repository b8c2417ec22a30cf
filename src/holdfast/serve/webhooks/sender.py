"""The sender: of all servers of a store one at a time, it reads what happened, and tells webhooks of it.

What is told follows from the journal, and has an id that follows from where it stands there. So whatever a sender had
not finished when it died, the next one does, and a receiver knows by the id what it was told twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

import msgspec

from holdfast.agent.machine.conversation import Conversation
from holdfast.agent.machine.fold import AgentFold
from holdfast.core.errors import HoldfastError, InvalidValueError
from holdfast.core.records import Entry
from holdfast.engine.holdfast import Holdfast
from holdfast.engine.process_rows import processes
from holdfast.serve.webhooks.address import resolved
from holdfast.serve.webhooks.events import Happening, happenings, lost_worker, settled_items, waiting
from holdfast.serve.webhooks.records import Delivery, EventType, Webhook, signed_headers
from holdfast.serve.webhooks.registry import Webhooks
from holdfast.store.errors import StateConflictError
from holdfast.store.session_rows import SessionFilter, SessionRow

LEASE_NAMESPACE, LEASE_KEY = "http.webhook-sender", "lease"
LEASE_MS = 15_000
"""Milliseconds for which a server is the sender without a sign of life."""

LOOK_S = 1.0
"""Seconds between two looks at least."""

QUIET_MS = 2_000
"""Milliseconds for which a session has to wait for a host before that is told: most questions are answered at once."""

OVERLAP_MS = 5_000
"""Milliseconds of the past that each look goes through once more: clocks differ."""

TAIL_ENTRIES = 64
"""Last entries of each session that a look reads first; more are read where that is not enough."""

TIMEOUT_S = 15.0
"""Seconds that a receiver may take."""

AT_ONCE = 8
"""Deliveries that are made at a time."""

GONE = 410
"""The status with which a receiver switches its webhook off."""

_log = logging.getLogger("holdfast.webhooks")


class SenderLease(msgspec.Struct, frozen=True):
    """Which server sends, until when, and how far it has read."""

    owner: str
    until: int
    since: int


class WebhookSender:
    """Tells webhooks what happens, while this server is the one that does."""

    def __init__(
        self,
        holdfast: Holdfast,
        webhooks: Webhooks,
        conversation: Callable[[str], Awaitable[Conversation]],
        *,
        allow_private: bool = False,
        counted: Callable[[str], None] = lambda outcome: None,
    ) -> None:
        self._holdfast = holdfast
        self._webhooks = webhooks
        self._conversation = conversation
        self._lost: set[str] = set()
        """Workers that are gone, and of which all that is to be told is noted."""
        self._allow_private = allow_private
        self._counted = counted
        self._name = holdfast.engine.owner.name

    async def run(self) -> None:
        """Send until cancelled. Errors are logged, and it is tried again."""
        try:
            while True:
                try:
                    await self._step()
                except HoldfastError as error:
                    _log.warning("webhooks are not sent at present: %s", error)
                await asyncio.sleep(LOOK_S)
        finally:
            with contextlib.suppress(HoldfastError):
                await self._release()

    async def _step(self) -> None:
        if not await self._webhooks.list():
            return
        lease = await self._claim()
        if lease is None:
            return
        now = self._holdfast.now()
        since = await self._read(lease.since)
        await self._note_lost(now)
        await self._send_due(now)
        await self._keep(SenderLease(self._name, self._holdfast.now() + LEASE_MS, since))

    # --- one sender of a fleet ---------------------------------------------------------------------

    async def _claim(self) -> SenderLease | None:
        """This server's lease, taken or renewed; None if another server is the sender."""
        store, now = self._holdfast.store, self._holdfast.now()
        item = await store.get_state(LEASE_NAMESPACE, LEASE_KEY)
        held = None if item is None else msgspec.convert(item.value, SenderLease)
        if held is not None and held.owner != self._name and held.until > now:
            return None
        lease = SenderLease(self._name, now + LEASE_MS, held.since if held is not None else now)
        try:
            version = item.version if item is not None else 0
            await store.put_state(LEASE_NAMESPACE, LEASE_KEY, msgspec.to_builtins(lease), expected=version)
        except StateConflictError:
            return None
        return lease

    async def _keep(self, lease: SenderLease) -> None:
        store = self._holdfast.store
        item = await store.get_state(LEASE_NAMESPACE, LEASE_KEY)
        if item is not None and msgspec.convert(item.value, SenderLease).owner == self._name:
            with contextlib.suppress(StateConflictError):
                value = msgspec.to_builtins(lease)
                await store.put_state(LEASE_NAMESPACE, LEASE_KEY, value, expected=item.version)

    async def _release(self) -> None:
        item = await self._holdfast.store.get_state(LEASE_NAMESPACE, LEASE_KEY)
        held = None if item is None else msgspec.convert(item.value, SenderLease)
        if held is not None and held.owner == self._name:
            await self._keep(SenderLease(self._name, 0, held.since))

    # --- what happened -----------------------------------------------------------------------------

    async def _read(self, since: int) -> int:
        """Note what has happened since a moment, and return the moment up to which all of it is noted."""
        store, now = self._holdfast.store, self._holdfast.now()
        tells_items = await self._is_wanted("item.settled")
        begin, reached = since - OVERLAP_MS, now
        cursor: str | None = None
        while True:
            page = await store.sessions(SessionFilter(updated_after=begin), after=cursor)
            tails = await store.last_entries([row.session_id for row in page.rows], TAIL_ENTRIES)
            for row in page.rows:
                entries = await self._entries_since(row, tails.get(row.session_id, []), begin)
                for happening in happenings(row, entries):
                    await self._note(happening)
                if tells_items and entries:
                    await self._note_items(row, begin)
                if row.summary.asks:
                    if row.summary.updated_at > now - QUIET_MS:
                        reached = min(reached, row.summary.updated_at)  # looked at again once it is quiet
                    else:
                        await self._note_waiting(row)
            cursor = page.next
            if cursor is None:
                return max(since, reached)

    async def _entries_since(self, row: SessionRow, tail: list[Entry], begin: int) -> list[Entry]:
        while tail and tail[0].position > 1 and tail[0].at >= begin:
            first = tail[0].position
            after = max(0, first - 1 - TAIL_ENTRIES)
            tail = [*await self._holdfast.store.read(row.session_id, after, first - 1 - after), *tail]
        return [entry for entry in tail if entry.at >= begin]

    async def _note_waiting(self, row: SessionRow) -> None:
        where = SessionFilter(id_prefix=row.session_id)
        page = await self._holdfast.questions(where, limit=1_000)
        questions = [each for each in page.questions if each.row.session_id == row.session_id]
        if questions:
            await self._note(waiting(row, questions))

    async def _note_items(self, row: SessionRow, begin: int) -> None:
        session = await self._holdfast.session(row.session_id)
        if isinstance(session.kind_fold, AgentFold):
            conversation = await self._conversation(row.session_id)
            for happening in settled_items(row, conversation, session.kind_fold.inbox, begin):
                await self._note(happening)

    async def _note_lost(self, now: int) -> None:
        if not await self._is_wanted("worker.lost"):
            return
        gone = [each for each in await processes(self._holdfast.store) if not each.is_here(now)]
        for happening in map(lost_worker, gone):
            if happening.id not in self._lost:
                await self._note(happening)
        self._lost = {lost_worker(each).id for each in gone}

    async def _is_wanted(self, kind: EventType) -> bool:
        """Whether any webhook is told of this: what nobody wants to know is not looked for."""
        return any(kind in each.types for each in await self._webhooks.list() if each.enabled)

    async def _note(self, happening: Happening) -> None:
        for webhook in await self._webhooks.list():
            is_news = happening.type != "worker.lost" or happening.at >= webhook.created_at
            if is_news and webhook.wants(happening.type, happening.session_id, happening.program):
                await self._webhooks.put(webhook.id, self.delivery(webhook, happening))

    def delivery(self, webhook: Webhook, happening: Happening) -> Delivery:
        """What a webhook is told of a happening."""
        return Delivery(
            id=happening.id,
            type=happening.type,
            session_id=happening.session_id,
            body=happening.body(with_content=webhook.include == "content"),
            at=self._holdfast.now(),
            next_at=self._holdfast.now(),
        )

    # --- telling -----------------------------------------------------------------------------------

    async def _send_due(self, now: int) -> None:
        slots = asyncio.Semaphore(AT_ONCE)

        async def send(webhook: Webhook, delivery: Delivery) -> None:
            async with slots:
                await self.send(webhook, delivery)

        due = [
            send(webhook, delivery)
            for webhook in await self._webhooks.list()
            if webhook.enabled
            for delivery in reversed(await self._webhooks.deliveries(webhook.id))
            if not delivery.done and delivery.next_at <= now and not delivery.is_given_up
        ]
        await asyncio.gather(*due)

    async def send(self, webhook: Webhook, delivery: Delivery) -> Delivery:
        """Try a delivery, and note what came of it. A webhook whose receiver is gone, or fails for two days, is off."""
        status, why = await self._post(webhook, delivery)
        now = self._holdfast.now()
        tried = delivery.after_try(now, status, why)
        self._counted("ok" if tried.done else "failed")
        await self._webhooks.put(webhook.id, tried)
        with contextlib.suppress(HoldfastError):  # removed meanwhile
            if tried.done:
                await self._webhooks.change(webhook.id, failures=0, last_ok_at=now)
            elif status == GONE or tried.is_given_up:
                reason = "its receiver said that it is gone (410)" if status == GONE else f"its receiver failed: {why}"
                await self._webhooks.change(webhook.id, enabled=False, why_disabled=reason)
            else:
                await self._webhooks.change(webhook.id, failures=webhook.failures + 1)
        return tried

    async def _post(self, webhook: Webhook, delivery: Delivery) -> tuple[int | None, str]:
        """The status that a receiver answered with, if any, and why that is not well."""
        import httpx2

        try:
            target = await resolved(webhook.url, allow_private=self._allow_private)
            headers = {**signed_headers(webhook, delivery, self._holdfast.now()), "host": target.host}
            async with httpx2.AsyncClient(timeout=TIMEOUT_S, follow_redirects=False, trust_env=False) as client:
                request = client.build_request(
                    "POST",
                    target.url,
                    content=delivery.body.encode(),
                    headers=headers,
                    extensions={"sni_hostname": target.host.rpartition(":")[0] or target.host},
                )
                reply = await client.send(request, stream=True)  # what it says beside its status is not read
                await reply.aclose()
                return reply.status_code, f"it answered {reply.status_code}"
        except InvalidValueError as error:
            return None, error.why
        except (httpx2.HTTPError, OSError) as error:
            return None, f"it cannot be reached: {str(error) or type(error).__name__}"
