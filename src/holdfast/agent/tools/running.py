"""The tools of a runtime as drivers of an engine: found when they are called, so that tools may come and go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.agent.tools.catalog import Catalog, DeclaredTool
from holdfast.agent.tools.runner import CallRef, Runner
from holdfast.agent.tools.schema import problems_in
from holdfast.agent.tools.tool import Tool
from holdfast.core.conversation import tool_answer
from holdfast.core.queries import Failure, Query, ToolQuery
from holdfast.core.turn import FINISH_TOOL, ToolDone
from holdfast.core.values import Json
from holdfast.engine.drivers import Attempt, Driver, SharedSlots, Slots

if TYPE_CHECKING:
    from holdfast.agent.place import Place


class ToolDrivers:
    """Finds the driver of each call of a tool."""

    def __init__(self, catalog: Catalog, place: Place, concurrency: int) -> None:
        self._catalog = catalog
        self._place = place
        self._slots = Slots(concurrency)
        self._runner = Runner(about=self._about, emit=place.hub.emit)
        self._drivers: dict[str, tuple[Tool, Driver]] = {}
        self._unknown = _UnknownDriver(catalog, place)
        self._finish = _FinishDriver(place)

    def install(self) -> None:
        """Let these tools answer the calls of the place's sessions."""
        self._place.holdfast.find_tools_with(self._find)

    def _find(self, query: ToolQuery) -> Driver | None:
        match self._catalog.get(query.name):
            case DeclaredTool():
                return None  # it waits for whoever answers
            case None if query.call_id is None:
                return None  # a strategy's own business
            case None:
                return self._finish if query.name == FINISH_TOOL else self._unknown
            case tool:
                known = self._drivers.get(query.name)
                if known is None or known[0] is not tool:
                    known = self._drivers[query.name] = (tool, _ToolDriver(tool, self._runner, self._slots))
                return known[1]

    async def _about(self, attempt: Attempt) -> CallRef | None:
        conversation = await self._place.conversations.with_query(attempt.session_id, attempt.query_id)
        query = conversation.asked.get(attempt.query_id)
        if not isinstance(query, ToolQuery) or query.call_id is None or conversation.running is None:
            return None
        told = self._catalog.specs(conversation.policy.tools if conversation.policy is not None else None)
        allowed = [spec.name for spec in told]
        return CallRef(turn=conversation.running.id, call_id=query.call_id, allowed=allowed)


class _ToolDriver(Driver):
    """Runs one tool, within what all tools together may."""

    def __init__(self, tool: Tool, runner: Runner, slots: Slots) -> None:
        super().__init__(
            f"tool:{tool.name}",
            runner.effect(tool),
            recovery=tool.recovery,
            probe=runner.probe(tool),
            concurrency=tool.concurrency,
        )
        self.slots = SharedSlots(tool.concurrency, slots)
        self._tool = tool
        self._runner = runner

    async def execute(self, query: Query, attempt: Attempt) -> Json | Failure:
        assert isinstance(query, ToolQuery)
        return await self._runner.run(self._tool, attempt, query.arguments)


class _FinishDriver(Driver):
    """Takes the value that a model submits, if it is what the turn is to come to."""

    def __init__(self, place: Place) -> None:
        super().__init__(f"tool:{FINISH_TOOL}", finish_schema, recovery="safe", probe=None, concurrency=1_000)
        self._place = place

    async def execute(self, query: Query, attempt: Attempt) -> Json | Failure:
        assert isinstance(query, ToolQuery)
        conversation = await self._place.conversations.with_query(attempt.session_id, attempt.query_id)
        schema = conversation.running.output if conversation.running is not None else None
        if schema is None:
            return Failure(f"there is no tool '{FINISH_TOOL}': this turn is to end with a message", "unknown_tool")
        problems = list(problems_in(query.arguments, finish_schema(schema)))
        if problems:
            return Failure(f"the result was not taken: {'; '.join(problems[:5])}", "invalid_arguments")
        value = query.arguments if _is_object(schema) else query.arguments[_WRAPPED]
        return tool_answer(ToolDone(content="taken", finish=value))


_WRAPPED = "result"
"""The argument that a value is in which is no object: arguments always are."""


def finish_schema(schema: dict[str, Json]) -> dict[str, Json]:
    """The arguments of the tool by which a value of this schema is submitted."""
    if _is_object(schema):
        return schema
    return {"type": "object", "properties": {_WRAPPED: schema}, "required": [_WRAPPED], "additionalProperties": False}


def _is_object(schema: dict[str, Json]) -> bool:
    return schema.get("type") == "object" or ("type" not in schema and "properties" in schema)


class _UnknownDriver(Driver):
    """Tells a model that there is no such tool: a result like any other."""

    def __init__(self, catalog: Catalog, place: Place) -> None:
        super().__init__("tool:?", catalog.unknown, recovery="safe", probe=None, concurrency=1_000)
        self._catalog = catalog
        self._place = place

    async def execute(self, query: Query, attempt: Attempt) -> Failure:
        assert isinstance(query, ToolQuery)
        policy = (await self._place.conversations.get(attempt.session_id)).policy
        return self._catalog.unknown(query.name, policy.tools if policy is not None else None)
