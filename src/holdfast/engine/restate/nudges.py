"""`Ingress`: hands nudges to Restate, to whichever of its nodes takes them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote

from holdfast.engine.fleet.nudges import SENDERS, NotSentError, Nudge, NudgeQueue, SweepNudge

if TYPE_CHECKING:
    import httpx2

log = logging.getLogger("holdfast.dispatch")

REPLY_S = 3.0
"""Seconds that a node has to accept a nudge before the next one is tried."""


class Ingress:
    """Where the engine takes nudges. Belongs to one event loop."""

    def __init__(self, urls: tuple[str, ...], service: str, now: Callable[[], int]) -> None:
        self._urls = list(urls)
        self._service = service
        self._now = now
        self.on_unknown: Callable[[], None] | None = None
        """Called when the engine does not know the fleet: it has lost its disk, or nobody has registered yet."""

    async def run(self, queue: NudgeQueue) -> None:
        """Send what a queue has, until cancelled."""
        import httpx2

        limits = httpx2.Limits(max_connections=SENDERS, max_keepalive_connections=SENDERS, keepalive_expiry=60)
        async with httpx2.AsyncClient(timeout=REPLY_S, limits=limits, trust_env=False) as client:
            await queue.run(partial(self._send, client))

    async def _send(self, client: httpx2.AsyncClient, nudge: Nudge) -> None:
        """Hand a nudge to the first node that takes it. `NotSentError` if none does now."""
        import httpx2

        target, key = self._call(nudge)
        headers = {} if key is None else {"idempotency-key": key}
        why = ""
        for url in list(self._urls):
            delay = 0 if nudge.due is None else max(0, nudge.due - self._now())
            try:
                reply = await client.post(f"{url}/{target}" + (f"?delay={delay}ms" if delay else ""), headers=headers)
            except httpx2.HTTPError as error:
                why = f"{url}: {type(error).__name__}: {error}"
                self._pass_over(url)
                continue
            if reply.is_success:
                return
            why = f"{url}: {reply.status_code} {reply.text[:200]}"
            if reply.status_code == 404:
                if self.on_unknown is not None:
                    self.on_unknown()
                break
            if reply.status_code < 500 and reply.status_code != 429:
                log.error("the engine refuses a nudge for good, which is left to the sweep: %s", why)
                return
            self._pass_over(url)
        raise NotSentError(why)

    def _call(self, nudge: Nudge) -> tuple[str, str | None]:
        """The path of the handler, and what makes the same call twice one."""
        if isinstance(nudge, SweepNudge):
            return f"{self._service}-sweep/{nudge.number}/sweep/send", f"sweep-{nudge.number}"
        return f"{self._service}/{quote(nudge.session_id, safe='')}/drive/send", nudge.key

    def _pass_over(self, url: str) -> None:
        """Begin with another node the next time."""
        if self._urls[0] == url:
            self._urls.append(self._urls.pop(0))
