"""`eval report`: a page with all figures."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.eval.options import output_option
from holdfast.cli.options import common, settings
from holdfast.cli.output import plain, print_json
from holdfast.core.errors import ExitCode

if TYPE_CHECKING:
    from holdfast.strategies.evaluation.report.report import EvaluationReport


@click.command("report")
@click.argument("evaluations", metavar="EVAL…", nargs=-1, required=True)
@click.option("--grading", type=int, default=-1, metavar="N", help="Which grading, from 0.  [default: the last]")
@output_option
@common()
def report_command(evaluations: tuple[str, ...], grading: int, output: Path | None) -> int:
    """Write one HTML file with the figures, drawings and cases of evaluations. It needs no network.

    With --json, the figures are printed instead.
    """
    from holdfast.strategies.evaluation.report.page import report_page

    reports = asyncio.run(_reports(evaluations, grading))
    if settings().json and output is None:
        print_json([report.to_json() for report in reports])
        return ExitCode.OK
    file = output or Path(f"{evaluations[0]}.html")
    page = report_page(reports)
    file.write_text(page, encoding="utf-8")
    if settings().json:
        print_json({"file": str(file), "bytes": len(page.encode())})
    else:
        click.echo(plain(f"{file}: {len(page.encode()):,} bytes"))
    return ExitCode.OK


async def _reports(evaluations: tuple[str, ...], grading: int) -> list[EvaluationReport]:
    from holdfast.strategies.evaluation.evaluation import Evaluation

    return [await Evaluation(each, settings().url()).report(grading) for each in evaluations]
