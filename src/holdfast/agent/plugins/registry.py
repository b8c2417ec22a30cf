"""The plugins that a runtime knows, by id: those that every session has, and those that sessions are recorded with."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

from holdfast.agent.plugins.plugin import Plugin, SessionView
from holdfast.agent.tools.catalog import Catalog, Toolish, ToolProvider
from holdfast.agent.tools.function import FunctionTool
from holdfast.agent.tools.tool import Tool
from holdfast.core.errors import InvalidValueError
from holdfast.core.values import Json, check_value

log = logging.getLogger("holdfast.plugins")

Wanted: TypeAlias = dict[str, tuple[Plugin | None, Json]]
"""The plugins that a session is to have, by id: what they are made of, if that is here, and their configurations."""


class Plugins:
    """The plugins of a runtime, and the tools that they have brought into it."""

    def __init__(self, catalog: Catalog, everywhere: Sequence[Plugin] = ()) -> None:
        self._catalog = catalog
        self._known: dict[str, Plugin] = {}
        self._made: dict[Callable[..., Any], Tool] = {}
        self._missed: set[str] = set()
        self._given: WeakValueDictionary[tuple[str, str], Plugin] = WeakValueDictionary()
        """Those that sessions were given here, by session and id, for as long as somebody has them."""
        for plugin in everywhere:
            self.add(plugin)
        self.everywhere: dict[str, Plugin] = {plugin.id: plugin for plugin in everywhere}
        """Those that every session has, with no configuration."""

    def add(self, plugin: Plugin) -> None:
        """Make a plugin known, for sessions that are recorded with its id. A later one of the same id replaces it."""
        if not getattr(plugin, "id", ""):
            raise InvalidValueError("plugin", f"{plugin!r} is no Plugin with an id; derive a class from Plugin")
        self._known[plugin.id] = plugin

    def give(self, session_id: str, plugin: Plugin) -> None:
        """Let a session have this plugin here, and not what others were given under the same id."""
        self._given[session_id, plugin.id] = plugin

    def wanted(self, session_id: str, parent: str | None, recorded: Mapping[str, Json]) -> Wanted:
        """The plugins of a session that is recorded with these: the one that it was given, or its parent, under an id;
        else the one that every session has; else the one that is known."""
        configs = {**dict.fromkeys(self.everywhere), **recorded}
        return {each: (self._found(each, session_id, parent), config) for each, config in configs.items()}

    def _found(self, plugin_id: str, session_id: str, parent: str | None) -> Plugin | None:
        given = self._given.get((session_id, plugin_id)) or self._given.get((parent or "", plugin_id))
        return given or self.everywhere.get(plugin_id) or self._known.get(plugin_id)

    async def built(self, plugin_id: str, plugin: Plugin | None, session: SessionView, config: Json) -> Plugin | None:
        """The plugin for a session; None, and a line in the log, if this process does not have it, or it fails."""
        if plugin is None:
            if plugin_id not in self._missed:
                self._missed.add(plugin_id)
                log.warning("session '%s' has the plugin '%s', which is not here", session.session_id, plugin_id)
            return None
        try:
            made = plugin.build(session, config)
            await self.install(made)
        except Exception:
            log.exception("session '%s': its plugin '%s' could not be built", session.session_id, plugin_id)
            return None
        return made

    async def install(self, plugin: Plugin, config: Json = None) -> list[str]:
        """Have the tools of a plugin in the runtime, and give their names. Done whenever a session is to have it."""
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

    def own_tool(self, given: Toolish) -> Tool | None:
        """The tool as the session has it whose plugin gave it; None if it is the same for all sessions."""
        method = given.function if isinstance(given, FunctionTool) else given
        if not inspect.ismethod(method):
            return None
        shared = self._shared_tool(given if isinstance(given, Tool) else method)
        return shared.calling(method) if isinstance(shared, FunctionTool) else None

    def _shared_tool(self, given: Tool | Callable[..., Any]) -> Tool:
        """The tool that stands for one of a plugin's in the runtime, for all sessions. Each has its own methods of it.

        What it takes and how it is run is worked out once.
        """
        function: Any = given.function if isinstance(given, FunctionTool) else given
        if isinstance(given, Tool) and not inspect.ismethod(function):
            return given
        key = getattr(function, "__func__", function)
        if key not in self._made:
            self._made[key] = given if isinstance(given, Tool) else Tool.of(given)
        return self._made[key]


def check_config(plugin_id: str, config: Any) -> Json:
    """Raise `InvalidValueError` unless a configuration can be recorded."""
    check_value(config, f"configuration of plugin '{plugin_id}'")
    return config
