"""The two tools that end a turn with a typed result: the model submits the value, or says why there is none."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from holdfast.agent.machine.conversation import tool_answer
from holdfast.agent.machine.turn import FINISH_TOOL, GIVE_UP_TOOL, ToolCallOutcome
from holdfast.agent.machine.turn_state import TurnState
from holdfast.agent.providers.provider import ToolSpec
from holdfast.agent.result_type import ResultInvalidError, ResultType
from holdfast.agent.schema_check import problems_by_schema
from holdfast.core.queries import Failure, Query, ToolQuery
from holdfast.core.values import Json
from holdfast.engine.drivers import Attempt, Driver

if TYPE_CHECKING:
    from holdfast.agent.mounted_store import MountedStore

SHOWN_PROBLEMS = 5
"""Problems of a value that a model is shown at once: it fixes the others along the way, or sees them next."""

_WRAPPED = "result"
"""The argument that holds a value that is not an object, as arguments always are one."""

_DEFINITIONS = ("$defs", "definitions")
"""Where the references of a schema point, from its root."""

_UNBOUND = 1_000


def finish_tools(output: dict[str, Json]) -> list[ToolSpec]:
    """The specs of these tools, for a turn that must end with a value of this schema."""
    reason = {"type": "object", "properties": {"reason": {"type": "string"}}, "required": ["reason"]}
    return [
        ToolSpec(FINISH_TOOL, "Submit the result. Call this once, when you are done.", finish_schema(output)),
        ToolSpec(GIVE_UP_TOOL, "Give up: say why there can be no such result. This ends the turn.", reason),
    ]


def finish_schema(schema: dict[str, Json]) -> dict[str, Json]:
    """The schema of the arguments with which a value of this schema is submitted."""
    if _is_object(schema):
        return schema
    outer = {name: schema[name] for name in _DEFINITIONS if name in schema}
    inner = {name: value for name, value in schema.items() if name not in outer}
    wrapped = {"type": "object", "properties": {_WRAPPED: inner}, "required": [_WRAPPED], "additionalProperties": False}
    return {**wrapped, **outer}


def _is_object(schema: dict[str, Json]) -> bool:
    return schema.get("type") == "object" or ("type" not in schema and "properties" in schema)


class FinishDriver(Driver):
    """Accepts the value that a model submits if it is of the type that the turn must return."""

    def __init__(self, mount: MountedStore) -> None:
        super().__init__(f"tool:{FINISH_TOOL}", finish_schema, recovery="safe", probe=None, concurrency=_UNBOUND)
        self._mount = mount

    async def execute(self, query: Query, attempt: Attempt) -> Json | Failure:
        assert isinstance(query, ToolQuery)
        turn = await _turn(self._mount, attempt)
        if turn is None or turn.output is None:
            return Failure(f"there is no tool '{FINISH_TOOL}': this turn ends with a message", "unknown_tool")
        wanted = self._mount.result_types.get((attempt.session_id, turn.id))
        if problems := _problems(query.arguments, turn.output, wanted):
            return _rejected(problems)
        for before in itertools.takewhile(lambda each: each.query != attempt.query_id, turn.calls):
            # In an earlier reply it would have ended the turn, so it is in the same reply, and came first.
            if before.call.name == FINISH_TOOL and not _problems(before.call.input, turn.output, wanted):
                return _rejected(["a result was submitted before it, and the first one counts"])
        return tool_answer(ToolCallOutcome(content="accepted", finish=_value(query.arguments, turn.output)))


def _problems(arguments: Json, schema: dict[str, Json], wanted: ResultType | None) -> list[str]:
    """What is wrong with the submitted arguments; empty if they can be accepted."""
    if not isinstance(arguments, dict) or (not _is_object(schema) and set(arguments) != {_WRAPPED}):
        return [f"submit it as the argument '{_WRAPPED}', and give no other argument"]
    value = _value(arguments, schema)
    problems = list(itertools.islice(problems_by_schema(value, schema), SHOWN_PROBLEMS))
    if problems or wanted is None:
        return problems
    try:
        wanted.parse(value)  # the type itself, which may check more than its schema, is known where somebody waits
    except ResultInvalidError as error:
        return error.problems
    return []


def _value(arguments: dict[str, Json], schema: dict[str, Json]) -> Json:
    return arguments if _is_object(schema) else arguments[_WRAPPED]


class GiveUpDriver(Driver):
    """Ends a turn whose model says that there can be no result."""

    def __init__(self, mount: MountedStore) -> None:
        super().__init__(f"tool:{GIVE_UP_TOOL}", finish_schema, recovery="safe", probe=None, concurrency=_UNBOUND)
        self._mount = mount

    async def execute(self, query: Query, attempt: Attempt) -> Json | Failure:
        assert isinstance(query, ToolQuery)
        turn = await _turn(self._mount, attempt)
        if turn is None or turn.output is None:
            return Failure(f"there is no tool '{GIVE_UP_TOOL}': this turn ends with a message", "unknown_tool")
        reason = query.arguments.get("reason")
        if not isinstance(reason, str) or not reason.strip():
            return Failure("give the reason why there can be no result, as 'reason'", "invalid_arguments")
        return tool_answer(ToolCallOutcome(content="noted", gives_up=reason))


async def _turn(mount: MountedStore, attempt: Attempt) -> TurnState | None:
    return (await mount.conversations.with_query(attempt.session_id, attempt.query_id)).running


def _rejected(problems: list[str]) -> Failure:
    return Failure(f"the result was not accepted: {'; '.join(problems[:SHOWN_PROBLEMS])}", "invalid_arguments")
