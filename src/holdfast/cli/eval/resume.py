"""`eval resume`: run what is missing of an evaluation."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli.eval.options import run_options, run_terms
from holdfast.cli.options import common, service_option


@click.command("resume")
@click.argument("evaluation")
@click.option("--budget", multiple=True, metavar="KEY=VALUE", help="New limits of the whole evaluation. Repeatable.")
@run_options
@service_option
@common()
def resume_command(evaluation: str, budget: tuple[str, ...], **given: Any) -> int:
    """Run what is missing: trials that have not run, and grades that people have given meanwhile.

    Beside a process that is at work on the evaluation, this one waits, and takes over if the other dies.
    """
    from holdfast.cli.eval.work import carry_out
    from holdfast.cli.run.inputs import parse_budget
    from holdfast.core.budget import Budget
    from holdfast.strategies.evaluation.orders import WorkOrder

    limits = parse_budget(budget)
    order = WorkOrder(do="run", budget=None if limits is None else Budget(**limits))
    return carry_out(evaluation, None, order, run_terms(given))
