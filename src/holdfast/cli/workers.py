"""`workers`: the processes at work on a store, and how one of them is ended from outside."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import click
import msgspec

from holdfast.cli.engine import BY, open_store
from holdfast.cli.errors import InputError
from holdfast.cli.options import common, settings
from holdfast.cli.output import duration, plain, print_json
from holdfast.cli.table import print_table
from holdfast.core.errors import ExitCode

if TYPE_CHECKING:
    from holdfast.engine.process_rows import ProcessRow
    from holdfast.store import Store

_LOOK_S = 0.2
"""Seconds between looks at whether a process has ended its work."""


@click.group("workers", invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@common()
@click.pass_context
def workers_command(context: click.Context) -> int | None:
    """List the processes at work on a store: what they serve, since when, their turns, and whether they are draining.

    A process says that it is there after a second, and every half minute; one that has said nothing for a minute and a
    half is not listed.
    """
    if context.invoked_subcommand is not None:
        return None
    rows = asyncio.run(_present())
    if settings().json:
        print_json({"workers": [_as_json(row) for row in rows]})
    elif not rows:
        click.echo("No process is at work on this store; `holdfast worker` starts one.")
    else:
        now = _now()
        lines = [
            (row.name, state_of(row), _turns(row), duration(max(0, now - row.since)), row.version, _served(row))
            for row in rows
        ]
        print_table(("PROCESS", "STATE", "TURNS", "FOR", "VERSION", "SERVES"), lines)
    return ExitCode.OK


@workers_command.command("drain")
@click.argument("name", metavar="NAME|PID")
@click.option(
    "--within",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="How long what is under way may take to end.  [default: as the worker was started with --drain]",
)
@click.option(
    "--wait",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Wait until the worker has ended its work; exit code 1 if it has not by then.",
)
@common()
def drain_command(name: str, within: float | None, wait: float | None) -> int:
    """Let a worker finish what is under way, and leave the rest to others.

    NAME is the process as `holdfast workers` names it, or the beginning of that; PID its process id. It begins no more
    turns, and takes up nothing. Turns, and calls of strategies, that have not ended in time are resumed by others.
    """
    row, is_over = asyncio.run(_drain(name, within, wait))
    if settings().json:
        print_json({"worker": row.name, "is_over": is_over})
    else:
        ended = "has ended its work" if is_over else "has not ended its work yet" if wait else "is asked to drain"
        click.echo(f"{plain(row.name)} {ended}")
    return ExitCode.OK if is_over or wait is None else ExitCode.ENDED_BADLY


async def _present() -> list[ProcessRow]:
    from holdfast.engine.process_rows import processes

    async with open_store() as store:
        now = _now()
        return [row for row in await processes(store) if row.is_here(now)]


async def _drain(name: str, within: float | None, wait: float | None) -> tuple[ProcessRow, bool]:
    from holdfast.engine.drains import NAMESPACE, DrainRequest, forget_drain, request_drain

    async with open_store() as store:
        row = await _find(store, name)
        await request_drain(store, row.name, DrainRequest(_now(), BY, within))
        deadline = time.monotonic() + (wait or 0.0)
        is_over = await _is_over(store, row.name)
        with store.listen(NAMESPACE) as news:
            while not is_over and (left_s := deadline - time.monotonic()) > 0:
                await news.read(min(_LOOK_S, left_s))
                is_over = await _is_over(store, row.name)
        if is_over:
            await forget_drain(store, row.name)
        return row, is_over


async def _find(store: Store, name: str) -> ProcessRow:
    """The worker that a name, the beginning of one, or a process id means."""
    from holdfast.engine.process_rows import processes

    now = _now()
    here = [row for row in await processes(store) if row.is_here(now)]
    found = [row for row in here if row.name == name]
    found = found or [row for row in here if row.name.startswith(name) or row.name.split(".")[-2:-1] == [name]]
    if not found:
        raise InputError(
            f"no process at work on this store is called '{name}'; `holdfast workers` lists those there are"
        )
    if len(found) > 1:
        raise InputError(f"'{name}' could be {', '.join(row.name for row in found)}; give more of the name")
    if found[0].work is None:
        raise InputError(f"{found[0].name} is no worker, so there is nothing to drain; end it where it runs")
    return found[0]


async def _is_over(store: Store, name: str) -> bool:
    """Whether a process is gone, or does not work any more."""
    from holdfast.engine.process_rows import processes

    now = _now()
    return not any(row.name == name and row.is_here(now) and row.work is not None for row in await processes(store))


def state_of(row: ProcessRow) -> str:
    """What a process does, in a word or two."""
    if row.work is None:
        return "no worker"
    state = "draining" if row.work.is_draining else "working"
    return f"{state}, in trouble" if row.troubles else state


def _turns(row: ProcessRow) -> str:
    return "" if row.work is None else f"{row.work.under_way} of {row.work.most}"


def _served(row: ProcessRow) -> str:
    """What a process serves, the services first."""
    offers = row.offers
    named = [*offers.models, *offers.strategies]
    return ", ".join(offers.services) + (f": {', '.join(named)}" if named else "")


def _as_json(row: ProcessRow) -> dict[str, object]:
    return {**msgspec.to_builtins(row), "state": state_of(row)}


def _now() -> int:
    return int(time.time() * 1000)
