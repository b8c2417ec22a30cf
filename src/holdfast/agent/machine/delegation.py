"""Delegation: how a model asks a subagent to do something, and how what comes of it is told.

A call of the tool `delegate` is a query for a child session (`DelegateQuery`). The child is an agent that works one
task: it takes its task as its only input, and ends with its turn. Its parent is answered with a `SubagentResult`,
however the child ended; only a child that could not begin, or took too long, is a failure of the query itself.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from holdfast.agent.machine.excerpt import OutputLimits, shortened
from holdfast.agent.machine.turn import (
    CommandOutcome,
    FrameSwitchOutcome,
    MessageOutcome,
    StoppedOutcome,
    ToolCallOutcome,
    ToolValueOutcome,
    TurnOutcome,
    ValueOutcome,
)
from holdfast.core.queries import Answer, Failure, Value
from holdfast.core.records import CancelledRecord, CompletedRecord, EndRecord, ExpiredRecord, FailedRecord
from holdfast.core.values import Json, encode

DELEGATE_TOOL = "delegate"
"""The tool with which a model gives a task to a subagent."""

READ_TOOL = "read_output"
"""The tool with which it reads the rest of a result that was cut."""

TASK_TURN = "task"
"""The id of the one turn of a subagent."""

DEFAULT_DEPTH = 3
"""Levels of subagents below a session: a researcher with helpers of its own needs two, and each level multiplies."""

MAX_DEPTH = 5
"""Levels that a host may allow: beyond that nobody can follow what is done on whose behalf."""

MAX_CHILDREN = 32
"""Subagents that one turn may start: more than a person reviews, and few enough that a runaway turn is affordable."""

SUBAGENT_MARK = "$subagent"
"""The key of the answer that a subagent gives its parent."""


class Delegation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a session may delegate."""

    depth: int = DEFAULT_DEPTH
    """Levels of subagents that may be below the session; at 0 it has no tool to delegate with."""
    children: int = MAX_CHILDREN
    """Subagents that one turn may start."""
    agents: list[str] | None = None
    """The subagents that it may use, by name or pattern; None for all that its process has."""


SubagentStatus: TypeAlias = Literal["ok", "failed", "budget", "timeout", "cancelled"]


class SubagentResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came of a task."""

    status: SubagentStatus
    """`ok`; `budget` if it reached a limit of what it may spend; `timeout`, `cancelled`; `failed` for anything else."""
    value: Json = msgspec.UNSET
    """The value that it gave back, if it gave one: checked against the schema, where there is one."""
    text: str = ""
    """What it said, if it gave no value."""
    error: str = ""
    """Why there is neither."""
    session: str = ""
    """The session of the subagent, in which all is recorded; empty if it could not begin."""

    @property
    def content(self) -> Json:
        """The value, or the text."""
        return self.text if self.value is msgspec.UNSET else self.value


_STATUS: dict[str, SubagentStatus] = {"budget": "budget", "timeout": "timeout", "cancelled": "cancelled"}
"""By the kind of failure with which the session of a subagent ends."""

_LIMITS_OF_TIME = ("wall_ms", "max_elapsed_ms")
_LIMITS_OF_COST = ("iterations", "tool_calls", "tokens", "cost", "budget")


def status_of(outcome: TurnOutcome) -> SubagentStatus:
    """How a subagent ended whose turn ended so."""
    match outcome:
        case StoppedOutcome(reason="cancelled"):
            return "cancelled"
        case StoppedOutcome(limit=limit) if limit in _LIMITS_OF_TIME:
            return "timeout"
        case StoppedOutcome(limit=limit) if limit in _LIMITS_OF_COST:
            return "budget"
        case StoppedOutcome() | FrameSwitchOutcome():
            return "failed"
        case MessageOutcome() | ValueOutcome() | ToolValueOutcome() | CommandOutcome():
            return "ok"


def result_of_session(session_id: str, ended: EndRecord, *, wants_value: bool) -> SubagentResult:
    """What came of a task whose session ended so."""
    match ended:
        case CompletedRecord(result=str() as text) if not wants_value:
            return SubagentResult(status="ok", text=text, session=session_id)
        case CompletedRecord(result=value):
            return SubagentResult(status="ok", value=value, session=session_id)
        case FailedRecord(error=error, kind=kind):
            return SubagentResult(status=_STATUS.get(kind, "failed"), error=error, session=session_id)
        case CancelledRecord(reason=reason):
            return SubagentResult(status="cancelled", error=reason or "somebody cancelled it", session=session_id)
        case ExpiredRecord(reason=reason):
            return SubagentResult(status="timeout", error=reason, session=session_id)


def answer_of(result: SubagentResult) -> Answer:
    """The answer that a parent is given."""
    return Value(value={SUBAGENT_MARK: msgspec.to_builtins(result)})


def subagent_result(answer: Answer) -> SubagentResult:
    """What came of a task, from the answer to its query."""
    match answer:
        case Value(value={"$subagent": marked}):
            return msgspec.convert(marked, SubagentResult)
        case Value(value=value):  # somebody answered in its place
            return SubagentResult(status="ok", text=value) if isinstance(value, str) else _given(value)
        case Failure(message=message, code=code):
            status: SubagentStatus = "timeout" if code == "timeout" else "failed"
            return SubagentResult(status="cancelled" if code == "cancelled" else status, error=message)


def _given(value: Json) -> SubagentResult:
    return SubagentResult(status="ok", value=value)


def outcome_of_delegation(answer: Answer, asked: str) -> ToolCallOutcome:
    """What a model is shown of an answer to its call, which the query `asked` stands for. A long one is cut."""
    result = subagent_result(answer)
    if result.status != "ok":
        shown = {"error": result.error, "status": result.status, "session": result.session}
        code = answer.code if isinstance(answer, Failure) else ""
        return ToolCallOutcome(
            content={key: value for key, value in {**shown, "code": code}.items() if value}, is_error=True
        )
    content = result.content
    text = content if isinstance(content, str) else encode(content).decode()
    excerpt = shortened(text, _SHOWN, f"read them with {READ_TOOL}, id '{asked}'")
    return ToolCallOutcome(content=content if excerpt is text else excerpt)


_SHOWN = OutputLimits()


def delegated_result(answer: Json) -> Json:
    """The whole of what a subagent gave back, from the value of its answer; None if that is no answer of a subagent."""
    if not (isinstance(answer, dict) and set(answer) == {SUBAGENT_MARK}):
        return None
    return subagent_result(Value(value=answer)).content


# --- calls ---------------------------------------------------------------------------------------------


class DelegateArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of the tool `delegate`."""

    agent: str
    task: str
    seed: dict[str, Json] = {}
    timeout_s: float | None = None


def delegate_arguments(arguments: dict[str, Json]) -> DelegateArguments | str:
    """The arguments of a call, or what is wrong with them."""
    try:
        given = msgspec.convert(arguments, DelegateArguments)
    except msgspec.ValidationError as error:
        return str(error)
    if not given.task.strip():
        return "the task is empty"
    if given.timeout_s is not None and given.timeout_s <= 0:
        return f"timeout_s must be more than 0, got {given.timeout_s:g}"
    return given
