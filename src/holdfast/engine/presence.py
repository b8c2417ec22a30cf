"""Presence: a process says in the store, now and then, that it is at work there, and what it offers."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec

from holdfast import __version__
from holdfast.core.errors import HoldfastError
from holdfast.engine.engine import Engine
from holdfast.engine.owner import Owner
from holdfast.engine.process_rows import BEAT_MS, GONE_MS, NAMESPACE, ProcessRow, processes
from holdfast.store.patience import pause
from holdfast.store.supervisor import STEADY_S, TaskTrouble

FIRST_MS = pause(1_000)
"""Milliseconds after which a process first says that it is here: most commands have ended by then."""

FORGOTTEN_MS = 10 * GONE_MS
"""Milliseconds after which the row of a process that is gone is removed. Until then, whoever looks can tell others."""

NEWS_MS = 1_000
"""Milliseconds between two rows of a process at least, however much happens to it."""

LEAVE_S = 1.0
"""Seconds that a process which closes tries to take its row back."""


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
