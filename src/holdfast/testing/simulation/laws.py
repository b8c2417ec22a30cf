"""The laws of every run: what must be true of journals, effects and calls, whatever went wrong.

Each is a function that gives the problems it finds. None of them asks the code under test: what they know comes from
the server's list of calls, from the outside world, and from what clients were told.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import TypeAlias

from holdfast.core.errors import HoldfastError
from holdfast.core.queries import ChildQuery, Failure, LlmQuery, Query, TimerQuery, ToolQuery, Usage, Value
from holdfast.core.records import AnsweredRecord, Entry, PausedRecord
from holdfast.core.replay import ENDS
from holdfast.core.summary import summarize
from holdfast.core.tokens import measure_text
from holdfast.core.values import value_bytes
from holdfast.engine.drivers import MAX_DEATHS
from holdfast.testing.simulation.evidence import Evidence, Problem
from holdfast.testing.simulation.outside import Execution
from holdfast.testing.simulation.shared_state import shared_state
from holdfast.testing.simulation.store import URL

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
        if session_id not in run.journals or run.committed.get((session_id, 1), float("inf")) > at_s:
            yield Problem("once", session_id, f"{session_id} was started at {at_s:.3f}, and was not there")
    for session_id, at_s in run.history.cancelled.items():
        if run.ended.get(session_id, float("inf")) > at_s:
            yield Problem("once", session_id, f"{session_id} was cancelled at {at_s:.3f}, and went on")
    for session_id, at_s in run.history.ended.items():
        if run.ended.get(session_id, float("inf")) > at_s:
            yield Problem("once", session_id, f"{session_id} was said to have ended at {at_s:.3f}, and went on")


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
        if begun[0].policy == "confirm" and len(happened) > 1 and not run.was_disturbed(key, begun[-1].began_s):
            yield Problem("never again", session_id, f"{key} happened {len(happened)} times in spite of its probe")
        for each in begun:
            if each.policy == "confirm" and each.attempt > 1 and not _is_permitted(run, each):
                text = f"attempt {each.attempt} at {key} was made, and its probe had not said that it may be"
                yield Problem("never again", session_id, text)
        for each in begun:
            if end is not None and each.began_s > end.at_s and not run.was_disturbed(key, each.began_s):
                yield Problem("never again", session_id, f"{key} was begun after it had been answered")


def _is_permitted(run: Evidence, again: Execution) -> bool:
    """Whether a probe has said, since the effect was begun the last time, that it has not happened.

    A process that was disturbed may begin late what it has recorded, when another has the session and has asked the
    probe: no lease can prevent that, so what counts there is when the attempt was recorded.
    """
    attempted = run.attempted[again.key]
    if not attempted:
        return False
    since_s = attempted[0].at_s
    for each in run.world.outside.of(again.key):
        if each.began_s < again.began_s:
            is_late = run.was_disturbed(again.key, each.began_s)
            since_s = max(since_s, attempted[each.attempt - 1].at_s if is_late else each.began_s)
    return any(since_s <= moment <= again.began_s for moment in run.world.outside.denials.get(again.key, ()))


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
                if answer.code == "process_died" and len({each.epoch for each in run.attempted[key]}) < MAX_DEATHS:
                    text = f"{key} was given up after {run.attempted[key]}, though not so many processes died"
                    yield Problem("truthful", session_id, text)
            elif key in values and answer.value not in values[key]:
                yield Problem("truthful", session_id, f"{key} was answered with {answer.value!r}, which did not happen")
            elif _is_effect(run, session_id, record.query_id) and not _has_happened(run, key, session_id):
                yield Problem("truthful", session_id, f"{key} was answered with {answer.value!r} before it happened")


def _is_effect(run: Evidence, session_id: str, asked: str) -> bool:
    """Whether a query is one to a tool that does something outside."""
    query = run.asked.get((session_id, asked))
    return isinstance(query, ToolQuery) and query.name in run.outside_tools


def _has_happened(run: Evidence, key: str, session_id: str) -> bool:
    """Whether an effect had happened when its query was answered: none may be made up, whatever its policy."""
    answered_s = run.settled[session_id, key.rpartition("/")[2]].at_s
    effects = run.world.outside.of(key)
    return any(each.happened_s is not None and each.happened_s <= answered_s for each in effects)


def _is_store_error(text: str) -> bool:
    return f"store {URL}" in text


def replay(run: Evidence) -> Iterator[Problem]:
    """Every journal can be folded, and after each commit its summary was that of the fold."""
    folds = run.folds
    for at_s, call, commit, _ in run.commits[folds.commits :]:
        folds.commits += 1
        session_id = commit.session_id
        if session_id in folds.broken or session_id not in run.journals:
            continue
        session = folds.session(session_id)
        try:
            for entry in commit.entries if call.name == "_append" else run.journals[session_id]:
                session.apply(entry)
        except HoldfastError as error:
            folds.broken.add(session_id)
            yield Problem("replay", session_id, f"{session_id} cannot be folded: {error}")
            continue
        if summarize(session) != commit.summary:
            folds.broken.add(session_id)
            text = f"the summary of {session_id} at {at_s:.3f} is not that of its journal"
            yield Problem("replay", session_id, text)
    for session_id, entries in run.journals.items():
        session = folds.session(session_id)
        if session.is_terminal and session.ended is None:
            yield Problem("replay", session_id, f"{session_id} does not say why it ended")
        if session_id not in folds.broken and summarize(session) != run.rows[session_id].summary:
            yield Problem("replay", session_id, f"the summary of {session_id} is not that of its journal")
        for entry in entries:
            said = str(getattr(entry.record, "error", ""))
            if "diverge" in said.lower():
                yield Problem("replay", session_id, f"{session_id} was replayed differently: {said}")


def ends(run: Evidence) -> Iterator[Problem]:
    """In calm, everything comes to its end: sessions, calls, leases and messages."""
    if not run.is_settled:
        yield Problem("ends", run.why_unsettled.partition(" ")[0], run.why_unsettled)


def errors(run: Evidence) -> Iterator[Problem]:
    """No process breaks, and no exception goes unseen."""
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


def usage(run: Evidence) -> Iterator[Problem]:
    """What a session is said to have spent is the sum of what models have reported for the answers it recorded."""
    for session_id, entries in run.journals.items():
        for entry in entries:
            record = entry.record
            if isinstance(record, AnsweredRecord) and isinstance(record.answer, Value):
                key = f"{session_id}/{record.query_id}"
                reported = run.world.outside.reported.get(key)
                if reported and record.usage not in reported:
                    yield Problem("usage", session_id, f"{key} has usage {record.usage}, but models said {reported}")
    for session_id, session in run.sessions.items():
        spent = session.metrics
        counted, expected = (spent.prompt_tokens.tokens, spent.response_tokens.tokens), _tokens(run, session_id)
        if counted != expected:
            yield Problem("usage", session_id, f"{session_id} has spent {expected} tokens, in and out, not {counted}")


def _tokens(run: Evidence, session_id: str) -> tuple[int, int]:
    """The tokens that went into models and came out on behalf of a session: reported, or else estimated."""
    answers = {
        entry.record.query_id: entry.record
        for entry in run.journals[session_id]
        if isinstance(entry.record, AnsweredRecord)
    }
    into = out = 0
    for query in _queries(run.journals[session_id]):
        answered = answers.get(query.id)
        if isinstance(query, LlmQuery):
            known = answered.usage if answered is not None and answered.usage is not None else Usage()
            size = measure_text(query.prompt)[2] + (measure_text(query.system)[2] if query.system is not None else 0)
            into += size if known.prompt_tokens is None else known.prompt_tokens
            said = answered.answer if answered is not None else None
            out += known.completion_tokens if known.completion_tokens is not None else _estimate(said)
        elif isinstance(query, ChildQuery) and answered is not None and answered.usage is not None:
            child = _child(run, session_id, query.id)
            more = _tokens(run, child) if child else (0, 0)
            into, out = into + more[0], out + more[1]
    return into, out


def _queries(entries: list[Entry]) -> Iterator[Query]:
    for entry in entries:
        if isinstance(entry.record, PausedRecord):
            yield from entry.record.queries


def _estimate(answer: Value | Failure | None) -> int:
    if not isinstance(answer, Value):
        return 0
    return measure_text(answer.value)[2] if isinstance(answer.value, str) else (value_bytes(answer.value)[1] + 3) // 4


def _child(run: Evidence, session_id: str, asked: str) -> str:
    for each, entries in run.journals.items():
        parent = getattr(entries[0].record, "parent", None)
        if parent is not None and (parent.session_id, parent.query_id) == (session_id, asked):
            return each
    return ""


def observers(run: Evidence) -> Iterator[Problem]:
    """Who watches sees every entry once, in order and not before its commit, over all connections and owners."""
    for (observer, session_id), seen in run.history.watched.items():
        positions = [each.position for each in seen]
        entries = run.journals.get(session_id, [])
        if positions != list(range(1, len(positions) + 1)):
            yield Problem("observers", session_id, f"{observer} saw {session_id} as {positions}")
        elif [each.what for each in seen] != entries[: len(seen)]:
            yield Problem("observers", session_id, f"{observer} saw other entries of {session_id} than its journal has")
        for each in seen:
            if each.at_s < run.committed.get((session_id, each.position), float("inf")):
                text = f"{observer} saw {session_id} at {each.position} before that was committed"
                yield Problem("observers", session_id, text)


LAWS: tuple[Law, ...] = (
    one_writer,
    once,
    never_again,
    truthful,
    replay,
    errors,
    time,
    usage,
    shared_state,
    observers,
)
"""The laws that hold at every moment."""

LAWS_OF_THE_END: tuple[Law, ...] = (ends, children)
"""The laws that hold once everything has come to rest."""
