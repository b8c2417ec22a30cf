"""The tools of a runtime by name: functions, those of tool providers, and tools that are only declared."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, Protocol, TypeAlias, Unpack, runtime_checkable

import msgspec

from holdfast.agent.machine.calls import CALL_TOOL, FIND_TOOLS
from holdfast.agent.machine.delegation import DELEGATE_TOOL
from holdfast.agent.machine.policy import ALL_TOOLS, Deadline
from holdfast.agent.machine.turn import FINISH_TOOL, GIVE_UP_TOOL
from holdfast.agent.providers.provider import ToolSpec
from holdfast.agent.tools.context import ToolContext
from holdfast.agent.tools.errors import DuplicateToolError, ToolDefinitionError
from holdfast.agent.tools.schema import Schema
from holdfast.agent.tools.tool import RemoteTool, Tool, ToolSettings, check_named
from holdfast.core.queries import Failure
from holdfast.core.values import Json

RESERVED = {
    FINISH_TOOL: "a model submits the result of a turn with it",
    GIVE_UP_TOOL: "a model says with it that there is no such result",
    FIND_TOOLS: "a model finds tools with it",
    CALL_TOOL: "a model calls the tools it has found with it",
    DELEGATE_TOOL: "a model gives tasks to subagents with it",
    "llm": "the drivers of models are registered under it",
    "human": "the drivers of people's answers are registered under it",
}
"""Names that no tool may have, and what they are for."""

CACHED_SPECS = 64
"""Selections of tools whose specs are cached: one for each kind of session that a runtime usually has."""

LISTED_NAMES = 20
"""Names of tools that a model is shown when it calls one that does not exist."""


@runtime_checkable
class ToolProvider(Protocol):
    """A source of tools that lists them when asked: another process, a server, a plugin."""

    id: str
    """The same in every process that uses it. It tells owners apart."""

    async def list_tools(self) -> Sequence[ToolSpec]:
        """The tools that it has now."""
        ...

    async def call(self, name: str, arguments: dict[str, Json], ctx: ToolContext) -> Any:
        """Run a tool. What this returns or raises is treated like that of a function."""
        ...


@runtime_checkable
class ConfiguredToolProvider(Protocol):
    """A provider that knows how each of its tools is run. Settings given to `add_provider` take precedence."""

    def settings_of(self, name: str) -> ToolSettings:
        """The settings of a tool that it has just listed."""
        ...


@runtime_checkable
class WatchableToolProvider(Protocol):
    """A provider that says when its tools change."""

    def watch(self, watcher: Callable[[], Awaitable[None]]) -> Callable[[], None]:
        """Call `watcher` whenever they may have changed. Call the function this returns to stop."""
        ...


@runtime_checkable
class ClosableToolProvider(Protocol):
    """A provider that holds resources until it is closed."""

    async def aclose(self) -> None: ...


class DeclaredTool(msgspec.Struct, frozen=True):
    """A tool that models see and nothing here runs: its calls wait for an answer from outside."""

    name: str
    description: str
    parameters: Schema
    owner: str = "a declaration"
    deadline: Deadline | None = None
    """How long its calls wait, or None for no limit."""

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, self.description, self.parameters)


class DelegateTool(msgspec.Struct, frozen=True):
    """The tool with which a model gives a task to a subagent: its calls are queries for child sessions."""

    name: str
    description: str
    parameters: Schema
    owner: str = "the runtime"

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, self.description, self.parameters)


AnyTool: TypeAlias = Tool | DeclaredTool | DelegateTool

Toolish: TypeAlias = Tool | Callable[..., Any] | ToolProvider
"""What can be offered: a tool, a function as a tool, or all that a provider has."""


class _Provided(msgspec.Struct):
    provider: ToolProvider
    settings: ToolSettings
    specs: list[ToolSpec] | None
    """None until it was first asked."""
    names: list[str]
    """Those of its tools that are offered."""
    private: bool = False
    by_tool: list[ToolSettings] = []
    """What it says about how each of them is run."""
    asked: int = 0
    """How often it was asked."""
    heard: int = 0
    """The latest request whose answer was used: an answer to an earlier one that arrives later is out of date."""
    unwatch: Callable[[], None] | None = None


class Catalog:
    """The tools of a runtime. A change that is refused changes nothing."""

    def __init__(self, tools: Iterable[Toolish] = ()) -> None:
        self.generation = 0
        """Increases with each change: anything derived from the tools before is then out of date."""
        self._entries: dict[str, AnyTool] = {}
        self._provided: dict[str, _Provided] = {}
        self._private: set[str] = set()
        self._gone: set[str] = set()
        """Tools that were offered here, and are not any more."""
        self.deadlines: Mapping[str, Deadline] = {}
        """How long the calls of declared tools wait, by name."""
        self._specs: dict[tuple[str, ...] | None, list[ToolSpec]] = {}
        self.add(*tools)

    # --- reading -----------------------------------------------------------------------------------

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[AnyTool]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, name: str) -> AnyTool | None:
        """A tool by its name, or None if there is none."""
        return self._entries.get(name)

    def is_gone(self, name: str) -> bool:
        """Whether a tool was offered here, and is not any more."""
        return name in self._gone and name not in self._entries

    @property
    def runnable(self) -> list[Tool]:
        """The tools that run here."""
        return [entry for entry in self._entries.values() if isinstance(entry, Tool)]

    def specs(self, allowed: Sequence[str] | None = None) -> list[ToolSpec]:
        """The specs of all tools, or of the allowed ones, in the order in which they were added.

        A private tool must be allowed by name: `*` stands for all others. Allowed names without a tool are ignored: a
        session may have been recorded where there were more. The same list is returned until the generation changes;
        do not modify it.
        """
        key = None if allowed is None else tuple(allowed)
        if key not in self._specs:
            if len(self._specs) >= CACHED_SPECS:
                del self._specs[next(iter(self._specs))]
            named = key or ()
            is_open = key is None or ALL_TOOLS in key
            self._specs[key] = [
                entry.spec
                for name, entry in self._entries.items()
                if name in named or (is_open and name not in self._private)
            ]
        return self._specs[key]

    def is_private(self, name: str) -> bool:
        """Whether a tool is only for sessions that name it."""
        return name in self._private

    def check_beside(self, other: Catalog) -> None:
        """Raise `DuplicateToolError` if another catalog has a different tool of the same name."""
        for name, entry in self._entries.items():
            there = other.get(name)
            if there is not None and there is not entry and not other.is_private(name):
                raise DuplicateToolError(name, there.owner, entry.owner)

    def names_of(self, provider_id: str) -> list[str]:
        """The names of the tools that the provider with this id has brought."""
        known = self._provided.get(provider_id)
        return known.names if known is not None else []

    def unknown(self, name: str, allowed: Sequence[str] | None = None) -> Failure:
        """The failure for a model that has called a tool that does not exist."""
        return unknown_tool(name, [spec.name for spec in self.specs(allowed)])

    # --- changing ----------------------------------------------------------------------------------

    def add(self, *tools: Toolish, private: bool = False) -> None:
        """Offer tools, functions as tools, or the tools of providers. What is offered already is skipped.

        Private tools are for sessions whose policy names them. Providers are asked by `refresh`; until then they have
        no tools.
        """
        providers = [each for each in tools if isinstance(each, ToolProvider)]
        others = [each for each in tools if not isinstance(each, ToolProvider)]
        added = [each if isinstance(each, Tool) else Tool.of(each) for each in others]
        self._change(added, private=[tool.name for tool in added] if private else ())
        for provider in providers:
            if self._known(provider, {}) is None:
                self._provide(_Provided(provider, {}, None, self.names_of(provider.id), private))

    def declare(
        self,
        name: str,
        description: str,
        parameters: Schema,
        *,
        timeout_s: float | None = None,
        on_timeout: Literal["result", "stop"] = "result",
    ) -> None:
        """Offer a tool that nothing here runs: its calls wait as queries until someone answers them.

        If nobody does within `timeout_s` seconds, the model is told so, or the turn is stopped.
        """
        check_named(name, parameters)
        if timeout_s is not None and timeout_s <= 0:
            raise ToolDefinitionError(name, f"its timeout must be more than 0 seconds, got {timeout_s:g}")
        deadline = None if timeout_s is None else Deadline(round(timeout_s * 1000), on_timeout == "stop")
        declared = DeclaredTool(name, description, parameters, deadline=deadline)
        if self._entries.get(name) != declared:
            self._change([declared])

    def remove(self, name: str) -> None:
        """Stop offering a tool."""
        if name not in self._entries:
            raise ToolDefinitionError(name, "there is no such tool to remove")
        self._change([], without=[name])

    async def add_provider(
        self, provider: ToolProvider, *, private: bool = False, **settings: Unpack[ToolSettings]
    ) -> None:
        """Offer the tools of a provider; `settings` apply to each of them.

        A provider with the id of an earlier one replaces it, as after a reconnection.
        """
        if self._known(provider, settings) is None:
            known = _Provided(provider, settings, None, [], private)
            found = await _found(known)
            self._change(found.tools, self.names_of(provider.id), private=found.names if private else ())
            found.keep()
            self._provide(known)

    async def refresh(self, *provider_ids: str) -> None:
        """Ask providers which tools they have now: those with these ids, or all.

        Raises the first error of a provider that fails; all tools then stay as they were.
        """
        asked = [known for known in self._provided.values() if not provider_ids or known.provider.id in provider_ids]
        answers = await asyncio.gather(*(_found(known) for known in asked), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        found = [answer for answer in answers if not isinstance(answer, BaseException)]
        changed = [each for each in found if each.is_news and self._provided.get(each.of.provider.id) is each.of]
        for each in found:
            each.of.heard = max(each.of.heard, each.asked)
        if changed:
            without = [name for each in changed for name in each.of.names]
            private = [name for each in changed if each.of.private for name in each.names]
            self._change([tool for each in changed for tool in each.tools], without, private=private)
            for each in changed:
                each.keep()

    async def aclose(self, *, beside: Catalog | None = None) -> None:
        """Close the providers that can be closed, except those that the catalog `beside` still uses.

        If one fails to close, the others are closed all the same.
        """
        kept = [known.provider for known in beside._provided.values()] if beside is not None else []
        for known in self._provided.values():
            if known.unwatch is not None:
                known.unwatch()
                known.unwatch = None
        providers = [known.provider for known in self._provided.values()]
        closing = [each.aclose() for each in providers if isinstance(each, ClosableToolProvider) and each not in kept]
        for outcome in await asyncio.gather(*closing, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    def _provide(self, known: _Provided) -> None:
        provider = known.provider
        before = self._provided.get(provider.id)
        if before is not None and before.unwatch is not None:
            before.unwatch()
        if isinstance(provider, WatchableToolProvider):
            known.unwatch = provider.watch(partial(self.refresh, provider.id))
        self._provided[provider.id] = known

    def _known(self, provider: ToolProvider, settings: ToolSettings) -> _Provided | None:
        known = self._provided.get(provider.id)
        return known if known is not None and known.provider is provider and known.settings == settings else None

    def _change(self, added: Sequence[AnyTool], without: Sequence[str] = (), *, private: Sequence[str] = ()) -> None:
        entries = {name: entry for name, entry in self._entries.items() if name not in without}
        opened = {entry.name for entry in added if entry.name not in private}
        closed = {name for name in private if name not in entries}  # a tool that every session has stays that way
        hidden = self._private - {*without} - opened | closed
        for entry in added:
            if entry.name in RESERVED:
                why = f"the name is reserved: {RESERVED[entry.name]}; choose another one"
                raise ToolDefinitionError(entry.name, f"{why} ({entry.owner})")
            there = entries.setdefault(entry.name, entry)
            if there is not entry:
                raise DuplicateToolError(entry.name, there.owner, entry.owner)
        if list(entries.values()) != list(self._entries.values()) or hidden != self._private:
            self._gone |= self._entries.keys() - entries.keys()
            self._entries, self._private, self._specs = entries, hidden, {}
            declared = [entry for entry in entries.values() if isinstance(entry, DeclaredTool)]
            self.deadlines = {entry.name: entry.deadline for entry in declared if entry.deadline is not None}
            self.generation += 1


class _Found(msgspec.Struct):
    """The answer of a provider."""

    of: _Provided
    asked: int
    specs: list[ToolSpec]
    by_tool: list[ToolSettings]

    @property
    def is_news(self) -> bool:
        is_older = self.asked < self.of.heard
        return not is_older and (self.specs != self.of.specs or self.by_tool != self.of.by_tool)

    @property
    def names(self) -> list[str]:
        return [spec.name for spec in self.specs]

    @property
    def tools(self) -> list[Tool]:
        owner = f"the provider '{self.of.provider.id}'"

        def made(spec: ToolSpec, own: ToolSettings) -> Tool:
            if "recovery" in self.of.settings:
                own = {key: value for key, value in own.items() if key != "retry"}  # type: ignore[assignment]
            settings: ToolSettings = {**own, **self.of.settings}
            call = partial(self.of.provider.call, spec.name)
            return RemoteTool(spec.name, spec.description, spec.parameters, call, owner=owner, **settings)

        return [made(spec, own) for spec, own in zip(self.specs, self.by_tool, strict=True)]

    def keep(self) -> None:
        self.of.specs, self.of.by_tool, self.of.names = self.specs, self.by_tool, self.names


async def _found(known: _Provided) -> _Found:
    known.asked += 1
    asked, provider = known.asked, known.provider
    specs = list(await provider.list_tools())
    by_tool: list[ToolSettings] = [
        provider.settings_of(spec.name) if isinstance(provider, ConfiguredToolProvider) else {} for spec in specs
    ]
    return _Found(known, asked, specs, by_tool)


def unknown_tool(name: str, names: Sequence[str]) -> Failure:
    """The failure for a model that has called a tool that it does not have."""
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    if close:
        hint = "did you mean " + " or ".join(f"'{each}'" for each in close) + "?"
    elif names:
        more = ", …" if len(names) > LISTED_NAMES else ""
        hint = f"the tools are {', '.join(names[:LISTED_NAMES])}{more}"
    else:
        hint = "there are no tools"
    return Failure(f"there is no tool '{name[:64]}'; {hint}", "unknown_tool")
