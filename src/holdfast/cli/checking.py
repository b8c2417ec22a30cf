"""`doctor`: every session is read and folded; summaries are repaired, and other damage is explained."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click
import msgspec

from holdfast.cli.errors import ENDED_BADLY, OK
from holdfast.cli.finding import opened
from holdfast.cli.options import common, settings
from holdfast.cli.output import plain, print_json
from holdfast.core.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.store import Store

_TRIES = 5
"""How often a session is read again because it changed while it was being checked."""


class Finding(msgspec.Struct, frozen=True):
    """Something wrong with one session."""

    session_id: str
    why: str
    next: str = ""
    """What to do; empty where it was done."""


class DoctorReport(msgspec.Struct):
    """What the doctor found in a store."""

    sessions: int = 0
    repaired: list[Finding] = []
    damaged: list[Finding] = []


@click.command("doctor")
@click.option("--dry-run", is_flag=True, help="Change nothing; only say what would be repaired.")
@common()
def doctor_command(dry_run: bool) -> int:
    """Check every session: its journal, the values kept beside it, and its line in the listing.

    Listings are repaired from the journal. Other damage is explained. Exit code 1 if damage remains.
    """
    report = asyncio.run(_check_all(dry_run))
    ok = not report.damaged and not (dry_run and report.repaired)
    if settings().json:
        print_json({"ok": ok, **msgspec.to_builtins(report)})
    else:
        _print(report, dry_run)
    return OK if ok else ENDED_BADLY


def _print(report: DoctorReport, dry_run: bool) -> None:
    for found in report.repaired:
        click.echo(f"{found.session_id}  {'can be repaired' if dry_run else 'repaired'}: {plain(found.why)}")
    for found in report.damaged:
        click.echo(f"{found.session_id}  {click.style('damaged', fg='red')}: {plain(found.why)}")
        click.echo(f"    {plain(found.next)}")
    sound = report.sessions - len(report.repaired) - len(report.damaged)
    told = [f"{report.sessions} sessions checked", f"{sound} sound"]
    told += [f"{len(report.repaired)} {'to repair' if dry_run else 'repaired'}"] if report.repaired else []
    told += [f"{len(report.damaged)} damaged"] if report.damaged else []
    click.echo(", ".join(told) + ".")


async def _check_all(dry_run: bool) -> DoctorReport:
    report = DoctorReport()
    async with opened() as store:
        after: str | None = None
        while True:
            page = await store.sessions(after=after)
            for session_id in [row.session_id for row in page.rows] + page.damaged:
                await _check(store, session_id, report, dry_run)
            if page.next is None:
                return report
            after = page.next


async def _check(store: Store, session_id: str, report: DoctorReport, dry_run: bool) -> None:
    from holdfast.core.errors import JournalError, SessionNotFoundError, TransitionError
    from holdfast.store.errors import CorruptSessionError

    try:
        wrong = await _compare(store, session_id, dry_run)
    except SessionNotFoundError:
        return  # deleted since it was listed
    except (CorruptSessionError, JournalError, TransitionError) as error:
        last = await _last_sound(store, session_id)
        report.damaged.append(Finding(session_id, str(error), _advice(session_id, last)))
    else:
        if wrong:
            report.repaired.append(Finding(session_id, wrong))
    report.sessions += 1


async def _compare(store: Store, session_id: str, dry_run: bool) -> str:
    """What was wrong with the summary of a session, and is now repaired; empty if nothing was."""
    from holdfast.core.summary import Summary, summarize
    from holdfast.store.errors import CorruptSessionError

    for _ in range(_TRIES):
        session = await store.load(session_id)  # reads every record, and every value kept beside it
        right = summarize(session)
        try:
            row = await store.session(session_id)
        except CorruptSessionError as error:
            if not dry_run:
                await store.repair(session_id, right)
            return str(error)
        if row.position != session.position:
            continue
        if row.summary == right:
            return ""
        fields = [f for f in Summary.__struct_fields__ if getattr(row.summary, f) != getattr(right, f)]
        if not dry_run:
            await store.repair(session_id, right)
        return "; ".join(f"{f} was {getattr(row.summary, f)!r}, is {getattr(right, f)!r}" for f in fields)
    return ""  # so busy that it is sound: its owner reads it all the time


async def _last_sound(store: Store, session_id: str) -> int:
    """The last position up to which a journal can be read and folded."""
    from holdfast.core.state import Session

    session = Session(session_id)
    try:
        while entries := await store.read(session_id, session.position, 1):
            session.apply(entries[0])
    except HoldfastError:
        pass
    return session.position


def _advice(session_id: str, last: int) -> str:
    if last == 0:
        return f"Nothing of it can be used. Import it from a backup, or `holdfast delete {session_id}`."
    return (
        f"Its records up to {last} are sound: `holdfast fork {session_id} --at {last}` goes on from there."
        f" Or import it from a backup, or `holdfast delete {session_id}`."
    )
