"""The laws of the kill tests: what the world has seen and what the store says, and which promises they break."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.core.queries import Value
from holdfast.core.records import AnsweredRecord, CancelledRecord, CompletedRecord, Entry, FailedRecord
from holdfast.core.state import Session
from holdfast.core.summary import summarize
from holdfast.store import open_store
from holdfast.store.session_rows import SessionRow
from tests.engine.kill.ledger import read_ledger
from tests.engine.kill.places import Place
from tests.engine.kill.programs import counter
from tests.engine.kill.tools import did


@dataclass
class Evidence:
    """What the world has seen of a run, and what the store says after it."""

    seen: list[dict[str, Any]]
    journals: dict[str, list[Entry]]
    rows: dict[str, SessionRow] = field(default_factory=dict)
    mail: dict[str, int] = field(default_factory=dict)
    count: Any = None
    """What the session `state` has counted to, as the durable state has it."""

    def outcomes(self) -> dict[str, Any]:
        return {session: _outcome(entries) for session, entries in self.journals.items()}

    def lines(self, what: str, **like: Any) -> list[dict[str, Any]]:
        return [line for line in self.seen if line["what"] == what and all(line[key] == like[key] for key in like)]


def _outcome(entries: Sequence[Entry]) -> Any:
    match entries[-1].record:
        case CompletedRecord(result=result):
            return result
        case CancelledRecord():
            return "cancelled"
        case FailedRecord(error=error):
            return f"failed: {error}"
        case other:
            return type(other).__name__


async def gather_evidence(place: Place) -> Evidence:
    evidence = Evidence(read_ledger(place.directory), {})
    async with open_store(place.url) as store:
        for row in (await store.sessions()).rows:
            session = row.session_id
            evidence.rows[session] = row
            evidence.journals[session] = [entry async for entry in store.journal(session)]
            evidence.mail[session] = len(await store.mailbox(session))
        item = await store.get_state(counter.name, "count")
        evidence.count = item and item.value
    return evidence


def broken_laws(evidence: Evidence, expected: dict[str, Any], killed_in: str | None) -> list[str]:
    """Sentences that say what went wrong; none if every promise was kept."""
    return [
        *_broken_journals(evidence),
        *_broken_answers(evidence),
        *_asked_again(evidence),
        *_broken_effects(evidence),
        *_broken_results(evidence, expected, killed_in),
    ]


def _broken_journals(evidence: Evidence) -> Iterator[str]:
    for session, row in evidence.rows.items():
        folded = Session.fold(session, evidence.journals[session])
        if row.position != folded.position:
            yield f"{session} tells position {row.position} and has {folded.position} records"
        if row.summary != summarize(folded):
            yield f"the summary of {session} is {row.summary}, its journal gives {summarize(folded)}"
        if evidence.mail[session]:
            yield f"{evidence.mail[session]} messages wait for {session} for ever"


def _broken_answers(evidence: Evidence) -> Iterator[str]:
    for session, entries in evidence.journals.items():
        answered = Counter(entry.record.query_id for entry in entries if isinstance(entry.record, AnsweredRecord))
        for asked, count in answered.items():
            if count > 1:
                yield f"{session}/{asked} was answered {count} times"
    for line in evidence.lines("acked"):
        answers = [
            entry.record.answer
            for entry in evidence.journals.get(line["session"], [])
            if isinstance(entry.record, AnsweredRecord) and entry.record.query_id == line["query"]
        ]
        if answers != [Value(value=line["content"])]:
            yield f"the answer to {_query(line)} was acknowledged, and the journal has {answers}"
    found = {line["session"]: line["state"] for line in evidence.lines("found")}
    for line in evidence.lines("started", who="child"):
        if found and line["session"] not in found:
            yield f"the start of {line['session']} was acknowledged and is lost"
    for line in evidence.lines("cancelled", who="child"):
        if found and found.get(line["session"]) != "cancelled":
            yield f"the end of {line['session']} was acknowledged and is lost"


def _asked_again(evidence: Evidence) -> Iterator[str]:
    """Neither the host nor a receiver hears again of a query that has its answer."""
    answered: set[tuple[str, str]] = set()
    for line in evidence.seen:
        match line["what"]:
            case "acked":
                answered.add(_query(line))
            case "found":
                answered |= {(line["session"], asked) for asked in line["settled"]}
            case "put" if _query(line) in answered:
                yield f"{_query(line)} was put to the host after it had its answer"
            case "effect" if _query(line) in answered:
                yield f"the effect of {_query(line)} was executed after it had its answer"
            case _:
                pass


def _query(line: dict[str, Any]) -> tuple[str, str]:
    return line["session"], line["query"]


def _broken_effects(evidence: Evidence) -> Iterator[str]:
    executions: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)
    for line in evidence.lines("effect"):
        executions[line["tool"], line["session"], line["query"]].append(line["key"])
    for (tool, *query), keys in executions.items():
        if tool in ("never", "queued", "ask") and len(keys) > 1:
            yield f"{tool}: the effect of {query} was executed {len(keys)} times"
        if tool == "confirm" and len(keys) != 1:
            yield f"confirm: the effect of {query} was executed {len(keys)} times"
        if len(set(keys)) != 1:
            yield f"{tool}: {query} was executed under different keys: {keys}"
    all_keys = [keys[0] for keys in executions.values()]
    if len(set(all_keys)) != len(all_keys):
        yield f"two queries share a key: {all_keys}"


EXECUTED = {
    **{session: session for session in ("never", "safe", "idempotent", "confirm", "queued")},
    "takeover": "late",
    "busy": "held",
}
"""The tools that sessions call, where nobody but the tool itself can have answered."""


def _broken_results(evidence: Evidence, expected: dict[str, Any], killed_in: str | None) -> Iterator[str]:
    outcomes = evidence.outcomes()
    for session in sorted({*outcomes, *expected}):
        if session == "cancel.q-0" and session not in outcomes:
            continue  # its parent was cancelled before it could be started
        came_to, allowed = outcomes.get(session, "nothing"), [expected.get(session, "nothing")]
        if session == killed_in:
            allowed += _without_knowing(session, expected[session])
        if came_to not in allowed:
            yield f"{session} came to {came_to}, expected {' or '.join(map(str, allowed))}"
    for session, tool in EXECUTED.items():
        executed = {line["query"] for line in evidence.lines("effect", session=session)}
        told = str(outcomes.get(session)).count(did(tool, ""))
        if told > len(executed):
            yield f"{session} was told of {told} effects, and {len(executed)} were executed"
    if "state" in expected and evidence.count != expected["state"][1]:
        yield f"the state counts {evidence.count}, expected {expected['state'][1]}"


def _without_knowing(session: str, result: Any) -> list[Any]:
    """What else a session may come to, whose tool is not run again when its outcome is unknown."""
    match session:
        case "never":
            return [["unknown_outcome", result[1]]]
        case "queued":
            one, two = result
            return [["unknown_outcome", two], [one, "unknown_outcome"], ["unknown_outcome"] * 2]
        case _:
            return []
