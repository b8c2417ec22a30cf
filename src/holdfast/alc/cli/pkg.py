"""`pkg`: the Lua packages. One command each; the work is in `holdfast.alc.packages`."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from holdfast.cli.options import json_option, settings
from holdfast.cli.output import dim, heading, one_line, plain, print_json
from holdfast.cli.table import print_table
from holdfast.core.errors import ExitCode

if TYPE_CHECKING:
    from holdfast.alc.packages.directories import PackageDirectories
    from holdfast.alc.packages.install import Progress

F = TypeVar("F", bound=Callable[..., Any])

_COLLECTION = "https://github.com/ynishi/algocline-bundled-packages"
"""A public collection, for users without packages."""

_ELSEWHERE = {"test": "holdfast.alc.cli.pkg_test", "types": "holdfast.alc.cli.pkg_types"}
"""Commands of this group that have a module of their own, imported when they are used."""


class PackageCommands(click.Group):
    """The commands on packages."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.commands, *(name for name, module in _ELSEWHERE.items() if find_spec(module))]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = _ELSEWHERE.get(cmd_name)
        if module is None or find_spec(module) is None:
            return super().get_command(ctx, cmd_name)
        command: click.Command = getattr(import_module(module), f"{cmd_name}_command")
        return command


@click.group("pkg", cls=PackageCommands)
def pkg_command() -> None:
    """Lua packages: find, install, link, check and test them."""


with_json = json_option


def with_project(function: F) -> F:
    """Add `--project`."""
    return click.option(
        "--project",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        metavar="DIR",
        help="The project's root.  [env: HOLDFAST_PROJECT_ROOT; default: the nearest one around this directory]",
    )(function)


def _where(project: Path | None = None) -> PackageDirectories:
    from holdfast.alc.packages.directories import PackageDirectories

    return PackageDirectories(project)


def _warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        click.echo(f"{click.style('warning:', fg='yellow')} {plain(warning)}", err=True)


# --- looking -----------------------------------------------------------------------------------


@pkg_command.command("list")
@click.option("--all", "show_all", is_flag=True, help="Also list packages hidden by another one of the same name.")
@with_project
@with_json
def list_command(show_all: bool, project: Path | None) -> int:
    """List the packages that can be run or required, and where each comes from."""
    from holdfast.alc.packages.package_list import listing

    found = listing(_where(project))
    if any(each.package.meta is None for each in found.packages):
        from holdfast.alc.packages.run_meta import fill_in

        asyncio.run(fill_in(found))
    if not show_all:
        found.packages = [each for each in found.packages if each.package.active or each.package.error]
    if settings().json:
        print_json(found.to_json())
        return ExitCode.OK
    rows = []
    for each in found.packages:
        package, meta = each.package, each.package.meta
        state = "" if package.active and package.error is None else ("broken" if package.error else "hidden")
        about = package.error or (meta.description if meta is not None else None) or ""
        kind = meta.type if meta is not None else "?"
        rows.append([package.name, package.version or "-", kind, package.origin, state, one_line(about, 200)])
    if rows:
        print_table(("NAME", "VERSION", "TYPE", "FROM", "", "ABOUT"), rows)
    else:
        click.echo(f"No packages yet. `holdfast pkg install {_COLLECTION}` installs a collection.")
    _warn(found.warnings)
    return ExitCode.OK


@pkg_command.command("doctor")
@click.argument("name", required=False)
@with_project
@with_json
def doctor_command(name: str | None, project: Path | None) -> int:
    """Check every package, or NAME: its files, requirements, checksum and links, and the project's pins.

    Exit code 1 if something is wrong.
    """
    from holdfast.alc.packages.health import doctor

    report = doctor(_where(project), name)
    if settings().json:
        print_json(report.to_json())
        return ExitCode.OK if report.ok else ExitCode.ENDED_BADLY
    for each in report.findings:
        colour = None if each.kind == "shadowed" else "red"
        kind = click.style(each.kind.replace("_", " "), fg=colour)
        click.echo(f"{heading(plain(each.name))}  {kind}: {plain(each.reason)}\n    {plain(each.suggestion)}")
    wrong = len({each.name for each in report.findings if each.kind != "shadowed"})
    click.echo(f"{len(report.healthy)} sound, {wrong} with problems.")
    _warn(report.warnings)
    return ExitCode.OK if report.ok else ExitCode.ENDED_BADLY


