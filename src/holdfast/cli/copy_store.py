"""`copy-store`: copy a whole store into another."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import click

from holdfast.cli.errors import InputError
from holdfast.cli.options import json_option, settings
from holdfast.cli.output import print_json
from holdfast.core.errors import ExitCode

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from holdfast.store.copy import CopyReport

_MOST_SHOWN = 20
"""Sessions that were not copied, printed in one list; `--json` prints all."""


@click.command("copy-store")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@json_option
def copy_store_command(source: str, target: str) -> int:
    """Copy everything in the store FROM to the store TO: sqlite:///path or postgresql://…

    Sessions with their history, what waits in their mailboxes, durable state, schedules, tokens, webhooks and the ids
    of deleted sessions. What was copied is read again and compared. FROM is not changed. A copy that was broken off is
    continued by the same command. Stop what works on FROM first: a session that a process owns is not copied.
    """
    for url in (source, target):
        if url.startswith("memory:"):
            raise InputError("a store in memory cannot be copied: it is gone when the command ends")
    if source == target:
        raise InputError(f"{source} cannot be copied into itself")
    report = asyncio.run(_copy(source, target))
    if settings().json:
        print_json(report)
    else:
        _print(report)
    return ExitCode.OK if report.is_whole else ExitCode.ENDED_BADLY


async def _copy(source: str, target: str) -> CopyReport:
    from holdfast.engine.process_rows import NAMESPACE as PRESENCE
    from holdfast.store import open_store
    from holdfast.store.copy import CopyReport, copy_store

    report = CopyReport()
    with _progress() as progress:
        task = progress.add_task("copying", total=None)
        async with open_store(_existing(source)) as old, open_store(target) as new:
            async for report in copy_store(old, new, leave_out=[PRESENCE]):
                _advance(progress, task, report)
    return report


def _existing(url: str) -> str:
    settings().store = url
    return settings().url()


def _progress() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty() or settings().json)


def _advance(progress: Progress, task: TaskID, report: CopyReport) -> None:
    progress.update(task, total=report.sessions, completed=report.done, description="copying sessions")


def _print(report: CopyReport) -> None:
    click.echo(
        f"{report.copied} of {report.sessions} sessions copied, {report.equal} were there already:"
        f" {report.records} records, {report.messages} messages, {report.items} items of state,"
        f" {report.deleted} ids of deleted sessions. All of them were read again and compared."
    )
    if report.is_whole:
        return
    click.echo(f"{len(report.skipped)} sessions were not copied:")
    for each in report.skipped[:_MOST_SHOWN]:
        click.echo(f"  {each.session_id}  {each.why}")
    if len(report.skipped) > _MOST_SHOWN:
        click.echo(f"  … and {len(report.skipped) - _MOST_SHOWN} more; `--json` lists all")
