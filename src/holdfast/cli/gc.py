"""`gc`: expire idle sessions, delete old ones."""

from __future__ import annotations

import asyncio

import click

from holdfast.cli.options import common, service_option, settings
from holdfast.cli.output import print_json
from holdfast.core.errors import ExitCode

_DAY_MS = 24 * 3600 * 1000

_MOST_SHOWN = 20
"""Ids printed in one list; `--json` prints all."""


@click.command("gc")
@click.option(
    "--idle-days",
    type=click.FloatRange(min=0),
    help="Expire strategies, and stop turns, that nobody has answered for this long.  [default: none]",
)
@click.option(
    "--keep-days",
    type=click.FloatRange(min=0),
    help="Delete sessions that ended longer ago than this.  [default: keep all]",
)
@service_option
@common()
def gc_command(idle_days: float | None, keep_days: float | None) -> int:
    """Expire idle sessions, and delete those that ended long ago.

    An expired session has ended, and can still be shown, exported and forked. A conversation does not expire: only
    its turn is stopped. A deleted session is gone. Sessions of services that are not named are left alone.
    """
    expired, deleted = asyncio.run(_gc(idle_days, keep_days))
    if settings().json:
        print_json({"expired": expired, "deleted": deleted})
        return ExitCode.OK
    if not expired and not deleted:
        click.echo("Nothing to do.")
    for done, ids in (("expired", expired), ("deleted", deleted)):
        for session_id in ids[:_MOST_SHOWN]:
            click.echo(f"{session_id}  {done}")
        if len(ids) > _MOST_SHOWN:
            click.echo(f"… and {len(ids) - _MOST_SHOWN} more {done}")
    return ExitCode.OK


async def _gc(idle_days: float | None, keep_days: float | None) -> tuple[list[str], list[str]]:
    from holdfast.engine.holdfast import open_holdfast
    from holdfast.engine.upkeep import Upkeep

    upkeep = Upkeep(on=False, idle_ttl_ms=_milliseconds(idle_days), keep_ended_ms=_milliseconds(keep_days))
    async with open_holdfast(settings().url(), upkeep=upkeep, service=settings().services) as hf:
        expired, deleted = await hf.clean()
        more = deleted
        while more:  # each pass deletes a bounded number
            _, more = await hf.clean()
            deleted = deleted + more
    return expired, deleted


def _milliseconds(days: float | None) -> int | None:
    return None if days is None else round(days * _DAY_MS)
