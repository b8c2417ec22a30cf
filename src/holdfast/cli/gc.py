"""`gc`: expire idle sessions, delete old ones."""

from __future__ import annotations

import asyncio

import click

from holdfast.cli.options import common, service_option, settings
from holdfast.cli.output import print_json
from holdfast.cli.retention import RetentionRules, SizeType, retention_in_config
from holdfast.core.errors import ExitCode

_MOST_SHOWN = 20
"""Ids printed in one list; `--json` prints all."""


@click.command("gc")
@click.option(
    "--idle-days",
    type=click.FloatRange(min=0),
    help="Expire strategies, and stop turns, that nobody has answered for this long."
    "  [also: idle_days in [retention] of holdfast.toml; default: none]",
)
@click.option(
    "--keep-days",
    type=click.FloatRange(min=0),
    help="Delete sessions that ended longer ago than this.  [also: keep_days; default: keep all]",
)
@click.option(
    "--max-size",
    type=SizeType(),
    metavar="SIZE",
    help="Delete ended sessions, the longest ended first, while the store takes more than this, as in 500M or 20G."
    "  [also: max_size; default: keep all]",
)
@service_option
@common()
def gc_command(idle_days: float | None, keep_days: float | None, max_size: int | None) -> int:
    """Expire idle sessions, and delete those that ended long ago, or that there is no room for.

    An expired session has ended, and can still be shown, exported and forked. A conversation does not expire: only
    its turn is stopped. A deleted session is gone. Sessions of services that are not named are left alone.
    """
    expired, deleted = asyncio.run(_gc(_asked_for(idle_days, keep_days, max_size)))
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


def _asked_for(idle_days: float | None, keep_days: float | None, max_size: int | None) -> RetentionRules:
    """What the options say; where they say nothing at all, what the project's file says."""
    options = RetentionRules(idle_days, keep_days, max_size)
    return retention_in_config() if options == RetentionRules() else options


async def _gc(retention: RetentionRules) -> tuple[list[str], list[str]]:
    from holdfast.engine.holdfast import open_holdfast

    upkeep = retention.upkeep(on=False)
    async with open_holdfast(settings().url(), upkeep=upkeep, service=settings().services) as hf:
        expired, deleted = await hf.clean()
        more = deleted
        while more:  # a pass leaves out what another process has locked
            _, more = await hf.clean()
            deleted = deleted + more
    return expired, deleted
