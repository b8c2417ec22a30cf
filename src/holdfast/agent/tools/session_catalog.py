"""The tools of one session: chosen by access rules, told to the model, or found by it where they are too many."""

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
from holdfast.agent.providers.provider import ToolSpec
from holdfast.agent.tools.catalog import AnyTool, Catalog, DeclaredTool
from holdfast.agent.tools.schema import Schema
from holdfast.core.values import Json

FOUND = 8
"""Tools that one search gives: a screen of contracts, of which the right one is nearly always among the first."""


class ToolSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as it stands in a catalog: enough to choose it by. What it takes is looked up when that is needed."""

    name: str
    description: str
    owner: str
    is_declared: bool = False
    """Whether nothing here runs it: its calls wait for whoever answers."""


def chosen(base: Catalog, own: Catalog, allow: Sequence[str] | None, deny: Sequence[str]) -> dict[str, AnyTool]:
    """The tools that a session may use, by name: its own, and those of the runtime that its rules allow.

    A private tool has to be named, or meant by a pattern that is not just `*`. What is denied is never allowed.
    """
    entries = {
        entry.name: entry for entry in base if _is_allowed(entry.name, allow, private=base.is_private(entry.name))
    }
    entries.update((entry.name, entry) for entry in own)
    return {name: entry for name, entry in entries.items() if not any(fnmatchcase(name, each) for each in deny)}


def _is_allowed(name: str, allow: Sequence[str] | None, *, private: bool) -> bool:
    if allow is None:
        return not private
    return any(fnmatchcase(name, each) and not (private and each == ALL_TOOLS) for each in allow)


class SessionCatalog:
    """What a model has. It never changes: another one takes its place."""

    def __init__(self, entries: Mapping[str, AnyTool], manifests: Sequence[ToolSummary] | None = None) -> None:
        self._entries = entries
        self.manifests = list(manifests) if manifests is not None else [_manifest(each) for each in entries.values()]
        self.names = frozenset(manifest.name for manifest in self.manifests)
        self._told: dict[int, list[ToolSpec]] = {}

    def left_by(self, manifests: Sequence[ToolSummary]) -> SessionCatalog:
        """The catalog with these of its tools, as they are described there."""
        return SessionCatalog(self._entries, manifests)

    def contract(self, name: str) -> Schema:
        """What a tool takes, looked up when it is asked for."""
        return self._entries[name].spec.parameters

    @cached_property
    def specs(self) -> list[ToolSpec]:
        """All tools with their contracts, as a model is told of them."""
        return [ToolSpec(each.name, each.description, self.contract(each.name)) for each in self.manifests]

    @cached_property
    def json(self) -> list[dict[str, Json]]:
        """The same as plain JSON, made once."""
        return [{"name": s.name, "description": s.description, "parameters": s.parameters} for s in self.specs]

    @cached_property
    def tokens(self) -> int:
        """About how many tokens all of it takes."""
        return sum(value_tokens(each) for each in self.json)

    def told(self, limit: int) -> list[ToolSpec]:
        """What the model is told: all tools, or how to find them where they take more than `limit` tokens."""
        known = self._told.get(limit)
        if known is None:
            known = self._told[limit] = self.specs if self.tokens <= limit else self._search_tools()
        return known

    def is_searched(self, limit: int) -> bool:
        """Whether the model has to look for tools."""
        return self.tokens > limit

    def find(self, words: str, limit: int = FOUND) -> list[ToolSpec]:
        """The tools that fit some words best. Names count more than descriptions, rare words more than common ones."""
        wanted = _terms(words)
        rarity = {term: rare for term, rare in self._rarity.items() if any(_is_meant(term, each) for each in wanted)}
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
        for each in self.manifests:
            terms = dict.fromkeys(_terms(each.description), 1.0)
            terms.update(dict.fromkeys(_terms(each.name), 3.0))
            index[each.name] = terms
        return index

    @cached_property
    def _rarity(self) -> dict[str, float]:
        """How much a word tells of a tool: the less, the more tools have it."""
        common = Counter(term for terms in self._index.values() for term in terms)
        return {term: math.log(1 + len(self._index) / count) for term, count in common.items()}

    def _search_tools(self) -> list[ToolSpec]:
        owners = Counter(each.owner for each in self.manifests)
        there = ", ".join(f"{count} of {owner}" for owner, count in owners.most_common(10))
        found = (
            f"Find tools by words. There are {len(self.manifests)}: {there}. Gives names, descriptions and arguments."
        )
        return [
            ToolSpec(FIND_TOOLS, found, _object({"words": {"type": "string"}}, ["words"])),
            ToolSpec(
                CALL_TOOL,
                f"Call a tool that '{FIND_TOOLS}' has found, with its arguments.",
                _object({"name": {"type": "string"}, "arguments": {"type": "object"}}, ["name", "arguments"]),
            ),
        ]


def _object(properties: dict[str, Any], required: list[str]) -> Schema:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _manifest(entry: AnyTool) -> ToolSummary:
    is_declared = isinstance(entry, DeclaredTool)
    return ToolSummary(name=entry.name, description=entry.description, owner=entry.owner, is_declared=is_declared)


def _is_meant(term: str, wanted: str) -> bool:
    """Whether a word is the one that is looked for, or a form of it: `issues` means `issue`, and `mail` a `mailbox`."""
    short, long = sorted((term, wanted), key=len)
    return term == wanted or (len(short) > 3 and long.startswith(short))


def _terms(text: str) -> set[str]:
    split = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)
    return {word for word in re.split(r"[^0-9a-z]+", split.lower()) if len(word) > 1}
