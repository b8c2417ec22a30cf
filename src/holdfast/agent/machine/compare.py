"""How an agent's journal reads when it is compared with another: what was said and done, turn by turn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import msgspec

from holdfast.agent.machine.conversation import tool_done
from holdfast.agent.machine.fork_points import message_text
from holdfast.agent.machine.messages import AgentMessage
from holdfast.agent.machine.queries import CallQuery, InputQuery, ReplyQuery
from holdfast.agent.machine.records import CallRecord, EnqueuedRecord, FrameRecord, JoinedRecord, TurnRecord
from holdfast.agent.machine.turn import StoppedOutcome, TurnOutcome, reply_of
from holdfast.agent.machine.turn_input import TurnInput, input_of
from holdfast.core.compare import ComparedJournal, ComparedStep, value_text
from holdfast.core.queries import Answer, Failure
from holdfast.core.records import AnsweredRecord, Entry, PausedRecord, Record

_OF_TURN = (InputQuery, ReplyQuery, CallQuery)
"""Queries that are part of a turn. They are not listed themselves: their answers show what they asked."""


class AgentComparedJournal(ComparedJournal):
    """The journal of an agent, reduced to what counts in a comparison."""

    counts: ClassVar[tuple[type[Record], ...]] = (
        *ComparedJournal.counts,
        TurnRecord,
        CallRecord,
        FrameRecord,
        JoinedRecord,
    )
    names: ClassVar[dict[str, str]] = {
        **ComparedJournal.names,
        "user": "the input",
        "joined": "what was said meanwhile",
        "assistant": "the model's reply",
        "tool": "the result of a tool",
        "turn": "the outcome of the turn",
        "window": "the summary",
    }
    round_begins_with: ClassVar[str | None] = "user"

    def __init__(self, session_id: str, entries: Sequence[Entry]) -> None:
        self._items = {
            entry.record.item.id: entry.record.item.content
            for entry in entries
            if isinstance(entry.record, EnqueuedRecord)
        }
        super().__init__(session_id, entries)

    def mark(self, record: Record) -> Any:
        match record:
            case AnsweredRecord(query_id=asked, answer=answer) if isinstance(self.queries.get(asked), InputQuery):
                return asked, _without_ids(answer)
            case JoinedRecord(items=items):
                return "joined", [self._items.get(item) for item in items]
            case _:
                return super().mark(record)

    def steps(self, entry: Entry) -> Iterable[ComparedStep]:
        at = entry.position
        match entry.record:
            case PausedRecord(queries=queries):
                asked = (query for query in queries if not isinstance(query, _OF_TURN))
                return [ComparedStep(at, "asked", query.text, query.id) for query in asked]
            case TurnRecord(outcome=outcome):
                return [ComparedStep(at, "turn", _outcome_text(outcome))]
            case JoinedRecord(items=items):
                said = (message_text(AgentMessage("user", self._items.get(item, []))) for item in items)
                return [ComparedStep(at, "joined", text) for text in said]
            case CallRecord(done=done):
                return [ComparedStep(at, "tool", value_text(done.content))]
            case FrameRecord(summary=summary):
                return [ComparedStep(at, "window", summary)]
            case _:
                return super().steps(entry)

    def answer_step(self, asked: str, answer: Answer) -> tuple[str, str]:
        query = self.queries.get(asked)
        if isinstance(answer, Failure) and not isinstance(query, CallQuery):
            return super().answer_step(asked, answer)
        try:
            match query:
                case InputQuery():
                    return "user", message_text(AgentMessage("user", input_of(answer).content))
                case ReplyQuery():
                    reply = reply_of(getattr(answer, "value", None))
                    return "assistant", message_text(AgentMessage("assistant", reply.content))
                case CallQuery():
                    return "tool", value_text(tool_done(answer).content)
                case _:
                    pass
        except ValueError:  # in no form that an agent understands
            pass
        return super().answer_step(asked, answer)


def _without_ids(answer: Answer) -> TurnInput | Answer:
    """The input of a turn without its id and those of its items, which differ by chance."""
    try:
        return msgspec.structs.replace(input_of(answer), turn="", items=[])
    except ValueError:  # not understood, and skipped by the agent
        return answer


def _outcome_text(outcome: TurnOutcome) -> str:
    tag = str(outcome.__struct_config__.tag)
    if isinstance(outcome, StoppedOutcome):
        return f"{tag}: {outcome.reason}" + (f": {outcome.detail}" if outcome.detail else "")
    fields = {name: getattr(outcome, name) for name in outcome.__struct_fields__}
    return f"{tag} {value_text(fields)}" if fields else tag
