"""`new`: a strategy to begin with, and its test."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from holdfast.cli.options import json_option, settings
from holdfast.cli.output import dim, heading, plain, print_json
from holdfast.core.errors import ExitCode


@click.command("new")
@click.argument("name")
@click.option("--lua", "is_lua", is_flag=True, help="A Lua package instead of a file of Python.")
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    metavar="DIR",
    help="Where to.  [default: the nearest project around this directory, else this directory; Lua: this directory]",
)
@json_option
def new_command(name: str, is_lua: bool, directory: Path | None) -> int:
    """Write a new strategy NAME with a test. It runs as it is; nothing is overwritten.

    Python: strategies/NAME.py, strategies/test_NAME.py for pytest, and __builtins__.pyi, from which editors know what
    a strategy may call. Lua: NAME/init.lua and NAME/spec/NAME_spec.lua.
    """
    return _lua(name, directory or Path()) if is_lua else _python(name, directory)


def _python(name: str, directory: Path | None) -> int:
    from holdfast.strategies.scaffold import new_strategy

    report = new_strategy(name, directory)
    if settings().json:
        print_json(report)
        return ExitCode.OK
    _written(report.written)
    if report.hides is not None:
        click.echo(f"{click.style('warning:', fg='yellow')} it hides the bundled strategy '{report.name}'", err=True)
    option = "" if directory is None else f" --project {shlex.quote(str(directory))}"
    _next(
        (f"holdfast check {shlex.quote(report.strategy)}", "look at it"),
        (f"pytest {shlex.quote(report.test)}", "test it"),
        (f"holdfast run {report.name}{option} --dry-run", "see what it would ask"),
        (f'holdfast run {report.name}{option} --task "…"', "run it"),
    )
    return ExitCode.OK


def _lua(name: str, directory: Path) -> int:
    from holdfast.alc.packages.scaffold import scaffold

    report = scaffold(name, directory)
    if settings().json:
        print_json(report)
        return ExitCode.OK
    package = directory / name
    _written([str(package / file) for file in report.files])
    path = shlex.quote(str(package))
    _next(
        (f"holdfast check {path}/init.lua", "look at it"),
        (f"holdfast pkg test {path}", "test it"),
        (f"holdfast run {path}/init.lua --task test --dry-run", "see what it would ask"),
        (f"holdfast pkg link {path}", f"so that `holdfast run {name}` finds it"),
    )
    return ExitCode.OK


def _written(paths: list[str]) -> None:
    for path in paths:
        click.echo(f"{click.style('written', fg='green')}  {plain(path)}")


def _next(*commands: tuple[str, str]) -> None:
    click.echo(f"\n{heading('Next')}")
    columns = max(len(command) for command, _ in commands)
    for command, what in commands:
        click.echo(f"  {plain(command.ljust(columns))}  {dim(f'# {what}')}")
