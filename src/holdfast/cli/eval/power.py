"""`eval power`: how many cases a comparison needs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from holdfast.cli.eval.sides import read_side
from holdfast.cli.options import common, settings
from holdfast.cli.output import print_json
from holdfast.core.errors import ExitCode

if TYPE_CHECKING:
    from holdfast.strategies.evaluation.statistics.comparisons import Noise


@click.command("power")
@click.option("--delta", type=click.FloatRange(0, 1, min_open=True), required=True, help="The difference to be found.")
@click.option("--from", "source", metavar="EVAL", help="The evaluation whose first two arms say how much scores vary.")
@click.option("--variance", type=click.FloatRange(0), metavar="V", help="Instead: the variance of case differences.")
@click.option("--repeat", type=click.IntRange(min=1), default=1, show_default=True, help="Tries of each case.")
@click.option("--power", type=click.FloatRange(0.01, 0.999), default=0.8, show_default=True)
@common()
def power_command(delta: float, source: str | None, variance: float | None, repeat: int, power: float) -> int:
    """Say how many cases a paired comparison needs to find a difference of --delta, with 5 % false alarms."""
    from holdfast.strategies.evaluation.statistics.comparisons import Noise, cases_needed, detectable_difference

    noise = Noise(0.0, repeat)
    if source is not None:
        variance, noise, count = asyncio.run(_from(source, repeat))
    else:
        variance, count = variance if variance is not None else 1 / 9, None
    needed = cases_needed(delta, variance, noise, noise, power=power)
    least = None
    if count is not None and count > 1:
        spread = (variance + 2 * noise.variance / noise.repeats) ** 0.5
        least = detectable_difference(count, spread, power=power)
    if settings().json:
        print_json({"cases": needed, "variance": variance, "within": noise.variance, "detectable": least, "n": count})
        return ExitCode.OK
    click.echo(f"{needed:,} cases, tried {repeat} × each, find a difference of {delta:g} with power {power:g}")
    if least is not None:
        click.echo(f"the {count:,} cases of {source} find differences from {least:.4f} on")
    return ExitCode.OK


async def _from(source: str, repeat: int) -> tuple[float, Noise, int]:
    from holdfast.strategies.evaluation.errors import ComparisonError
    from holdfast.strategies.evaluation.evaluation import Evaluation
    from holdfast.strategies.evaluation.statistics.comparisons import Noise
    from holdfast.strategies.evaluation.statistics.estimates import mean, variance

    if ":" in source:
        report, _ = await read_side(source)
    else:
        report = await Evaluation(source, settings().url()).report()
    arms = report.arms[:2]
    sides = [report.case_means(each.arm) for each in arms]
    if len(sides) < 2:
        raise ComparisonError(f"{source} has one arm; a difference needs two")
    differences = [a - b for a, b in zip(*sides, strict=True) if a is not None and b is not None]
    if len(differences) < 2:
        raise ComparisonError(f"the first two arms of {source} have fewer than two cases in common")
    within = mean([each.spread.within if each.spread is not None else 0.0 for each in arms])
    between = max(0.0, variance(differences) - 2 * within / report.plan.repeat)
    return between, Noise(within, repeat), len(differences)
