"""`NudgeQueue`: what is to be sent to the engine, in the background and for as long as it takes.

What waits to be sent is kept in memory only. Whatever is lost with it is found by the sweep.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeAlias

log = logging.getLogger("holdfast.dispatch")

SENDERS = 128
"""Nudges that are on their way at a time. One takes a few milliseconds; but where a part of the engine has lost its
node, those for it take seconds, and the others must not wait for them."""

MOST = 20_000
"""Nudges that wait to be sent at most, while the engine is away. Those past that are left to the sweep."""

REMEMBERED = 10_000
"""Sessions whose due time is remembered as sent: most commits of a session that sleeps leave its time as it is."""

FIRST_REST_S = 0.05
"""Seconds before a nudge is sent again after every node has failed; doubled for each failure in a row."""

LONGEST_REST_S = 1.0
"""Seconds between two tries at most, so that work goes on soon after the engine has come back."""

LEAVE_S = 2.0
"""Seconds that a process which ends tries to send what is left."""


class DriveNudge(NamedTuple):
    """Somebody is to drive a session."""

    session_id: str
    due: int | None
    """When (unix ms); None for at once."""
    key: str | None
    """The same key twice is one nudge."""


class SweepNudge(NamedTuple):
    """Somebody is to sweep."""

    number: int
    due: int


Nudge: TypeAlias = DriveNudge | SweepNudge


class NotSentError(Exception):
    """The engine does not take a nudge now."""


Send: TypeAlias = Callable[[Nudge], Awaitable[None]]
"""Hands a nudge to the engine. `NotSentError` if it has to be tried again."""


class NudgeQueue:
    """What is to be sent to the engine. Belongs to one event loop."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[Nudge, None] = OrderedDict()
        self._sent_due: OrderedDict[str, int] = OrderedDict()
        self._has_more = asyncio.Event()
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self._under_way = 0
        self._failures = 0
        self._is_full = False

    def drive(self, session_id: str, once: int | str | None) -> None:
        """Let somebody drive a session; with the same `once` only once, however often that is asked for."""
        self._add(DriveNudge(session_id, None, None if once is None else f"{session_id}-{once}"))

    def drive_at(self, session_id: str, due: int) -> None:
        """Let somebody drive a session at a time."""
        if self._sent_due.get(session_id) == due:
            return
        self._sent_due[session_id] = due
        self._sent_due.move_to_end(session_id)
        if len(self._sent_due) > REMEMBERED:
            self._sent_due.popitem(last=False)
        self._add(DriveNudge(session_id, due, f"{session_id}-at-{due}"))

    def forget_due(self, session_id: str) -> None:
        """What was sent about the time of a session is over: the engine has brought it here."""
        self._sent_due.pop(session_id, None)

    def is_superseded(self, nudge: DriveNudge) -> bool:
        """Whether another time was asked for after this one."""
        return nudge.due is not None and self._sent_due.get(nudge.session_id, nudge.due) != nudge.due

    def sweep(self, due: int, number: int) -> None:
        """Let somebody sweep at a time; with this number once."""
        self._add(SweepNudge(number, due))

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

    async def run(self, send: Send) -> None:
        """Send, until cancelled."""
        async with asyncio.TaskGroup() as senders:
            for _ in range(SENDERS):
                senders.create_task(self._send_all(send))

    async def flush(self) -> None:
        """Wait until everything is sent, or the time for that is over."""
        try:
            async with asyncio.timeout(LEAVE_S):
                await self._is_empty.wait()
        except TimeoutError:
            log.warning("%d nudges could not be sent: the sweep has to find them", len(self._waiting) + self._under_way)

    async def _send_all(self, send: Send) -> None:
        while True:
            while not self._waiting:
                self._has_more.clear()
                await self._has_more.wait()
            nudge, _ = self._waiting.popitem(last=False)
            self._under_way += 1
            is_sent = False
            try:
                await send(nudge)
                is_sent = True
            except NotSentError as error:
                if self._failures == 0:
                    log.warning("the engine does not take nudges, which wait here meanwhile: %s", error)
            finally:
                self._under_way -= 1
                if not is_sent:
                    self._waiting.setdefault(nudge)
            if is_sent:
                self._failures = 0
                if not self._waiting and not self._under_way:
                    self._is_empty.set()
            else:
                self._failures += 1
                await asyncio.sleep(min(FIRST_REST_S * 2 ** min(self._failures // SENDERS, 10), LONGEST_REST_S))
