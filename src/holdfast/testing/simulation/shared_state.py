"""The law of the shared state: what sessions were told of it can be true of one state, one change after the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from holdfast.core.queries import ToolQuery, Value
from holdfast.core.records import AnsweredRecord, PausedRecord
from holdfast.programs.own_tools import STATE_TOOL
from holdfast.testing.simulation.evidence import Evidence, Problem
from holdfast.testing.simulation.store import returned


class _Version(NamedTuple):
    """What an item was from a moment on."""

    since_s: float
    number: int
    value: Any


def shared_state(run: Evidence) -> Iterator[Problem]:
    """Changes count once, in the order of their commits; a reader sees what was there while it asked.

    It asks at the earliest right after the commit before: what it asks for is read before the commit that says so.
    """
    items: dict[tuple[str, str], list[_Version]] = defaultdict(lambda: [_Version(0.0, 0, None)])
    before: dict[str, float] = {}
    asked_s: dict[tuple[str, str], float] = {}
    for at_s, _, commit, _ in run.commits:
        since_s, before[commit.session_id] = before.get(commit.session_id, 0.0), at_s
        for entry in commit.entries:
            record = entry.record
            if isinstance(record, PausedRecord):
                asked_s.update({(commit.session_id, query.id): since_s for query in record.queries})
            if not isinstance(record, AnsweredRecord) or not isinstance(record.answer, Value):
                continue
            query = run.asked.get((commit.session_id, record.query_id))
            if not isinstance(query, ToolQuery) or query.name != STATE_TOOL:
                continue
            versions = items[str(query.arguments["namespace"]), str(query.arguments["key"])]
            moments = (asked_s[commit.session_id, record.query_id], at_s)
            if not _is_possible(versions, query.arguments, record.answer.value, moments):
                said = f"{query.arguments} was answered with {record.answer.value!r}"
                where = f"{commit.session_id}/{record.query_id} at {at_s:.3f}"
                yield Problem("shared state", commit.session_id, f"{where}: {said}, after {versions[-1].value!r}")
    for (namespace, key), versions in items.items():
        stored = returned(run.world.server._get_state(namespace, key))
        if (stored.value if stored is not None else None) != versions[-1].value:
            text = f"{namespace}/{key} is {stored!r}, but its changes lead to {versions[-1].value!r}"
            yield Problem("shared state", "", text)


def _is_possible(versions: list[_Version], asked: dict[str, Any], answer: Any, moments: tuple[float, float]) -> bool:
    """Whether an answer fits what was asked and answered then; if it is that of a change, the item has changed."""
    asked_s, at_s = moments
    last = versions[-1]
    meanwhile = [each for each, after in zip(versions, [*versions[1:], None], strict=True) if _was(after, asked_s)]
    match asked["op"]:
        case "get":
            return any(answer == {"value": each.value, "version": each.number} for each in meanwhile)
        case "put" if answer is False:
            return any(each.number != asked["expected"] for each in meanwhile)
        case "put":
            versions.append(_Version(at_s, last.number + 1, asked["value"]))
            return asked.get("expected") in (None, last.number)
        case "incr":
            total = (last.value if last.number else asked["default"]) + asked["delta"]
            versions.append(_Version(at_s, last.number + 1, total))
            return bool(answer == total)
        case other:
            raise ValueError(f"simulated programs do not ask for {other!r} of the state")


def _was(after: _Version | None, asked_s: float) -> bool:
    """Whether a version was there at some moment since."""
    return after is None or after.since_s >= asked_s
