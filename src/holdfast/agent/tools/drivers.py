"""The tools of a runtime as drivers of an engine, looked up at each call, so that tools may come and go."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import msgspec

from holdfast.agent.machine.calls import AUTHORIZE, CALL_TOOL, FIND_TOOLS
from holdfast.agent.machine.policy import Policy
from holdfast.agent.machine.program import COMMAND_TOOL
from holdfast.agent.machine.queries import CallQuery
from holdfast.agent.machine.turn import FINISH_TOOL, GIVE_UP_TOOL
from holdfast.agent.plugins.hooks import abort_failure
from holdfast.agent.plugins.plugin import AbortTurn, PluginCall
from holdfast.agent.processes.drivers import WorkDrivers, process_drivers
from holdfast.agent.processes.machine import WorkQuery
from holdfast.agent.tools.catalog import AnyTool, DeclaredTool, DelegateTool, unknown_tool
from holdfast.agent.tools.errors import InvalidArgumentsError
from holdfast.agent.tools.finish import FinishDriver, GiveUpDriver
from holdfast.agent.tools.results import json_of
from holdfast.agent.tools.runner import ModelCall, ToolRunner
from holdfast.agent.tools.tool import Tool
from holdfast.agent.triggers.drivers import trigger_drivers
from holdfast.core.decide import GivenAnswer
from holdfast.core.queries import Failure, Query, ToolQuery
from holdfast.core.values import Json, own_copy
from holdfast.engine.drivers import Attempt, Driver
from holdfast.engine.slots import SharedSlots, Slots
from holdfast.engine.store_trouble import insist

if TYPE_CHECKING:
    from holdfast.agent.loaded_session import LoadedSession
    from holdfast.agent.mounted_store import MountedStore
    from holdfast.agent.runtime import Runtime


class ToolDrivers:
    """Finds the driver of each tool call."""

    def __init__(self, runtime: Runtime, mount: MountedStore) -> None:
        self._catalog = runtime.tools
        self._plugins = runtime.plugins
        self._mount = mount
        concurrency = runtime.options.tool_concurrency
        self._slots = Slots(concurrency, spare=concurrency)
        # What is read before a tool runs says nothing about it: a store in trouble is asked again.
        self._runner = ToolRunner(about=lambda attempt: insist(self._about, attempt), emit=mount.live_events.emit)
        self._drivers: WeakKeyDictionary[Tool, Driver] = WeakKeyDictionary()
        self._unknown = _UnknownDriver(mount, self._driver)
        self._own: dict[str, Driver] = {
            FINISH_TOOL: FinishDriver(mount),
            GIVE_UP_TOOL: GiveUpDriver(mount),
            FIND_TOOLS: _FindDriver(mount),
            CALL_TOOL: _MiscallDriver(),
            AUTHORIZE: _AuthorizeDriver(mount),
            COMMAND_TOOL: _CommandDriver(mount),
        }
        self._work = WorkDrivers(self._runner, self._slots)
        self._background = {
            **process_drivers(runtime, mount),
            **trigger_drivers(mount.holdfast, mount.processes, mount.triggers),
        }

    def install(self) -> None:
        """Let these tools answer the calls of the store's sessions."""
        self._mount.holdfast.find_tools_with(self._find)

    def _find(self, session_id: str, query: ToolQuery) -> Driver | None:
        if not isinstance(query, CallQuery):
            if isinstance(query, WorkQuery):
                entry = self._catalog.get(query.name)
                return self._work.of(entry, query) if isinstance(entry, Tool) else None
            own = self._own[query.name] if query.name == COMMAND_TOOL else self._background.get(query.name)
            entry = self._catalog.get(query.name)
            return own if entry is None else self._driver(entry)  # otherwise the strategy's host answers it
        if (own := self._own.get(query.name)) is not None:
            return own
        entry = self._entry(session_id, query.name)
        return self._unknown if entry is None else self._driver(entry)

    def _entry(self, session_id: str, name: str) -> AnyTool | None:
        loaded = self._mount.loaded_sessions.peek(session_id)
        return loaded.tool(name) if loaded is not None else self._catalog.get(name)

    def has(self, session_id: str, name: str, plugins: Mapping[str, Json]) -> bool:
        """Whether a tool that a session needs is here, or was: then it is up to this process to say that it is gone.

        `plugins` are those that the session is recorded with. They bring their tools when it is loaded.
        """
        if self._entry(session_id, name) is not None or self._catalog.is_gone(name) or name in self._background:
            return True
        return self._plugins.may_bring(name, session_id, plugins)

    def may_have(self, name: str) -> bool:
        """Whether a tool may be run here for some session. An empty name is that of a tool that a model made up."""
        entry = self._catalog.get(name)
        if isinstance(entry, DeclaredTool):
            return False
        own = {**self._own, **self._background}
        is_here = not name or entry is not None or name in own or self._catalog.is_gone(name)
        return is_here or self._plugins.any_may_bring(name)

    @property
    def names(self) -> list[str]:
        """The tools that are offered to all sessions, and run here."""
        tools = ((spec.name, self._catalog.get(spec.name)) for spec in self._catalog.specs(None))
        return sorted(name for name, entry in tools if entry is not None and not isinstance(entry, DeclaredTool))

    def _driver(self, entry: AnyTool) -> Driver | None:
        """The driver of a tool, or None if its calls wait for an answer from outside."""
        if isinstance(entry, DeclaredTool | DelegateTool):
            return None
        known = self._drivers.get(entry)
        if known is None:
            known = self._drivers[entry] = _ToolDriver(entry, self._runner, self._slots)
        return known

    async def _about(self, attempt: Attempt) -> ModelCall | None:
        """What is read before a tool runs. It says nothing about the tool: a store in trouble is asked again."""
        return await insist(self._call_of, attempt)

    async def _call_of(self, attempt: Attempt) -> ModelCall | None:
        conversation = await self._mount.conversations.with_query(attempt.session_id, attempt.query_id)
        query = conversation.asked.get(attempt.query_id)
        if not isinstance(query, CallQuery) or conversation.running is None:
            return None
        loaded = await self._mount.loaded_sessions.at_work(conversation)
        return ModelCall(
            turn=conversation.running.id,
            call_id=query.call_id,
            arguments=query.arguments,
            allowed=loaded.catalog(conversation.policy or Policy()).names,
            hooks=loaded.hooks,
            own=loaded.own_tools,
        )


