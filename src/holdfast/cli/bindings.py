"""`--rlm`, `--file` and `--bind`: an agent that works in cells, and the files that cells and strategies read."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from holdfast.cli.errors import InputError


def rlm_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of commands that may work in cells."""
    for option in (
        click.option(
            "--bind",
            "bindings",
            multiple=True,
            metavar="NAME=PATH",
            help="A file (as text) or a folder (as a dict of texts) that cells read as NAME; of a strategy, a field of"
            " ctx. Repeatable.",
        ),
        click.option(
            "--file",
            "files",
            multiple=True,
            type=click.Path(exists=True, path_type=Path),
            metavar="PATH",
            help="As --bind, under a name made of the file's: data.csv is data. Repeatable.",
        ),
        click.option("--rlm", is_flag=True, help="The model works in cells of Python, whose variables stay."),
    ):
        command = option(command)
    return command


def parse_bindings(files: Sequence[Path], bindings: Sequence[str]) -> dict[str, Path]:
    """The files and folders by the names that cells read them under. Raises `InputError`."""
    found: dict[str, Path] = {}
    named = [(_name_of(path), path) for path in files]
    for each in bindings:
        name, _, where = each.partition("=")
        if not name or not where:
            raise InputError(f"--bind {each}: give NAME=PATH, as in --bind data=report.txt")
        named.append((name, Path(where)))
    for name, path in named:
        if not path.exists():
            raise InputError(f"--bind {name}: there is no file or folder {path}")
        if name in found:
            raise InputError(f"'{name}' is bound twice: {found[name]} and {path}; name one with --bind NAME=PATH")
        found[name] = path.absolute()
    return found


def bound_texts(files: Sequence[Path], bindings: Sequence[str]) -> dict[str, Any]:
    """The texts of these files, and dicts of texts of folders, by name. Raises `InputError`."""
    from holdfast.agent.rlm.projections import of_path

    return (
        {name: of_path(path).resolve() for name, path in parse_bindings(files, bindings).items()}
        if files or bindings
        else {}
    )


def _name_of(path: Path) -> str:
    name = re.sub(r"\W", "_", path.stem).strip("_") or "data"
    return f"file_{name}" if name[0].isdigit() else name
