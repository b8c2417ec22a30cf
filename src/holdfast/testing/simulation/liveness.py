"""The law of liveness: once nothing goes wrong, no session is left standing that somebody could move."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.store.session_rows import SessionRow
from holdfast.testing.simulation.evidence import Problem, journal_rows
from holdfast.testing.simulation.store import returned
from holdfast.testing.simulation.world import World

STANDS_S = 8.0
"""Virtual seconds for which a session may be left alone that somebody could move: a lease of a second, looks for
orphans every two and for timers every second, notifications that are late by one, and all of it once more if two of
them wait for each other."""

DRIVEN = frozenset(("llm", "tool"))
"""Kinds of query that drivers answer in simulations: a session that waits for one has an owner."""


class Liveness:
    """Looks at all sessions again and again, and notes those that nobody moves."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._since: dict[tuple[str, int, str], float] = {}
        """Since when a session stands at a position, for which reason."""
        self._stood: dict[str, str] = {}

    def look(self) -> None:
        """Look at all sessions now."""
        now_s = self._world.loop.time()
        found: dict[tuple[str, int, str], float] = {}
        for row in journal_rows(self._world.server):
            if why := self._could_move(row):
                key = (row.session_id, row.position, why)
                found[key] = self._since.get(key, now_s)
                if now_s - found[key] > STANDS_S:
                    self._stood[row.session_id] = why
        self._since = found

    def problems(self) -> Iterator[Problem]:
        """The sessions that were left alone for too long."""
        for session_id, why in self._stood.items():
            yield Problem("moves", session_id, f"{session_id} stood still for more than {STANDS_S:g} s: {why}")

    def _could_move(self, row: SessionRow) -> str:
        """Why somebody could move a session that nobody owns, or nothing."""
        summary = row.summary
        if row.owner is not None or summary.state.is_terminal:
            return ""
        if returned(self._world.server._mailbox(row.session_id, 1)):
            return "there is a message that nobody takes"
        if summary.due_at is not None and summary.due_at <= self._world.server.now():
            return "its time has come, and nobody looks at it"
        if DRIVEN.intersection(summary.waiting_for.split(",")):
            return f"it waits for {summary.waiting_for}, and nobody owns it"
        return "" if summary.pending else "it is to continue, and nobody owns it"
