"""The command line. Here: the table of commands, each imported when it is used, and how the process exits."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

import click

from holdfast import __version__
from holdfast.cli.errors import log_as_json, report_error
from holdfast.cli.options import common

_COMMANDS = {
    "run": "Start a strategy, or resume a session.",
    "chat": "Talk with a model in a durable session.",
    "answer": "Answer what a session asks.",
    "assign": "Say who answers the model questions of a session.",
    "cancel": "End a session, or stop one of its turns.",
    "enqueue": "Send a message to an agent, for a worker.",
    "queue": "Show what was sent to an agent, and the results.",
    "worker": "Work through what was sent to agents.",
    "workers": "List the processes at work; let one drain.",
    "limits": "Limit what all processes on a store do together.",
    "dispatch": "See how a dispatcher brings work to workers, and move what is stuck.",
    "ps": "List background processes.",
    "kill": "End a background process.",
    "logs": "Show what has happened in a background process.",
    "emit": "Emit an event, which starts what its triggers start.",
    "schedule": "Start turns, strategies and events by the clock.",
    "fork": "Make a new session from the beginning of another.",
    "diff": "Compare two sessions.",
    "replay": "Check that the code here still does what sessions have recorded.",
    "sessions": "List sessions, newest first.",
    "show": "Show one session: its state, what it waits for, what it spent.",
    "watch": "Follow a session as it runs.",
    "top": "See the sessions at work.",
    "export": "Write a session to a file.",
    "import": "Add the session in a file to the store.",
    "adopt": "See what an imported session would run, and let it.",
    "keys": "The keys that exported sessions are signed with.",
    "copy-store": "Copy a whole store, from SQLite to PostgreSQL or back.",
    "delete": "Remove a session and everything that belongs to it.",
    "gc": "Expire idle sessions, delete old ones.",
    "doctor": "Check every session, and repair what can be repaired.",
    "eval": "Compare strategies and models on data.",
    "strategies": "List the strategies in Python; show what each does and asks.",
    "check": "Check strategies without running them.",
    "init": "Make a project: its model, its store, a first strategy.",
    "new": "Write a new strategy with a test.",
    "pkg": "Lua packages: find, install, link, check and test them.",
    "cards": "Cards: the records of runs; find, compare and export them.",
    "hub": "The hub: search packages, index and document a collection.",
    "migrate": "Take over an algocline directory: packages, cards, state, logs.",
    "scenario": "Scenarios of evaluations in Lua: list, show and install them.",
    "serve": "Serve sessions and agents over HTTP.",
    "token": "Tokens for the HTTP server: who may do what.",
    "mcp": "Serve strategies to an MCP host: an editor, an agent CLI.",
    "demo": "See a session survive the death of its process.",
    "completion": "Print the script for shell completion.",
}
"""The line of each command in `--help`, kept here so that help imports no command."""

_MODULES = {
    "import": "holdfast.cli.import_",
    **{name: f"holdfast.alc.cli.{name}" for name in ("pkg", "cards", "hub", "migrate", "scenario")},
}
"""The modules of commands that are not in `holdfast.cli` under their own name."""


_GARBAGE_OBJECTS = 50_000
"""New objects after which garbage is looked for. With Python's 700, that is a tenth of what a short command takes."""


class _CommandTable(click.Group):
    """The commands by name. Every error ends here: a sentence on standard error, and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
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

            if hint := did_you_mean(args[0], _COMMANDS):
                raise click.UsageError(f"No such command '{args[0]}' ({hint})", ctx) from None
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))

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


@click.group(cls=_CommandTable, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="holdfast %(version)s")
@common(from_environment=True)
def cli() -> None:
    """Durable sessions for LLM programs: a program asks, anyone answers, nothing is lost."""


def main() -> NoReturn:
    """The entry point of `holdfast`."""
    gc.set_threshold(_GARBAGE_OBJECTS)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # an odd locale must not turn a result into an error
    if "--json" in sys.argv:
        log_as_json()
    cli.context_settings["terminal_width"] = _help_width()
    cli.main()


def _help_width() -> int:
    """The width of help texts as click finds it, but without `shutil`: to import that takes a tenth of the time."""
    try:
        columns = int(os.environ.get("COLUMNS") or os.get_terminal_size(1).columns)
    except (ValueError, OSError):
        columns = 0
    return max(min(columns or 80, 80) - 2, 50)
