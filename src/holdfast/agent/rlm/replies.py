"""What follows from a model's reply in RLM mode: run its cell, end the turn, or ask again. No reply raises.

| in the reply | decision |
|---|---|
| a closed cell that passes the check | `execute` |
| a cell that the check refuses | `retry_check` |
| a cell that is too long, or a native tool call | `retry_malformed` |
| a cell that is not closed | `retry_unclosed_cell`, or `retry_output_limit` if the reply met its token limit |
| prose | `finish_prose`, or `request_finish` if the turn must end with a value |
| nothing | `retry_malformed` |
"""

from __future__ import annotations

import ast
from collections.abc import Collection
from typing import Literal, TypeAlias

import msgspec

from holdfast.agent.rlm import feedback
from holdfast.agent.rlm.check import check_cell, parse_cell
from holdfast.agent.rlm.fence import find_cell, guessed_cell
from holdfast.agent.rlm.limits import MAX_CELL_CHARS

DecisionName: TypeAlias = Literal[
    "execute",
    "finish_prose",
    "request_finish",
    "retry_unclosed_cell",
    "retry_output_limit",
    "retry_malformed",
    "retry_check",
]


class ReplyDecision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What to do about a reply."""

    name: DecisionName
    cell: str = ""
    """The code to run."""
    is_guessed: bool = False
    """Whether the code was found without a label for Python."""
    remark: str = ""
    """What the model is told before it is asked again."""


def decide_reply(
    text: str,
    *,
    is_cut_short: bool = False,
    has_native_calls: bool = False,
    wants_value: bool = False,
    reserved: Collection[str] = (),
    was_run: bool = False,
) -> ReplyDecision:
    """The decision about a reply. `is_cut_short` says that it met its token limit; `reserved` are the names that a cell
    must not assign; `was_run` says that the journal has what the cell did, so that it passed the check."""
    if has_native_calls:
        return ReplyDecision(name="retry_malformed", remark=feedback.policy(feedback.NATIVE_CALL))
    found = find_cell(text)
    if found.is_closed:
        if was_run:
            return ReplyDecision(name="execute", cell=found.code)
        return _checked(found.code, reserved)
    if found.is_open:
        name: DecisionName = "retry_output_limit" if is_cut_short else "retry_unclosed_cell"
        return ReplyDecision(name=name, remark=feedback.unclosed(found.last_line, is_cut_short=is_cut_short))
    guessed = guessed_cell(text)
    if guessed is not None and guessed.strip() and isinstance(parse_cell(guessed), ast.Module):
        return msgspec.structs.replace(_checked(guessed, reserved), is_guessed=True)
    if is_cut_short:
        return ReplyDecision(name="retry_output_limit", remark=feedback.policy(feedback.PROSE_TOO_LONG))
    if wants_value:
        return ReplyDecision(name="request_finish", remark=feedback.policy(feedback.VALUE_WANTED))
    if text.strip():
        return ReplyDecision(name="finish_prose")
    return ReplyDecision(name="retry_malformed", remark=feedback.policy(feedback.EMPTY))


def _checked(code: str, reserved: Collection[str]) -> ReplyDecision:
    if not code.strip():
        return ReplyDecision(name="retry_malformed", remark=feedback.policy(feedback.EMPTY_CELL))
    if len(code) > MAX_CELL_CHARS:
        return ReplyDecision(name="retry_malformed", remark=feedback.cell_too_long(len(code)))
    problems = check_cell(code, reserved)
    if problems:
        return ReplyDecision(name="retry_check", remark=feedback.refused(problems))
    return ReplyDecision(name="execute", cell=code)
