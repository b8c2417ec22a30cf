"""`ps`: list background processes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from holdfast.cli.engine import open_engine
from holdfast.cli.options import common, settings
from holdfast.cli.output import ago, duration, print_json
from holdfast.cli.parameter_types import SessionType
from holdfast.cli.session_lookup import find_session
from holdfast.cli.table import print_table
from holdfast.core.errors import ExitCode

if TYPE_CHECKING:
    from holdfast.agent.processes.handles import ProcessHandle


@click.command("ps")
@click.option("--all", "every", is_flag=True, help="Also list those that are over.")
@click.option("--owner", type=SessionType(), metavar="SESSION", help="Only those that belong to this session.")
@common()
def ps_command(*, every: bool, owner: str | None) -> int:
    """List background processes, the newest first: what they do, how they are, and whom they belong to."""

    async def read() -> list[ProcessHandle]:
        from holdfast.agent.processes.processes import Processes

        async with open_engine() as hf:
            found = await find_session(hf.store, owner) if owner is not None else None
            return await Processes(hf).list(owner=found, every=every)

    handles = asyncio.run(read())
    if settings().json:
        for handle in handles:
            print_json(handle)
    elif not handles:
        click.echo("No processes." if every or owner else "No processes are at work; --all lists those that are over.")
    else:
        rows = [_row(handle) for handle in handles]
        print_table(["PROCESS", "STATUS", "WORK", "TITLE", "OWNER", "STARTED", "TOOK"], rows, states=1)
    return ExitCode.OK


def _row(handle: ProcessHandle) -> list[str]:
    took = duration(handle.ended_at - handle.started_at) if handle.ended_at is not None else ""
    return [handle.id, handle.status, handle.work, handle.title, handle.owner or "", ago(handle.started_at), took]
