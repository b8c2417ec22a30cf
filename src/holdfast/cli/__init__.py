"""The command line. Here: the list of commands, each in a module that is imported when it is used, and the exit."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

import click

from holdfast import __version__
from holdfast.cli.errors import failed
from holdfast.cli.options import common

_COMMANDS = {
    "run": ("run", "Start a strategy, or go on with a session."),
    "chat": ("chat.command", "Talk with a model in a durable session."),
    "answer": ("run", "Answer what a session asks."),
    "cancel": ("cancel", "End a session, or stop a turn of it."),
    "enqueue": ("queue", "Send something to an agent, for a worker."),
    "queue": ("queue", "Show what was sent to an agent, and what became of it."),
    "worker": ("worker", "Work what was sent to agents."),
    "fork": ("fork", "Make a new session from the beginning of another."),
    "diff": ("diff", "Compare two sessions."),
    "sessions": ("sessions", "List sessions, the newest first."),
    "show": ("sessions", "Show one session: what it waits for, what it spent."),
    "watch": ("watch", "Follow a session as it goes on."),
    "top": ("top", "See the sessions at work."),
    "export": ("export", "Write a session to a file."),
    "import": ("export", "Add the session in a file to the store."),
    "delete": ("export", "Remove a session and all that belongs to it."),
    "gc": ("export", "Expire idle sessions, delete old ones."),
    "doctor": ("doctor", "Check every session, and repair what can be repaired."),
    "strategies": ("strategies", "List the strategies in Python, and show what each does and asks."),
    "check": ("check", "Look at strategies without running them."),
    "new": ("new", "Write a new strategy with a test."),
    "pkg": ("holdfast.alc.cli.pkg", "Lua packages: find, install, link, check and test them."),
    "mcp": ("mcp", "Serve strategies to an MCP host: an editor, an agent CLI."),
    "demo": ("demo.command", "See a session survive the death of its process."),
    "completion": ("completion", "Print the script for shell completion."),
}
"""The module of each command and its line in `--help`, so that help needs no module."""


class Commands(click.Group):
    """The commands by name. Every error ends here: a sentence on stderr, and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        home = _COMMANDS[cmd_name][0]
        module = import_module(home if home.startswith("holdfast.") else f"holdfast.cli.{home}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in _COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:  # which click would turn into exit code 1
            return failed(error, as_json=False)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> NoReturn:
        given = list(sys.argv[1:] if args is None else args)
        if os.environ.get("NO_COLOR"):
            extra.setdefault("color", False)
        try:
            code = super().main(given, prog_name or "holdfast", complete_var, standalone_mode=False, **extra)
            sys.stdout.flush()
        except Exception as error:
            code = failed(error, as_json="--json" in given)
        sys.exit(code or 0)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="holdfast %(version)s")
@common(from_environment=True)
def cli() -> None:
    """Durable sessions for LLM programs: a program asks, anyone answers, nothing is lost."""


def main() -> NoReturn:
    """The entry point of `holdfast`."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # an odd locale must not turn a result into an error
    cli.main()
