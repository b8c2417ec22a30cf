"""`check`: check strategies without running them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from holdfast.cli.options import json_option, project_option, read_stdin, settings
from holdfast.cli.output import print_json
from holdfast.cli.parameter_types import StrategyType
from holdfast.core.errors import ExitCode

if TYPE_CHECKING:
    from holdfast.programs.language import SourceText
    from holdfast.strategies.checks import CheckReport


@click.command("check")
@click.argument("files", nargs=-1, required=True, type=StrategyType(), metavar="FILE...")
@click.option(
    "--language",
    type=click.Choice(["lua", "python"]),
    default="python",
    show_default=True,
    help="The language of -.",
)
@project_option("The project in which names are looked up.  [default: the nearest project around this directory]")
@json_option
def check_command(files: tuple[str, ...], language: Literal["lua", "python"], project: Path | None) -> int:
    """Check strategies without running them: their types, what the sandbox lacks, their META.

    FILE is FILE.py, FILE.lua (only its syntax is checked), the name of a strategy, or - for standard input. If there
    are several files, test_*.py are left out.

    Exit code 1 if there are errors.
    """
    from holdfast.strategies.checks import check

    chosen = [each for each in files if not Path(each).name.startswith("test_")] or files
    checked = asyncio.run(check([_read_source(each, language, project) for each in chosen]))
    is_sound = not any(each.has_errors for each in checked)
    if settings().json:
        print_json({"ok": is_sound, "files": [each.to_json() for each in checked]})
    else:
        _print(checked)
    return ExitCode.OK if is_sound else ExitCode.ENDED_BADLY


def _read_source(name_or_file: str, language: Literal["lua", "python"], project: Path | None) -> SourceText:
    from holdfast.programs.language import SourceText
    from holdfast.strategies.checks import find_source

    if name_or_file == "-":
        return SourceText("<stdin>", language, read_stdin("the strategy"))
    return find_source(name_or_file, project)


def _print(checked: list[CheckReport]) -> None:
    from holdfast.cli.display.findings import show_findings

    for each in checked:
        for line in show_findings(each.source.file, each.source.code, each.findings):
            click.echo(line)
    levels = [finding.level for each in checked for finding in each.findings]
    errors, warnings = levels.count("error"), levels.count("warning")
    faults = click.style(_count(errors, "fault"), fg="red", bold=True) if errors else "no faults"
    summary = f"{_count(len(checked), 'file')}, {faults}"
    click.echo(summary + (f", {click.style(_count(warnings, 'warning'), fg='yellow')}" if warnings else ""))


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
