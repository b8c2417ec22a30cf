"""Runs the hooks of a session's plugins: in the order they were given, and so that none can harm the session."""

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
from holdfast.agent.machine.conversation import TurnState
from holdfast.agent.machine.messages import AgentMessage
from holdfast.agent.machine.prompt import Contribution
from holdfast.agent.plugins.hook_checks import problem_in_messages, problem_in_reply, problem_in_request
from holdfast.agent.plugins.plugin import AbortTurn, Command, Deny, Directive, Instead, Plugin, PluginCall, Replace
from holdfast.agent.tools.results import ToolFailure, ToolResult, ToolValue, checked_result, exception_text
from holdfast.agent.tools.session_catalog import ToolSummary
from holdfast.core.errors import HoldfastError
from holdfast.core.queries import Failure
from holdfast.core.records import Entry
from holdfast.core.values import Json, check_value, own_copy

if TYPE_CHECKING:
    from holdfast.agent.live_events import LiveEvent
    from holdfast.agent.providers.provider import ModelReply, ModelRequest
    from holdfast.agent.results import TurnResult

log = logging.getLogger("holdfast.plugins")

ABORT_CODE = "plugin_abort"

AUTHORIZE_S = 30.0
"""Seconds that code may take to decide about a call, as a turn waits for it. What takes longer is for a person."""


class ToolDecision(msgspec.Struct, frozen=True):
    """What the plugins together want done about a call: it is run with these arguments, or it comes to this instead."""

    arguments: dict[str, Json]
    result: ToolResult | None = None


