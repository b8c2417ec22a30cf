"""`alc`: algocline's command, so that what is configured to run it works unchanged. Without arguments it serves MCP."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import click

from holdfast import __version__

SOURCES = ("https://github.com/ynishi/algocline-bundled-packages", "https://github.com/ynishi/evalframe")
"""The collections that `init` installs."""


@click.group(
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Every command of `holdfast` works here too: `alc pkg list`, `alc run cot`.",
)
@click.version_option(__version__, message="alc (holdfast %(version)s)")
@click.pass_context
def alc(context: click.Context) -> None:
    """Serve strategies to an MCP host under algocline's names, over standard input and output."""
    if context.invoked_subcommand is None:
        _holdfast("mcp", "--tools", "alc")


@alc.command("init")
@click.option("--force", is_flag=True, help="Replace what is installed from elsewhere.")
@click.option("--dev", is_flag=True, help="Install from checkouts beside this directory.")
@click.option("--from", "sources", multiple=True, metavar="SOURCE", help="Another directory or git URL. Repeatable.")
def init_command(force: bool, dev: bool, sources: tuple[str, ...]) -> None:
    """Install algocline's collections of packages."""
    _install(_checkouts() if dev else sources or SOURCES, force=force)


@alc.command("update")
@click.option("--from", "sources", multiple=True, metavar="SOURCE", help="Another directory or git URL. Repeatable.")
def update_command(sources: tuple[str, ...]) -> None:
    """Install the collections again, in the place of what is there."""
    _install(sources or SOURCES, force=True)


def _install(sources: Sequence[str], *, force: bool) -> NoReturn:
    _holdfast("pkg", "install", "--no-project", *(["--force"] if force else []), *sources)


def _checkouts() -> list[str]:
    beside = [Path("..") / source.rpartition("/")[2] for source in SOURCES]
    found = [str(each.resolve()) for each in beside if each.is_dir()]
    if not found:
        raise click.UsageError(f"--dev: there is no {' and no '.join(map(str, beside))}")
    return found


def _holdfast(*words: str) -> NoReturn:
    from holdfast.cli import main

    sys.argv[1:] = words
    main()


def main() -> None:
    """The entry point of `alc`: its own commands, and for everything else those of `holdfast`."""
    first = next(iter(sys.argv[1:]), None)
    if first is None or first.startswith("-") or first in alc.commands:
        alc.main(prog_name="alc")
    _holdfast(*sys.argv[1:])


if __name__ == "__main__":
    main()
