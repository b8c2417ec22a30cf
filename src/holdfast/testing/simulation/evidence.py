"""What the laws judge a run by: journals, commits, effects and calls, none of it asked of the code under test."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from holdfast.core.errors import HoldfastError
from holdfast.core.queries import Query, ToolQuery, Value
from holdfast.core.records import AnsweredRecord, Entry, PausedRecord, attempted_in
from holdfast.core.replay import ENDS
from holdfast.core.state import Session
from holdfast.store.commits import Commit, CommitReceipt
from holdfast.store.session_rows import SessionRow
from holdfast.testing.simulation.history import History, Settled
from holdfast.testing.simulation.store import ServerCall, StoreServer, returned

if TYPE_CHECKING:
    from holdfast.testing.simulation.world import World

LONGEST_S = 15.0
"""Seconds before an attempt in which a disturbance may have begun that still lasts."""

EVERYTHING = 1_000_000
"""More entries, messages or sessions than a run has."""


@dataclass(frozen=True)
class Problem:
    """A law that a run has broken."""

    law: str
    session_id: str
    text: str

    def __str__(self) -> str:
        return f"{self.law}: {self.text}"


class RecordedAttempt(NamedTuple):
    """An attempt at an effect, as a process has recorded it before."""

    at_s: float
    process: str
    epoch: int


@dataclass
class CommitFolds:
    """The sessions of a run, folded commit by commit. A later look goes on where the one before has ended."""

    commits: int = 0
    """How many commits were folded."""
    broken: set[str] = field(default_factory=set)
    """Sessions whose commits make no sense."""
    _sessions: dict[str, Session] = field(default_factory=dict)

    def known(self, session_id: str) -> Session | None:
        """A session after those commits, if they make sense."""
        return None if session_id in self.broken else self._sessions.get(session_id)

    def session(self, session_id: str) -> Session:
        """A session after those commits."""
        return self._sessions.setdefault(session_id, Session(session_id))


@dataclass
class Evidence:
    """A run, as the laws see it when it is over or all is quiet."""

    world: World
    history: History
    is_settled: bool
    """Whether everything came to rest before the time for that was up."""
    why_unsettled: str = ""
    folds: CommitFolds = field(default_factory=CommitFolds)
    journals: dict[str, list[Entry]] = field(init=False)
    rows: dict[str, SessionRow] = field(init=False)

    def __post_init__(self) -> None:
        server = self.world.server
        rows = journal_rows(server)
        self.rows = {row.session_id: row for row in rows}
        self.journals = {row.session_id: returned(server._read(row.session_id, 0, EVERYTHING)) for row in rows}

    @cached_property
    def commits(self) -> list[tuple[float, ServerCall, Commit, CommitReceipt]]:
        """The commits that were made, in order, with their moments (virtual seconds)."""
        return [
            (call.at_s, call, call.args[-1], call.outcome)
            for call in self.world.server.calls
            if call.name in ("_append", "_fork") and isinstance(call.outcome, CommitReceipt)
        ]

    @cached_property
    def settled(self) -> dict[tuple[str, str], Settled]:
        """How and when each query ended."""
        ended: dict[tuple[str, str], Settled] = {}
        asked: dict[str, list[str]] = defaultdict(list)
        for at_s, _, commit, _ in self.commits:
            session_id = commit.session_id
            for entry in commit.entries:
                record = entry.record
                if isinstance(record, AnsweredRecord):
                    answer = record.answer
                    value = answer.value if isinstance(answer, Value) else answer.message
                    ended.setdefault((session_id, record.query_id), Settled(at_s, value))
                elif isinstance(record, PausedRecord):
                    asked[session_id] += [query.id for query in record.queries]
                    for withdrawn in record.withdrawn:
                        ended.setdefault((session_id, withdrawn), Settled(at_s, is_answered=False))
                elif isinstance(record, ENDS):
                    for each in asked[session_id]:
                        ended.setdefault((session_id, each), Settled(at_s, is_answered=False))
        return ended

    @cached_property
    def sessions(self) -> dict[str, Session]:
        """The sessions that the journals tell of, except those whose journals make no sense.

        Where commits were folded one by one and have led to the same entries, they need not be folded again.
        """
        found: dict[str, Session] = {}
        for session_id, entries in self.journals.items():
            if (known := self.folds.known(session_id)) is not None and known.position == len(entries):
                found[session_id] = known
                continue
            with contextlib.suppress(HoldfastError):
                found[session_id] = Session.fold(session_id, entries)
        return found

    @cached_property
    def committed(self) -> dict[tuple[str, int], float]:
        """When each entry was committed, by session and position."""
        return {
            (commit.session_id, entry.position): at_s for at_s, _, commit, _ in self.commits for entry in commit.entries
        }

    @cached_property
    def asked(self) -> dict[tuple[str, str], Query]:
        """All queries, by session and id."""
        return {
            (session_id, query.id): query
            for session_id, entries in self.journals.items()
            for entry in entries
            if isinstance(entry.record, PausedRecord)
            for query in entry.record.queries
        }

    @cached_property
    def outside_tools(self) -> set[str]:
        """The names of the tools that do something outside."""
        keys = {tuple(each.key.rsplit("/", 1)) for each in self.world.outside.executions}
        queries = [query for key, query in self.asked.items() if key in keys]
        return {query.name for query in queries if isinstance(query, ToolQuery)}

    @cached_property
    def ended(self) -> dict[str, float]:
        """When each session that has ended did."""
        return {
            commit.session_id: at_s
            for at_s, _, commit, _ in self.commits
            if commit.entries and isinstance(commit.entries[-1].record, ENDS)
        }

    @cached_property
    def attempted(self) -> dict[str, list[RecordedAttempt]]:
        """The attempts that were recorded at each effect, by its key."""
        found: dict[str, list[RecordedAttempt]] = defaultdict(list)
        for at_s, call, commit, receipt in self.commits:
            for entry in commit.entries:
                for asked in attempted_in(entry.record):
                    made = RecordedAttempt(at_s, call.client.rpartition(".")[0], receipt.epoch)
                    found[f"{commit.session_id}/{asked}"].append(made)
        return found

    def was_disturbed(self, key: str, until_s: float) -> bool:
        """Whether a process that had attempted an effect was disturbed before then.

        It was killed, closed or cut off, stood still, or waited for its store for long.
        """
        return any(
            at_s - LONGEST_S <= moment <= until_s
            for at_s, process, _ in self.attempted[key]
            for moment in self.world.disturbances.get(process, ())
        )


def journal_rows(server: StoreServer) -> list[SessionRow]:
    """All sessions of a server."""
    return [returned(server._session(session_id)) for session_id in list(server._by_id)]
