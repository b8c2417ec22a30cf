"""`eval show`: the figures of an evaluation, or its trials."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click
import msgspec

from holdfast.cli.eval.figures import money, print_report
from holdfast.cli.options import common, settings
from holdfast.cli.output import one_line, print_json
from holdfast.cli.table import print_table
from holdfast.core.errors import ExitCode

if TYPE_CHECKING:
    from holdfast.strategies.evaluation.evaluation import Evaluation, Trial


@click.command("show")
@click.argument("evaluation")
@click.option("--arm", metavar="ARM", help="Only the trials of this arm.")
@click.option("--failures", is_flag=True, help="Only the trials that did not pass.")
@click.option("--case", metavar="ID", help="Only the trials of this case.")
@click.option("--grading", type=int, default=-1, metavar="N", help="Which grading, from 0.  [default: the last]")
@common()
def show_command(evaluation: str, arm: str | None, failures: bool, case: str | None, grading: int) -> int:
    """Show the figures of an evaluation. With --arm, --failures or --case, show its trials: each is a session."""
    from holdfast.strategies.evaluation.evaluation import Evaluation

    found = Evaluation(evaluation, settings().url())
    if arm is None and not failures and case is None:
        print_report(asyncio.run(found.report(grading)))
        return ExitCode.OK
    trials = asyncio.run(_trials(found, arm, failures, case))
    if settings().json:
        print_json([_json(each) for each in trials])
        return ExitCode.OK
    rows = [
        [
            each.session_id,
            each.case.id,
            each.row.status,
            "—" if each.score is None else f"{each.score:.3f}",
            money(each.row.cost),
            one_line(each.text if each.row.status == "done" else each.row.error, 60),
        ]
        for each in trials
    ]
    print_table(["session", "case", "status", "score", "cost", "answer"], rows, states=2)
    return ExitCode.OK


def _json(trial: Trial) -> dict[str, Any]:
    shown = msgspec.structs.asdict(trial.row)
    return {**shown, "case": trial.case.id, "session": trial.session_id, "score": trial.score, "answer": trial.text}


async def _trials(evaluation: Evaluation, arm: str | None, failures: bool, case: str | None) -> list[Trial]:
    return [each async for each in evaluation.trials(arm=arm, failed=failures) if case is None or each.case.id == case]
