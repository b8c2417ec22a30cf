"""Events as a host gets them that answers by itself: what it could overlook or has no setting for is said in words."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.events import Event, PausedEvent
from holdfast.core.queries import LlmQuery, Query
from holdfast.serve.mcp.tools import Object

_SETTINGS = ("temperature", "top_p", "top_k", "seed", "model", "stop")
"""Options of a question that change how a model answers, and that hosts can seldom set."""


def event_for_host(event: Event) -> Object:
    """The event, with a note if its questions ask for something that a host would silently lose."""
    note = note_on(event.queries) if isinstance(event, PausedEvent) else ""
    return {**event.to_json(), **({"note": note} if note else {})}


def plain_event(event: Event) -> Object:
    """The event as it is, for tools whose replies have the shape that another system gave them."""
    return event.to_json()


def note_on(queries: Sequence[Query]) -> str:
    """What a host has to know about some questions beyond what they say, or an empty text."""
    asked = [query for query in queries if isinstance(query, LlmQuery)]
    by_text: dict[tuple[str, str | None], list[str]] = {}
    for query in asked:
        by_text.setdefault((query.prompt, query.system), []).append(query.id)
    notes = [
        f"{ids[0]} to {ids[-1]} are one question, asked {len(ids)} times on purpose: answer each from the beginning,"
        " as if you had not seen the others, and do not copy an answer"
        for ids in by_text.values()
        if len(ids) > 1
    ]
    settings = sorted({name for query in asked for name in query.options if name in _SETTINGS})
    if settings:
        notes.append(
            f"if you can't set {', '.join(settings)} as the options ask, answer all the same; for a high temperature,"
            " vary how you reason"
        )
    return "; ".join(notes)
