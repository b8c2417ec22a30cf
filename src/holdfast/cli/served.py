"""The trusted code that a command may run: that of `--serve`, and that which the project's `holdfast.toml` names.

It is run because whoever runs the command says so. What a store names is never imported.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast.cli.config import CONFIG_FILE, config_texts, read_config
from holdfast.cli.engine import find_modules_here
from holdfast.cli.errors import InputError
from holdfast.cli.options import CliSettings, settings

if TYPE_CHECKING:
    from holdfast.engine.fleet_limits import Limit
    from holdfast.programs.registry import Strategy

F = TypeVar("F", bound=Callable[..., Any])


def serve_option(function: F) -> F:
    """Add `--serve`, which `load_served` reads."""

    def keep(ctx: click.Context, _: click.Parameter, places: tuple[str, ...]) -> None:
        ctx.ensure_object(CliSettings).serve = places

    return click.option(
        "--serve",
        multiple=True,
        metavar="MODULE:NAME|FILE.py",
        help="Import a native strategy, so that its sessions can be continued here; also FILE.py:NAME, and FILE.lua for"
        " one that was started with --trusted. Repeatable."
        f"  [also: serve = […] in {CONFIG_FILE}]",
        expose_value=False,
        callback=keep,
    )(function)


def load_served() -> list[Strategy]:
    """Import the native strategies that this command may run, and let it run the trusted Lua files."""
    from holdfast.programs.errors import ProgramNotFoundError
    from holdfast.programs.kinds import get_language
    from holdfast.programs.registry import serve

    find_modules_here()
    named = [(f"--serve {where}", where) for where in settings().serve] + _named_in_config()
    served: list[Strategy] = []
    for said_by, where in named:
        try:
            if where.endswith(".lua"):
                get_language("lua").read_program(Path(where), trust="trusted")
            else:
                served += serve(where)
        except ProgramNotFoundError as error:
            raise InputError(f"{said_by}: {error.why}") from error
    return served


def services_in_config() -> tuple[str, ...]:
    """The services that `service` names in the project's file: one, or a list."""
    return config_texts("service", '"billing"')


def limits_in_config() -> list[Limit]:
    """The limits of a fleet that the table `limits` has in the project's file: counts by subject."""
    from holdfast.core.errors import InvalidValueError
    from holdfast.engine.fleet_limits import limits_of

    if (found := read_config()) is None:
        return []
    file, said = found
    declared = said.get("limits", {})
    if not isinstance(declared, dict):
        raise InputError(f'{file}: limits has to be a table, as in [limits] and below it "service:billing" = 20')
    try:
        return limits_of(declared)
    except InvalidValueError as error:
        raise InputError(f"{file}: {error}") from None


def _named_in_config() -> list[tuple[str, str]]:
    """What `serve` names in the project's file, with paths that begin at that file, and how an error names each."""
    if (found := read_config()) is None:
        return []
    file, said = found
    root = file.parent
    named = said.get("serve", [])
    if not isinstance(named, list) or not all(isinstance(each, str) for each in named):
        raise InputError(f'{file}: serve has to be a list of texts, as in serve = ["app.triage:triage", "jobs.py"]')
    if named and str(root) not in sys.path:
        sys.path.insert(0, str(root))
    return [(f"{file}: serve: '{each}'", place_below(root, each)) for each in named]


def place_below(root: Path, where: str) -> str:
    """What `--serve` names, with a path that begins at a directory."""
    place, colon, name = where.rpartition(":") if ":" in where else (where, "", "")
    return f"{os.path.normpath(root / place)}{colon}{name}" if place.endswith((".py", ".lua")) else where
