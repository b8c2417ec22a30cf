"""`Limits`: how far one turn of an agent may go."""

from __future__ import annotations

from typing import Literal

import msgspec

DEFAULT_ITERATIONS = 24
"""Model calls in one turn: more than a person waits for, and few enough that a runaway turn stays affordable."""

DEFAULT_NO_PROGRESS = 12
"""Replies in a row that executed nothing: empty ones, and those that called only tools that do not exist."""

DEFAULT_TOOL_CALLS = 200
"""Tool calls in one turn."""

DEFAULT_REPAIRS = 5
"""How often a model is asked again for the value of a turn, after an invalid value or words instead of one."""


class Limits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a turn may go; None is no limit."""

    iterations: int | None = DEFAULT_ITERATIONS
    no_progress: int = DEFAULT_NO_PROGRESS
    tool_calls: int | None = DEFAULT_TOOL_CALLS
    tokens: int | None = None
    """Tokens of all model calls together, prompts and replies."""
    cost: float | None = None
    wall_ms: int | None = None
    """Time since the input. It is checked when an effect is chosen; what is under way is waited for."""
    repairs: int = DEFAULT_REPAIRS
    """Only for a turn that must end with a value."""
    on_limit: Literal["stop", "answer"] = "stop"
    """What follows when the iterations have run out: the turn is stopped, or the model is asked once more, to answer in
    words. A turn that must end with a value is stopped."""
