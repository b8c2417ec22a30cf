"""`new`: write a new strategy with a test."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from holdfast.cli.options import json_option, settings
from holdfast.cli.output import dim, heading, plain, print_json
from holdfast.core.errors import ExitCode

_LUA_HOME = "holdfast.alc.cli.new:new_package"
"""The function that writes a Lua package, imported when one is written."""


@click.command("new")
@click.argument("name")
@click.option("--lua", "is_lua", is_flag=True, help="Write a Lua package instead of a Python file.")
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    metavar="DIR",
    help="Where to write it.  [default: the nearest project around this directory, else here; Lua: here]",
)
@json_option
def new_command(name: str, is_lua: bool, directory: Path | None) -> int:
    """Write a new strategy NAME with a test. It runs as it is; nothing is overwritten.

    Python: strategies/NAME.py, strategies/test_NAME.py for pytest, and __builtins__.pyi, which tells editors what a
    strategy may call. Lua: NAME/init.lua and NAME/spec/NAME_spec.lua.
    """
    return _new_package(name, directory or Path()) if is_lua else _new_strategy(name, directory)


def _new_strategy(name: str, directory: Path | None) -> int:
    from holdfast.strategies.scaffold import new_strategy

    report = new_strategy(name, directory)
    if settings().json:
        print_json(report)
        return ExitCode.OK
    print_written(report.written)
    if report.hides is not None:
        click.echo(f"{click.style('warning:', fg='yellow')} it replaces the bundled strategy '{report.name}'", err=True)
    option = "" if directory is None else f" --project {shlex.quote(str(directory))}"
    print_next_steps(
        (f"holdfast check {shlex.quote(report.strategy)}", "check it"),
        (f"pytest {shlex.quote(report.test)}", "test it"),
        (f"holdfast run {report.name}{option} --dry-run", "see what it would ask"),
        (f'holdfast run {report.name}{option} --task "…"', "run it"),
    )
    return ExitCode.OK


def _new_package(name: str, directory: Path) -> int:
    from holdfast.programs.kinds import load_object

    exit_code: int = load_object(_LUA_HOME)(name, directory)
    return exit_code


def print_written(paths: list[str]) -> None:
    """Print which files were written."""
    for path in paths:
        click.echo(f"{click.style('written', fg='green')}  {plain(path)}")


def print_next_steps(*commands: tuple[str, str]) -> None:
    """Print what to do next: commands, each with a comment."""
    click.echo(f"\n{heading('Next')}")
    columns = max(len(command) for command, _ in commands)
    for command, purpose in commands:
        click.echo(f"  {plain(command.ljust(columns))}  {dim(f'# {purpose}')}")
