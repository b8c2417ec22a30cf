"""`eval compare`: two arms, paired by case."""

from __future__ import annotations

import asyncio

import click
import msgspec

from holdfast.cli.eval.sides import read_side
from holdfast.cli.options import common, settings
from holdfast.cli.output import dim, plain, print_json
from holdfast.core.errors import ExitCode


@click.command("compare")
@click.argument("first", metavar="EVAL[:ARM]")
@click.argument("second", metavar="EVAL[:ARM]")
@common()
def compare_command(first: str, second: str) -> int:
    """Compare two arms, of one evaluation or of two, on the cases that both have."""
    from holdfast.strategies.evaluation.report.comparison import compare_arms

    (left, left_arm), (right, right_arm) = [asyncio.run(read_side(each)) for each in (first, second)]
    found = compare_arms(left, left_arm, right, right_arm)
    if settings().json:
        print_json(msgspec.to_builtins(found))
        return ExitCode.OK
    click.echo(plain(found.sentence))
    counts = [f"{found.common} common cases", f"first better on {found.paired.better}, worse on {found.paired.worse}"]
    if found.only_first or found.only_second:
        counts.append(f"{found.only_first} only of the first and {found.only_second} only of the second are left out")
    if found.changed:
        counts.append(f"{found.changed} of equal ids have other contents and are left out")
    click.echo(dim(" · ".join(counts)))
    if found.unpaired is not None:
        click.echo(dim(f"unpaired (Welch): p {found.unpaired.p:.3g}"))
    return ExitCode.OK
