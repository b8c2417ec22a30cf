"""What can be run by name: the native strategies of this process, the Lua packages that have a `run`, and the
strategies in sandboxed Python."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, UnsetType

from holdfast.alc.lua.packages import find_roots, list_packages
from holdfast.alc.packages.directories import Where
from holdfast.alc.packages.package_list import SYSTEM_PACKAGES, PackageList, listing
from holdfast.alc.packages.run_meta import fill_in
from holdfast.core.values import repaired
from holdfast.programs import registry
from holdfast.programs.sandbox.library import list_strategies
from holdfast.serve.mcp.tools import about, in_thread
from holdfast.strategies import catalog as python

DESCRIPTION_CHARS = 500
"""Characters of a description in a list: more than one sentence needs, and a hundred of them can still be read."""


class Runnable(msgspec.Struct, frozen=True, kw_only=True):
    """A strategy in a list."""

    name: Annotated[str, about("What to pass as `strategy`.")]
    kind: Annotated[
        Literal["lua", "native", "python"],
        about("A Lua package, a Python function of the server, or a strategy in sandboxed Python."),
    ]
    description: Annotated[str, about("What it does, in its own words; empty where it does not say.")]
    category: Annotated[str | UnsetType, about("What it counts itself among.")] = UNSET
    version: Annotated[str | UnsetType, about("The package's version.")] = UNSET
    calls: Annotated[str | UnsetType, about("How many questions it asks models at most, in its parameters.")] = UNSET
    parameters: Annotated[list[str] | UnsetType, about("The keys of ctx that it reads.")] = UNSET


def native_strategies() -> Mapping[str, registry.Strategy]:
    """The native strategies that have been imported."""
    return registry.registered()


async def runnables(project: Path | None = None) -> list[Runnable]:
    """Every strategy, by name. Where several have the same, it is the one that would be run: a native one, else a Lua
    package, else one in Python."""
    found: PackageList = await in_thread(listing, Where(project))
    found.packages = [each for each in found.packages if each.package.active and each.package.error is None]
    await fill_in(found)
    known = {each.name: each for each in await in_thread(in_python, project)}
    for package in (each.package for each in found.packages):
        if package.meta is not None and package.meta.type == "runnable":
            known[package.name] = Runnable(
                name=package.name,
                kind="lua",
                description=_short(package.meta.description or package.meta.docstring),
                category=_text(package.meta.category),
                version=_text(package.version),
            )
    for name, strategy in native_strategies().items():
        known[name] = Runnable(name=name, kind="native", description=_short(strategy.__doc__ or ""))
    return [known[name] for name in sorted(known)]


def in_python(project: Path | None = None) -> list[Runnable]:
    """The strategies in sandboxed Python that are found by their names, and in which there is no fault."""
    return [
        Runnable(
            name=each.name,
            kind="python",
            description=_short(each.meta.description if each.meta is not None else ""),
            category=_text(each.category),
            calls=_text(each.cost.formula if each.cost is not None else None),
            parameters=list(each.meta.parameters) if each.meta is not None else UNSET,
        )
        for each in python.catalog(project)
        if each.error is None and each.hidden_by is None
    ]


def names(project: Path | None = None) -> list[str]:
    """The names alone: quickly, so packages count that only running would tell apart from libraries."""
    found = {*native_strategies(), *(each.name for each in list_strategies(project))}
    for package in list_packages(find_roots(project)):
        runs = package.meta is None or package.meta.type == "runnable"
        if runs and package.active and package.error is None and package.name not in SYSTEM_PACKAGES:
            found.add(package.name)
    return sorted(found)


def matching(all_of_them: list[Runnable], search: str) -> list[Runnable]:
    """Those in which every word of the search occurs, in the name, the category or the description."""
    words = search.lower().split()
    return [
        each
        for each in all_of_them
        if all(word in f"{each.name} {each.category or ''} {each.description}".lower() for word in words)
    ]


def _short(text: str) -> str:
    """The first paragraph, on one line."""
    line = repaired(" ".join(text.strip().split("\n\n")[0].split()))
    return line if len(line) <= DESCRIPTION_CHARS else line[: DESCRIPTION_CHARS - 1] + "…"


def _text(text: str | None) -> str | UnsetType:
    return UNSET if text is None else repaired(text)
