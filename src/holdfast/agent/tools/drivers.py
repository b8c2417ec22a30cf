"""The tools of a runtime as drivers of an engine: found when they are called, so that tools may come and go."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import msgspec

from holdfast.agent.machine.calls import AUTHORIZE, CALL_TOOL, FIND_TOOLS
from holdfast.agent.machine.policy import Policy
from holdfast.agent.machine.program import COMMAND_TOOL
from holdfast.agent.machine.turn import FINISH_TOOL, GIVE_UP_TOOL
from holdfast.agent.plugins.hooks import abort_failure
from holdfast.agent.plugins.plugin import AbortTurn, PluginCall
from holdfast.agent.tools.catalog import Catalog, DeclaredTool, Entry, unknown_tool
from holdfast.agent.tools.errors import InvalidArgumentsError
from holdfast.agent.tools.finish import FinishDriver, GiveUpDriver
from holdfast.agent.tools.results import json_of
from holdfast.agent.tools.runner import CallRef, Runner
from holdfast.agent.tools.tool import Tool
from holdfast.core.decide import Given
from holdfast.core.queries import Failure, Query, ToolQuery
from holdfast.core.values import Json, own_copy
from holdfast.engine.drivers import Attempt, Driver, SharedSlots, Slots

if TYPE_CHECKING:
    from holdfast.agent.mounted_store import Place
    from holdfast.agent.resident import Resident


class ToolDrivers:
    """Finds the driver of each call of a tool."""

    def __init__(self, catalog: Catalog, place: Place, concurrency: int) -> None:
        self._catalog = catalog
        self._place = place
        self._slots = Slots(concurrency)
        self._runner = Runner(about=self._about, emit=place.hub.emit)
        self._drivers: WeakKeyDictionary[Tool, Driver] = WeakKeyDictionary()
        self._unknown = _UnknownDriver(place, self._driver)
        self._own: dict[str, Driver] = {
            FINISH_TOOL: FinishDriver(place),
            GIVE_UP_TOOL: GiveUpDriver(place),
            FIND_TOOLS: _FindDriver(place),
            CALL_TOOL: _MiscallDriver(),
            AUTHORIZE: _AuthorizeDriver(place),
            COMMAND_TOOL: _CommandDriver(place),
        }

    def install(self) -> None:
        """Let these tools answer the calls of the place's sessions."""
        self._place.holdfast.find_tools_with(self._find)

    def _find(self, session_id: str, query: ToolQuery) -> Driver | None:
        if query.call_id is None:
            own = self._own[query.name] if query.name == COMMAND_TOOL else None
            entry = self._catalog.get(query.name)
            return own if entry is None else self._driver(entry)  # else it is a strategy's own business
        if (own := self._own.get(query.name)) is not None:
            return own
        resident = self._place.residents.peek(session_id)
        entry = resident.tool(query.name) if resident is not None else self._catalog.get(query.name)
        return self._unknown if entry is None else self._driver(entry)

    def _driver(self, entry: Entry) -> Driver | None:
        """The driver of a tool; None if it waits for whoever answers."""
        if isinstance(entry, DeclaredTool):
            return None
        known = self._drivers.get(entry)
        if known is None:
            known = self._drivers[entry] = _ToolDriver(entry, self._runner, self._slots)
        return known

    async def _about(self, attempt: Attempt) -> CallRef | None:
        conversation = await self._place.conversations.with_query(attempt.session_id, attempt.query_id)
        query = conversation.asked.get(attempt.query_id)
        if not isinstance(query, ToolQuery) or query.call_id is None or conversation.running is None:
            return None
        resident = await self._place.residents.at_work(conversation)
        execution = resident.execution(conversation.running.id, conversation.policy or Policy())
        return CallRef(
            turn=execution.turn,
            call_id=query.call_id,
            arguments=query.arguments,
            allowed=execution.catalog.names,
            hooks=execution.hooks,
            own=resident.own_tools,
        )


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


UNBOUND = 1_000
"""Calls at once of tools that only look something up in memory."""


class _OwnDriver(Driver):
    """Answers a call by itself, and does no harm by doing so again."""

    def __init__(self, name: str, place: Place) -> None:
        super().__init__(name, self.execute, recovery="safe", probe=None, concurrency=UNBOUND)
        self._place = place

    async def _resident(self, attempt: Attempt) -> tuple[Resident, Policy, str]:
        """The session of a call, how it is run, and its turn."""
        conversation = await self._place.conversations.with_query(attempt.session_id, attempt.query_id)
        policy = conversation.policy or Policy()
        turn = conversation.running.id if conversation.running is not None else ""
        return await self._place.residents.get(attempt.session_id, policy, conversation.parent), policy, turn