class Hooks:
    """The plugins of one session, in this process."""

    def __init__(self, session_id: str, plugins: Sequence[Plugin], tell: Callable[[LiveEvent], None]) -> None:
        self.session_id = session_id
        self.plugins = list(plugins)
        self.turn = ""
        """The turn that is worked on here: what fails is told to whoever follows it."""
        self._tell = tell
        self._with: dict[str, list[Plugin]] = {}
        """By hook, the plugins that have it."""

    @property
    def revision(self) -> tuple[tuple[str, int], ...]:
        """Differs once what plugins say of prompts and catalogs does."""
        return tuple((plugin.id, plugin.revision) for plugin in self.plugins)

    def get(self, plugin_id: str) -> Plugin | None:
        return next((plugin for plugin in self.plugins if plugin.id == plugin_id), None)

    # --- at once -----------------------------------------------------------------------------------

    def prompt(self) -> list[Contribution]:
        """What plugins contribute to the prompt."""
        said: list[Contribution] = []
        for plugin in self._having("prompt"):
            try:
                said += [msgspec.convert(msgspec.to_builtins(each), Contribution) for each in plugin.prompt()]
            except Exception as error:
                self._failed(plugin, "prompt", error)
        return said

    def catalog(self, tools: list[ToolSummary]) -> list[ToolSummary]:
        """The tools that plugins leave. They can neither add one, nor give one another name."""
        for plugin in self._having("catalog"):
            names = {tool.name for tool in tools}
            try:
                left = [msgspec.convert(msgspec.to_builtins(tool), ToolSummary) for tool in plugin.catalog(list(tools))]
                if strange := [tool.name for tool in left if tool.name not in names]:
                    raise ValueError(f"it speaks of tools that are not there: {', '.join(strange)}")
                if len({tool.name for tool in left}) < len(left):
                    raise ValueError("it names a tool twice")
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
        """What the model is shown. Raises `AbortTurn`."""
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
                request = msgspec.structs.replace(made, key=request.key)  # by it a service knows the call again
        return request

    async def after_model(self, request: ModelRequest, reply: ModelReply) -> ModelReply:
        for plugin in self._having("after_model"):
            made = await self._call(plugin, "after_model", request, reply)
            if made is not None and self._is_sound(plugin, "after_model", problem_in_reply(made)):
                reply = made
        return reply

    # --- tools -------------------------------------------------------------------------------------

    async def authorize(self, plugin_id: str, call: PluginCall) -> dict[str, Json]:
        """What the code of a plugin says about a call. Whatever goes wrong, that is no."""
        plugin = self.get(plugin_id)
        if plugin is None:
            return {"verdict": "deny", "reason": f"the plugin '{plugin_id}', which decides about it, is not here"}
        try:
            async with asyncio.timeout(AUTHORIZE_S):
                said = await _awaited(plugin.authorize(call))
        except Exception as error:
            self._failed(plugin, "authorize", error)
            return {"verdict": "deny", "reason": f"the plugin '{plugin_id}', which decides about it, failed"}
        match said:
            case "allow" | "deny" | "confirm":
                return {"verdict": said}
            case Deny(reason=reason):
                return {"verdict": "deny", "reason": reason}
            case _:
                self._failed(plugin, "authorize", ValueError(f"it said {said!r}, which is no verdict"))
                return {"verdict": "deny", "reason": f"the plugin '{plugin_id}' gave no verdict on it"}

    async def before_tool(self, call: PluginCall) -> ToolDecision:
        """What is done about a call. Raises `AbortTurn`.

        To stop the turn beats to deny the call, which beats another result. Arguments that were replaced are looked at
        by all plugins once more; if two want to replace them, the call is denied, for neither has seen the outcome.
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
            return ToolDecision(arguments, _denied(f"the plugin '{others[0]}' wants to change arguments once more"))
        return _verdict(arguments, [*first, *(each for each in again if not isinstance(each[1], Replace))])

    async def _directives(self, call: PluginCall) -> list[tuple[Plugin, Any]]:
        wants: list[tuple[Plugin, Any]] = []
        for plugin in self._having("before_tool"):
            try:
                own = replace(call, arguments=own_copy(call.arguments))  # what they change in it, nobody has looked at
                wanted = _checked_directive(await _awaited(plugin.before_tool(own)))
            except AbortTurn as abort:
                wanted = abort
            except Exception as error:
                self._failed(plugin, "before_tool", error)
                wanted = Deny(f"the plugin '{plugin.id}', which looks at calls before they run, failed")
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
        """Tell of a turn, once. Raises `AbortTurn`."""
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

    async def command(self, name: str, arguments: Mapping[str, Json]) -> Any:
        """Have a command done. Raises `PluginError` with what it raised, or if there is none of this name."""
        there: dict[str, tuple[Plugin, Command]] = {}
        for plugin in self._having("commands"):
            try:
                for each, command in plugin.commands().items():
                    there.setdefault(each, (plugin, command))
            except Exception as error:
                self._failed(plugin, "commands", error)
        if name not in there:
            names = ", ".join(sorted(there)) or "none"
            raise PluginError("", f"command {name}", self.session_id, f"there is no such command; there is {names}")
        plugin, command = there[name]
        try:
            return await _awaited(command(**arguments))
        except Exception as error:
            raise PluginError(plugin.id, f"command {name}", self.session_id, exception_text(error)) from error

    # --- containment -------------------------------------------------------------------------------

    def has(self, hook: str) -> bool:
        """Whether a plugin takes part there."""
        return bool(self._having(hook))

    def _having(self, hook: str) -> list[Plugin]:
        known = self._with.get(hook)
        if known is None:
            ours = getattr(Plugin, hook)
            known = self._with[hook] = [plugin for plugin in self.plugins if getattr(type(plugin), hook) is not ours]
        return known

    async def _call(self, plugin: Plugin, hook: str, *given: Any, may_abort: bool = False) -> Any:
        """What a hook gives; None if it fails, which is told. Raises `AbortTurn` where that may be wanted."""
        try:
            made = await _awaited(getattr(plugin, hook)(*given))
            if isinstance(made, AbortTurn):
                raise made
            return made
        except AbortTurn as abort:
            if may_abort:
                raise
            self._failed(plugin, hook, ValueError(f"it wants to stop the turn, which cannot be done here: {abort}"))
        except Exception as error:
            self._failed(plugin, hook, error)
        return None

    def _is_sound(self, plugin: Plugin, hook: str, problem: str | None) -> bool:
        if problem is not None:
            self._failed(plugin, hook, ValueError(problem))
        return problem is None

    def _failed(self, plugin: Plugin, hook: str, error: Exception) -> None:
        told = PluginError(plugin.id, hook, self.session_id, exception_text(error))
        log.warning("%s", told, exc_info=error)
        self._tell(live.PluginFailedEvent(turn=self.turn, plugin=plugin.id, hook=hook, error=told.error))

    def __iter__(self) -> Iterator[Plugin]:
        return iter(self.plugins)


async def _awaited(given: Any) -> Any:
    return await given if inspect.isawaitable(given) else given


def _own_messages(messages: Sequence[AgentMessage]) -> list[AgentMessage]:
    """The same messages, so that a plugin which changes a list changes its own."""
    return [AgentMessage(each.role, list(each.content)) for each in messages]


def _checked_directive(wanted: Any) -> Directive | None:
    """A directive that can be followed. Raises what is wrong with it."""
    match wanted:
        case None | AbortTurn() | Deny(reason=str()):
            pass
        case Replace(arguments=dict() as arguments):
            check_value(arguments, "the arguments that it wants")
        case Instead(value=value):
            check_value(value, "the result that it wants")
        case _:
            raise ValueError(f"it gave {type(wanted).__name__}, which is no directive")
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
    """What a query is answered with whose turn a plugin stops."""
    return Failure(str(abort) or "a plugin stopped the turn", ABORT_CODE)
