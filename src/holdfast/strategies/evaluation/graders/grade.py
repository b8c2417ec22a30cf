"""`Grade`: what a grader said of an answer; and the answer as graders see it."""

from __future__ import annotations

import msgspec

from holdfast.core.values import Json
from holdfast.strategies.evaluation.data.case import Case

WHY_CHARS = 300
"""Characters of the reason that is kept with a grade: enough to see what went wrong."""

_TEXT_KEYS = ("answer", "summary", "output", "text")


class Grade(msgspec.Struct, frozen=True, omit_defaults=True):
    """A score from 0 to 1, or None if there is none: no verdict was found, or the grader failed."""

    score: float | None
    grade: Json = None
    """What the grader itself said: true, false, a rating, a length."""
    why: str | None = None


class GradedAnswer(msgspec.Struct, frozen=True):
    """The result of a trial as graders see it."""

    text: str
    value: Json
    case: Case
    latency_ms: int = 0


def answer_text(result: Json) -> str:
    """The text in a result: itself, its field `result`, or in that `answer`, `summary`, `output` or `text`."""
    if isinstance(result, str):
        return result
    if result is None:
        return ""
    if isinstance(result, dict):
        inner = result.get("result", result)
        if isinstance(inner, str):
            return inner
        if isinstance(inner, dict):
            for key in _TEXT_KEYS:
                if isinstance(inner.get(key), str):
                    return str(inner[key])
    return msgspec.json.encode(result).decode()


def excerpt(text: str, most: int = WHY_CHARS) -> str:
    """The beginning of a text."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
