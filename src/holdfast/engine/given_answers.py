"""Answers as callers of `feed` may write them: a bare value, a failure, with usage, or several by query id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from holdfast.core.decide import GivenAnswer
from holdfast.core.errors import InvalidValueError
from holdfast.core.queries import Failure, Usage, Value

Answers: TypeAlias = Mapping[str, Any] | Any
"""An answer (a value, a `Failure`, a `GivenAnswer`), or answers by query id. A mapping is always the latter."""


def given_answers(answers: Answers, usage: Usage | None) -> list[GivenAnswer]:
    """The answers that a caller has given, each with the query that it names."""
    if type(answers) is str:  # the usual one
        return [GivenAnswer(Value(value=answers), None, usage)]
    if not isinstance(answers, Mapping):
        return [_one(answers, None, usage)]
    if usage is not None and len(answers) > 1:
        raise InvalidValueError("usage", "it belongs to one answer; give each of several its own with GivenAnswer(…)")
    for asked in answers:
        if not isinstance(asked, str):
            why = f"{asked!r} is not a query id: a mapping is answers by query id; an object is fed as Value(…)"
            raise InvalidValueError("answers", why)
    return [_one(answer, asked, usage) for asked, answer in answers.items()]


def _one(answer: Any, asked: str | None, usage: Usage | None) -> GivenAnswer:
    match answer:
        case GivenAnswer():
            return msgspec.structs.replace(answer, query_id=asked or answer.query_id, usage=answer.usage or usage)
        case Value() | Failure():
            return GivenAnswer(answer, asked, usage)
        case value:
            return GivenAnswer(Value(value=value), asked, usage)
