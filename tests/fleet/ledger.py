"""The ledger of a fleet's effects: what was begun, told to stop and done, by whom, and what must not be in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from holdfast.core.records import attempted_in
from holdfast.engine.drivers import MAX_DEATHS
from holdfast.engine.holdfast import Holdfast
from holdfast.testing.patience import patience
from tests.fleet.child import SAFE

What = Literal["begun", "stopped", "done"]

AWAY_S = patience(2.0)
"""Seconds that a process may need to connect anew, on a machine that is busy."""


class Note(NamedTuple):
    """A line of the ledger. `at` is of the machine's monotonic clock, which all processes share."""

    at: float
    what: What
    session: str
    query: str
    attempt: int
    pid: int


class Ledger:
    """All that the workers of one fleet have noted."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def notes(self, what: What | None = None, session: str | None = None) -> list[Note]:
        found: list[Note] = []
        for line in self.path.read_text().splitlines() if self.path.exists() else []:
            at, kind, of, query, attempt, pid = line.split()
            note = Note(float(at), kind, of, query, int(attempt), int(pid))  # type: ignore[arg-type]
            if what in (None, note.what) and session in (None, note.session):
                found.append(note)
        return found

    def begun_again(self) -> int:
        return sum(note.attempt > 1 for note in self.notes("begun"))

    def overlaps(self, dead: Iterable[int], drops: Sequence[float] = ()) -> list[str]:
        """Attempts that began while the one before might still have an effect: its process lived, and was at it.

        Connections of the store were dropped at the times `drops`. A process that has lost the connection which shows
        that it lives, and takes longer than `RETURN_MS` to come back, is taken for dead: what it has begun meanwhile,
        or before, is left out.
        """
        notes = self.notes()
        over = {(note.session, note.query, note.attempt): note for note in notes if note.what != "begun"}
        begun = {(note.session, note.query, note.attempt): note for note in notes if note.what == "begun"}
        killed, found = set(dead), []
        for (session, query, attempt), note in begun.items():
            before = begun.get((session, query, attempt - 1))  # none if it died between the record and the beginning
            end = over.get((session, query, attempt - 1))
            if before is None or before.pid in killed or (end is not None and end.at <= note.at):
                continue
            if not any(before.at - AWAY_S <= drop <= note.at for drop in drops):
                found.append(f"attempt {attempt} at {session} {query} began while process {before.pid} was at it")
        return found


class Plan(NamedTuple):
    """A session that was accepted: its id, the tool that it calls and how often."""

    session: str
    tool: str
    calls: int


async def problems(front: Holdfast, ledger: Ledger, plans: Iterable[Plan]) -> list[str]:
    """What was lost or done twice, of sessions that all have ended: nothing, if all is well."""
    found: list[str] = []
    begun = Counter((note.session, note.query, note.attempt) for note in ledger.notes("begun"))
    found += [f"attempt {each} was begun {count} times" for each, count in begun.items() if count > 1]
    attempts = Counter((session, query) for session, query, _ in begun)
    done = {(note.session, note.query, note.pid) for note in ledger.notes("done")}
    for plan in plans:
        outcomes = await front.result(plan.session, 0)
        if len(outcomes) != plan.calls:
            found.append(f"{plan.session} has {len(outcomes)} of {plan.calls} outcomes")
        for number, outcome in enumerate(outcomes):
            query = f"q-{number}"
            if isinstance(outcome, int) and (plan.session, query, outcome) not in done:
                found.append(f"{plan.session} {query} was done by {outcome}, who knows nothing of it")
            is_lost = plan.tool == SAFE and not isinstance(outcome, int)
            if is_lost and not await _is_given_up(front, plan, query, outcome):
                found.append(f"{plan.session} {query} was lost: {outcome}")
            if plan.tool != SAFE and attempts[plan.session, query] > 1:
                found.append(f"{plan.session} {query} must run once, and ran {attempts[plan.session, query]} times")
    return found


async def _is_given_up(front: Holdfast, plan: Plan, query: str, outcome: object) -> bool:
    """Whether a call is rightly not made any more: so many processes have died at it, one after the other."""
    entries = await front.store.entries(plan.session)
    attempts = sum(query in attempted_in(entry.record) for entry in entries)
    return outcome == "process_died" and attempts >= MAX_DEATHS
