"""The commands by name, each imported when it is used, and how the process exits."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

import click

from holdfast import __version__
from holdfast.cli.errors import log_as_json, report_error
from holdfast.cli.front_page import COMMANDS, SUMMARY, front_page, help_columns
from holdfast.cli.options import common

_MODULES = {
    "import": "holdfast.cli.import_",
    **{name: f"holdfast.alc.cli.{name}" for name in ("pkg", "cards", "hub", "migrate", "scenario")},
}
"""The modules of commands that are not in `holdfast.cli` under their own name."""


class _CommandTable(click.Group):
    """The commands by name. Every error ends here: a sentence on standard error, and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        module = import_module(_MODULES.get(cmd_name, f"holdfast.cli.{name}"))
        command: click.Command = getattr(module, f"{name}_command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            from holdfast.programs.names import did_you_mean

            if hint := did_you_mean(args[0], COMMANDS):
                raise click.UsageError(f"No such command '{args[0]}' ({hint})", ctx) from None
            raise

    def get_help(self, ctx: click.Context) -> str:
        return front_page(help_columns())

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:  # which click would turn into exit code 1
            return report_error(error, as_json=False)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> NoReturn:
        words = list(sys.argv[1:] if args is None else args)
        if os.environ.get("NO_COLOR"):
            extra.setdefault("color", False)
        try:
            code = super().main(words, prog_name or "holdfast", complete_var, standalone_mode=False, **extra)
            sys.stdout.flush()
        except Exception as error:
            code = report_error(error, as_json="--json" in words)
        sys.exit(code or 0)


@click.group(cls=_CommandTable, help=SUMMARY, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="holdfast %(version)s")
@common(from_environment=True)
def cli() -> None:
    """The options before a command are kept for it."""


def run_command() -> NoReturn:
    """Run the command that the process was started with."""
    if "--json" in sys.argv:
        log_as_json()
    cli.context_settings["terminal_width"] = help_columns()  # click would import `shutil` to find it
    cli.main()
