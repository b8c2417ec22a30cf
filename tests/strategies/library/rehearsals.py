"""What the tests of bundled strategies share: answers by role, and what META says about calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.core.queries import LlmQuery, Query
from holdfast.programs.parameters import StrategyMeta, calls_of, filled, read_description
from holdfast.programs.sandbox.library import BUNDLED
from holdfast.testing import Rehearsal

TASK = "How many apples are in 3 boxes of 4?"


def meta_of(name: str) -> StrategyMeta:
    """What a bundled strategy says about itself."""
    described = read_description((BUNDLED / f"{name}.py").read_text())
    assert described is not None
    return described.meta


def scripted(name: str) -> dict[str, str]:
    """The answers that a bundled strategy has for rehearsals."""
    return {line.when: line.answer for line in meta_of(name).script}


def most_calls(name: str, ctx: dict[str, Any]) -> int | None:
    """How many calls META says that a strategy makes at most with this ctx."""
    meta = meta_of(name)
    return calls_of(meta, filled(meta, ctx))


def by_role(**said: Any) -> Callable[[Query], Any]:
    """Answers by the role of a question: one for all of that role, or a list to be used up in order."""
    left = {role: list(answer) if isinstance(answer, list) else answer for role, answer in said.items()}

    def answer(query: Query) -> Any:
        assert isinstance(query, LlmQuery)
        given = left[query.options["role"]]
        return given.pop(0) if isinstance(given, list) else given

    return answer


def roles(run: Rehearsal) -> list[str]:
    """The roles of the questions, in the order they were asked."""
    return [call.query.options["role"] for call in run.calls if isinstance(call.query, LlmQuery)]


def pauses(run: Rehearsal) -> list[int]:
    """The pause that each question was asked in."""
    return [call.pause for call in run.calls]


def prompts_of(run: Rehearsal, role: str) -> list[str]:
    """The questions of one role."""
    return [prompt for prompt, each in zip(run.prompts, roles(run), strict=True) if each == role]
