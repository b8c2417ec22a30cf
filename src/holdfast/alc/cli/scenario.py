"""`scenario`: the scenarios that `alc.eval` and `alc_eval` find by name; the work is in `holdfast.alc.scenarios`."""

from __future__ import annotations

import click
import msgspec

from holdfast.cli.options import json_option, settings
from holdfast.cli.output import plain, print_json
from holdfast.cli.table import print_table
from holdfast.core.errors import ExitCode


@click.group("scenario")
def scenario_command() -> None:
    """Scenarios of evaluations in Lua: list, show and install them."""


@scenario_command.command("list")
@json_option
def list_command() -> int:
    """List the scenarios that are installed."""
    from holdfast.alc.scenarios import ScenarioFiles

    found, failures = ScenarioFiles().list()
    if settings().json:
        print_json({"scenarios": msgspec.to_builtins(found), "failures": failures})
        return ExitCode.OK
    if found:
        print_table(["scenario", "bytes", "file"], [[each.name, f"{each.size_bytes:,}", each.path] for each in found])
    else:
        click.echo("No scenarios yet. Install some: holdfast scenario install DIRECTORY|URL")
    for failure in failures:
        click.echo(f"holdfast: {plain(failure)}", err=True)
    return ExitCode.OK


@scenario_command.command("show")
@click.argument("name")
@json_option
def show_command(name: str) -> int:
    """Show the code of a scenario."""
    from holdfast.alc.scenarios import ScenarioFiles

    file, text = ScenarioFiles().read(name)
    if settings().json:
        print_json({"name": name, "path": str(file), "content": text})
    else:
        click.echo(plain(text))
    return ExitCode.OK


@scenario_command.command("install")
@click.argument("source", metavar="DIRECTORY|URL")
@json_option
def install_command(source: str) -> int:
    """Install the scenarios of a directory or a git repository (URL@REVISION pins one); what is there is kept."""
    from holdfast.alc.scenarios import ScenarioFiles

    done = ScenarioFiles().install(source)
    if settings().json:
        print_json(msgspec.to_builtins(done))
    else:
        click.echo(f"{len(done.installed)} installed{_listed(done.installed)}")
        if done.skipped:
            click.echo(f"{len(done.skipped)} were there already{_listed(done.skipped)}")
    for failure in done.failures:
        click.echo(f"holdfast: {plain(failure)}", err=True)
    return ExitCode.ENDED_BADLY if done.failures else ExitCode.OK


def _listed(names: list[str]) -> str:
    return f": {plain(', '.join(names))}" if names else ""
