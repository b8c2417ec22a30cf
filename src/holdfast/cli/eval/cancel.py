"""`eval cancel`: end an evaluation and its trials."""

from __future__ import annotations

import asyncio

import click

from holdfast.cli.engine import BY, open_engine
from holdfast.cli.options import common, settings
from holdfast.cli.output import plain, print_json
from holdfast.core.errors import ExitCode


@click.command("cancel")
@click.argument("evaluation")
@click.option("--reason", metavar="TEXT", help="The reason, kept in the journal.")
@common()
def cancel_command(evaluation: str, reason: str | None) -> int:
    """End an evaluation and its trials that are under way. What has run stays, and can be shown and reported."""

    async def cancel() -> int:
        from holdfast.strategies.evaluation.evaluation import cancel_evaluation

        async with open_engine() as hf:
            _, ended = await cancel_evaluation(hf, evaluation, reason, BY)
            return ended

    ended = asyncio.run(cancel())
    if settings().json:
        print_json({"evaluation": evaluation, "ended": ended})
    else:
        click.echo(plain(f"{evaluation} was cancelled, with {ended} sessions of its own that were under way"))
    return ExitCode.OK
