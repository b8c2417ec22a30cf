"""Runs the hooks of a session's plugins in order, and contains their failures."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.agent import live_events as live
from holdfast.agent.errors import PluginError
from holdfast.agent.machine.messages import AgentMessage
from holdfast.agent.machine.prompt import Contribution
from holdfast.agent.machine.turn_state import TurnState
from holdfast.agent.plugins.hook_checks import problem_in_messages, problem_in_reply, problem_in_request
from holdfast.agent.plugins.plugin import AbortTurn, Deny, Directive, Instead, Plugin, PluginCall, Replace
from holdfast.agent.tools.results import ToolFailure, ToolResult, ToolValue, checked_result, exception_text
from holdfast.agent.tools.session_catalog import ToolSummary
from holdfast.core.errors import HoldfastError
from holdfast.core.queries import Failure
from holdfast.core.records import Entry
from holdfast.core.values import Json, check_value, own_copy

if TYPE_CHECKING:
    from holdfast.agent.commands import PluginCommand
    from holdfast.agent.live_events import LiveEvent
    from holdfast.agent.providers.provider import ModelReply, ModelRequest
    from holdfast.agent.results import TurnResult

log = logging.getLogger("holdfast.plugins")

ABORT_CODE = "plugin_abort"

AUTHORIZE_S = 30.0
"""Seconds that code may take to decide about a call, because the turn waits for it."""


class ToolDecision(msgspec.Struct, frozen=True):
    """What all plugins together decide about a call: run it with these arguments, or use this result instead."""

    arguments: dict[str, Json]
    result: ToolResult | None = None


class Hooks:
    """The plugins of one session, in this process."""

    def __init__(self, session_id: str, plugins: Sequence[Plugin], publish: Callable[[LiveEvent], None]) -> None:
        self.session_id = session_id
        self.plugins = list(plugins)
        self.turn = ""
        """The turn that is worked on here, for events about failures."""
        self._publish = publish
        self._with: dict[str, list[Plugin]] = {}
        """By hook, the plugins that override it."""

    @property
    def revision(self) -> tuple[tuple[str, int], ...]:
        """Changes whenever the plugins' contributions to prompts and catalogs may have changed."""
        return tuple([(plugin.id, plugin.revision) for plugin in self.plugins]) if self.plugins else ()

    def get(self, plugin_id: str) -> Plugin | None:
        return next((plugin for plugin in self.plugins if plugin.id == plugin_id), None)

    # --- plain calls--------------------------------------------------------------------------------

    def prompt(self) -> list[Contribution]:
        """The plugins' contributions to the prompt."""
        contributions: list[Contribution] = []
        for plugin in self._having("prompt"):
            try:
                contributions += [msgspec.convert(msgspec.to_builtins(each), Contribution) for each in plugin.prompt()]
            except Exception as error:
                self._failed(plugin, "prompt", error)
        return contributions

    def catalog(self, tools: list[ToolSummary]) -> list[ToolSummary]:
        """The tools that plugins leave. They can neither add nor rename one."""
        for plugin in self._having("catalog"):
            names = {tool.name for tool in tools}
            try:
                left = [msgspec.convert(msgspec.to_builtins(tool), ToolSummary) for tool in plugin.catalog(list(tools))]
                if strange := [tool.name for tool in left if tool.name not in names]:
                    raise ValueError(f"it returned tools that do not exist: {', '.join(strange)}")
                if len({tool.name for tool in left}) < len(left):
                    raise ValueError("it returned a tool twice")
            except Exception as error:
                self._failed(plugin, "catalog", error)
                continue
            tools = left
        return tools

    def committed(self, entries: Sequence[Entry]) -> None:
        for plugin in self._having("committed"):
            try:
                plugin.committed(entries)
            except Exception as error:
                self._failed(plugin, "committed", error)

    # --- models ------------------------------------------------------------------------------------

    async def history(self, messages: list[AgentMessage]) -> list[AgentMessage]:
        """The messages that the model sees. Raises `AbortTurn`."""
        for plugin in self._having("history"):
            shown = await self._call(plugin, "history", _own_messages(messages), may_abort=True)
            if shown is not None and self._is_sound(plugin, "history", problem_in_messages(shown, messages)):
                messages = shown
        return messages

    async def before_model(self, request: ModelRequest) -> ModelRequest:
        """The request that is sent. Raises `AbortTurn`."""
        for plugin in self._having("before_model"):
            own = msgspec.structs.replace(
                request,
                messages=_own_messages(request.messages),
                tools=list(request.tools),
                params=own_copy(request.params),
            )
            made = await self._call(plugin, "before_model", own, may_abort=True)
            if made is not None and self._is_sound(plugin, "before_model", problem_in_request(made, request)):
                request = msgspec.structs.replace(
                    made, key=request.key
                )  # the provider recognizes a repeated call by it
        return request

    async def after_model(self, request: ModelRequest, reply: ModelReply) -> ModelReply:
        for plugin in self._having("after_model"):
            made = await self._call(plugin, "after_model", request, reply)
            if made is not None and self._is_sound(plugin, "after_model", problem_in_reply(made)):
                reply = made
        return reply

    # --- tools -------------------------------------------------------------------------------------

    async def authorize(self, plugin_id: str, call: PluginCall) -> dict[str, Json]:
        """The verdict of a plugin's code about a call. If anything goes wrong, it is a denial."""
        plugin = self.get(plugin_id)
        if plugin is None:
            return {
                "verdict": "deny",
                "reason": f"the plugin '{plugin_id}', which decides about it, is not available here",
            }
        try:
            async with asyncio.timeout(AUTHORIZE_S):
                verdict = await _awaited(plugin.authorize(call))
        except Exception as error:
            self._failed(plugin, "authorize", error)
            return {"verdict": "deny", "reason": f"the plugin '{plugin_id}', which decides about it, failed"}
        match verdict:
            case "allow" | "deny" | "confirm":
                return {"verdict": verdict}
            case Deny(reason=reason):
                return {"verdict": "deny", "reason": reason}
            case _:
                self._failed(plugin, "authorize", ValueError(f"it returned {verdict!r}, which is not a verdict"))
                return {"verdict": "deny", "reason": f"the plugin '{plugin_id}' gave no verdict on it"}

    async def before_tool(self, call: PluginCall) -> ToolDecision:
        """What to do about a call. Raises `AbortTurn`.

        Stopping the turn wins over denying the call, which wins over another result. All plugins see replaced arguments
        once more; if two replace them, the call is denied, because neither has seen the outcome.
        """
        wants = await self._directives(call)
        replaced = [(plugin, each) for plugin, each in wants if isinstance(each, Replace)]
        if not replaced:
            return _verdict(call.arguments, wants)
        names = [plugin.id for plugin, _ in replaced]
        if len(names) > 1:
            why = f"the plugins {' and '.join(repr(name) for name in names)} both want to change its arguments"
            return ToolDecision(call.arguments, _denied(why))
        (changer, change) = replaced[0]
        first = [each for each in wants if each[1] is not change]
        arguments = change.arguments
        again = await self._directives(replace(call, arguments=arguments))
        others = [plugin.id for plugin, each in again if isinstance(each, Replace) and plugin is not changer]
        if others:
            return ToolDecision(arguments, _denied(f"the plugin '{others[0]}' wants to change its arguments again"))
        return _verdict(arguments, [*first, *(each for each in again if not isinstance(each[1], Replace))])

    async def _directives(self, call: PluginCall) -> list[tuple[Plugin, Any]]:
        wants: list[tuple[Plugin, Any]] = []
        for plugin in self._having("before_tool"):
            try:
                own = replace(call, arguments=own_copy(call.arguments))  # a copy: in-place changes would go unchecked
                wanted = _checked_directive(await _awaited(plugin.before_tool(own)))
            except AbortTurn as abort:
                wanted = abort
            except Exception as error:
                self._failed(plugin, "before_tool", error)
                wanted = Deny(f"the plugin '{plugin.id}', which checks calls before they run, failed")
            if isinstance(wanted, AbortTurn):
                raise wanted
            if wanted is not None:
                wants.append((plugin, wanted))
        return wants

    async def after_tool(self, call: PluginCall, result: ToolResult) -> ToolResult:
        for plugin in self._having("after_tool"):
            made = await self._call(plugin, "after_tool", call, result)
            if made is None:
                continue
            try:
                result = checked_result(made, call.tool)
            except (TypeError, ValueError, HoldfastError) as error:
                self._failed(plugin, "after_tool", error)
        return result

    # --- the life of turns and sessions ------------------------------------------------------------

    async def turn_started(self, turn: TurnState) -> None:
        """Call `turn_started`, once for each turn. Raises `AbortTurn`."""
        if self.turn == turn.id:
            return
        self.turn = turn.id
        for plugin in self._having("turn_started"):
            await self._call(plugin, "turn_started", turn, may_abort=True)

    async def turn_ended(self, result: TurnResult) -> None:
        for plugin in self._having("turn_ended"):
            await self._call(plugin, "turn_ended", result)

    async def opened(self) -> None:
        for plugin in self._having("opened"):
            await self._call(plugin, "opened")

    async def closed(self) -> None:
        for plugin in reversed(self._having("closed")):
            await self._call(plugin, "closed")

    def commands(self) -> dict[str, PluginCommand]:
        """The commands of all plugins, by name; of two with the same name, the first plugin's."""
        from holdfast.agent.commands import PluginCommand

        known: dict[str, PluginCommand] = {}
        for plugin in self._having("commands"):
            try:
                for name, function in plugin.commands().items():
                    known.setdefault(name, PluginCommand(plugin, name, function))
            except Exception as error:
                self._failed(plugin, "commands", error)
        return known

    async def command(self, name: str, arguments: Mapping[str, Json]) -> Any:
        """Run a command. Raises `PluginError` if it fails or does not exist."""
        known = self.commands()
        if name not in known:
            names = ", ".join(sorted(known)) or "none"
            raise PluginError(
                "", f"command {name}", self.session_id, f"there is no such command; the commands are: {names}"
            )
        try:
            return await _awaited(known[name].call(arguments))
        except Exception as error:
            plugin_id = known[name].plugin.id
            raise PluginError(plugin_id, f"command {name}", self.session_id, exception_text(error)) from error

    # --- containment -------------------------------------------------------------------------------

    def has(self, hook: str) -> bool:
        """Whether any plugin overrides a hook."""
        return bool(self._having(hook))

    def _having(self, hook: str) -> list[Plugin]:
        known = self._with.get(hook)
        if known is None:
            ours = getattr(Plugin, hook)
            known = self._with[hook] = [plugin for plugin in self.plugins if getattr(type(plugin), hook) is not ours]
        return known

    async def _call(self, plugin: Plugin, hook: str, *arguments: Any, may_abort: bool = False) -> Any:
        """What a hook returns; None if it fails, which is reported. Raises `AbortTurn` if `may_abort`."""
        try:
            made = await _awaited(getattr(plugin, hook)(*arguments))
            if isinstance(made, AbortTurn):
                raise made
            return made
        except AbortTurn as abort:
            if may_abort:
                raise
            self._failed(plugin, hook, ValueError(f"it cannot stop the turn from this hook: {abort}"))
        except Exception as error:
            self._failed(plugin, hook, error)
        return None

    def _is_sound(self, plugin: Plugin, hook: str, problem: str | None) -> bool:
        if problem is not None:
            self._failed(plugin, hook, ValueError(problem))
        return problem is None

    def _failed(self, plugin: Plugin, hook: str, error: Exception) -> None:
        failure = PluginError(plugin.id, hook, self.session_id, exception_text(error))
        log.warning("%s", failure, exc_info=error)
        self._publish(live.PluginFailedEvent(turn=self.turn, plugin=plugin.id, hook=hook, error=failure.error))

    def __iter__(self) -> Iterator[Plugin]:
        return iter(self.plugins)


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def _own_messages(messages: Sequence[AgentMessage]) -> list[AgentMessage]:
    """A copy of the messages, so that a plugin that changes a list changes its own."""
    return [AgentMessage(each.role, list(each.content)) for each in messages]


def _checked_directive(wanted: Any) -> Directive | None:
    """A valid directive. Raises if it is invalid."""
    match wanted:
        case None | AbortTurn() | Deny(reason=str()):
            pass
        case Replace(arguments=dict() as arguments):
            check_value(arguments, "the replacement arguments")
        case Instead(value=value):
            check_value(value, "the replacement result")
        case _:
            raise ValueError(f"it returned {type(wanted).__name__}, which is not a directive")
    return wanted  # type: ignore[no-any-return]


def _verdict(arguments: dict[str, Json], wants: Sequence[tuple[Plugin, Any]]) -> ToolDecision:
    denied = next((each for _, each in wants if isinstance(each, Deny)), None)
    if denied is not None:
        return ToolDecision(arguments, _denied(denied.reason))
    instead = next((each for _, each in wants if isinstance(each, Instead)), None)
    return ToolDecision(arguments, None if instead is None else ToolValue(instead.value))


def _denied(reason: str) -> ToolFailure:
    return ToolFailure(message=f"not allowed: {reason}", code="denied", ran=False)


def abort_failure(abort: AbortTurn) -> Failure:
    """The answer to a query whose turn a plugin stops."""
    return Failure(str(abort) or "a plugin stopped the turn", ABORT_CODE)
