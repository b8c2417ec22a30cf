"""`export`: write a session to a file."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from typing import BinaryIO

import click

from holdfast.cli.engine import open_store
from holdfast.cli.options import common, settings
from holdfast.cli.output import print_json
from holdfast.cli.parameter_types import SessionType
from holdfast.cli.session_lookup import find_session
from holdfast.core.errors import ExitCode


@click.command("export")
@click.argument("session", type=SessionType())
@click.argument("file", required=False, type=click.Path(dir_okay=False, allow_dash=True))
@common()
def export_command(session: str, file: str | None) -> int:
    """Write a session to FILE, or to standard output. `holdfast import` reads it into any store."""
    return asyncio.run(_export(session, file))


async def _export(id_or_prefix: str, file: str | None) -> int:
    from holdfast.store.export import export_lines, export_session

    async with open_store() as store:
        session_id = await find_session(store, id_or_prefix)
        if file is None or file == "-":
            await _write(export_lines(store, session_id), sys.stdout.buffer)
            return ExitCode.OK
        target = os.path.realpath(file)
        if os.path.exists(target) and not os.path.isfile(target):
            # A pipe or a device is written to; replacing it, as a file is replaced, would destroy it.
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
