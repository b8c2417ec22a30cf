"""`NudgeQueue`: sends nudges to the engine, in the background and for as long as it takes.

What waits to be sent is kept in memory only. Whatever is lost with it is found by the sweep.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

if TYPE_CHECKING:
    import httpx2

log = logging.getLogger("holdfast.dispatch")

SENDERS = 32
"""Nudges that are on their way at a time. One takes a few milliseconds; but where a part of the engine has lost its
node, those for it take seconds, and the others must not wait for them."""

MOST = 20_000
"""Nudges that wait to be sent at most, while the engine is away. Those past that are left to the sweep."""

REMEMBERED = 10_000
"""Due times that are remembered as sent: most commits of a session that sleeps leave its time as it is."""

FIRST_REST_S = 0.05
"""Seconds before a nudge is sent again after every node has failed; doubled for each failure in a row."""

LONGEST_REST_S = 1.0
"""Seconds between two tries at most, so that work goes on soon after the engine has come back."""

REPLY_S = 3.0
"""Seconds that a node has to accept a nudge before the next one is tried."""

LEAVE_S = 2.0
"""Seconds that a process which ends tries to send what is left."""


class Nudge(NamedTuple):
    """One call to the engine."""

    target: str
    """The path of the handler, below the ingress."""
    due: int | None
    """When it is to be made (unix ms); None for at once."""
    key: str | None
    """The same key twice is one call."""


class NudgeQueue:
    """What is to be sent to the engine. Belongs to one event loop."""

    def __init__(self, ingresses: tuple[str, ...], service: str, now: Callable[[], int]) -> None:
        self._ingresses = list(ingresses)
        self._service = service
        self._now = now
        self._waiting: OrderedDict[Nudge, None] = OrderedDict()
        self._sent_due: OrderedDict[tuple[str, int], None] = OrderedDict()
        self._has_more = asyncio.Event()
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self._under_way = 0
        self._failures = 0
        self._is_full = False
        self.on_unknown: Callable[[], None] | None = None
        """Called when the engine does not know the fleet: it has lost its disk, or nobody has registered yet."""

    def drive(self, session_id: str, position: int | None) -> None:
        """Let somebody drive a session; at this position once, however often that is asked for."""
        self._add(self._drive(session_id, None, None if position is None else f"{session_id}-{position}"))

    def drive_at(self, session_id: str, due: int) -> None:
        """Let somebody drive a session at a time."""
        if (session_id, due) in self._sent_due:
            return
        self._sent_due[session_id, due] = None
        if len(self._sent_due) > REMEMBERED:
            self._sent_due.popitem(last=False)
        self._add(self._drive(session_id, due, f"{session_id}-at-{due}"))

    def sweep(self, due: int, number: int) -> None:
        """Let somebody sweep at a time; with this number once."""
        self._add(Nudge(f"{self._service}-sweep/{number}/sweep/send", due, f"sweep-{number}"))

    def _drive(self, session_id: str, due: int | None, key: str | None) -> Nudge:
        return Nudge(f"{self._service}/{quote(session_id, safe='')}/drive/send", due, key)

    def _add(self, nudge: Nudge) -> None:
        if len(self._waiting) >= MOST:
            if not self._is_full:
                log.warning("%d nudges wait for the engine: the sweep has to find what follows", MOST)
            self._is_full = True
            return
        self._is_full = False
        self._waiting[nudge] = None
        self._is_empty.clear()
        self._has_more.set()

    # --- sending -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Send, until cancelled."""
        import httpx2

        limits = httpx2.Limits(max_connections=SENDERS, max_keepalive_connections=SENDERS, keepalive_expiry=60)
        client = httpx2.AsyncClient(timeout=REPLY_S, limits=limits, trust_env=False)
        async with client, asyncio.TaskGroup() as senders:
            for _ in range(SENDERS):
                senders.create_task(self._send_all(client))

    async def flush(self) -> None:
        """Wait until everything is sent, or the time for that is over."""
        try:
            async with asyncio.timeout(LEAVE_S):
                await self._is_empty.wait()
        except TimeoutError:
            log.warning("%d nudges could not be sent: the sweep has to find them", len(self._waiting) + self._under_way)

    async def _send_all(self, client: httpx2.AsyncClient) -> None:
        while True:
            while not self._waiting:
                self._has_more.clear()
                await self._has_more.wait()
            nudge, _ = self._waiting.popitem(last=False)
            self._under_way += 1
            try:
                is_sent = await self._send(client, nudge)
            except BaseException:
                self._waiting.setdefault(nudge)
                raise
            finally:
                self._under_way -= 1
            if is_sent:
                self._failures = 0
                if not self._waiting and not self._under_way:
                    self._is_empty.set()
            else:
                self._waiting.setdefault(nudge)
                self._failures += 1
                await asyncio.sleep(min(FIRST_REST_S * 2 ** min(self._failures // SENDERS, 10), LONGEST_REST_S))

    async def _send(self, client: httpx2.AsyncClient, nudge: Nudge) -> bool:
        """Hand a nudge to the first node that takes it; False if none does now."""
        import httpx2

        headers = {} if nudge.key is None else {"idempotency-key": nudge.key}
        why = ""
        for ingress in list(self._ingresses):
            delay = 0 if nudge.due is None else max(0, nudge.due - self._now())
            url = f"{ingress}/{nudge.target}" + (f"?delay={delay}ms" if delay else "")
            try:
                reply = await client.post(url, headers=headers)
            except httpx2.HTTPError as error:
                why = f"{ingress}: {type(error).__name__}: {error}"
                self._pass_over(ingress)
                continue
            if reply.is_success:
                return True
            why = f"{ingress}: {reply.status_code} {reply.text[:200]}"
            if reply.status_code == 404:
                if self.on_unknown is not None:
                    self.on_unknown()
                break
            if reply.status_code < 500 and reply.status_code != 429:
                log.error("the engine refuses a nudge for good, which is left to the sweep: %s", why)
                return True
            self._pass_over(ingress)
        if self._failures == 0:
            log.warning("the engine does not take nudges, which wait here meanwhile: %s", why)
        return False

    def _pass_over(self, ingress: str) -> None:
        """Begin with another node the next time."""
        if self._ingresses[0] == ingress:
            self._ingresses.append(self._ingresses.pop(0))
