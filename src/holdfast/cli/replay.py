"""`replay`: check stored histories against the code that is here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.engine import open_engine
from holdfast.cli.errors import usage_error
from holdfast.cli.options import common, settings
from holdfast.cli.output import count, dim, plain, print_json
from holdfast.cli.served import load_served, serve_option
from holdfast.cli.session_lookup import find_session
from holdfast.core.errors import ExitCode

if TYPE_CHECKING:
    from holdfast.engine.holdfast import Holdfast
    from holdfast.engine.replay_check import ReplayOutcome

_COLOURS = {"ok": "green", "diverges": "red", "unchecked": "yellow"}


@click.command("replay")
@click.argument("histories", nargs=-1, metavar="[FILE|SESSION]...")
@click.option("--program", metavar="NAME", help="All sessions of this program that have not ended.")
@click.option("--all", "ended_too", is_flag=True, help="With --program: also those that have ended.")
@serve_option
@common()
def replay_command(*, histories: tuple[str, ...], program: str | None, ended_too: bool) -> int:
    """Check that the code here still does what sessions have recorded. Nothing is changed, and nobody is asked.

    FILE is an export of a session. Exit code 4 if a session diverges, 3 if one cannot be checked.
    """
    if not histories and program is None:
        raise usage_error("Give files, sessions, or --program NAME.")
    if ended_too and program is None:
        raise usage_error("--all needs --program")
    load_served()
    outcomes = asyncio.run(_check(histories, program, ended_too))
    states = [outcome.state for outcome in outcomes]
    if settings().json:
        print_json({"sessions": [outcome.to_json() for outcome in outcomes]})
    else:
        for outcome in outcomes:
            _print(outcome)
        found = ", ".join(f"{states.count(state)} {state}" for state in _COLOURS if state in states)
        click.echo(f"{count(len(outcomes), 'session')}{f': {found}' if found else ''}")
    if "diverges" in states:
        return ExitCode.CONFLICT
    return ExitCode.NOT_FOUND if "unchecked" in states else ExitCode.OK


async def _check(histories: Sequence[str], program: str | None, ended_too: bool) -> list[ReplayOutcome]:
    from holdfast.engine.holdfast import open_holdfast
    from holdfast.engine.upkeep import Upkeep

    files = [Path(each) for each in histories if Path(each).is_file()]
    sessions = [each for each in histories if not Path(each).is_file()]
    outcomes: list[ReplayOutcome] = []
    async with open_holdfast("memory:", upkeep=Upkeep(on=False)) as hf:
        outcomes += [await hf.check_replay(file) for file in files]
    if sessions or program is not None:
        async with open_engine() as hf:
            found = [await find_session(hf.store, each) for each in sessions]
            found += [each async for each in _sessions_of(hf, program, ended_too)] if program is not None else []
            outcomes += [await hf.check_replay(each) for each in dict.fromkeys(found)]
    return outcomes


async def _sessions_of(hf: Holdfast, program: str, ended_too: bool) -> AsyncIterator[str]:
    """The sessions of a program; a native one may be named without its module, if it is served."""
    from holdfast.core.state import ENDED, State
    from holdfast.programs.registry import find_registered
    from holdfast.store.session_rows import SessionFilter

    native = find_registered(program)
    states = [State.RUNNING, State.PAUSED, *(ENDED if ended_too else ())]
    where = SessionFilter(program=native.name if native is not None else program, states=states)
    for row in await hf.store.all_sessions(where):
        yield row.session_id


def _print(outcome: ReplayOutcome) -> None:
    state = click.style(outcome.state, fg=_COLOURS[outcome.state])
    program = plain(outcome.program.name) if outcome.program is not None else "?"
    click.echo(f"{outcome.session_id}  {program}  {state}  {dim(count(outcome.records, 'record'))}")
    if outcome.divergence is not None:
        for line in plain(str(outcome.divergence)).splitlines()[1:-1]:
            click.echo(line)
    elif outcome.why:
        click.echo(f"  {plain(outcome.why)}")
