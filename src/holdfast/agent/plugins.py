"""Plugins: what sessions can be given beside their own instructions and tools, and what that wants of every turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.agent.errors import MissingPluginInputError
from holdfast.agent.tools.catalog import Catalog, Toolish, ToolProvider
from holdfast.agent.tools.tool import Tool
from holdfast.core.messages import ContentBlock, TextBlock


class Plugin:
    """A base to make plugins of. A session that is given one, with a config that is the plugin's own affair, has more.

    All that it adds is recorded where such things are: its instructions and the names of its tools in the policy of the
    session, its words in the input of the turn. So a session goes on where the plugin is not.
    """

    id: str
    """By which a turn says what its input is for."""
    requires_turn_input: bool = False
    """Whether there can be no turn without an input for it."""

    def instructions(self, config: Any) -> str:
        """A layer of the instructions of the session."""
        return ""

    def tools(self, config: Any) -> Sequence[Toolish]:
        """Tools of sessions that have the plugin; others are not told of them, and cannot call them.

        A runtime has one tool of each name. Tools for several configs are the same functions, which find out by their
        context for which session they run, or have names of their own.
        """
        return ()

    def turn_text(self, config: Any, turn_input: Any) -> str:
        """What is added to the input of a turn; `turn_input` is None where the turn has none for this plugin.

        The same for the same input: who tries a turn again is told what came of it only if all of it is the same.
        """
        return ""


@dataclass(frozen=True)
class Active:
    """A plugin that a session has."""

    plugin: Plugin
    config: Any


class Plugins:
    """The tools that plugins have brought into a runtime."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._made: dict[Callable[..., Any], Tool] = {}

    async def install(self, plugin: Plugin, config: Any = None) -> list[str]:
        """Have the tools of a plugin in the runtime, and give their names. Opening a session does it.

        Who wants calls to go on that were under way when a process died does it before: a call that finds no tool of
        its name is answered by saying so.
        """
        names: list[str] = []
        for each in plugin.tools(config):
            if isinstance(each, ToolProvider):
                await self._catalog.add_provider(each, private=True)
                names += self._catalog.names_of(each.id)
            else:
                tool = each if isinstance(each, Tool) else self._made.get(each) or Tool.of(each)
                self._catalog.add(tool, private=True)
                if not isinstance(each, Tool):
                    self._made[each] = tool
                names.append(tool.name)
        return names


def content_with(
    plugins: Mapping[str, Active], given: list[ContentBlock], inputs: Mapping[str, Any], session_id: str
) -> list[ContentBlock]:
    """The input of a turn with what the plugins of its session add. Raises `MissingPluginInputError`."""
    for plugin_id, active in plugins.items():
        if active.plugin.requires_turn_input and plugin_id not in inputs:
            raise MissingPluginInputError(plugin_id, session_id)
    texts = [active.plugin.turn_text(active.config, inputs.get(name)) for name, active in plugins.items()]
    return [*given, *(TextBlock(text) for text in texts if text)]
