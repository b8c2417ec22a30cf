"""`export`, `import`, `delete`, `gc`: what is kept, where, and for how long."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, BinaryIO

import click

from holdfast.cli.errors import InputError
from holdfast.cli.lookup import SessionType, find_session, opened
from holdfast.cli.options import common, settings
from holdfast.cli.output import print_json
from holdfast.core.errors import ExitCode

if TYPE_CHECKING:
    from holdfast.store.export import ImportReceipt

_DAY_MS = 24 * 3600 * 1000

_SOME = 20
"""Ids printed in one list; `--json` has all."""


@click.command("export")
@click.argument("session", type=SessionType())
@click.argument("file", required=False, type=click.Path(dir_okay=False, allow_dash=True))
@common()
def export_command(session: str, file: str | None) -> int:
    """Write a session to FILE, or to standard output. `holdfast import` reads it into any store."""
    return asyncio.run(_export(session, file))


async def _export(given: str, file: str | None) -> int:
    from holdfast.store.export import export_lines, export_session

    async with opened() as store:
        session_id = await find_session(store, given)
        if file is None or file == "-":
            await _write(export_lines(store, session_id), sys.stdout.buffer)
            return ExitCode.OK
        target = os.path.realpath(file)
        if os.path.exists(target) and not os.path.isfile(target):
            # A pipe or a device is written to. Replacing it, as is right for a file, would destroy it.
            with await asyncio.to_thread(open, target, "wb") as stream:
                size = await _write(export_lines(store, session_id), stream)
        else:
            size = await export_session(store, session_id, target)
    if settings().json:
        print_json({"session_id": session_id, "file": file, "bytes": size})
    else:
        click.echo(f"{session_id}  written to {file} ({size} bytes)")
    return ExitCode.OK


async def _write(lines: AsyncIterator[bytes], stream: BinaryIO) -> int:
    size = 0
    async for line in lines:
        size += stream.write(line)
    stream.flush()
    return size


@click.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--id", "session_id", metavar="ID", help="Import it under another id.")
@common()
def import_command(file: str, session_id: str | None) -> int:
    """Add the session in FILE (- for standard input) to the store. All of it, or nothing."""

    async def read() -> ImportReceipt:
        from holdfast.store.export import import_session

        async with opened(create=True) as store:
            return await import_session(store, "/dev/stdin" if file == "-" else file, session_id)

    receipt = asyncio.run(read())
    if settings().json:
        print_json(receipt)
    else:
        there = "was there already" if receipt.replayed else "imported"
        click.echo(f"{receipt.session_id}  {there} ({receipt.position} records)")
    return ExitCode.OK


@click.command("delete")
@click.argument("session", type=SessionType())
@click.option("--yes", is_flag=True, help="Do not ask.")
@common()
def delete_command(session: str, yes: bool) -> int:
    """Remove a session with all that belongs to it. Its id is not used again."""

    async def find() -> str:
        async with opened() as store:
            return await find_session(store, session)

    session_id = asyncio.run(find())
    if not yes:
        if not sys.stdin.isatty() or settings().json:
            raise InputError(f"session '{session_id}' would be gone for good; say --yes to delete it")
        if not click.confirm(f"Delete {session_id} for good?"):
            click.echo("Nothing was deleted.")
            return ExitCode.OK

    async def delete() -> None:
        import time

        async with opened() as store:
            await store.delete(session_id, time.time_ns() // 1_000_000)

    asyncio.run(delete())
    if settings().json:
        print_json({"session_id": session_id, "deleted": True})
    else:
        click.echo(f"{session_id}  deleted")
    return ExitCode.OK


@click.command("gc")
@click.option(
    "--idle-days",
    type=click.FloatRange(min=0),
    default=7.0,
    show_default=True,
    help="Expire paused sessions that nobody answered for so long.",
)
@click.option(
    "--keep-days",
    type=click.FloatRange(min=0),
    help="Delete sessions that ended longer ago.  [default: keep all]",
)
@common()
def gc_command(idle_days: float, keep_days: float | None) -> int:
    """Expire idle sessions, and delete those that ended long ago.

    An expired session has ended, and can still be shown, exported and forked. A deleted one is gone.
    """
    expired, deleted = asyncio.run(_gc(idle_days, keep_days))
    if settings().json:
        print_json({"expired": expired, "deleted": deleted})
        return ExitCode.OK
    if not expired and not deleted:
        click.echo("Nothing to do.")
    for done, ids in (("expired", expired), ("deleted", deleted)):
        for session_id in ids[:_SOME]:
            click.echo(f"{session_id}  {done}")
        if len(ids) > _SOME:
            click.echo(f"… and {len(ids) - _SOME} more {done}")
    return ExitCode.OK


async def _gc(idle_days: float, keep_days: float | None) -> tuple[list[str], list[str]]:
    from holdfast.engine.holdfast import open_holdfast
    from holdfast.engine.minder import Minder

    keep_ms = None if keep_days is None else round(keep_days * _DAY_MS)
    minder = Minder(on=False, idle_ttl_ms=round(idle_days * _DAY_MS), keep_ended_ms=keep_ms)
    async with open_holdfast(settings().url(), minder=minder) as hf:
        expired, deleted = await minder.clean(hf._engine)
        more = deleted
        while more:  # each look deletes a bounded number
            _, more = await minder.clean(hf._engine)
            deleted = deleted + more
    return expired, deleted
