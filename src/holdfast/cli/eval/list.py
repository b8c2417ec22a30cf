"""`eval list`: evaluations, newest first."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from holdfast.cli.engine import open_store
from holdfast.cli.options import common, settings
from holdfast.cli.output import date, print_json
from holdfast.cli.table import print_table
from holdfast.core.errors import ExitCode


@click.command("list")
@common()
def list_command() -> int:
    """List evaluations, newest first."""
    found = asyncio.run(_evaluations())
    if settings().json:
        print_json(found)
        return ExitCode.OK
    rows = [
        [
            each["id"],
            each["state"],
            each["dataset"],
            str(each["cases"]),
            str(each["repeat"]),
            ", ".join(each["arms"]),
            date(each["created_at"]),
        ]
        for each in found
    ]
    print_table(["evaluation", "state", "data", "cases", "repeat", "arms", "begun"], rows, states=1)
    return ExitCode.OK


async def _evaluations() -> list[dict[str, Any]]:
    from holdfast.strategies.evaluation.evaluation import list_evaluations, read_terms

    found: list[dict[str, Any]] = []
    async with open_store() as store:
        for id in await list_evaluations(store):
            terms, cases, last = await read_terms(store, id)
            row = await store.session(id)
            summary = row.summary
            state = last.get("state") if isinstance(last, dict) else "running" if row.owner else "interrupted"
            found.append(
                {
                    "id": id,
                    "state": str(summary.state) if summary.state.is_terminal else state,
                    "dataset": terms.plan.dataset,
                    "cases": len(cases),
                    "repeat": terms.plan.repeat,
                    "arms": [arm.name for arm in terms.plan.arms],
                    "created_at": summary.created_at,
                }
            )
    return found
