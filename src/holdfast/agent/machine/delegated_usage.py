"""What a session has spent beside its own calls: the words for it, and its sum by model."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.core.queries import Usage, sum_of_usage

SUBAGENT = "subagent"
"""The purpose of what subagents have spent."""

PROCESS = "process"
"""The purpose of what processes have spent."""

MAX_SPENDERS = 1_000
"""Processes that a session remembers to have been told the usage of. One is told again only after a crash, and soon."""


def spent_by_model(before: Mapping[str, Usage], usage: Usage) -> dict[str, Usage]:
    """What was spent on each model, with this added; `""` stands for models that are not known."""
    found = dict(before)
    for model, spent in (usage.by_model or {"": usage}).items():
        found[model] = sum_of_usage(found.get(model, Usage(llm_calls=0)), spent)
    return found
