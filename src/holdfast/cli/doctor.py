"""`doctor`: read every session, repair summaries, explain damage and standstill; check that sandboxed Python runs."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from typing import TYPE_CHECKING

import click
import msgspec

from holdfast.cli.engine import open_store
from holdfast.cli.options import common, settings
from holdfast.cli.output import count, dim, duration, plain, print_json
from holdfast.core.errors import ExitCode, HoldfastError
from holdfast.core.ids import DEFAULT_SERVICE
from holdfast.core.queries import OWN_TOOLS

if TYPE_CHECKING:
    from holdfast.core.state import Session
    from holdfast.engine.fleet_limits import LimitReport
    from holdfast.engine.offers import ListedOffers
    from holdfast.engine.presence import ProcessRow
    from holdfast.engine.waits import Wait
    from holdfast.store import Store
    from holdfast.store.permits import PermitWait

_TRIES = 5
"""How often a session is read again because it changed while it was being checked."""


MOST_STILL = 1_000
"""Sessions that do not move which a report names; the others are counted."""

_STILL_AT_ONCE = 8 * MOST_STILL
"""Those that are collected before the others are left out: to sort them takes long."""

SHOWN_STILL = 50
"""Those of them that are shown to a person."""

_YOUNG_OBJECTS = 50_000
"""Objects after which Python looks for garbage: a page of sessions has more than the usual 700."""

MAX_MAIL = 10_000
"""Sessions whose messages are counted: more than that is not mail that somebody forgot."""

_SAY_EVERY_S = 5.0
"""Seconds between two lines of progress if stderr is not a terminal."""

_SANDBOX_S = 5.0
"""Seconds that a worker may take to multiply two numbers."""


class _Finding(msgspec.Struct, frozen=True):
    """Something wrong with one session."""

    session_id: str
    why: str
    next: str = ""
    """What to do, or an empty text if it was repaired."""


class _Still(msgspec.Struct, frozen=True):
    """A session that does not move."""

    session_id: str
    service: str
    wait: Wait


class _SandboxState(msgspec.Struct, frozen=True):
    """Whether the workers of sandboxed Python run on this machine."""

    runs: bool
    jailed: bool
    """Whether they are inside bubblewrap."""
    why: str = ""
    """Why they do not run, or are not inside bubblewrap."""


class _Report(msgspec.Struct):
    """What the doctor found in a store, and on this machine."""

    sandbox: _SandboxState
    sessions: int = 0
    repaired: list[_Finding] = []
    damaged: list[_Finding] = []
    processes: list[ProcessRow] = []
    """At work on the store, as they have said lately."""
    still: list[_Still] = []
    """Sessions that do not move, those first that no process which is here can serve; at most `MOST_STILL`."""
    still_count: int = 0
    """How many there are."""
    between_turns: int = 0
    """Those of them that are conversations which wait for their next input."""
    limits: list[LimitReport] = []
    """The limits of the fleet, and how much of each is in use."""

    def add_still(self, session_id: str, service: str, wait: Wait) -> None:
        """A session that does not move."""
        self.still_count += 1
        self.between_turns += wait.is_between_turns
        self.still.append(_Still(session_id, service, wait))
        if len(self.still) >= _STILL_AT_ONCE:
            self.keep_most_still()

    def keep_most_still(self) -> None:
        """Those that stand still come first, then those that have waited for the longest."""
        self.still.sort(key=lambda each: (not each.wait.is_stuck, each.wait.since))
        del self.still[MOST_STILL:]


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
    report = _Report(_check_sandbox())
    asyncio.run(_check_all(report, dry_run))
    ok = report.sandbox.runs and not report.damaged and not (dry_run and report.repaired)
    if settings().json:
        print_json({"ok": ok, **msgspec.to_builtins(report)})
    else:
        _print(report, dry_run)
    return ExitCode.OK if ok else ExitCode.ENDED_BADLY


def _print(report: _Report, dry_run: bool) -> None:
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


def _print_still(report: _Report) -> None:
    """The sessions that do not move, and the processes that could move them."""
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


def _check_sandbox() -> _SandboxState:
    """Start a worker, and let it compute something."""
    from pydantic_monty import MontyError

    from holdfast.programs.sandbox.jail import find_bwrap
    from holdfast.programs.sandbox.workers import Workers

    workers = Workers(1)
    try:
        with workers.checkout(deadline_s=_SANDBOX_S, memory_mib=16) as session:
            result = session.feed_run("6 * 7")
        is_jailed = workers.is_jailed
    except (MontyError, RuntimeError, OSError, TimeoutError) as error:
        return _SandboxState(False, False, f"{type(error).__name__}: {error}")
    finally:
        workers.close()
    if result != 42:
        return _SandboxState(False, False, f"6 * 7 is {result} there")
    if is_jailed:
        return _SandboxState(True, True)
    why = "it is not installed" if find_bwrap() is None else "it is installed, but this user cannot use it here"
    return _SandboxState(True, False, why)


async def _check_all(report: _Report, dry_run: bool) -> None:
    from holdfast.engine.presence import processes
    from holdfast.engine.waits import WaitTable, messages_left

    gc.set_threshold(_YOUNG_OBJECTS)
    progress = _Progress()
    async with open_store() as store:
        now = int(time.time() * 1000)
        report.processes = [row for row in await processes(store) if row.is_here(now)]
        waits = WaitTable(report.processes, now)
        with_mail = {each.session_id for each in await store.open_mail(limit=MAX_MAIL)}
        after: str | None = None
        while True:
            page = await store.checked(after=after)
            report.sessions += len(page.sound)
            for session in page.sound:
                if session.id not in page.held and not session.is_terminal and session.started is not None:
                    mail = await messages_left(store, session.id) if session.id in with_mail else 0
                    if (wait := waits.wait_of(session, mail)) is not None:
                        report.add_still(session.id, session.started.service, wait)
            for session_id in page.doubtful:
                await _check(store, session_id, report, dry_run)
            progress.tell(report.sessions)
            after = page.next
            if after is None:
                await _explain_limits(store, report)
                report.keep_most_still()
                progress.clear()
                return


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


async def _check(store: Store, session_id: str, report: _Report, dry_run: bool) -> None:
    from holdfast.core.errors import JournalError, SessionNotFoundError, TransitionError
    from holdfast.store.errors import CorruptSessionError

    try:
        fault, session = await _repair_summary(store, session_id, dry_run)
    except SessionNotFoundError:
        return  # deleted after it was listed
    except (CorruptSessionError, JournalError, TransitionError) as error:
        last = await _last_sound_position(store, session_id)
        report.damaged.append(_Finding(session_id, str(error), _advice(session_id, last)))
    else:
        if fault:
            report.repaired.append(_Finding(session_id, fault))
        if session is not None:
            await _explain(store, session, report)
    report.sessions += 1


async def _explain_limits(store: Store, report: _Report) -> None:
    """Note what waits for a limit of the fleet. Such sessions have an owner, and move by themselves."""
    from holdfast.engine.fleet_limits import limit_reports
    from holdfast.engine.waits import wait_for_limits

    report.limits = await limit_reports(store)
    in_line: dict[str, list[PermitWait]] = {}
    for each in await store.permit_waits(limit=MOST_STILL):
        in_line.setdefault(each.session_id, []).append(each)
    for session_id, waits in in_line.items():
        try:
            service = (await store.session(session_id)).summary.service
        except HoldfastError:
            continue  # deleted, or damaged: that is said elsewhere
        report.add_still(session_id, service, wait_for_limits(waits))


async def _explain(store: Store, session: Session, report: _Report) -> None:
    """Note why a session does not move."""
    from holdfast.engine.waits import messages_left, wait_of

    if session.is_terminal or (await store.session(session.id)).owner is not None:
        return
    mail = await messages_left(store, session.id)
    wait = wait_of(session, report.processes, int(time.time() * 1000), mail)
    if wait is not None and session.started is not None:
        report.add_still(session.id, session.started.service, wait)


async def _repair_summary(store: Store, session_id: str, dry_run: bool) -> tuple[str, Session | None]:
    """Repair the summary of a session, and say what was wrong with it (an empty text if nothing was); the session too.

    Without the session if it is so busy that it must be sound: its owner reads it all the time.
    """
    from holdfast.core.summary import Summary, summarize
    from holdfast.store.errors import CorruptSessionError

    for _ in range(_TRIES):
        session = await store.load(session_id)  # reads every record, and every value stored beside it
        right = summarize(session)
        try:
            row = await store.session(session_id)
        except CorruptSessionError as error:
            if not dry_run:
                await store.repair(session_id, right)
            return str(error), session
        if row.position < session.position:  # it was read later, and the journal only grows
            why = f"it says that the journal ends at position {row.position}, but that has {session.position}"
            raise CorruptSessionError(session_id, "its summary", why)
        if row.position > session.position:
            continue
        if row.summary == right:
            return "", session
        fields = [f for f in Summary.__struct_fields__ if getattr(row.summary, f) != getattr(right, f)]
        if not dry_run:
            await store.repair(session_id, right)
        return "; ".join(f"{f} was {getattr(row.summary, f)!r}, is {getattr(right, f)!r}" for f in fields), session
    return "", None


async def _last_sound_position(store: Store, session_id: str) -> int:
    """The position up to which a journal can be read and folded, and a fork of it be made."""
    from holdfast.core.state import Session

    session = Session(session_id)
    try:
        end = await store.position(session_id)
        while session.position < end and (entries := await store.read(session_id, session.position, 1)):
            session.apply(entries[0])
    except HoldfastError:
        pass
    return session.position


def _advice(session_id: str, last: int) -> str:
    if last == 0:
        return f"None of it can be used. Import it from a backup, or `holdfast delete {session_id}`."
    return (
        f"Its records up to {last} are sound: `holdfast fork {session_id} --at {last}` continues from there."
        f" Or import it from a backup, or `holdfast delete {session_id}`."
    )
