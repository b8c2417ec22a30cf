"""The status snapshot of a session, and the filter that says how much of its pending queries it shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from holdfast.core.budget import remaining
from holdfast.core.call_history import CallHistory
from holdfast.core.errors import InvalidFilterError
from holdfast.core.events import query_json
from holdfast.core.limits import PROMPT_PREVIEW_CHARS
from holdfast.core.pending_queries import PendingQuery
from holdfast.core.queries import LlmQuery
from holdfast.core.state import Session, State

PromptMode: TypeAlias = Literal["off", "full", "preview"]


class PromptFilter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much of each prompt to show."""

    mode: PromptMode = "off"
    chars: int = PROMPT_PREVIEW_CHARS


class PendingFilter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which fields of each pending query to show."""

    query_id: bool = False
    max_tokens: bool = False
    system: bool = False
    grounded: bool = False
    underspecified: bool = False
    prompt: PromptFilter = PromptFilter()


_META = PendingFilter(query_id=True, max_tokens=True)
_PRESETS = {
    "meta": _META,
    "preview": msgspec.structs.replace(_META, prompt=PromptFilter(mode="preview")),
    "full": PendingFilter(
        query_id=True,
        max_tokens=True,
        system=True,
        grounded=True,
        underspecified=True,
        prompt=PromptFilter(mode="full"),
    ),
}


def parse_pending_filter(given: object, preview_chars: int = PROMPT_PREVIEW_CHARS) -> PendingFilter | None:
    """A filter from its JSON: none, a preset name, or an object."""
    match given:
        case None:
            return None
        case str():
            if given not in _PRESETS:
                names = " | ".join(f'"{name}"' for name in _PRESETS)
                raise InvalidFilterError(f"unknown pending_filter preset '{given}' (valid: {names})")
            preset = _PRESETS[given]
            if given == "preview":
                return msgspec.structs.replace(preset, prompt=PromptFilter("preview", preview_chars))
            return preset
        case Mapping():
            try:
                wanted = msgspec.convert(dict(given), PendingFilter)
            except msgspec.ValidationError as error:
                raise InvalidFilterError(f"pending_filter: {error}") from None
            if wanted.prompt.chars < 0:
                raise InvalidFilterError(f"pending_filter: prompt.chars must be at least 0, got {wanted.prompt.chars}")
            return wanted
        case _:
            kinds = {bool: "boolean", int: "number", float: "number", list: "array"}
            kind = kinds.get(type(given), type(given).__name__)
            why = f"pending_filter must be a preset name (string) or filter object, got {kind}"
            raise InvalidFilterError(why)


def snapshot(
    session: Session,
    now: int,
    *,
    pending_filter: PendingFilter | None = None,
    history: CallHistory | None = None,
    below: Mapping[str, PendingQuery] | None = None,
) -> dict[str, Any]:
    """What a session looks like at `now`, without changing it; with its latest calls and with what its children wait
    for, where those are given."""
    metrics = session.metrics
    started = session.started
    shown: dict[str, Any] = {
        "session_id": session.id,
        "state": "terminal" if session.is_terminal else str(session.state),
        "phase": str(session.state),
        "started_at": metrics.started_at,
        "last_activity_at": metrics.last_activity_at,
        "metrics": _metrics_json(session, now, history),
    }
    if started is not None:
        shown["strategy"] = started.program.name
        if started.imported is not None:
            shown["imported"] = msgspec.to_builtins(started.imported)
    if session.state is State.PAUSED:
        shown["pending_queries"] = len(session.pending)
    if pending_filter is not None:
        pending = [*session.pending.values(), *(below or {}).values()]
        shown["pending"] = [pending_json(p, pending_filter) for p in pending]
    return shown


def _metrics_json(session: Session, now: int, history: CallHistory | None) -> dict[str, Any]:
    metrics = session.metrics
    waiting = next(reversed(metrics.open.values()), None)
    current = waiting and {
        "query_id": waiting.query_id,
        "prompt_tokens": waiting.prompt_tokens,
        "started_waiting_at": waiting.started_at,
    }
    shown: dict[str, Any] = {
        "elapsed_ms": metrics.elapsed_ms(now),
        "own_ms": metrics.own_ms(now),
        "waiting_ms": metrics.waiting_ms(now),
        "llm_calls": metrics.llm_calls,
        "pauses": metrics.pauses,
        "rounds": metrics.rounds,
        "tokens": {
            "prompt_total": metrics.prompt_tokens.tokens,
            "response_total": metrics.response_tokens.tokens,
            "total": metrics.total_tokens,
            "current_query": current,
        },
        "recent_logs": [
            {"ts": at, "level": log.level, "source": log.source, "message": log.message}
            for at, log in metrics.recent_logs
        ],
    }
    if (progress := metrics.progress) is not None:
        shown["progress"] = {"step": progress.step, "total": progress.total, "message": progress.message}
    if session.started is not None and session.started.budget is not None:
        shown["budget_remaining"] = msgspec.to_builtins(remaining(session.started.budget, metrics, now))
    if history is not None:
        shown["conversation_history"] = history.to_json()
    return shown


def pending_json(pending: PendingQuery, wanted: PendingFilter) -> dict[str, Any]:
    query = pending.query
    full = query_json(query)
    shown: dict[str, Any] = {}
    if wanted.query_id:
        shown["query_id"] = query.id
    if wanted.max_tokens and isinstance(query, LlmQuery):
        shown["max_tokens"] = query.max_tokens
    if not isinstance(query, LlmQuery):
        shown["kind"] = full.pop("kind")
    if wanted.system and isinstance(query, LlmQuery):
        shown["system"] = query.system
    if wanted.grounded and isinstance(query, LlmQuery):
        shown["grounded"] = query.grounded
    if wanted.underspecified and isinstance(query, LlmQuery):
        shown["underspecified"] = query.underspecified
    if isinstance(query, LlmQuery):
        shown |= query.said_on_top
    prompt = full.pop("prompt", None)
    match wanted.prompt:
        case PromptFilter(mode="full"):
            shown |= {} if isinstance(query, LlmQuery) else full
            if prompt is not None:
                shown["prompt"] = prompt
            if isinstance(query, LlmQuery) and query.options:
                shown["options"] = query.options
        case PromptFilter(mode="preview", chars=chars) if prompt is not None:
            shown["prompt_preview"] = prompt[:chars]
        case _:
            pass
    if pending.due_at is not None:
        shown["due_at"] = pending.due_at
    return shown
