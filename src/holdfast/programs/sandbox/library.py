"""Strategies by name: files of sandboxed Python in the project, in the user's own directories, and the bundled ones.

The order: `strategies/` of the project (or of the working directory, without a project), the directories of
HOLDFAST_STRATEGIES_PATH, the user's own in Holdfast's home, then the library. The first file found is the one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from holdfast.programs.paths import find_project, home

Origin = Literal["project", "path", "user", "bundled"]

BUNDLED = Path(__file__).parents[2] / "strategies" / "library"
"""Where the library is."""

PATH_VARIABLE = "HOLDFAST_STRATEGIES_PATH"


class _StrategyDirectory(NamedTuple):
    """A directory that strategies are in."""

    directory: Path
    origin: Origin


class StrategyFile(NamedTuple):
    """A strategy that was found."""

    name: str
    path: Path
    origin: Origin


def places(project: Path | None = None, environ: Mapping[str, str] | None = None) -> list[_StrategyDirectory]:
    """Where strategies are looked for, now."""
    environ = os.environ if environ is None else environ
    root = find_project(project, environ) or Path(project or ".")
    named = [Path(each) for each in environ.get(PATH_VARIABLE, "").split(os.pathsep) if each]
    return [
        _StrategyDirectory(root / "strategies", "project"),
        *(_StrategyDirectory(directory, "path") for directory in named),
        _StrategyDirectory(home(environ) / "strategies", "user"),
        _StrategyDirectory(BUNDLED, "bundled"),
    ]


def find_strategy(name: str, project: Path | None = None) -> StrategyFile | None:
    """The file of a strategy, by its name; `-` in a name may be `_` in the file's."""
    if not _is_name(name):
        return None
    for directory, origin in places(project):
        for stem in dict.fromkeys((name, name.replace("-", "_"))):
            path = directory / f"{stem}.py"
            if path.is_file():
                return StrategyFile(stem, path, origin)
    return None


def list_strategies(project: Path | None = None) -> list[StrategyFile]:
    """All strategies that can be run by name, sorted; each name once."""
    found: dict[str, StrategyFile] = {}
    for place in places(project):
        for strategy in _in(place):
            found.setdefault(strategy.name, strategy)
    return sorted(found.values())


def _in(place: _StrategyDirectory) -> Iterator[StrategyFile]:
    try:
        names = sorted(os.listdir(place.directory))
    except OSError:
        return
    for name in names:
        stem, dot, ending = name.rpartition(".")
        if dot and ending == "py" and _is_name(stem) and not stem.startswith(("_", "test_")):
            yield StrategyFile(stem, place.directory / name, place.origin)


def _is_name(name: str) -> bool:
    return name.replace("-", "_").isidentifier() and name.isascii()
