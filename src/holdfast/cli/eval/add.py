"""`eval add`: more repeats, models or strategies in an evaluation."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.errors import usage_error
from holdfast.cli.eval.options import run_options, run_terms, split_names
from holdfast.cli.options import common, service_option, settings

if TYPE_CHECKING:
    from holdfast.strategies.evaluation.arms import Arm


@click.command("add")
@click.argument("evaluation")
@click.option("--repeat", type=click.IntRange(min=1), metavar="K", help="Tries of each case, those before included.")
@click.option(
    "--model", "models", multiple=True, metavar="SERVICE:MODEL,…", help="More models, with all its strategies."
)
@click.option("--strategy", "strategies", multiple=True, metavar="NAME,…", help="More strategies, with all its models.")
@run_options
@service_option
@common()
def add_command(
    evaluation: str, repeat: int | None, models: tuple[str, ...], strategies: tuple[str, ...], **given: Any
) -> int:
    """Add to an evaluation, and run only what is new."""
    from holdfast.cli.eval.work import carry_out
    from holdfast.strategies.evaluation.orders import WorkOrder

    if repeat is None and not models and not strategies:
        raise usage_error("Give --repeat, --model or --strategy.")
    arms = asyncio.run(_new_arms(evaluation, split_names(models), split_names(strategies)))
    return carry_out(evaluation, None, WorkOrder(do="add", repeat=repeat, arms=arms), run_terms(given))


async def _new_arms(evaluation: str, models: list[str], strategies: list[str]) -> list[Arm]:
    """The arms that more models and strategies give, beside those that there are."""
    from holdfast.strategies.evaluation.arms import make_arms
    from holdfast.strategies.evaluation.evaluation import Evaluation

    terms, _, _ = await Evaluation(evaluation, settings().url()).terms()
    there = terms.plan.arms
    subjects = {(arm.subject, str(arm.options)): {"strategy": arm.subject, "options": arm.options} for arm in there}
    known = list(dict.fromkeys(arm.model for arm in there if arm.model is not None))
    made = make_arms([*subjects.values(), *strategies], [*known, *models], None)
    digests = {arm.digest for arm in there}
    return [arm for arm in made if arm.digest not in digests]
