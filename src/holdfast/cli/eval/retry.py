"""`eval retry`: another attempt at what failed."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli.eval.options import run_options, run_terms
from holdfast.cli.options import common, service_option


@click.command("retry")
@click.argument("evaluation")
@click.option("--errors", "which", flag_value="errors", default="errors", help="Trials without a result.  [default]")
@click.option(
    "--failed", "which", flag_value="failed", help="Also trials that did not pass: that changes the experiment."
)
@run_options
@service_option
@common()
def retry_command(evaluation: str, which: str, **given: Any) -> int:
    """Make another attempt at trials that failed. The first attempts are kept, and the last ones count."""
    from holdfast.cli.eval.work import carry_out
    from holdfast.strategies.evaluation.orders import WorkOrder

    order = WorkOrder(do="retry", which="failed" if which == "failed" else "errors")
    return carry_out(evaluation, None, order, run_terms(given))
