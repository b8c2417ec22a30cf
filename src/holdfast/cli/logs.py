"""`logs`: what has happened in a background process, and in the session that does its work."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click
import msgspec

from holdfast.cli.engine import open_engine
from holdfast.cli.options import common, settings
from holdfast.cli.output import dim, heading, plain, pretty, print_json
from holdfast.cli.parameter_types import SessionType
from holdfast.cli.session_lookup import find_process
from holdfast.core.errors import ExitCode

if TYPE_CHECKING:
    from holdfast.agent.processes.handles import ProcessReport
    from holdfast.core.records import Entry
    from holdfast.engine.holdfast import Holdfast


@click.command("logs")
@click.argument("process", type=SessionType())
@click.option("--follow", "-f", is_flag=True, help="Print each new entry, until the work is over.")
@common()
def logs_command(*, process: str, follow: bool) -> int:
    """Show what has happened in a process, and its result."""
    report = asyncio.run(_logs(process, follow=follow))
    if settings().json:
        print_json(report.to_json())
        return ExitCode.OK
    click.echo(f"{heading(report.id)}  {plain(report.handle.title)}  {report.status}")
    if report.status == "completed":
        click.echo(pretty(report.result))
    elif report.error is not None:
        click.echo(plain(report.error))
    return ExitCode.OK if not report.handle.is_over or report.status == "completed" else ExitCode.ENDED_BADLY


async def _logs(id_or_prefix: str, *, follow: bool) -> ProcessReport:
    from holdfast.agent.processes.processes import Processes

    async with open_engine() as hf:
        processes, seen = Processes(hf), dict[str, int]()
        process = await find_process(hf.store, id_or_prefix)
        with hf.engine.watch(process) as changes:
            while True:
                report = await processes.show(process)
                for session_id, entry in await _new_entries(hf, report, seen):
                    _print(session_id, entry)
                if not follow or (report.handle.is_over and report.is_woken):
                    return report
                await changes.changed(timeout=1.0)  # what its session does is not a change of the process


async def _new_entries(hf: Holdfast, report: ProcessReport, seen: dict[str, int]) -> list[tuple[str, Entry]]:
    """The entries of the process and of the session that works for it, in the order of their times."""
    from holdfast.agent.processes.terms import TurnWork
    from holdfast.core.errors import SessionNotFoundError

    sessions = [report.id]
    if report.works_in is not None and not (isinstance(report.terms.work, TurnWork) and report.terms.work.session):
        sessions.append(report.works_in)
    found: list[tuple[str, Entry]] = []
    for session_id in sessions:
        try:
            entries = await hf.store.entries(session_id, seen.get(session_id, 0))
        except SessionNotFoundError:
            continue  # it has not begun
        found += [(session_id, entry) for entry in entries]
        seen[session_id] = entries[-1].position if entries else seen.get(session_id, 0)
    return sorted(found, key=lambda each: each[1].at)


def _print(session_id: str, entry: Entry) -> None:
    from holdfast.cli.display.timeline import timeline

    if settings().json:
        print_json({"session_id": session_id, **msgspec.to_builtins(entry)})
        return
    for line in timeline(entry):
        click.echo(f"{line}{dim(f'  [{session_id}]') if '-agent' in session_id or '.' in session_id else ''}")
