"""The tools by which a model ends a turn that is to come to a value: it submits one, or says that there is none."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from holdfast.agent.machine.conversation import TurnState, tool_answer
from holdfast.agent.machine.turn import FINISH_TOOL, GIVE_UP_TOOL, ToolCallOutcome
from holdfast.agent.providers.provider import ToolSpec
from holdfast.agent.result_type import ResultInvalidError, ResultType
from holdfast.agent.schema_check import problems_by_schema
from holdfast.core.queries import Failure, Query, ToolQuery
from holdfast.core.values import Json
from holdfast.engine.drivers import Attempt, Driver

if TYPE_CHECKING:
    from holdfast.agent.mounted_store import MountedStore

TOLD_PROBLEMS = 5
"""Problems of a value that a model is told at once: it mends the others on the way, or is told of them next."""

_WRAPPED = "result"
"""The argument that a value is in which is no object: arguments always are."""

_DEFINITIONS = ("$defs", "definitions")
"""What references of a schema lead to, from its root."""

_UNBOUND = 1_000


def finish_tools(turn: TurnState | None) -> list[ToolSpec]:
    """What a model is told of these tools; nothing where the turn ends with a message."""
    if turn is None or turn.output is None:
        return []
    reason = {"type": "object", "properties": {"reason": {"type": "string"}}, "required": ["reason"]}
    return [
        ToolSpec(FINISH_TOOL, "Submit the result. Call it once, when you are done.", finish_schema(turn.output)),
        ToolSpec(GIVE_UP_TOOL, "Say that there can be no such result, and why. This ends the work.", reason),
    ]


def finish_schema(schema: dict[str, Json]) -> dict[str, Json]:
    """The arguments of the tool by which a value of this schema is submitted."""
    if _is_object(schema):
        return schema
    outer = {name: schema[name] for name in _DEFINITIONS if name in schema}
    inner = {name: value for name, value in schema.items() if name not in outer}
    wrapped = {"type": "object", "properties": {_WRAPPED: inner}, "required": [_WRAPPED], "additionalProperties": False}
    return {**wrapped, **outer}


def _is_object(schema: dict[str, Json]) -> bool:
    return schema.get("type") == "object" or ("type" not in schema and "properties" in schema)


class FinishDriver(Driver):
    """Takes the value that a model submits, if it is what the turn is to come to."""

    def __init__(self, mount: MountedStore) -> None:
        super().__init__(f"tool:{FINISH_TOOL}", finish_schema, recovery="safe", probe=None, concurrency=_UNBOUND)
        self._mount = mount

    async def execute(self, query: Query, attempt: Attempt) -> Json | Failure:
        assert isinstance(query, ToolQuery)
        turn = await _turn(self._mount, attempt)
        if turn is None or turn.output is None:
            return Failure(f"there is no tool '{FINISH_TOOL}': this turn is to end with a message", "unknown_tool")
        wanted = self._mount.result_types.get((attempt.session_id, turn.id))
        if problems := _problems(query.arguments, turn.output, wanted):
            return _not_taken(problems)
        for before in itertools.takewhile(lambda each: each.query != attempt.query_id, turn.calls):
            # One of an earlier reply would have ended the turn: it is of the same reply, and was submitted first.
            if before.call.name == FINISH_TOOL and not _problems(before.call.input, turn.output, wanted):
                return _not_taken(["one was submitted before, and the first counts"])
        return tool_answer(ToolCallOutcome(content="taken", finish=_value(query.arguments, turn.output)))


def _problems(arguments: Json, schema: dict[str, Json], wanted: ResultType | None) -> list[str]:
    """What is wrong with a value that was submitted so; nothing if it can be taken."""
    if not isinstance(arguments, dict) or (not _is_object(schema) and set(arguments) != {_WRAPPED}):
        return [f"it is to be the argument '{_WRAPPED}', and the only one"]
    value = _value(arguments, schema)
    problems = list(itertools.islice(problems_by_schema(value, schema), TOLD_PROBLEMS))
    if problems or wanted is None:
        return problems
    try:
        wanted.parse(value)  # what a type checks beyond its schema is known where somebody waits for one
    except ResultInvalidError as error:
        return error.problems
    return []


def _value(arguments: dict[str, Json], schema: dict[str, Json]) -> Json:
    return arguments if _is_object(schema) else arguments[_WRAPPED]


class GiveUpDriver(Driver):
    """Ends a turn whose model says that it cannot come to the value."""

    def __init__(self, mount: MountedStore) -> None:
        super().__init__(f"tool:{GIVE_UP_TOOL}", finish_schema, recovery="safe", probe=None, concurrency=_UNBOUND)
        self._mount = mount

    async def execute(self, query: Query, attempt: Attempt) -> Json | Failure:
        assert isinstance(query, ToolQuery)
        turn = await _turn(self._mount, attempt)
        if turn is None or turn.output is None:
            return Failure(f"there is no tool '{GIVE_UP_TOOL}': this turn is to end with a message", "unknown_tool")
        reason = query.arguments.get("reason")
        if not isinstance(reason, str) or not reason.strip():
            return Failure("say why there can be no result, as 'reason'", "invalid_arguments")
        return tool_answer(ToolCallOutcome(content="noted", gives_up=reason))


async def _turn(mount: MountedStore, attempt: Attempt) -> TurnState | None:
    return (await mount.conversations.with_query(attempt.session_id, attempt.query_id)).running


def _not_taken(problems: list[str]) -> Failure:
    return Failure(f"the result was not taken: {'; '.join(problems[:TOLD_PROBLEMS])}", "invalid_arguments")
