"""The tools of a runtime as drivers of an engine: found when they are called, so that tools may come and go."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from holdfast.agent.tools.catalog import Catalog, DeclaredTool
from holdfast.agent.tools.runner import CallRef, Runner
from holdfast.agent.tools.tool import Tool
from holdfast.core.decide import Given
from holdfast.core.queries import Failure, Query, ToolQuery, Value
from holdfast.engine.drivers import Attempt, Driver

if TYPE_CHECKING:
    from holdfast.agent.place import Place


class ToolDrivers:
    """Finds the driver of each call of a tool."""

    def __init__(self, catalog: Catalog, place: Place, concurrency: int) -> None:
        self._catalog = catalog
        self._place = place
        self._slots = asyncio.Semaphore(concurrency)
        self._runner = Runner(about=self._about, emit=place.hub.emit)
        self._drivers: dict[str, tuple[Tool, Driver]] = {}
        self._unknown = _UnknownDriver(catalog)

    def install(self) -> None:
        """Let these tools answer the calls of the place's sessions."""
        self._place.holdfast.find_tools_with(self._find)

    def _find(self, query: ToolQuery) -> Driver | None:
        match self._catalog.get(query.name):
            case DeclaredTool():
                return None  # it waits for whoever answers
            case None:
                return self._unknown if query.call_id is not None else None
            case tool:
                known = self._drivers.get(query.name)
                if known is None or known[0] is not tool:
                    known = self._drivers[query.name] = (tool, _ToolDriver(tool, self._runner, self._slots))
                return known[1]

    async def _about(self, attempt: Attempt) -> CallRef | None:
        conversation = await self._place.conversations.get(attempt.session_id)
        query = conversation.asked.get(attempt.query_id)
        if not isinstance(query, ToolQuery) or query.call_id is None or conversation.running is None:
            return None
        allowed = conversation.policy.tools if conversation.policy is not None else None
        return CallRef(turn=conversation.running.id, call_id=query.call_id, allowed=allowed)


class _ToolDriver(Driver):
    """Runs one tool, within what all tools together may."""

    def __init__(self, tool: Tool, runner: Runner, slots: asyncio.Semaphore) -> None:
        super().__init__(
            f"tool:{tool.name}",
            runner.effect(tool),
            recovery=tool.recovery,
            probe=runner.probe(tool),
            concurrency=tool.concurrency,
        )
        self._tool = tool
        self._runner = runner
        self._all = slots

    async def run(self, query: Query, attempt: Attempt) -> Given:
        assert isinstance(query, ToolQuery)
        async with self._all:
            outcome = await self._runner.run(self._tool, attempt, query.arguments)
        return Given(outcome if isinstance(outcome, Failure) else Value(value=outcome), query.id)


class _UnknownDriver(Driver):
    """Tells a model that there is no such tool: a result like any other."""

    def __init__(self, catalog: Catalog) -> None:
        super().__init__("tool:?", catalog.unknown, recovery="safe", probe=None, concurrency=1_000)
        self._catalog = catalog

    async def run(self, query: Query, attempt: Attempt) -> Given:
        assert isinstance(query, ToolQuery)
        return Given(self._catalog.unknown(query.name), query.id)
