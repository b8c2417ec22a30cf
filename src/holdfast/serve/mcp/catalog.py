"""What can be run by name: the native strategies of this process, the Lua packages that have a `run`, and the
strategies in sandboxed Python."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType

from holdfast.core.values import repaired
from holdfast.programs import registry
from holdfast.programs.kinds import languages
from holdfast.programs.language import Language, ProgramEntry
from holdfast.programs.word_search import best_matches
from holdfast.serve.mcp.tools import about

DESCRIPTION_CHARS = 500
"""Characters of a description in a list: more than one sentence needs, and a hundred of them can still be read."""


class StrategyView(msgspec.Struct, frozen=True, kw_only=True):
    """A strategy in a list."""

    name: Annotated[str, about("What to pass as `strategy`.")]
    kind: Annotated[
        str,
        about(
            "lua: a Lua package; native: a Python function of the server; python: a strategy in sandboxed Python; or"
            " another kind that this server runs."
        ),
    ]
    description: Annotated[str, about("What it does, in its own words; empty where it does not say.")]
    category: Annotated[str | UnsetType, about("What it counts itself among.")] = UNSET
    version: Annotated[str | UnsetType, about("The package's version.")] = UNSET
    calls: Annotated[str | UnsetType, about("How many questions it asks models at most, in its parameters.")] = UNSET
    parameters: Annotated[list[str] | UnsetType, about("The keys of ctx that it reads.")] = UNSET


class Runnable(msgspec.Struct, frozen=True):
    """A strategy as it is listed, and more words by which it can be found."""

    view: StrategyView
    keywords: str = ""


def native_strategies() -> Mapping[str, registry.Strategy]:
    """The native strategies that have been imported, without those that Holdfast starts by itself."""
    return {name: each for name, each in registry.registered().items() if each.is_listed}


async def runnables(project: Path | None = None) -> list[Runnable]:
    """Every strategy, by name. Where several have the same, it is the one that would be run: a native one, else one of
    the first language that has it."""
    known: dict[str, Runnable] = {}
    for language in reversed(languages()):
        known |= {each.view.name: each for each in await runnables_in(language, project)}
    for name, strategy in native_strategies().items():
        known[name] = Runnable(StrategyView(name=name, kind="native", description=_short(strategy.__doc__ or "")))
    return [known[name] for name in sorted(known)]


async def runnables_in(language: Language, project: Path | None = None) -> list[Runnable]:
    """The strategies in one language."""
    return [_runnable(each) for each in await language.list_programs(project)]


def names(project: Path | None = None) -> list[str]:
    """The names alone: quickly, so packages count that only running would tell apart from libraries."""
    found = set(native_strategies())
    for language in languages():
        found |= language.list_names(project).keys()
    return sorted(found)


def _runnable(entry: ProgramEntry) -> Runnable:
    view = StrategyView(
        name=entry.name,
        kind=entry.kind,
        description=_short(entry.description),
        category=_text(entry.category),
        version=_text(entry.version),
        calls=_text(entry.calls),
        parameters=UNSET if entry.parameters is None else entry.parameters,
    )
    return Runnable(view, entry.keywords)


def matching(all_of_them: list[Runnable], search: str) -> list[StrategyView]:
    """Those that have the most of the words that are searched for: in name, category, description or keywords."""
    texts = {
        each.view.name: f"{each.view.name} {each.view.category or ''} {each.view.description} {each.keywords}"
        for each in all_of_them
    }
    found = set(best_matches(texts, search))
    return [each.view for each in all_of_them if each.view.name in found]


def _short(text: str) -> str:
    """The first paragraph, on one line."""
    line = repaired(" ".join(text.strip().split("\n\n")[0].split()))
    return line if len(line) <= DESCRIPTION_CHARS else line[: DESCRIPTION_CHARS - 1] + "…"


def _text(text: str | None) -> str | UnsetType:
    return UNSET if text is None else repaired(text)