# --- changing ----------------------------------------------------------------------------------


@pkg_command.command("install")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.option("--rev", metavar="REV", help="A branch, tag or commit; the same as URL@REV.")
@click.option("--name", metavar="NAME", help="Install a single package under this name.")
@click.option("--force", is_flag=True, help="Replace packages that came from elsewhere.")
@click.option("--no-project", is_flag=True, help="Do not add the packages to the project's file.")
@click.option("--timeout", type=click.FloatRange(min=1), default=300.0, show_default=True, help="Seconds for git.")
@with_project
@with_json
def install_command(
    sources: tuple[str, ...],
    *,
    rev: str | None,
    name: str | None,
    force: bool,
    no_project: bool,
    timeout: float,
    project: Path | None,
) -> int:
    """Install packages from directories or git repositories (URL or URL@REV).

    A SOURCE is one package, with init.lua at its top, or a collection of directories that have one.
    """
    from holdfast.alc.packages.install import Options, install

    with _progress() as progress:
        options = Options(rev, name, force, not no_project, timeout, progress)
        report = install(_where(project), sources, options)
    if settings().json:
        print_json(report.to_json())
        return ExitCode.OK if report.ok else ExitCode.ENDED_BADLY
    quiet = 0
    for each in report.packages:
        if each.action == "unchanged":
            quiet += 1
            continue
        version = f" {each.version}" if each.version else ""
        summary_line = f"{each.action}{': ' if each.why else ''}{each.why}"
        click.echo(f"{heading(plain(each.name))}{plain(version)}  {plain(summary_line)}", err=each.action == "refused")
    if quiet:
        click.echo(f"{quiet} already there, unchanged")
    for error in report.errors:
        click.echo(f"{click.style('failed:', fg='red')} {plain(str(error))}", err=True)
    _warn(report.warnings)
    return ExitCode.OK if report.ok else ExitCode.ENDED_BADLY


@contextmanager
def _progress() -> Iterator[Callable[[Progress], None]]:
    """A progress bar for each source, if stderr is a terminal."""
    if settings().json or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True, no_color=bool(os.environ.get("NO_COLOR")))
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Bars(*columns, console=console, transient=True) as bars:
        tasks: dict[str, Any] = {}

        def show(progress: Progress) -> None:
            if progress.source not in tasks:
                tasks[progress.source] = bars.add_task("", total=None)
            about = f"{progress.stage} {one_line(progress.source, 50)}".replace("[", "\\[")
            total = progress.total or None
            bars.update(tasks[progress.source], description=about, completed=progress.done, total=total)

        yield show


@pkg_command.command("remove")
@click.argument("name")
@click.option(
    "--scope",
    type=click.Choice(["project", "global", "all"]),
    help="Where to remove it from.  [default: project, if it names the package]",
)
@click.option("--version", metavar="V", help="Only this version.")
@click.option("--keep-files", is_flag=True, help="Forget the package, but keep its directory.")
@with_project
@with_json
def remove_command(name: str, scope: Any, version: str | None, keep_files: bool, project: Path | None) -> int:
    """Remove a package: from the project's files if they name it, otherwise from the user's directory."""
    from holdfast.alc.packages.links import remove

    report = remove(_where(project), name, scope=scope, version=version, keep_files=keep_files)
    if settings().json:
        print_json(report)
    else:
        for path in (*report.deleted, *report.changed):
            done = "deleted" if path in report.deleted else "no longer named in"
            click.echo(f"{heading(report.removed)}  {done} {plain(path)}")
    return ExitCode.OK


