"""The laws of every run: what must be true of journals, effects and calls, whatever went wrong.

Each is a function that gives the problems it finds. None of them asks the code under test: what they know comes from
the server's list of calls, from the outside world, and from what clients were told.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from holdfast.core.errors import HoldfastError
from holdfast.core.queries import Failure, TimerQuery, Value
from holdfast.core.records import AnsweredRecord, Entry, PausedRecord, attempted_in
from holdfast.core.replay import ENDS
from holdfast.core.state import Session
from holdfast.core.summary import summarize
from holdfast.store.commits import Commit, CommitReceipt
from holdfast.store.contract import SessionRow
from holdfast.testing.simulation.history import History, Settled
from holdfast.testing.simulation.store import URL, ServerCall, StoreServer, returned

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


@dataclass
class Evidence:
    """A run that is over, as the laws see it."""

    world: World
    history: History
    is_settled: bool
    """Whether everything came to rest before the time for that was up."""
    why_unsettled: str = ""
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
    def attempted(self) -> dict[str, list[tuple[float, str]]]:
        """When and by which process each effect was attempted, by its key."""
        found: dict[str, list[tuple[float, str]]] = defaultdict(list)
        for at_s, call, commit, _ in self.commits:
            for entry in commit.entries:
                for asked in attempted_in(entry.record):
                    found[f"{commit.session_id}/{asked}"].append((at_s, call.client.rpartition(".")[0]))
        return found

    def was_disturbed(self, key: str, until_s: float) -> bool:
        """Whether a process that had attempted an effect was disturbed before then.

        It was killed, closed or cut off, stood still, or waited for its store for long.
        """
        return any(
            at_s - LONGEST_S <= moment <= until_s
            for at_s, process in self.attempted[key]
            for moment in self.world.disturbances.get(process, ())
        )


def journal_rows(server: StoreServer) -> list[SessionRow]:
    """All sessions of a server."""
    return [returned(server._session(session_id)) for session_id in list(server._by_id)]


Law: TypeAlias = Callable[[Evidence], Iterator[Problem]]


def one_writer(run: Evidence) -> Iterator[Problem]:
    """No commit is below the highest epoch, positions have no gaps, and an epoch has one owner."""
    epochs: Counter[str] = Counter()
    positions: Counter[str] = Counter()
    owners: dict[tuple[str, int], str] = {}
    for at_s, call, commit, receipt in run.commits:
        session_id = commit.session_id
        where = f"commit of {call.client} to {session_id} at {at_s:.3f}"
        if receipt.epoch < epochs[session_id]:
            yield Problem("one writer", session_id, f"{where} has epoch {receipt.epoch} after {epochs[session_id]}")
        if call.name == "_append" and commit.expected != positions[session_id]:
            yield Problem("one writer", session_id, f"{where} follows {commit.expected}, not {positions[session_id]}")
        if owners.setdefault((session_id, receipt.epoch), commit.owner) != commit.owner:
            yield Problem("one writer", session_id, f"{where}: two owners have epoch {receipt.epoch}")
        epochs[session_id] = max(epochs[session_id], receipt.epoch)
        positions[session_id] = receipt.position
    for session_id, entries in run.journals.items():
        if [entry.position for entry in entries] != list(range(1, positions[session_id] + 1)):
            yield Problem("one writer", session_id, f"the journal of {session_id} is not what was committed to it")


def once(run: Evidence) -> Iterator[Problem]:
    """A query has one answer, and what clients were told is true."""
    for session_id, entries in run.journals.items():
        answers = Counter(entry.record.query_id for entry in entries if isinstance(entry.record, AnsweredRecord))
        for asked, times in answers.items():
            if times > 1:
                yield Problem("once", session_id, f"{session_id}/{asked} has {times} answers")
    for session_id, text in run.history.contradictions(run.settled):
        yield Problem("once", session_id, text)
    for session_id, at_s in run.history.started.items():
        if session_id not in run.journals:
            yield Problem("once", session_id, f"{session_id} was started at {at_s:.3f}, and is not there")
    for session_id, at_s in run.history.cancelled.items():
        if session_id in run.rows and not run.rows[session_id].summary.state.is_terminal:
            yield Problem("once", session_id, f"{session_id} was cancelled at {at_s:.3f}, and goes on")


def never_again(run: Evidence) -> Iterator[Problem]:
    """Effects keep to their attempts: each was recorded before, and `never` means at most one."""
    executions = defaultdict(list)
    for each in run.world.outside.executions:
        executions[each.key].append(each)
    for key, begun in executions.items():
        session_id, _, asked = key.rpartition("/")
        if len(begun) > len(run.attempted[key]):
            yield Problem(
                "never again", session_id, f"{key} was begun {len(begun)} times, recorded {len(run.attempted[key])}"
            )
        numbers = [each.attempt for each in begun]
        is_in_order = numbers == sorted(numbers) or run.was_disturbed(key, begun[-1].began_s)
        if len(set(numbers)) < len(numbers) or not is_in_order:
            yield Problem("never again", session_id, f"{key} was begun as attempts {numbers}")
        if begun[0].policy == "never" and len(begun) > 1:
            yield Problem("never again", session_id, f"{key} must never be repeated, and was begun {len(begun)} times")
        end = run.settled.get((session_id, asked))
        happened = [each for each in begun if each.happened_s is not None]
        if begun[0].policy == "idempotent" and len(happened) > 1:
            yield Problem("never again", session_id, f"{key} happened {len(happened)} times in spite of its key")
        for each in begun:
            if end is not None and each.began_s > end.at_s and not run.was_disturbed(key, each.began_s):
                yield Problem("never again", session_id, f"{key} was begun after it had been answered")


def truthful(run: Evidence) -> Iterator[Problem]:
    """Answers say what happened: no error of the store is one, and an outcome is unknown only after a disturbance."""
    values: dict[str, list[object]] = defaultdict(list)
    for each in run.world.outside.executions:
        values[each.key].append(each.value)
    for session_id, entries in run.journals.items():
        for entry in entries:
            record = entry.record
            if isinstance(record, ENDS):
                said = f"{getattr(record, 'error', '')} {getattr(record, 'reason', '')}"
                if _is_store_error(said):
                    yield Problem("truthful", session_id, f"{session_id} ended because of its store: {said.strip()}")
            if not isinstance(record, AnsweredRecord):
                continue
            key, answer = f"{session_id}/{record.query_id}", record.answer
            if isinstance(answer, Failure):
                if _is_store_error(answer.message) or answer.code.startswith("store"):
                    yield Problem("truthful", session_id, f"{key} got an error of the store: {answer.message}")
                at_s = run.settled[session_id, record.query_id].at_s
                if answer.code == "unknown_outcome" and not run.was_disturbed(key, at_s):
                    text = f"the outcome of {key} is said to be unknown, though its process was not disturbed"
                    yield Problem("truthful", session_id, text)
            elif key in values and answer.value not in values[key]:
                yield Problem("truthful", session_id, f"{key} was answered with {answer.value!r}, which did not happen")


def _is_store_error(text: str) -> bool:
    return f"store {URL}" in text


def replay(run: Evidence) -> Iterator[Problem]:
    """Every journal can be folded, and its summary is that of the fold."""
    for session_id, entries in run.journals.items():
        try:
            session = Session.fold(session_id, entries)
        except HoldfastError as error:
            yield Problem("replay", session_id, f"{session_id} cannot be folded: {error}")
            continue
        if summarize(session) != run.rows[session_id].summary:
            yield Problem("replay", session_id, f"the summary of {session_id} is not that of its journal")
        if session.is_terminal and session.ended is None:
            yield Problem("replay", session_id, f"{session_id} does not say why it ended")
    for session_id, entries in run.journals.items():
        for entry in entries:
            said = str(getattr(entry.record, "error", ""))
            if "diverge" in said.lower():
                yield Problem("replay", session_id, f"{session_id} was replayed differently: {said}")


def ends(run: Evidence) -> Iterator[Problem]:
    """In calm, everything comes to its end: sessions, calls, leases and messages."""
    if not run.is_settled:
        yield Problem("ends", run.why_unsettled.partition(" ")[0], run.why_unsettled)
    for text in run.world.errors:
        yield Problem("ends", "", text)
    for process, context in run.world.loop.unhandled:
        error = context.get("exception")
        yield Problem("ends", "", f"nobody saw an exception in {process.name}: {context.get('message')}: {error!r}")


def children(run: Evidence) -> Iterator[Problem]:
    """No child outlives the parent that it answers."""
    for session_id, row in run.rows.items():
        parent = run.rows.get(row.summary.parent or "")
        if parent is not None and parent.summary.state.is_terminal and not row.summary.state.is_terminal:
            yield Problem("children", session_id, f"{session_id} goes on, and its parent has ended")


def time(run: Evidence) -> Iterator[Problem]:
    """Times do not fall in a journal, and no timer ends before its time, as the session's own clock counts it."""
    for session_id, entries in run.journals.items():
        asked: dict[str, tuple[int, int]] = {}
        last = 0
        for entry in entries:
            if entry.at < last:
                text = f"{session_id} goes back by {last - entry.at} ms at position {entry.position}"
                yield Problem("time", session_id, text)
            last = max(last, entry.at)
            if isinstance(entry.record, PausedRecord):
                for query in entry.record.queries:
                    if isinstance(query, TimerQuery):
                        asked[query.id] = (entry.at, query.delay_ms)
            elif isinstance(entry.record, AnsweredRecord) and entry.record.query_id in asked:
                at, delay_ms = asked[entry.record.query_id]
                if entry.at < at + delay_ms:
                    text = f"{session_id}/{entry.record.query_id} fired {at + delay_ms - entry.at} ms early"
                    yield Problem("time", session_id, text)


LAWS: tuple[Law, ...] = (one_writer, once, never_again, truthful, replay, ends, children, time)
"""The laws of every run."""
