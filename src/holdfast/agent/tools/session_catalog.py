"""The tools of one session: selected by access rules, and listed for the model, or searched if they are too many."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

import msgspec

from holdfast.agent.machine.calls import CALL_TOOL, FIND_TOOLS
from holdfast.agent.machine.compaction import value_tokens
from holdfast.agent.machine.policy import ALL_TOOLS
from holdfast.agent.machine.queries import ServedBy
from holdfast.agent.providers.provider import ToolSpec
from holdfast.agent.tools.catalog import AnyTool, Catalog, DeclaredTool, DelegateTool
from holdfast.agent.tools.schema import Schema
from holdfast.core.values import Json

FOUND = 8
"""Tools that one search returns: a screenful, and the right one is nearly always among the first."""


class ToolSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A tool in a catalog: enough to choose it by. Its parameters are looked up when they are needed."""

    name: str
    description: str
    owner: str
    is_declared: bool = False
    """Whether nothing here runs it: its calls wait for an answer from outside."""


def select_tools(
    base: Catalog,
    own: Catalog,
    allow: Sequence[str] | None,
    deny: Sequence[str],
    delegate: DelegateTool | None = None,
) -> dict[str, AnyTool]:
    """The tools that a session may use, by name: its own, and those of the runtime that its rules allow; `delegate` is
    one of the runtime.

    A private tool must be allowed by name, or by a pattern other than `*`. A denied tool is never allowed.
    """
    entries = {
        entry.name: entry for entry in base if _is_allowed(entry.name, allow, private=base.is_private(entry.name))
    }
    if delegate is not None and _is_allowed(delegate.name, allow, private=False):
        entries[delegate.name] = delegate
    entries.update((entry.name, entry) for entry in own)
    return {name: entry for name, entry in entries.items() if not any(fnmatchcase(name, each) for each in deny)}


def _is_allowed(name: str, allow: Sequence[str] | None, *, private: bool) -> bool:
    if allow is None:
        return not private
    return any(fnmatchcase(name, each) and not (private and each == ALL_TOOLS) for each in allow)


class SessionCatalog:
    """The tools that a model has. It never changes; a new catalog replaces it."""

    def __init__(self, entries: Mapping[str, AnyTool], summaries: Sequence[ToolSummary] | None = None) -> None:
        self._entries = entries
        self.summaries = list(summaries) if summaries is not None else [_summary(each) for each in entries.values()]
        self.names = frozenset(summary.name for summary in self.summaries)
        self._shown: dict[int, list[ToolSpec]] = {}

    def with_summaries(self, summaries: Sequence[ToolSummary]) -> SessionCatalog:
        """The catalog with only these of its tools, described in this way."""
        return SessionCatalog(self._entries, summaries)

    def served_by(self, name: str) -> ServedBy:
        """Who runs a tool that a model calls: a process that has it, the host if it is declared, or nobody."""
        if name not in self.names:
            return "nobody"
        match self._entries[name]:
            case DeclaredTool():
                return "host"
            case DelegateTool():
                return "subagent"
            case _:
                return "process"

    def parameters(self, name: str) -> Schema:
        """The parameters of a tool, looked up when asked for."""
        return self._entries[name].spec.parameters

    @cached_property
    def specs(self) -> list[ToolSpec]:
        """All tools with their parameters, as a model sees them."""
        return [ToolSpec(each.name, each.description, self.parameters(each.name)) for each in self.summaries]

    @cached_property
    def json(self) -> list[dict[str, Json]]:
        """The specs as plain JSON, made once."""
        return [{"name": s.name, "description": s.description, "parameters": s.parameters} for s in self.specs]

    @cached_property
    def tokens(self) -> int:
        """About how many tokens all specs take."""
        return sum(value_tokens(each) for each in self.json)

    def shown_specs(self, limit: int) -> list[ToolSpec]:
        """What the model sees: all tools, or tools to search them with if they take more than `limit` tokens."""
        known = self._shown.get(limit)
        if known is None:
            known = self._shown[limit] = self.specs if self.tokens <= limit else self._search_tools()
        return known

    def is_searched(self, limit: int) -> bool:
        """Whether the model has to search for its tools."""
        return self.tokens > limit

    def find(self, words: str, limit: int = FOUND) -> list[ToolSpec]:
        """The tools that match `words` best. Names count more than descriptions, rare words more than common ones."""
        wanted = _terms(words)
        rarity = {term: rare for term, rare in self._rarity.items() if any(_matches(term, each) for each in wanted)}
        scores: dict[str, float] = {}
        for name, terms in self._index.items():
            score = sum(weight * rarity[term] for term, weight in terms.items() if term in rarity)
            if score or words == name:
                scores[name] = score + (1_000 if words == name else 0)
        best = sorted(scores, key=lambda name: (-scores[name], name))[:limit]
        by_name = {spec.name: spec for spec in self.specs}
        return [by_name[name] for name in best]

    @cached_property
    def _index(self) -> dict[str, dict[str, float]]:
        index: dict[str, dict[str, float]] = {}
        for each in self.summaries:
            terms = dict.fromkeys(_terms(each.description), 1.0)
            terms.update(dict.fromkeys(_terms(each.name), 3.0))
            index[each.name] = terms
        return index

    @cached_property
    def _rarity(self) -> dict[str, float]:
        """How much a word says about a tool: less, the more tools have it."""
        common = Counter(term for terms in self._index.values() for term in terms)
        return {term: math.log(1 + len(self._index) / count) for term, count in common.items()}

    def _search_tools(self) -> list[ToolSpec]:
        owners = Counter(each.owner for each in self.summaries)
        counts = ", ".join(f"{count} of {owner}" for owner, count in owners.most_common(10))
        find = (
            f"Search for tools by keywords. There are {len(self.summaries)}: {counts}."
            " Returns their names, descriptions and arguments."
        )
        return [
            ToolSpec(FIND_TOOLS, find, _object({"words": {"type": "string"}}, ["words"])),
            ToolSpec(
                CALL_TOOL,
                f"Call a tool that '{FIND_TOOLS}' has returned, with its arguments.",
                _object({"name": {"type": "string"}, "arguments": {"type": "object"}}, ["name", "arguments"]),
            ),
        ]


def _object(properties: dict[str, Any], required: list[str]) -> Schema:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _summary(entry: AnyTool) -> ToolSummary:
    is_declared = isinstance(entry, DeclaredTool)
    return ToolSummary(name=entry.name, description=entry.description, owner=entry.owner, is_declared=is_declared)


def _matches(term: str, wanted: str) -> bool:
    """Whether a word is the wanted one or a form of it: `issues` matches `issue`, and `mail` matches `mailbox`."""
    short, long = sorted((term, wanted), key=len)
    return term == wanted or (len(short) > 3 and long.startswith(short))


def _terms(text: str) -> set[str]:
    split = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)
    return {word for word in re.split(r"[^0-9a-z]+", split.lower()) if len(word) > 1}
