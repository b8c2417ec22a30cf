"""`eval`: compare strategies and models on data. Here: the table of its commands, each imported when it is used."""

from __future__ import annotations

from importlib import import_module

import click

_COMMANDS = {
    "run": "Evaluate a plan, or strategies with models on data.",
    "resume": "Run what is missing of an evaluation.",
    "retry": "Try again what failed.",
    "add": "Add repeats, models or strategies to an evaluation.",
    "list": "List evaluations, newest first.",
    "show": "Show the figures of an evaluation, or its trials.",
    "cancel": "End an evaluation and its trials.",
    "grade": "Grade again, without asking the models under test.",
    "compare": "Compare two arms, paired by case.",
    "power": "Say how many cases a comparison needs.",
    "report": "Write a page with all figures.",
    "export": "Write the trials to a file for other tools.",
}


class _EvalCommands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*_COMMANDS]  # `list` is the command of that name here, once it is imported

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"holdfast.cli.eval.{cmd_name}"), f"{cmd_name}_command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([*_COMMANDS.items()])


@click.group("eval", cls=_EvalCommands, context_settings={"help_option_names": ["-h", "--help"]})
def eval_command() -> None:
    """Compare strategies and models on data. Every trial is a durable session: what was answered is not asked again."""
