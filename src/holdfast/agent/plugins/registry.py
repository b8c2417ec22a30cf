"""The plugins that a runtime knows by id: those of every session, and those that sessions are recorded with."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

from holdfast.agent.plugins.plugin import Plugin, PluginSession
from holdfast.agent.tools.catalog import Catalog, Toolish, ToolProvider
from holdfast.agent.tools.function import FunctionTool
from holdfast.agent.tools.tool import Tool
from holdfast.core.errors import InvalidValueError
from holdfast.core.values import Json, check_value

log = logging.getLogger("holdfast.plugins")

Wanted: TypeAlias = dict[str, tuple[Plugin | None, Json]]
"""The plugins that a session should have, by id: the plugin if this process has it, and its configuration."""


class Plugins:
    """The plugins of a runtime, and the tools that they bring."""

    def __init__(self, catalog: Catalog, everywhere: Sequence[Plugin] = ()) -> None:
        self._catalog = catalog
        self._known: dict[str, Plugin] = {}
        self._made: dict[Callable[..., Any], Tool] = {}
        self._missed: set[str] = set()
        self._assigned: WeakValueDictionary[tuple[str, str], Plugin] = WeakValueDictionary()
        """Plugins that sessions were given in this process, by session and id, while someone holds them."""
        for plugin in everywhere:
            self.add(plugin)
        self.everywhere: dict[str, Plugin] = {plugin.id: plugin for plugin in everywhere}
        """The plugins of every session, without configuration."""

    def add(self, plugin: Plugin) -> None:
        """Register a plugin for sessions that are recorded with its id. A later one with the same id replaces it."""
        if not getattr(plugin, "id", ""):
            raise InvalidValueError("plugin", f"{plugin!r} is not a Plugin with an id; derive a class from Plugin")
        self._known[plugin.id] = plugin

    def assign(self, session_id: str, plugin: Plugin) -> None:
        """Let a session use this plugin in this process, whatever others use under the same id."""
        self._assigned[session_id, plugin.id] = plugin

    def recorded(self, configs: Mapping[str, Json]) -> dict[str, Plugin]:
        """The plugins that a session is recorded with, configured as recorded; those that this process has."""
        return {each: self._known[each].configured(config) for each, config in configs.items() if each in self._known}

    def wanted(self, session_id: str, parent: str | None, recorded: Mapping[str, Json]) -> Wanted:
        """The plugins of a session that is recorded with these ids: the one assigned to it or its parent, else the one
        of every session, else the registered one."""
        configs = {**dict.fromkeys(self.everywhere), **recorded}
        if not configs:
            return {}
        return {each: (self._found(each, session_id, parent), config) for each, config in configs.items()}

    def _found(self, plugin_id: str, session_id: str, parent: str | None) -> Plugin | None:
        assigned = self._assigned.get((session_id, plugin_id)) or self._assigned.get((parent or "", plugin_id))
        return assigned or self.everywhere.get(plugin_id) or self._known.get(plugin_id)

    async def built(self, plugin_id: str, plugin: Plugin | None, session: PluginSession, config: Json) -> Plugin | None:
        """A session's copy of a plugin; None, and a line in the log, if this process lacks it or building it fails."""
        if plugin is None:
            if plugin_id not in self._missed:
                self._missed.add(plugin_id)
                log.warning(
                    "session '%s' has the plugin '%s', which this process does not have", session.session_id, plugin_id
                )
            return None
        try:
            made = plugin.build(session, config)
            await self.install(made)
        except Exception:
            log.exception("session '%s': its plugin '%s' could not be built", session.session_id, plugin_id)
            return None
        return made

    def may_bring(self, tool: str, session_id: str, recorded: Mapping[str, Json]) -> bool:
        """Whether a plugin that a session is recorded with is here and has a tool, or may have it: a tool provider says
        which tools it has only when it is asked."""
        for plugin, config in self.wanted(session_id, None, recorded).values():
            tools = [] if plugin is None else (plugin if config is None else plugin.configured(config)).tools()
            if any(isinstance(each, ToolProvider) or self._shared_tool(each).name == tool for each in tools):
                return True
        return False

    def any_may_bring(self, tool: str) -> bool:
        """Whether some plugin that is here has a tool, or may have it, for some session."""
        for plugin in (*self._known.values(), *self._assigned.values()):
            for each in plugin.tools():
                if isinstance(each, ToolProvider) or self._shared_tool(each).name == tool:
                    return True
        return False

    async def install(self, plugin: Plugin, config: Json = None) -> list[str]:
        """Add the tools of a plugin to the runtime, and return their names. Done for each session that gets it."""
        names: list[str] = []
        for each in (plugin if config is None else plugin.configured(config)).tools():
            if isinstance(each, ToolProvider):
                await self._catalog.add_provider(each, private=True)
                names += self._catalog.names_of(each.id)
            else:
                tool = self._shared_tool(each)
                self._catalog.add(tool, private=True)
                names.append(tool.name)
        return names

    def own_tool(self, source: Toolish) -> Tool | None:
        """The session's own version of a plugin's tool; None if the tool is the same for all sessions."""
        method = source.function if isinstance(source, FunctionTool) else source
        if not inspect.ismethod(method):
            return None
        shared = self._shared_tool(source if isinstance(source, Tool) else method)
        return shared.calling(method) if isinstance(shared, FunctionTool) else None

    def _shared_tool(self, source: Tool | Callable[..., Any]) -> Tool:
        """The tool of a plugin as the runtime has it, for all sessions; each session has its own method for it.

        Its schema and settings are computed once.
        """
        function: Any = source.function if isinstance(source, FunctionTool) else source
        if isinstance(source, Tool) and not inspect.ismethod(function):
            return source
        key = getattr(function, "__func__", function)
        if key not in self._made:
            self._made[key] = source if isinstance(source, Tool) else Tool.of(source)
        return self._made[key]


def check_config(plugin_id: str, config: Any) -> Json:
    """Raise `InvalidValueError` unless a configuration can be recorded."""
    check_value(config, f"configuration of plugin '{plugin_id}'")
    return config
