"""`export`: write a session to a file."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from holdfast.cli.engine import open_store
from holdfast.cli.keys import known_keys
from holdfast.cli.options import common, settings
from holdfast.cli.output import print_json
from holdfast.cli.parameter_types import SessionType
from holdfast.cli.session_lookup import find_session
from holdfast.core.errors import ExitCode

if TYPE_CHECKING:
    from holdfast.store.signatures import SigningKey


@click.command("export")
@click.argument("session", type=SessionType())
@click.argument("file", required=False, type=click.Path(dir_okay=False, allow_dash=True))
@click.option("--sign", is_flag=True, help="Sign it with your own key, which `holdfast keys --new` makes.")
@click.option("--key", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Sign it with this PEM file.")
@common()
def export_command(session: str, file: str | None, sign: bool, key: Path | None) -> int:
    """Write a session to FILE, or to standard output. `holdfast import` reads it into any store."""
    signing = key or (known_keys().own if sign else None)
    return asyncio.run(_export(session, file, None if signing is None else read_key(signing)))


def read_key(path: Path) -> SigningKey:
    """The private key in a file."""
    from holdfast.store.signatures import SigningKey

    return SigningKey.read(path)


async def _export(id_or_prefix: str, file: str | None, key: SigningKey | None) -> int:
    from holdfast.store.export import export_lines, export_session

    async with open_store() as store:
        session_id = await find_session(store, id_or_prefix)
        if file is None or file == "-":
            await _write(export_lines(store, session_id, key), sys.stdout.buffer)
            return ExitCode.OK
        target = os.path.realpath(file)
        if os.path.exists(target) and not os.path.isfile(target):
            # A pipe or a device is written to; replacing it, as a file is replaced, would destroy it.
            with await asyncio.to_thread(open, target, "wb") as stream:
                size = await _write(export_lines(store, session_id, key), stream)
        else:
            size = await export_session(store, session_id, target, key)
    if settings().json:
        print_json({"session_id": session_id, "file": file, "bytes": size, "key": key and key.public})
    else:
        click.echo(f"{session_id}  written to {file} ({size} bytes{', signed' if key is not None else ''})")
    return ExitCode.OK


async def _write(lines: AsyncIterator[bytes], stream: BinaryIO) -> int:
    size = 0
    async for line in lines:
        size += stream.write(line)
    stream.flush()
    return size