class _ToolDriver(Driver):
    """Runs one tool, within the limit that all tools share."""

    def __init__(self, tool: Tool, runner: ToolRunner, slots: Slots) -> None:
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
"""Calls at once of tools that only look something up in memory: as good as no limit."""


class _OwnDriver(Driver):
    """Answers a call from what the runtime knows; to do so twice does no harm."""

    def __init__(self, name: str, mount: MountedStore) -> None:
        super().__init__(name, self.execute, recovery="safe", probe=None, concurrency=UNBOUND)
        self._mount = mount

    async def _loaded(self, attempt: Attempt) -> tuple[LoadedSession, Policy, str]:
        """The session of a call, its policy, and its turn."""
        conversation = await self._mount.conversations.with_query(attempt.session_id, attempt.query_id)
        policy = conversation.policy or Policy()
        turn = conversation.running.id if conversation.running is not None else ""
        return await self._mount.loaded_sessions.get(attempt.session_id, policy, conversation.parent), policy, turn


class _UnknownDriver(_OwnDriver):
    """Tells a model that there is no such tool, as the result of its call.

    It looks for the tool once more before: plugins bring their tools when a session is loaded, and this call may be
    what loads it.
    """

    def __init__(self, mount: MountedStore, driver_of: Callable[[AnyTool], Driver | None]) -> None:
        super().__init__("tool:?", mount)
        self._driver_of = driver_of

    @property
    def may_repeat(self) -> bool:
        """Which tool it stands for, and so what its recovery is, is not known before the session is loaded."""
        return False

    async def execute(self, query: Query, attempt: Attempt) -> Json | Failure:
        if (found := await self._found(query, attempt)) is not None:
            return await found.execute(query, attempt)
        assert isinstance(query, ToolQuery)
        loaded, policy, _ = await self._loaded(attempt)
        return unknown_tool(query.name, sorted(loaded.catalog(policy).names))

    async def recover(self, query: Query, attempt: Attempt, why: str) -> GivenAnswer | None:
        found = await self._found(query, attempt)
        return await found.recover(query, attempt, why) if found is not None else None

    async def _found(self, query: Query, attempt: Attempt) -> Driver | None:
        assert isinstance(query, ToolQuery)
        loaded, _, _ = await self._loaded(attempt)
        entry = loaded.tool(query.name)
        return None if entry is None else self._driver_of(entry)


