"""`CallHistory`: the latest model calls of a session with their answers, for its status. It is folded from the journal
when somebody asks for it: a session itself keeps no texts of what was answered."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from holdfast.core.limits import HISTORY_ENTRIES
from holdfast.core.metrics import measure_answer, measure_query
from holdfast.core.queries import Answer, Failure, LlmQuery, Usage, Value
from holdfast.core.records import AnsweredRecord, Entry, PausedRecord
from holdfast.core.values import Json


class LlmCall(msgspec.Struct):
    """One `llm` query and, once there is one, its answer."""

    query_id: str
    prompt: str
    prompt_tokens: int
    started_at: int
    response_tokens: int = 0
    answer: Answer | None = None
    completed_at: int | None = None

    def complete(self, answer: Answer, usage: Usage | None, at: int) -> None:
        """Add the answer. What whoever answered has counted counts."""
        self.answer, self.completed_at = answer, at
        _, _, self.response_tokens = measure_answer(answer)
        if usage is not None and usage.completion_tokens is not None:
            self.response_tokens = usage.completion_tokens
        if usage is not None and usage.prompt_tokens is not None:
            self.prompt_tokens = usage.prompt_tokens

    def to_json(self) -> dict[str, Any]:
        match self.answer:
            case Value(value=value):
                shown: dict[str, Json] = {"response": value}
            case Failure(message=message):
                shown = {"response": None, "error": message}
            case _:
                shown = {"response": None}
        return {
            "query_id": self.query_id,
            "prompt": self.prompt,
            **shown,
            "prompt_tokens": self.prompt_tokens,
            "response_tokens": self.response_tokens,
            "started_at": self.started_at,
            "completed_at": self.completed_at,
        }


class CallHistory:
    """The calls that were asked last."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._calls: dict[str, LlmCall] = {}
        for entry in entries:
            self.apply(entry)

    def apply(self, entry: Entry) -> None:
        """Fold the next entry."""
        record = entry.record
        if isinstance(record, PausedRecord):
            for query in record.queries:
                if isinstance(query, LlmQuery):
                    _, _, tokens = measure_query(query)
                    self._calls[query.id] = LlmCall(query.id, query.prompt, tokens, entry.at)
                    if len(self._calls) > HISTORY_ENTRIES:
                        del self._calls[next(iter(self._calls))]
        elif isinstance(record, AnsweredRecord) and (call := self._calls.get(record.query_id)) is not None:
            call.complete(record.answer, record.usage, entry.at)

    def to_json(self) -> list[dict[str, Any]]:
        """The calls, the oldest first."""
        return [call.to_json() for call in self._calls.values()]
