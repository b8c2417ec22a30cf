"""The tools of a runtime: functions, what providers offer, and tools that are only declared. By name, one of each."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Literal, Protocol, TypeAlias, Unpack, runtime_checkable

import msgspec

from holdfast.agent.providers.protocol import ToolSpec
from holdfast.agent.tools.context import ToolContext
from holdfast.agent.tools.errors import DuplicateToolError, ToolDefinitionError
from holdfast.agent.tools.schema import Schema
from holdfast.agent.tools.tool import RemoteTool, Settings, Tool, check_named
from holdfast.core.policy import ALL_TOOLS, Deadline
from holdfast.core.queries import Failure
from holdfast.core.turn import FINISH_TOOL
from holdfast.core.values import Json

RESERVED = {
    FINISH_TOOL: "by it a model submits the value of a turn",
    "llm": "drivers of models are registered under it",
    "human": "drivers of people's answers are registered under it",
}
"""Names that no tool can have, and what they are for."""

CACHED_SPECS = 64
"""Selections of tools whose specs are kept: one for each kind of session that a runtime usually has."""

LISTED_NAMES = 20
"""Names of tools that a model is told of when it calls one that there is not."""


@runtime_checkable
class ToolProvider(Protocol):
    """A source of tools that are found when it is asked: another process, a server, a plugin."""

    id: str
    """The same for every process that uses it; owners are told apart by it."""

    async def list_tools(self) -> Sequence[ToolSpec]:
        """The tools that there are now."""
        ...

    async def call(self, name: str, arguments: dict[str, Json], ctx: ToolContext) -> Any:
        """Run a tool. What it returns or raises is treated as that of a function is."""
        ...


class DeclaredTool(msgspec.Struct, frozen=True):
    """A tool that models are told of and that nothing here runs: its calls wait for whoever answers."""

    name: str
    description: str
    parameters: Schema
    owner: str = "a declaration"
    deadline: Deadline | None = None
    """How long its calls wait; None: for ever."""

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, self.description, self.parameters)


Entry: TypeAlias = Tool | DeclaredTool

Toolish: TypeAlias = Tool | Callable[..., Any] | ToolProvider
"""What can be offered: a tool, a function as a tool, or whatever a provider has."""


class _Provided(msgspec.Struct):
    provider: ToolProvider
    settings: Settings
    specs: list[ToolSpec] | None
    """None before it was asked."""
    names: list[str]
    """Of its tools that are offered."""
    private: bool = False


class Catalog:
    """The tools of a runtime. A change that is refused changes nothing."""

    def __init__(self, tools: Iterable[Toolish] = ()) -> None:
        self.generation = 0
        """One more after each change: what was made of the tools before is out of date."""
        self._entries: dict[str, Entry] = {}
        self._provided: dict[str, _Provided] = {}
        self._private: set[str] = set()
        self._specs: dict[tuple[str, ...] | None, list[ToolSpec]] = {}
        self.add(*tools)

    # --- reading -----------------------------------------------------------------------------------

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, name: str) -> Entry | None:
        """A tool by its name."""
        return self._entries.get(name)

    @property
    def deadlines(self) -> dict[str, Deadline]:
        """How long calls wait of tools that are only declared, by name."""
        declared = [entry for entry in self._entries.values() if isinstance(entry, DeclaredTool)]
        return {entry.name: entry.deadline for entry in declared if entry.deadline is not None}

    @property
    def runnable(self) -> list[Tool]:
        """The tools that run here."""
        return [entry for entry in self._entries.values() if isinstance(entry, Tool)]

    def specs(self, allowed: Sequence[str] | None = None) -> list[ToolSpec]:
        """What a model is told of all tools, or of those that are allowed, in the order in which they came.

        Private tools are told of where they are named only: `*` among the allowed stands for all others.
        The same list is given until the generation changes; do not change it. Allowed names that there are no tools of
        are passed over: a session may have been recorded where there were more.
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

    def names_of(self, provider_id: str) -> list[str]:
        """The tools that the provider of this id has brought."""
        known = self._provided.get(provider_id)
        return known.names if known is not None else []

    def unknown(self, name: str, allowed: Sequence[str] | None = None) -> Failure:
        """What a model is told that has called a tool that there is not."""
        return unknown_tool(name, [spec.name for spec in self.specs(allowed)])

    # --- changing ----------------------------------------------------------------------------------

    def add(self, *given: Toolish, private: bool = False) -> None:
        """Offer tools, functions as tools, or what providers have. What is offered already is passed over.

        Those that are private are for sessions whose policy names them.

        Providers are asked by `refresh`: until then they have nothing.
        """
        providers = [each for each in given if isinstance(each, ToolProvider)]
        others = [each for each in given if not isinstance(each, ToolProvider)]
        tools = [each if isinstance(each, Tool) else Tool.of(each) for each in others]
        self._change(tools, private=[tool.name for tool in tools] if private else ())
        for provider in providers:
            if self._known(provider, {}) is None:
                self._provided[provider.id] = _Provided(provider, {}, None, self.names_of(provider.id), private)

    def declare(
        self,
        name: str,
        description: str,
        parameters: Schema,
        *,
        timeout_s: float | None = None,
        on_timeout: Literal["result", "stop"] = "result",
    ) -> None:
        """Tell models of a tool that nothing here runs: its calls wait as queries for whoever answers them.

        If nobody has within `timeout_s` seconds, the model is told so, or the turn is stopped by it.
        """
        check_named(name, parameters)
        if timeout_s is not None and timeout_s <= 0:
            raise ToolDefinitionError(name, f"its timeout must be more than 0 seconds, got {timeout_s:g}")
        deadline = None if timeout_s is None else Deadline(round(timeout_s * 1000), on_timeout == "stop")
        declared = DeclaredTool(name, description, parameters, deadline=deadline)
        if self._entries.get(name) != declared:
            self._change([declared])

    def remove(self, name: str) -> None:
        """Offer a tool no longer."""
        if name not in self._entries:
            raise ToolDefinitionError(name, "there is no such tool to remove")
        self._change([], without=[name])

    async def add_provider(
        self, provider: ToolProvider, *, private: bool = False, **settings: Unpack[Settings]
    ) -> None:
        """Offer what a provider has; `settings` are those of each of its tools.

        Another provider of the same id takes the place of the one before, as after a reconnection.
        """
        if self._known(provider, settings) is None:
            specs = list(await provider.list_tools())
            names = [spec.name for spec in specs]
            tools, before = _tools_of(provider, settings, specs), self.names_of(provider.id)
            self._change(tools, before, private=names if private else ())
            self._provided[provider.id] = _Provided(provider, settings, specs, names, private)

    async def refresh(self) -> None:
        """Ask all providers what they have now.

        Raises what the first of them raises that fails; then all tools stay as they were.
        """
        found = [(known, list(await known.provider.list_tools())) for known in self._provided.values()]
        changed = [(known, specs) for known, specs in found if specs != known.specs]
        if changed:
            without = [name for known, _ in changed for name in known.names]
            tools = [_tools_of(known.provider, known.settings, specs) for known, specs in changed]
            private = [spec.name for known, specs in changed if known.private for spec in specs]
            self._change([tool for each in tools for tool in each], without, private=private)
            for known, specs in changed:
                known.specs, known.names = specs, [spec.name for spec in specs]

    def _known(self, provider: ToolProvider, settings: Settings) -> _Provided | None:
        known = self._provided.get(provider.id)
        return known if known is not None and known.provider is provider and known.settings == settings else None

    def _change(self, added: Sequence[Entry], without: Sequence[str] = (), *, private: Sequence[str] = ()) -> None:
        entries = {name: entry for name, entry in self._entries.items() if name not in without}
        opened = {entry.name for entry in added if entry.name not in private}
        closed = {name for name in private if name not in entries}  # what everybody has stays everybody's
        hidden = self._private - {*without} - opened | closed
        for entry in added:
            if entry.name in RESERVED:
                why = f"the name is reserved: {RESERVED[entry.name]}; give it another one"
                raise ToolDefinitionError(entry.name, f"{why} ({entry.owner})")
            there = entries.setdefault(entry.name, entry)
            if there is not entry:
                raise DuplicateToolError(entry.name, there.owner, entry.owner)
        if list(entries.values()) != list(self._entries.values()) or hidden != self._private:
            self._entries, self._private, self._specs = entries, hidden, {}
            self.generation += 1


def _tools_of(provider: ToolProvider, settings: Settings, specs: list[ToolSpec]) -> list[Tool]:
    def made(spec: ToolSpec) -> Tool:
        call, owner = partial(provider.call, spec.name), f"the provider '{provider.id}'"
        return RemoteTool(spec.name, spec.description, spec.parameters, call, owner=owner, **settings)

    return [made(spec) for spec in specs]


def unknown_tool(name: str, names: Sequence[str]) -> Failure:
    """What a model is told that has called a tool that it does not have."""
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    if close:
        hint = "did you mean " + " or ".join(f"'{each}'" for each in close) + "?"
    elif names:
        more = ", …" if len(names) > LISTED_NAMES else ""
        hint = f"there is {', '.join(names[:LISTED_NAMES])}{more}"
    else:
        hint = "there are no tools"
    return Failure(f"there is no tool '{name[:64]}'; {hint}", "unknown_tool")
