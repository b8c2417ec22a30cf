"""Where things are on this machine: Holdfast's own directory, and the project that a process works in.

Nothing here is read at import: the environment is looked at when it is needed, by one rule for every user.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

PROJECT_NAMES = ("holdfast", "alc")
"""The two families of project files. The first wins where both say something of a package."""


def home(environ: Mapping[str, str] | None = None) -> Path:
    """Holdfast's app directory: HOLDFAST_HOME, else ALC_HOME, else `holdfast` in the user's data directory."""
    environ = os.environ if environ is None else environ
    for name in ("HOLDFAST_HOME", "ALC_HOME"):
        if environ.get(name):
            return _absolute(environ[name], environ)
    return _absolute(environ.get("XDG_DATA_HOME") or "~/.local/share", environ) / "holdfast"


def algocline_home(environ: Mapping[str, str] | None = None) -> Path:
    """Where algocline keeps its packages; they are found after our own."""
    environ = os.environ if environ is None else environ
    return _absolute(environ.get("ALC_HOME") or "~/.algocline", environ)


def _absolute(given: str, environ: Mapping[str, str]) -> Path:
    # Not expanduser: HOME of the environment that was handed in counts, not that of this process.
    if environ.get("HOME") and (given == "~" or given.startswith("~/")):
        given = environ["HOME"] + given[1:]
    return Path(os.path.abspath(os.path.expanduser(given)))


def paths_in(variable: str, environ: Mapping[str, str]) -> list[Path]:
    """The directories of a colon list in the environment."""
    return [_absolute(part, environ) for part in environ.get(variable, "").split(os.pathsep) if part]


def find_project(
    project: Path | None = None, environ: Mapping[str, str] | None = None, warnings: list[str] | None = None
) -> Path | None:
    """The project's root: as given, else from the environment, else the nearest one around the working directory."""
    environ = os.environ if environ is None else environ
    warnings = [] if warnings is None else warnings
    given = [("project", str(project))] if project is not None else []
    given += [(name, environ[name]) for name in ("HOLDFAST_PROJECT_ROOT", "ALC_PROJECT_ROOT") if environ.get(name)]
    for name, value in given:
        root = _absolute(value, environ)
        if root.is_dir():
            return root
        warnings.append(f"{name}: {root} is not a directory; it is not used")
    try:
        here = Path.cwd()
    except OSError:
        return None  # the working directory was removed
    for folder in (here, *here.parents):
        if any((folder / f"{name}.toml").is_file() for name in PROJECT_NAMES):
            return folder
    return None
