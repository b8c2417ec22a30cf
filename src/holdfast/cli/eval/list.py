"""`eval list`: evaluations, newest first."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click
import msgspec

from holdfast.cli.engine import open_store
from holdfast.cli.options import common, settings
from holdfast.cli.output import date, print_json
from holdfast.cli.table import print_table
from holdfast.core.errors import ExitCode

if TYPE_CHECKING:
    from holdfast.strategies.evaluation.overview import EvaluationOverview


@click.command("list")
@common()
def list_command() -> int:
    """List evaluations, newest first."""
    found = asyncio.run(_evaluations())
    if settings().json:
        print_json(msgspec.to_builtins(found))
        return ExitCode.OK
    rows = [
        [
            each.id,
            each.state,
            each.dataset,
            str(each.cases or "?"),
            str(each.repeat),
            ", ".join(each.arms),
            date(each.created_at),
        ]
        for each in found
    ]
    print_table(["evaluation", "state", "data", "cases", "repeat", "arms", "begun"], rows, states=1)
    return ExitCode.OK


async def _evaluations() -> list[EvaluationOverview]:
    from holdfast.strategies.evaluation.overview import list_evaluations

    async with open_store() as store:
        return await list_evaluations(store)
