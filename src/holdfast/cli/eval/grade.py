"""`eval grade`: grade again, or compare a judge with people."""

from __future__ import annotations

import asyncio
import csv
from pathlib import Path
from typing import Any

import click

from holdfast.cli.errors import InputError, usage_error
from holdfast.cli.eval.options import parse_graders, run_options, run_terms
from holdfast.cli.options import common, service_option, settings
from holdfast.cli.output import print_json
from holdfast.core.errors import ExitCode


@click.command("grade")
@click.argument("evaluation")
@click.option("--grader", "graders", multiple=True, metavar="NAME,…|JSON", help="The graders of the new grading.")
@click.option("--judge", "judges", multiple=True, metavar="SERVICE:MODEL", help="The model of graders that ask one.")
@click.option(
    "--labels",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.csv",
    help="Compare the last grading with what people said: columns case and passed, maybe arm and repeat.",
)
@run_options
@service_option
@common()
def grade_command(
    evaluation: str, graders: tuple[str, ...], judges: tuple[str, ...], labels: Path | None, **given: Any
) -> int:
    """Grade the answers that are there again. No model under test is asked; the gradings before are kept."""
    from holdfast.cli.eval.work import carry_out
    from holdfast.strategies.evaluation.graders.spec import make_grader
    from holdfast.strategies.evaluation.orders import WorkOrder

    if not graders and labels is None:
        raise usage_error("Give --grader, or --labels.")
    code = 0
    if graders:
        specs = [make_grader(each) for each in parse_graders(graders, judges)]
        code = carry_out(evaluation, None, WorkOrder(do="grade", graders=specs), run_terms(given))
    return code if labels is None else code or _show_agreement(evaluation, labels)


def _show_agreement(evaluation: str, file: Path) -> int:
    from holdfast.strategies.evaluation.evaluation import Evaluation
    from holdfast.strategies.evaluation.report.agreement import agreement

    report = asyncio.run(Evaluation(evaluation, settings().url()).report())
    found = agreement(report, _labels(file))
    if settings().json:
        print_json(found)
        return ExitCode.OK
    click.echo(
        f"Cohen's kappa {found.kappa:.3f} on {found.trials} trials:"
        f" both pass {found.both}, only the graders {found.only_graders}, only people {found.only_people},"
        f" neither {found.neither}; {found.unknown} labels fit no graded trial"
    )
    return ExitCode.OK


def _labels(file: Path) -> list[dict[str, str]]:
    try:
        rows = list(csv.DictReader(file.read_text(encoding="utf-8-sig").splitlines()))
    except OSError as error:
        raise InputError(f"--labels {file}: {error.strerror}") from None
    if not rows or not {"case", "passed"} <= set(rows[0]):
        raise InputError(f"--labels {file}: it needs the columns case and passed")
    return rows