class _FindDriver(_OwnDriver):
    """Finds tools for a model that has too many to list them all."""

    def __init__(self, mount: MountedStore) -> None:
        super().__init__(f"tool:{FIND_TOOLS}", mount)

    async def execute(self, query: Query, attempt: Attempt) -> Json | Failure:
        assert isinstance(query, ToolQuery)
        loaded, policy, _ = await self._loaded(attempt)
        catalog = loaded.catalog(policy)
        if not catalog.is_searched(policy.catalog_tokens):
            return unknown_tool(query.name, sorted(catalog.names))
        words = query.arguments.get("words")
        if not isinstance(words, str) or not words.strip():
            return Failure("give the words to search for, as 'words'", InvalidArgumentsError.kind)
        found = catalog.find(words)
        return msgspec.to_builtins(found) if found else f"no tool matches '{words[:100]}'; try other words"


class _MiscallDriver(Driver):
    """Tells a model how to call a tool that it has found, after a call that names none."""

    def __init__(self) -> None:
        super().__init__(f"tool:{CALL_TOOL}", self.execute, recovery="safe", probe=None, concurrency=UNBOUND)

    async def execute(self, query: Query, attempt: Attempt) -> Failure:
        usage = f"'{CALL_TOOL}' takes the name of a tool as 'name', and its arguments as an object in 'arguments'"
        return Failure(usage, InvalidArgumentsError.kind)


class _AuthorizeDriver(_OwnDriver):
    """Asks the code of plugins whether a call may run. The strictest verdict counts."""

    def __init__(self, mount: MountedStore) -> None:
        super().__init__(f"tool:{AUTHORIZE}", mount)

    async def execute(self, query: Query, attempt: Attempt) -> Json:
        assert isinstance(query, CallQuery)
        loaded, _, turn = await self._loaded(attempt)
        arguments = query.arguments
        call = PluginCall(
            session_id=attempt.session_id,
            turn=turn,
            id=query.call_id,
            tool=arguments["tool"],
            arguments=own_copy(arguments["arguments"]),
            key=attempt.key,
            query=attempt.query_id,
        )
        verdicts = [await loaded.hooks.authorize(plugin, call) for plugin in arguments["callbacks"]]
        return max(verdicts, key=lambda each: ("allow", "confirm", "deny").index(each["verdict"]))


class _CommandDriver(_OwnDriver):
    """Carries out commands of hosts. One that was running when its process died may or may not have been done."""

    def __init__(self, mount: MountedStore) -> None:
        super().__init__(f"tool:{COMMAND_TOOL}", mount)
        self.recovery = "never"

    async def execute(self, query: Query, attempt: Attempt) -> Json | Failure:
        assert isinstance(query, ToolQuery)
        conversation = await self._mount.conversations.with_query(attempt.session_id, attempt.query_id)
        try:
            loaded = await self._mount.loaded_sessions.at_work(conversation)
        except AbortTurn as abort:
            return abort_failure(abort)
        name = query.arguments["name"]
        done = await loaded.hooks.command(name, query.arguments["arguments"])
        return json_of(done, name)
