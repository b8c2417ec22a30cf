"""Commands of a session: what plugins and hosts offer by name, with typed arguments, to be run between turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.agent.machine.program import COMPACT
from holdfast.agent.plugins.plugin import Plugin
from holdfast.agent.tools.docstrings import Docstring
from holdfast.agent.tools.function import FunctionTool
from holdfast.core.errors import ExitCode, HoldfastError, InvalidValueError
from holdfast.core.values import Json

if TYPE_CHECKING:
    from holdfast.agent.queue import EnqueueBuilder
    from holdfast.agent.results import TurnResult
    from holdfast.agent.session import AgentSession

HOST = "host"
"""The id of the plugin that has the commands of the host."""


class CommandSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A command, as callers see it."""

    name: str
    description: str = ""
    parameters: dict[str, Json] = {}
    """The JSON schema of its arguments; empty if it does not say what they are."""
    plugin: str = ""
    """The plugin that has it: `host` for one of the host's own, empty for one that every session has."""


_COMPACT = CommandSpec(
    name=COMPACT,
    description="Summarize the conversation now.",
    parameters={
        "type": "object",
        "properties": {"instructions": {"type": "string"}, "keep": {"type": "integer"}},
        "additionalProperties": False,
    },
)


class UnknownCommandError(HoldfastError):
    """A session has no command of that name, as far as this process knows."""

    session_id: str
    name: str
    known: list[str]
    kind = "unknown_command"
    exit_code = ExitCode.NOT_FOUND

    def __str__(self) -> str:
        return f"session '{self.session_id}' has no command '{self.name}'; its commands are: {', '.join(self.known)}"


class PluginCommand:
    """A command of a plugin, with its types."""

    def __init__(self, plugin: Plugin, name: str, function: Callable[..., Any]) -> None:
        self.plugin = plugin
        self.name = name
        self._function = function
        self._typed: FunctionTool[..., Any] | None
        try:
            self._typed = FunctionTool(function, name=name)
        except Exception:  # whatever its signature lacks: then its arguments are not checked
            self._typed = None

    @property
    def spec(self) -> CommandSpec:
        if self._typed is None:
            about = Docstring(getattr(self._function, "__doc__", "")).description
            return CommandSpec(name=self.name, description=about, plugin=self.plugin.id)
        about, parameters = self._typed.description, dict(self._typed.parameters)
        return CommandSpec(name=self.name, description=about, parameters=parameters, plugin=self.plugin.id)

    def accept(self, arguments: Mapping[str, Json]) -> dict[str, Any]:
        """The arguments as the function takes them. Raises if they do not fit."""
        return dict(arguments) if self._typed is None else self._typed.accept(dict(arguments))

    def call(self, arguments: Mapping[str, Json]) -> Any:
        """Call it; the result may be awaitable."""
        return self._function(**self.accept(arguments))


class HostCommands(Plugin):
    """The commands that a host registers for all sessions of its runtime."""

    id = HOST

    def __init__(self, functions: Sequence[Callable[..., Any]]) -> None:
        self._commands: dict[str, Callable[..., Any]] = {}
        for function in functions:
            name = getattr(function, "name", None) or getattr(function, "__name__", "")
            if not name or name == COMPACT or name in self._commands:
                raise InvalidValueError("command", f"{function!r} needs a name of its own, got '{name}'")
            self._commands[name] = function.function if isinstance(function, FunctionTool) else function

    def commands(self) -> Mapping[str, Callable[..., Any]]:
        return self._commands


class SessionCommands:
    """The commands of one session."""

    def __init__(self, session: AgentSession, plugin: str | None = None) -> None:
        """With `plugin`, only those of that plugin."""
        self._session = session
        self._plugin = plugin

    async def list(self) -> list[CommandSpec]:
        """The commands that this process knows of the session, by name."""
        own = [] if self._plugin is not None else [_COMPACT]
        return sorted([*own, *(each.spec for each in (await self._known()).values())], key=lambda each: each.name)

    async def run(self, name: str, /, **arguments: Json) -> TurnResult:
        """Run a command between two turns. Raises if there is no such command, or if its arguments do not fit.

        Its outcome is a `CommandOutcome`, or says why it failed.
        """
        await self._check(name, arguments)
        return await self._session.command(name, **arguments).run()

    async def enqueue(self, name: str, /, **arguments: Json) -> EnqueueBuilder:
        """An item of the inbox that runs a command, before all inputs that wait; not yet sent. Raises as `run` does."""
        await self._check(name, arguments)
        return self._session.enqueue_command(name, **arguments)

    async def _known(self) -> dict[str, PluginCommand]:
        found = (await self._session.loaded()).hooks.commands()
        return {name: each for name, each in found.items() if self._plugin in (None, each.plugin.id)}

    async def _check(self, name: str, arguments: Mapping[str, Json]) -> None:
        known = await self._known()
        if name == COMPACT and self._plugin is None:
            return
        if name not in known:
            raise UnknownCommandError(self._session.session_id, name, [each.name for each in await self.list()])
        known[name].accept(arguments)


class PluginActions:
    """What the plugins of a session let hosts do, by plugin."""

    def __init__(self, session: AgentSession) -> None:
        self._session = session

    async def list(self, plugin: str | None = None) -> list[CommandSpec]:
        """The actions of a plugin, or of all."""
        every = await SessionCommands(self._session, plugin).list()
        return [each for each in every if each.plugin]

    async def run(self, plugin: str, action: str, /, **arguments: Json) -> TurnResult:
        """Run an action of a plugin. Raises `UnknownCommandError` if it has none of that name."""
        return await SessionCommands(self._session, plugin).run(action, **arguments)
