"""Rows of processes: which are at work on a store and what each offers, as they said themselves, not long ago.

They are for people who ask why a session does not move. Nothing is decided by them: who serves a session is settled by
leases and by what a process has itself, so a row that is late, or of a process that was killed, does no harm.
"""

from __future__ import annotations

import msgspec

from holdfast.core.errors import HoldfastError
from holdfast.engine.listed_offers import ListedOffers
from holdfast.engine.work_report import WorkReport
from holdfast.store.contract import Store
from holdfast.store.supervisor import TaskTrouble

NAMESPACE = "holdfast.processes"
"""Where the rows are, in the state of the store."""

BEAT_MS = 30_000
"""Milliseconds between two rows of a process."""

GONE_MS = 3 * BEAT_MS
"""Milliseconds after which a process that has said nothing is taken to be gone."""


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
