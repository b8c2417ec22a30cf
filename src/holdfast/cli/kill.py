"""`kill`: end a background process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from holdfast.cli.engine import BY, open_engine
from holdfast.cli.options import common, settings
from holdfast.cli.output import plain, print_json
from holdfast.cli.parameter_types import SessionType
from holdfast.cli.session_lookup import find_process
from holdfast.core.errors import ExitCode

if TYPE_CHECKING:
    from holdfast.agent.processes.handles import ProcessReport


@click.command("kill")
@click.argument("process", type=SessionType())
@click.option("--reason", metavar="TEXT", help="The reason, kept in the journal and shown to whoever is woken.")
@click.option("--abandon", is_flag=True, help="Give it up instead: what came of its work is unknown.")
@common()
def kill_command(*, process: str, reason: str | None, abandon: bool) -> int:
    """End the work of a process. Whoever waits for it is woken, and told.

    One whose work is over stays as it is, and the exit code says so (CONFLICT).
    """

    async def end() -> tuple[bool, ProcessReport]:
        from holdfast.agent.processes.processes import Processes

        async with open_engine() as hf:
            processes = Processes(hf)
            found = await find_process(hf.store, process)
            was_over = (await processes.show(found)).handle.is_over
            do = processes.abandon if abandon else processes.cancel
            return was_over, await do(found, reason, by=BY)

    was_over, report = asyncio.run(end())
    if settings().json:
        print_json(report.to_json())
    elif was_over:
        click.echo(plain(f"{report.id} was over already: {report.status}"))
    else:
        click.echo(plain(f"{report.id} is {report.status}"))
    return ExitCode.CONFLICT if was_over else ExitCode.OK
