"""The phases of a turn, for measurements; they follow from what is committed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Literal, TypeAlias

from holdfast.agent.machine.conversation import Conversation
from holdfast.agent.machine.queries import InputQuery
from holdfast.core.queries import LlmQuery, ToolQuery
from holdfast.core.records import AnsweredRecord, Entry, PausedRecord

log = logging.getLogger("holdfast.agent")

Phase: TypeAlias = Literal["accepted", "model_started", "model_done", "tools_started", "tools_done", "committed"]

PhaseProbe: TypeAlias = Callable[[Phase], None]
"""Called within the turn, which waits for it to return."""


def phase_of(conversation: Conversation, entry: Entry) -> Phase | None:
    """The phase that an entry begins or ends, or None; `conversation` is as it was before the entry."""
    match entry.record:
        case AnsweredRecord(query_id=asked):
            query = conversation.asked.get(asked)
            if isinstance(query, InputQuery):
                return "accepted"
            if isinstance(query, LlmQuery):
                return "model_done"
            return "tools_done" if query is not None and len(conversation.asked) == 1 else None
        case PausedRecord(queries=[LlmQuery()]):
            return "model_started"
        case PausedRecord(queries=[ToolQuery(), *_]):
            return "tools_started"
        case PausedRecord(queries=[InputQuery()]):
            return "committed" if conversation.turns else None
        case _:
            return None


def tell(probe: PhaseProbe, phase: Phase) -> None:
    """Call a probe. Its exceptions are logged: what it reports has already happened."""
    try:
        probe(phase)
    except Exception:
        log.exception("a phase probe failed at '%s'", phase)
