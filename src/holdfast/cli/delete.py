"""`delete`: remove a session for good."""

from __future__ import annotations

import asyncio
import sys
import time

import click

from holdfast.cli.engine import open_store
from holdfast.cli.errors import InputError
from holdfast.cli.options import common, settings
from holdfast.cli.output import print_json
from holdfast.cli.parameter_types import SessionType
from holdfast.cli.session_lookup import find_session
from holdfast.core.errors import ExitCode


@click.command("delete")
@click.argument("session", type=SessionType())
@click.option("--yes", is_flag=True, help="Do not ask.")
@common()
def delete_command(session: str, yes: bool) -> int:
    """Remove a session and everything that belongs to it. Its id is not used again."""

    async def find() -> str:
        async with open_store() as store:
            return await find_session(store, session)

    session_id = asyncio.run(find())
    if not yes:
        if not sys.stdin.isatty() or settings().json:
            raise InputError(f"session '{session_id}' would be gone for good; confirm with --yes")
        if not click.confirm(f"Delete {session_id} for good?"):
            click.echo("Nothing was deleted.")
            return ExitCode.OK

    async def delete() -> None:
        async with open_store() as store:
            await store.delete(session_id, time.time_ns() // 1_000_000)

    asyncio.run(delete())
    if settings().json:
        print_json({"session_id": session_id, "deleted": True})
    else:
        click.echo(f"{session_id}  deleted")
    return ExitCode.OK