class _UnknownDriver(_OwnDriver):
    """Tells a model that there is no such tool: a result like any other.

    It looks again before: plugins bring their tools when a session is taken up, which may be because of this call.
    """

    def __init__(self, place: Place, driver_of: Callable[[Entry], Driver | None]) -> None:
        super().__init__("tool:?", place)
        self._driver_of = driver_of

    async def execute(self, query: Query, attempt: Attempt) -> Json | Failure:
        if (found := await self._found(query, attempt)) is not None:
            return await found.execute(query, attempt)
        assert isinstance(query, ToolQuery)
        resident, policy, _ = await self._resident(attempt)
        return unknown_tool(query.name, sorted(resident.catalog(policy).names))

    async def recover(self, query: Query, attempt: Attempt) -> Given | None:
        found = await self._found(query, attempt)
        return await found.recover(query, attempt) if found is not None else None

    async def _found(self, query: Query, attempt: Attempt) -> Driver | None:
        assert isinstance(query, ToolQuery)
        resident, _, _ = await self._resident(attempt)
        entry = resident.tool(query.name)
        return None if entry is None else self._driver_of(entry)


class _FindDriver(_OwnDriver):
    """Finds tools for a model that has too many to be told of."""

    def __init__(self, place: Place) -> None:
        super().__init__(f"tool:{FIND_TOOLS}", place)

    async def execute(self, query: Query, attempt: Attempt) -> Json | Failure:
        assert isinstance(query, ToolQuery)
        resident, policy, _ = await self._resident(attempt)
        catalog = resident.catalog(policy)
        if not catalog.is_searched(policy.catalog_tokens):
            return unknown_tool(query.name, sorted(catalog.names))
        words = query.arguments.get("words")
        if not isinstance(words, str) or not words.strip():
            return Failure("give the words to look for, as 'words'", InvalidArgumentsError.kind)
        found = catalog.find(words)
        return msgspec.to_builtins(found) if found else f"no tool fits '{words[:100]}'; try other words"


class _MiscallDriver(Driver):
    """Tells a model how a tool that it has found is called, after a call that names none."""

    def __init__(self) -> None:
        super().__init__(f"tool:{CALL_TOOL}", self.execute, recovery="safe", probe=None, concurrency=UNBOUND)

    async def execute(self, query: Query, attempt: Attempt) -> Failure:
        told = f"'{CALL_TOOL}' takes the name of a tool as 'name', and its arguments as an object in 'arguments'"
        return Failure(told, InvalidArgumentsError.kind)


class _AuthorizeDriver(_OwnDriver):
    """Asks the code of plugins whether a call may run. The strictest of them counts."""

    def __init__(self, place: Place) -> None:
        super().__init__(f"tool:{AUTHORIZE}", place)

    async def execute(self, query: Query, attempt: Attempt) -> Json:
        assert isinstance(query, ToolQuery)
        resident, _, turn = await self._resident(attempt)
        given = query.arguments
        call = PluginCall(
            session_id=attempt.session_id,
            turn=turn,
            id=query.call_id or "",
            tool=given["tool"],
            arguments=own_copy(given["arguments"]),
            key=attempt.key,
            query=attempt.query_id,
        )
        said = [await resident.hooks.authorize(plugin, call) for plugin in given["callbacks"]]
        return max(said, key=lambda each: ("allow", "confirm", "deny").index(each["verdict"]))


class _CommandDriver(_OwnDriver):
    """Does commands of hosts. One that was under way when its process died may or may not have been done."""

    def __init__(self, place: Place) -> None:
        super().__init__(f"tool:{COMMAND_TOOL}", place)
        self.recovery = "never"

    async def execute(self, query: Query, attempt: Attempt) -> Json | Failure:
        assert isinstance(query, ToolQuery)
        conversation = await self._place.conversations.with_query(attempt.session_id, attempt.query_id)
        try:
            resident = await self._place.residents.at_work(conversation)
        except AbortTurn as abort:
            return abort_failure(abort)
        name = query.arguments["name"]
        done = await resident.hooks.command(name, query.arguments["arguments"])
        return json_of(done, name)
