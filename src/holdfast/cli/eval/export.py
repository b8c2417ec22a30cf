"""`eval export`: the trials in files for other tools."""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.engine import open_engine
from holdfast.cli.errors import usage_error
from holdfast.cli.eval.options import output_option
from holdfast.cli.options import common, settings
from holdfast.cli.output import plain
from holdfast.core.errors import ExitCode

if TYPE_CHECKING:
    from holdfast.strategies.evaluation.evaluation import Evaluation


@click.command("export")
@click.argument("evaluation")
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "csv", "inspect", "card"]),
    default="jsonl",
    show_default=True,
    help="inspect: a .eval log for each arm, in the directory that -o names. card: a card for each arm.",
)
@output_option
@common()
def export_command(evaluation: str, form: str, output: Path | None) -> int:
    """Write the trials of an evaluation: one a line, to a file or to standard output; as logs of Inspect; as cards."""
    from holdfast.strategies.evaluation.evaluation import Evaluation

    found = Evaluation(evaluation, settings().url())
    if form == "card":
        for card in asyncio.run(_cards(evaluation)):
            click.echo(plain(card))
        return ExitCode.OK
    if form == "inspect":
        if output is None:
            raise usage_error("Give the directory of the logs: -o DIR.")
        from holdfast.strategies.evaluation.report.inspect_log import write_inspect_logs

        for path in asyncio.run(write_inspect_logs(found, output)):
            click.echo(plain(str(path)))
        return ExitCode.OK
    asyncio.run(_lines(found, form, output))
    return ExitCode.OK


async def _cards(evaluation: str) -> list[str]:
    from holdfast.strategies.evaluation.evaluation import Evaluation
    from holdfast.strategies.evaluation.report.cards import write_cards

    async with open_engine() as hf:
        return await write_cards(Evaluation(evaluation, hf.store), hf)


async def _lines(evaluation: Evaluation, form: str, output: Path | None) -> None:
    from holdfast.strategies.evaluation.report.exports import as_csv, as_jsonl

    out = output.open("w", encoding="utf-8", newline="") if output is not None else sys.stdout
    try:
        async with aclosing(as_jsonl(evaluation) if form == "jsonl" else as_csv(evaluation)) as lines:
            async for line in lines:
                out.write(line)
    finally:
        if output is not None:
            out.close()