@pkg_command.command("link")
@click.argument("path", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--name", metavar="NAME", help="The name of a single package.")
@click.option("--force", is_flag=True, help="Replace an existing package of that name.")
@click.option(
    "--scope", type=click.Choice(["global", "variant"]), default="global", help="For the user, or this project."
)
@with_project
@with_json
def link_command(path: Path, name: str | None, force: bool, scope: Any, project: Path | None) -> int:
    """Use the packages in PATH where they are: changes take effect at once."""
    from holdfast.alc.packages.links import link

    report = link(_where(project), path, name=name, force=force, scope=scope)
    if settings().json:
        print_json(report)
    else:
        for each in report.linked:
            place = f" (in {report.local_file})" if report.local_file else ""
            click.echo(f"{heading(each)}  linked to {plain(report.targets[each])}{plain(place)}")
    return ExitCode.OK


@pkg_command.command("unlink")
@click.argument("name")
@with_project
@with_json
def unlink_command(name: str, project: Path | None) -> int:
    """Undo `link`. The linked directory is not touched."""
    from holdfast.alc.packages.links import unlink

    report = unlink(_where(project), name)
    if settings().json:
        print_json(report)
    else:
        click.echo(f"{heading(report.unlinked)}  unlinked {dim(plain(report.path))}")
    return ExitCode.OK


@pkg_command.command("repair")
@click.argument("name", required=False)
@click.option("--force", is_flag=True, help="Also restore packages that were changed after they were installed.")
@with_project
@with_json
def repair_command(name: str | None, force: bool, project: Path | None) -> int:
    """Reinstall what is missing or incomplete from its source. Exit code 1 if problems remain."""
    from holdfast.alc.packages.health import repair

    report = repair(_where(project), name, force=force)
    if settings().json:
        print_json({"ok": report.ok, **msgspec.to_builtins(report)})
        return ExitCode.OK if report.ok else ExitCode.ENDED_BADLY
    for done in ("repaired", "skipped", "unrepairable", "failed"):
        for each in getattr(report, done):
            click.echo(f"{heading(plain(each.name))}  {done}: {plain(each.why)}")
    if not any((report.repaired, report.skipped, report.unrepairable, report.failed)):
        click.echo("Nothing to repair.")
    return ExitCode.OK if report.ok else ExitCode.ENDED_BADLY


# --- projects ----------------------------------------------------------------------------------


@pkg_command.command("init")
@click.argument("directory", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
@with_json
def init_command(directory: Path | None) -> int:
    """Create a project file in this directory, or in DIRECTORY."""
    from holdfast.alc.packages.lock import init

    report = init(_where(directory))
    if settings().json:
        print_json(report)
    else:
        click.echo(f"{plain(report.created)} written" + (", .gitignore extended" if report.gitignore_updated else ""))
    return ExitCode.OK


@pkg_command.command("update")
@click.option("--timeout", type=click.FloatRange(min=1), default=300.0, show_default=True, help="Seconds for git.")
@with_project
@with_json
def update_command(timeout: float, project: Path | None) -> int:
    """Find the packages that the project's file names, fetch those from git, and write the lock file.

    Exit code 1 if a package could not be found.
    """
    from holdfast.alc.packages.lock import update

    report = update(_where(project), timeout)
    if settings().json:
        print_json(report.to_json())
        return ExitCode.ENDED_BADLY if report.errors else ExitCode.OK
    for each in report.resolved:
        commit = f" at {each.rev[:12]}" if each.rev else ""
        click.echo(f"{heading(each.name)}  {plain(each.version or 'no version')}{plain(commit)}")
    for name, why in report.errors.items():
        click.echo(f"{heading(name)}  {click.style('not locked', fg='red')}: {plain(why)}", err=True)
    click.echo(f"{len(report.resolved)} locked in {plain(report.lock)}")
    _warn(report.warnings)
    return ExitCode.ENDED_BADLY if report.errors else ExitCode.OK


@pkg_command.command("scaffold")
@click.argument("name")
@click.argument("target", required=False, default=".", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--category", metavar="TEXT", help="Its category.  [default: reasoning]")
@click.option("--description", metavar="TEXT", help="What it does.")
@with_json
def scaffold_command(name: str, target: Path, category: str | None, description: str | None) -> int:
    """Write a new package NAME, with a test, into this directory or TARGET."""
    from holdfast.alc.packages.scaffold import scaffold

    report = scaffold(name, target, category=category, description=description)
    if settings().json:
        print_json(report)
    else:
        click.echo(f"{plain(report.path)} written: {', '.join(report.files)}")
        click.echo(
            dim(f"`holdfast pkg test {plain(report.path)}` tests it, `holdfast pkg link {plain(report.path)}` adds it")
        )
    return ExitCode.OK
