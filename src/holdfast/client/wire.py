"""What comes over the wire, as the objects that the embedded API gives: events, queries and errors."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any

import msgspec

from holdfast.agent.live_events import WaitingEvent
from holdfast.agent.machine.queries import ApprovalQuery
from holdfast.agent.observed_events import (
    AskedEvent,
    EntryEvent,
    GapEvent,
    ObservableEvent,
    Observation,
    ObservedEvent,
    RedrawEvent,
)
from holdfast.core.cursors import read_cursor
from holdfast.core.errors import HoldfastError
from holdfast.core.events import (
    AcceptedEvent,
    CancelledEvent,
    CompletedEvent,
    Event,
    ExpiredEvent,
    FailedEvent,
    PausedEvent,
    RunningEvent,
    SentEvent,
)
from holdfast.core.queries import KERNEL_QUERIES, Failure, Query, Value
from holdfast.core.records import Entry, any_query, decode_record

_ERROR_MODULES = (
    *("core.errors", "core.cursors", "store.errors", "programs.errors", "engine.errors", "agent.errors"),
    "strategies.evaluation.errors",
)
"""Where the errors are defined that a server may tell of."""

MOST_DETAIL_CHARS = 2_000
"""Characters of what a server says is wrong."""

_PROBLEM_TYPE = "urn:holdfast:error:"


class RemoteError(HoldfastError):
    """An error that a server tells of and that has no class here: its kind, its sentence and its fields are kept."""

    def __init__(self, kind: str, detail: str, status: int, fields: Mapping[str, Any]) -> None:
        super().__init__(detail)
        self.kind = kind
        self.status = status
        self.fields = dict(fields)

    def to_json(self) -> dict[str, Any]:
        return {**self.fields, "kind": self.kind, "error": str(self)}


def error_of(problem: Mapping[str, Any], status: int) -> HoldfastError:
    """The error that a problem document tells of: of the class that the embedded API raises, if there is one."""
    kind = str(problem.get("type", "")).removeprefix(_PROBLEM_TYPE)
    found = _error_classes().get(kind)
    if found is not None:
        given = {name: problem[name] for name in found.field_names if name in problem}
        try:
            return found(**given)
        except TypeError:
            pass  # the server's version has other fields
    standard = ("type", "title", "status", "detail", "instance")
    fields = {key: value for key, value in problem.items() if key not in standard}
    detail = str(problem.get("detail") or "").strip() or f"the server answered {status}"
    return RemoteError(kind or "error", detail[:MOST_DETAIL_CHARS], status, fields)


@cache
def _error_classes() -> dict[str, type[HoldfastError]]:
    found: dict[str, type[HoldfastError]] = {}
    for module in _ERROR_MODULES:
        for each in vars(import_module(f"holdfast.{module}")).values():
            if isinstance(each, type) and issubclass(each, HoldfastError) and each.__module__.endswith(module):
                found[each.kind] = each
    return found


def event_of(shown: Mapping[str, Any]) -> Event:
    """The event that a reply shows."""
    common: dict[str, Any] = {"session_id": shown["session_id"], "replayed": bool(shown.get("replayed"))}
    stats = shown.get("stats", {})
    match shown["status"]:
        case "needs_response":
            listed = shown["queries"] if "queries" in shown else [{**shown, "id": shown["query_id"]}]
            due_at = {each["id"]: each["due_at"] for each in listed if "due_at" in each}
            return PausedEvent(**common, queries=[query_of(each) for each in listed], due_at=due_at)
        case "accepted":
            return AcceptedEvent(**common, remaining=list(shown.get("remaining_ids", [])))
        case "completed":
            return CompletedEvent(**common, result=shown.get("result"), stats=stats)
        case "error":
            return FailedEvent(**common, error=shown["error"], error_kind=shown.get("error_kind", "error"), stats=stats)
        case "cancelled":
            return CancelledEvent(**common, reason=shown.get("reason"), by=shown.get("by"), stats=stats)
        case "expired":
            return ExpiredEvent(**common, reason=shown.get("reason", ""), stats=stats)
        case _:
            waits_for, why = list(shown.get("waits_for", [])), shown.get("why", "")
            if shown.get("sent"):
                program, service = shown.get("program", ""), shown.get("service", "")
                return SentEvent(**common, waits_for=waits_for, why=why, program=program, service=service)
            return RunningEvent(**common, waits_for=waits_for, why=why)


def query_of(shown: Mapping[str, Any]) -> Query:
    """The query that an event shows. One of a kind that is not known here keeps its id, and nothing else."""
    if "approves" in shown:
        found: type[Query] | None = ApprovalQuery
    else:
        found = _KINDS.get(shown.get("kind", "llm"))
    if found is None:
        return Query(id=shown["id"])
    known = {each.encode_name for each in msgspec.structs.fields(found)}
    fields = {key: value for key, value in shown.items() if key in known}
    return msgspec.convert({**fields, "kind": found.__struct_config__.tag}, found)


_KINDS = {each.kind: each for each in KERNEL_QUERIES}


def seen_of(shown: dict[str, Any], cursor: str, session_id: str) -> ObservedEvent:
    """The event of a stream that a server sends, with the cursor after it."""
    return ObservedEvent(_observable(shown), read_cursor(cursor, session_id))


def _observable(shown: dict[str, Any]) -> ObservableEvent:
    """An event of a stream. Records and queries are of the types that are registered here, which no annotation says."""
    match shown["type"]:
        case "entry":
            return EntryEvent(position=shown["position"], at=shown["at"], entry=entry_of(shown["entry"]))
        case "asked":
            return AskedEvent(position=shown["position"], at=shown["at"], query=_stored_query(shown["query"]))
        case "waiting":
            return WaitingEvent(turn=shown["turn"], queries=[_stored_query(each) for each in shown["queries"]])
        case "redraw":
            return RedrawEvent(observation_of(shown["observation"]))
        case "gap":
            return GapEvent(shown["reason"], observation_of(shown["observation"]))
        case _:
            made: ObservableEvent = msgspec.convert(shown, ObservableEvent)
            return made


def observation_of(shown: Mapping[str, Any]) -> Observation:
    """A session as a server shows it, at a cursor."""
    made = msgspec.convert({**shown, "waiting": []}, Observation)
    return msgspec.structs.replace(made, waiting=[_stored_query(each) for each in shown["waiting"]])


def entry_of(shown: Mapping[str, Any]) -> Entry:
    """An entry of a journal."""
    return Entry(shown["position"], shown["at"], decode_record(msgspec.json.encode(shown["record"])))


def _stored_query(shown: Mapping[str, Any]) -> Query:
    """A query as the journal has it."""
    query: Query = msgspec.convert(shown, any_query())
    return query


def answer_body(value: Any) -> dict[str, Any]:
    """An answer as the server takes it: what was said, or why there is no answer."""
    match value:
        case Failure(message=message):
            return {"error": message}
        case Value(value=said):
            return {"response": said}
        case _:
            return {"response": value}
