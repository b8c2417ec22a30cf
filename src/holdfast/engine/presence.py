"""Presence: which processes are at work on a store and what each offers, as they say themselves, now and then.

It is for people who ask why a session does not move. Nothing is decided by it: who serves a session is settled by
leases and by what a process has itself, so a row that is late, or of a process that was killed, does no harm.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import msgspec

from holdfast import __version__
from holdfast.core.errors import HoldfastError
from holdfast.engine.offers import ListedOffers
from holdfast.engine.work_report import WorkReport
from holdfast.store.contract import Store
from holdfast.store.patience import pause
from holdfast.store.supervisor import STEADY_S, TaskTrouble

if TYPE_CHECKING:
    from holdfast.engine.engine import Engine
    from holdfast.engine.owner import Owner

NAMESPACE = "holdfast.processes"
"""Where the rows are, in the state of the store."""

FIRST_MS = pause(1_000)
"""Milliseconds after which a process first says that it is here: most commands have ended by then."""

BEAT_MS = 30_000
"""Milliseconds between two rows of a process."""

GONE_MS = 3 * BEAT_MS
"""Milliseconds after which a process that has said nothing is taken to be gone."""

FORGOTTEN_MS = 10 * GONE_MS
"""Milliseconds after which the row of a process that is gone is removed. Until then, whoever looks can tell others."""

NEWS_MS = 1_000
"""Milliseconds between two rows of a process at least, however much happens to it."""

LEAVE_S = 1.0
"""Seconds that a process which closes tries to take its row back."""


class ProcessRow(msgspec.Struct, frozen=True):
    """A process that is at work on a store."""

    name: str
    """As the owner of sessions: the machine, the process id, and a few letters."""
    since: int
    seen_at: int
    offers: ListedOffers
    troubles: list[TaskTrouble] = []
    """Its standing tasks that have failed lately: it is not well, though it is here."""
    work: WorkReport | None = None
    """What it works through inboxes with; None if it does not."""
    version: str = ""
    """Of Holdfast."""

    def is_here(self, now: int) -> bool:
        """Whether it has said so lately."""
        return now - self.seen_at < GONE_MS


class Presence:
    """Says in the store, now and then, that this process is at work on it, and how it is."""

    def __init__(self) -> None:
        self._since = 0
        self._has_news = asyncio.Event()

    async def run(self, engine: Engine) -> None:
        """Say so until cancelled, and take it back then."""
        owner = engine.owner
        self._since = self._since or owner.now()
        owner.on_work_changed = self._has_news.set
        supervisors = (owner.supervisor, owner.store.supervisor)
        for supervisor in supervisors:
            supervisor.on_trouble.append(self._has_news.set)
        try:
            await asyncio.sleep(FIRST_MS / 1000)
            while True:
                self._has_news.clear()
                troubles = owner.troubles()
                await _announce(owner, self._since, troubles)
                with contextlib.suppress(TimeoutError):  # soon again if a standing task has failed, or did lately
                    async with asyncio.timeout(STEADY_S if troubles else BEAT_MS / 1000):
                        await self._has_news.wait()
                await asyncio.sleep(NEWS_MS / 1000)
        except asyncio.CancelledError:
            await _take_back(owner)
            raise
        finally:
            for supervisor in supervisors:
                supervisor.on_trouble.remove(self._has_news.set)


async def _announce(owner: Owner, since: int, troubles: list[TaskTrouble]) -> None:
    now = owner.now()
    work = owner.work() if owner.work is not None else None
    row = ProcessRow(owner.name, since, now, owner.offers.listed(), troubles, work, __version__)
    await owner.store.put_state(NAMESPACE, owner.name, msgspec.to_builtins(row))
    for gone in await processes(owner.store, beside=owner.name):
        if now - gone.seen_at > FORGOTTEN_MS:
            await owner.store.delete_state(NAMESPACE, gone.name)


async def _take_back(owner: Owner) -> None:
    with contextlib.suppress(HoldfastError, TimeoutError):  # then its row grows old
        async with asyncio.timeout(LEAVE_S):
            await owner.store.delete_state(NAMESPACE, owner.name)


async def processes(store: Store, beside: str = "") -> list[ProcessRow]:
    """The processes that have said that they are at work on a store, the longest-serving first; `beside` that one."""
    rows: list[ProcessRow] = []
    after = ""
    while keys := await store.list_state(NAMESPACE, after=after):
        after = keys[-1]
        for key in keys:
            if key == beside:
                continue
            try:
                item = await store.get_state(NAMESPACE, key)
                if item is not None:
                    rows.append(msgspec.convert(item.value, ProcessRow))
            except (HoldfastError, msgspec.ValidationError):
                continue  # of another version, or damaged
    return sorted(rows, key=lambda row: (row.since, row.name))
