"""`adopt`: see what an imported session would run, and let it."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import click
import msgspec

from holdfast.cli.display.events import print_event
from holdfast.cli.engine import BY, open_engine
from holdfast.cli.errors import InputError
from holdfast.cli.keys import signer_name, signer_text
from holdfast.cli.options import common, service_option, settings
from holdfast.cli.output import date, dim, heading, one_line, plain, print_json
from holdfast.cli.parameter_types import SessionType
from holdfast.cli.served import serve_option
from holdfast.cli.session_lookup import find_session
from holdfast.core.errors import ExitCode

if TYPE_CHECKING:
    from holdfast.core.events import Event
    from holdfast.engine.adoption import AdoptionReport

_SOURCE_LINES = 60
"""Lines of code that are shown; `--all` shows the rest."""

_CHARS = 400
"""Characters of each other value."""


@click.command("adopt")
@click.argument("session", type=SessionType())
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--all", "show_all", is_flag=True, help="Show all of its code.")
@click.option("--dry-run", is_flag=True, help="Only show what it would run.")
@serve_option
@service_option
@common()
def adopt_command(session: str, yes: bool, show_all: bool, dry_run: bool) -> int:
    """Show what an imported session would run, and let it run after a yes.

    A session from a file does nothing until it is adopted. Adopting it does not make its code trusted: native
    strategies run only where --serve names them, and Lua outside of the sandbox only with --serve FILE.lua.
    """
    report = asyncio.run(_read(session))
    if dry_run or report.state != "imported":
        if settings().json:
            print_json(_to_json(report))
        else:
            _print(report, show_all)
            if report.state != "imported":
                click.echo(f"\n{report.session_id}  is {report.state}: there is nothing to adopt.")
        return ExitCode.OK
    if not settings().json:
        _print(report, show_all)
    if not yes:
        if not sys.stdin.isatty() or settings().json:
            raise InputError(
                f"session '{report.session_id}' would run what `holdfast adopt {report.session_id} --dry-run` shows;"
                " confirm with --yes"
            )
        if not click.confirm("\nLet it run here?"):
            click.echo("It was not adopted.")
            return ExitCode.OK
    print_event(asyncio.run(_adopt(report.session_id)))
    return ExitCode.OK


async def _read(session: str) -> AdoptionReport:
    async with open_engine() as hf:
        return await hf.adoption(await find_session(hf.store, session))


async def _adopt(session_id: str) -> Event:
    from holdfast.cli.served import load_served

    load_served()
    async with open_engine() as hf:
        return await hf.adopt(session_id, by=BY, wait=0)


def _to_json(report: AdoptionReport) -> dict[str, object]:
    return {**msgspec.to_builtins(report), "signed_by": signer_name(report.key)}


def _print(report: AdoptionReport, show_all: bool) -> None:
    then = {"running": "runs at once", "paused": "waits for answers"}.get(report.adopted_state, "")
    facts = {
        "imported": f"{date(report.imported_at)}, {signer_text(report.key)}" if report.imported_at else "no",
        "program": f"{report.program} ({report.program_kind})",
        "service": report.service,
        "llm": report.llm,
        "parent": report.parent or "",
        "ctx": one_line(report.ctx, _CHARS) if report.ctx is not None else "",
        "needs": ", ".join(report.needs),
        "not here": ", ".join(report.missing),
        "then": then,
    }
    click.echo(heading(report.session_id))
    for name, fact in facts.items():
        if fact:
            click.echo(f"  {dim(name.ljust(10))}  {plain(fact)}")
    if report.is_unconfined:
        wanted = click.style("asks to run outside of the sandbox", fg="red")
        click.echo(
            f"  {dim('trust'.ljust(10))}  {wanted}; only a process with --serve FILE.lua of the same code runs it"
        )
    for query in report.pending:
        click.echo(f"  {dim('asks'.ljust(10))}  {plain(query['query_id'])} {one_line(query, _CHARS)}")
    if report.source:
        lines = plain(report.source).splitlines()
        shown = lines if show_all else lines[:_SOURCE_LINES]
        click.echo("\n" + heading("Code"))
        click.echo("\n".join(shown))
        if len(shown) < len(lines):
            click.echo(dim(f"… {len(lines) - len(shown)} more lines; --all shows them"))
