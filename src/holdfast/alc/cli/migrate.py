"""`migrate`: take over an algocline directory. The work is in `holdfast.alc.migration`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from holdfast.cli.engine import open_store
from holdfast.cli.options import common, settings
from holdfast.cli.output import count, plain, print_json
from holdfast.core.errors import ExitCode

if TYPE_CHECKING:
    from holdfast.alc.migration.algocline_home import MigrationReport


@click.command("migrate")
@click.argument("source", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
@common()
def migrate_command(source: Path | None) -> int:
    """Take over an algocline directory: packages, cards, scenarios, evaluations, state and logs.

    SOURCE is algocline's directory.  [default: env ALC_HOME, else ~/.algocline]  It is read and never changed. What is
    there already stays as it is, so the same command again adopts nothing.
    """
    report = asyncio.run(_migrate(source))
    if settings().json:
        print_json({**msgspec.to_builtins(report), "count": report.count})
        return ExitCode.ENDED_BADLY if report.failures else ExitCode.OK
    if not report.found:
        click.echo(f"There is no directory {plain(report.source)}.")
        return ExitCode.OK
    for name in ("packages", "cards", "aliases", "scenarios", "evals", "state", "logs"):
        done = getattr(report, name)
        if done.adopted or done.present:
            click.echo(f"{name:<10} {len(done.adopted)} adopted, {len(done.present)} there already")
    for why in report.failures:
        click.echo(f"failed: {plain(why)}", err=True)
    click.echo(f"{count(report.count, 'thing')} adopted from {plain(report.source)}, which is unchanged.")
    return ExitCode.ENDED_BADLY if report.failures else ExitCode.OK


async def _migrate(source: Path | None) -> MigrationReport:
    from holdfast.alc.migration.algocline_home import adopt_home
    from holdfast.alc.packages.directories import PackageDirectories

    async with open_store(create=True) as store:
        return await adopt_home(store, PackageDirectories(), None if source is None else source.absolute())
