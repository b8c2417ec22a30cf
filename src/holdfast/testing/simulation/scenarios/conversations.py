"""The laws of agents' conversations: inputs enter once and in order, settings hold, and no part of a reply is kept."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from holdfast.agent.machine.queries import InputQuery, ReplyQuery
from holdfast.agent.machine.records import ConfiguredRecord, JoinedRecord
from holdfast.core.queries import Value
from holdfast.core.records import AnsweredRecord, Entry, PausedRecord
from holdfast.core.values import Json
from holdfast.testing.simulation.evidence import Evidence, Problem

BEFORE_CALLS = "one moment"
"""What the simulated model says beside its tool calls."""

ITEM, TURN = "i", "t"
"""What the ids of items and of turns have before their numbers."""

AFTER_CALLS = "done with "
"""How its last reply to an input begins."""


@dataclass
class ConfigureCall:
    """A call that changes a policy, over all tries of one life of its client."""

    session_id: str
    setting: int
    """No other call of the session sets this."""
    called_s: float
    returned_s: float | None = None
    """When it was acknowledged; None if it never was."""
    policy: Json = None
    """The setting of the policy that was returned."""
    tries: int = 0


def configured(run: Evidence, calls: Sequence[ConfigureCall]) -> Iterator[Problem]:
    """Changes of a policy are those of one register: each is in effect at a moment between its call and its return.

    What a caller is returned was the policy then or later. A try of which nobody has heard may take effect
    at any time later, but no oftener than it was tried.
    """
    changes: dict[str, list[tuple[float, Json]]] = defaultdict(list)
    for at_s, _, commit, _ in run.commits:
        for entry in commit.entries:
            if isinstance(entry.record, ConfiguredRecord):
                changes[commit.session_id].append((at_s, (entry.record.change.generation or {}).get("seed")))
    tried: Counter[tuple[str, Json]] = Counter()
    for call in calls:
        tried[call.session_id, call.setting] += call.tries
        if call.returned_s is None:
            continue
        where = f"{call.session_id} was set to {call.setting} from {call.called_s:.3f} to {call.returned_s:.3f}"
        before = [setting for at_s, setting in changes[call.session_id] if at_s < call.called_s][-1:]
        during = [s for at_s, s in changes[call.session_id] if call.called_s <= at_s <= call.returned_s]
        seen = [*before, *during]
        if call.setting not in seen:
            yield Problem("configured", call.session_id, f"{where}, and that is not in its journal then: {seen}")
        elif call.policy not in seen[seen.index(call.setting) :]:
            yield Problem("configured", call.session_id, f"{where}, and was said to be {call.policy}, after {seen}")
    for session_id, made in changes.items():
        for setting, times in Counter(setting for _, setting in made).items():
            if times > tried[session_id, setting]:
                text = (
                    f"{session_id} was set to {setting} {times} times, and that was tried {tried[session_id, setting]}"
                )
                yield Problem("configured", session_id, text)


def conversation(run: Evidence, session_id: str, texts: Mapping[str, str]) -> Iterator[Problem]:
    """Inputs enter the conversation once at most, and items in their order; replies are kept whole.

    `texts` has what each item and turn of the session says, by their ids, in the order in which they were sent. A turn
    that a client runs itself does not wait for the items before it.
    """
    entries = run.journals[session_id]
    seen = list(entered(run, session_id, entries))
    for each, times in Counter(seen).items():
        if times > 1:
            yield Problem("inbox", session_id, f"{each} entered the conversation of {session_id} {times} times")
    order = {each: index for index, each in enumerate(texts)}
    items = [order[each] for each in seen if each in order and each.startswith(f"{session_id}-{ITEM}")]
    if items != sorted(items):
        yield Problem("inbox", session_id, f"the items of {session_id} entered as {seen}, not in their order")
    whole = {BEFORE_CALLS, *(AFTER_CALLS + text for text in texts.values())}
    for entry in entries:
        for said in _replies(run, session_id, entry):
            if said not in whole:
                yield Problem("inbox", session_id, f"{session_id} keeps {said!r}, which is not a whole reply")


def entered(run: Evidence, session_id: str, entries: Sequence[Entry]) -> Iterator[str]:
    """The items that entered turns, and the turns that had none, in order.

    An item that joins a turn enters with the next question to the model. If there is none, it is back in the inbox.
    """
    joined: list[str] = []
    for entry in entries:
        record = entry.record
        if isinstance(record, JoinedRecord):
            joined += record.items
        elif isinstance(record, PausedRecord):
            if any(isinstance(query, ReplyQuery) for query in record.queries):
                yield from joined
                joined = []
            elif any(isinstance(query, InputQuery) for query in record.queries):
                joined = []
        elif isinstance(record, AnsweredRecord) and isinstance(record.answer, Value):
            value = record.answer.value
            if isinstance(run.asked.get((session_id, record.query_id)), InputQuery) and isinstance(value, dict):
                items = value.get("items")
                yield from map(str, items) if isinstance(items, list) else [str(value.get("turn"))]


def _replies(run: Evidence, session_id: str, entry: Entry) -> Iterator[str]:
    record = entry.record
    if not isinstance(record, AnsweredRecord) or not isinstance(record.answer, Value):
        return
    value = record.answer.value
    if isinstance(run.asked.get((session_id, record.query_id)), ReplyQuery) and isinstance(value, dict):
        content = value.get("content")
        for block in content if isinstance(content, list) else ():
            if isinstance(block, dict) and block.get("type") == "text":
                yield str(block["text"])
