"""The command: what it finds, printed. It looks at this machine itself, and lets others look at the sessions."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING

import click
import msgspec

from holdfast.cli.engine import open_store
from holdfast.cli.options import common, settings
from holdfast.cli.output import count, dim, duration, plain, print_json
from holdfast.cli.own_process import collect_seldom
from holdfast.core.errors import ExitCode
from holdfast.core.ids import DEFAULT_SERVICE
from holdfast.core.queries import OWN_TOOLS

if TYPE_CHECKING:
    from holdfast.cli.doctor.report import Report, SandboxState
    from holdfast.engine.listed_offers import ListedOffers

SHOWN_STILL = 50
"""Sessions that do not move which are shown to a person."""

MAX_MAIL = 10_000
"""Sessions whose messages are counted: more than that is not mail that somebody forgot."""

_SAY_EVERY_S = 5.0
"""Seconds between two lines of progress if stderr is not a terminal."""

_SANDBOX_S = 5.0
"""Seconds that a worker may take to multiply two numbers."""


@click.command("doctor")
@click.option("--dry-run", is_flag=True, help="Change nothing; only report what would be repaired.")
@common()
def doctor_command(dry_run: bool) -> int:
    """Check every session: its journal, the values stored beside it, and its entry in the listing.

    Listings are repaired from the journal; other damage is explained. For every session that does not move, says whom
    it waits for and since when, what no process offers, and who could serve it. Also reports whether sandboxed Python
    runs here, and whether its workers are inside bubblewrap. Exit code 1 if damage remains, or sandboxed Python does
    not run.
    """
    from holdfast.cli.doctor.report import Report

    report = Report(_check_sandbox())
    asyncio.run(_check_all(report, dry_run))
    ok = report.sandbox.runs and not report.damaged and not (dry_run and report.repaired)
    if settings().json:
        print_json({"ok": ok, **msgspec.to_builtins(report)})
    else:
        _print(report, dry_run)
    return ExitCode.OK if ok else ExitCode.ENDED_BADLY


def _print(report: Report, dry_run: bool) -> None:
    for found in report.repaired:
        click.echo(f"{found.session_id}  {'can be repaired' if dry_run else 'repaired'}: {plain(found.why)}")
    for found in report.damaged:
        click.echo(f"{found.session_id}  {click.style('damaged', fg='red')}: {plain(found.why)}")
        click.echo(f"    {plain(found.next)}")
    sound = report.sessions - len(report.repaired) - len(report.damaged)
    counts = [f"{count(report.sessions, 'session')} checked", f"{sound} sound"]
    counts += [f"{len(report.repaired)} {'to repair' if dry_run else 'repaired'}"] if report.repaired else []
    counts += [f"{len(report.damaged)} damaged"] if report.damaged else []
    click.echo(", ".join(counts) + ".")
    _print_still(report)
    sandbox = report.sandbox
    if not sandbox.runs:
        click.echo(f"Sandboxed Python {click.style('does not run', fg='red')} here: {plain(sandbox.why)}")
    elif sandbox.jailed:
        click.echo("Sandboxed Python runs, its workers inside bubblewrap.")
    else:
        click.echo(f"Sandboxed Python runs, its workers not inside bubblewrap: {plain(sandbox.why)}")


def _print_still(report: Report) -> None:
    """The sessions that do not move, and the processes that could move them."""
    from holdfast.cli.doctor.report import MOST_STILL

    shown = [each for each in report.still if not each.wait.is_between_turns][:SHOWN_STILL]
    resting = report.between_turns
    for each in shown:
        service = "" if each.service == DEFAULT_SERVICE else f" of service {each.service}"
        still = f"{click.style('stands still', fg='red')}, " if each.wait.is_stuck else ""
        click.echo(f"{each.session_id}{service}  {still}{plain(each.wait.why)} (for {_since(each.wait.since)})")
        if each.wait.answers:
            click.echo(dim(f"    holdfast answer {each.session_id}"))
    if left := report.still_count - resting - len(shown):
        click.echo(f"… and {count(left, 'session')} more; --json names up to {MOST_STILL:,}.")
    if resting:
        click.echo(f"{count(resting, 'conversation')} between turns.")
    for limit in report.limits:
        for used in limit.counters:
            if used.waiting:
                place = f"{used.taken} of {limit.most} in use, {count(used.waiting, 'call')} waiting"
                click.echo(f"limit {plain(used.counter)}  {place}")
    for row in report.processes:
        if report.still or row.troubles:
            click.echo(f"{row.name}  at work for {_since(row.since)}, {_offers_text(row.offers)}")
        for trouble in row.troubles:
            failed = click.style(f"failed {count(trouble.failures, 'time')} in a row", fg="red")
            click.echo(f"    {trouble.name} {failed}, and is tried again: {plain(trouble.error)}")
    if report.still and not report.processes:
        click.echo("No process is at work on this store; `holdfast worker` starts one.")


def _since(at: int) -> str:
    return duration(max(0, int(time.time() * 1000) - at))


def _offers_text(offers: ListedOffers) -> str:
    parts = {
        "services": offers.services,
        "strategies": offers.strategies,
        "providers": offers.providers,
        "models": offers.models,
        "tools": [name for name in offers.tools if not name.startswith(OWN_TOOLS)],
    }
    named = (f"{what} {', '.join(names)}" for what, names in parts.items() if names)
    return "serves " + plain("; ".join(named))


def _check_sandbox() -> SandboxState:
    """Start a worker, and let it compute something."""
    from pydantic_monty import MontyError

    from holdfast.cli.doctor.report import SandboxState
    from holdfast.programs.sandbox.jail import find_bwrap
    from holdfast.programs.sandbox.workers import Workers

    workers = Workers(1)
    try:
        with workers.checkout(deadline_s=_SANDBOX_S, memory_mib=16) as session:
            result = session.feed_run("6 * 7")
        is_jailed = workers.is_jailed
    except (MontyError, RuntimeError, OSError, TimeoutError) as error:
        return SandboxState(False, False, f"{type(error).__name__}: {error}")
    finally:
        workers.close()
    if result != 42:
        return SandboxState(False, False, f"6 * 7 is {result} there")
    if is_jailed:
        return SandboxState(True, True)
    why = "it is not installed" if find_bwrap() is None else "it is installed, but this user cannot use it here"
    return SandboxState(True, False, why)


async def _check_all(report: Report, dry_run: bool) -> None:
    from holdfast.cli.doctor.helper import HelperTask
    from holdfast.cli.doctor.report import MOST_STILL
    from holdfast.cli.doctor.single import Checkup
    from holdfast.cli.doctor.sweep import check_sessions
    from holdfast.engine.fleet_limits import limit_reports
    from holdfast.engine.process_rows import processes

    collect_seldom()
    progress = _Progress()
    async with open_store() as store:
        now = int(time.time() * 1000)
        report.processes = [row for row in await processes(store) if row.is_here(now)]
        with_mail = [each.session_id for each in await store.open_mail(limit=MAX_MAIL)]
        found = await check_sessions(
            store, HelperTask(settings().url(), now, report.processes, with_mail), progress.tell
        )
        report.sessions = found.sound
        checkup = Checkup(store, report, found, dry_run)
        for session_id in found.doubtful:
            await checkup.check(session_id)
            progress.tell(report.sessions)
        for session_id in found.with_mail:
            await checkup.explain_mail(session_id)
        report.limits = await limit_reports(store)
        await checkup.explain_limits(MOST_STILL)
        found.keep_most_still()
        report.still, report.still_count, report.between_turns = found.still, found.still_count, found.between_turns
    progress.clear()


class _Progress:
    """Says how many sessions were checked so far: on a terminal at every page, elsewhere now and then."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._next_at = time.monotonic() + _SAY_EVERY_S

    def tell(self, sessions: int) -> None:
        text = f"{count(sessions, 'session')} checked …"
        if self._is_terminal:
            click.echo(f"\r{text:40}", nl=False, err=True)
        elif time.monotonic() >= self._next_at:
            self._next_at = time.monotonic() + _SAY_EVERY_S
            click.echo(text, err=True)

    def clear(self) -> None:
        """The report follows."""
        if self._is_terminal:
            click.echo(f"\r{'':40}\r", nl=False, err=True)
