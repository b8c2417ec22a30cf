"""`import`: add the session in a file to the store."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click
import msgspec

from holdfast.cli.engine import open_store
from holdfast.cli.keys import signer_name, signer_text
from holdfast.cli.options import common, settings
from holdfast.cli.output import dim, print_json
from holdfast.core.errors import ExitCode

if TYPE_CHECKING:
    from holdfast.store.export import ImportReceipt


@click.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--id", "session_id", metavar="ID", help="Import it under another id.")
@common()
def import_command(file: str, session_id: str | None) -> int:
    """Add the session in FILE (- for standard input) to the store: all of it, or nothing.

    Unless it has ended, it does nothing there until `holdfast adopt` lets it run.
    """

    async def read() -> ImportReceipt:
        from holdfast.store.export import import_session

        async with open_store(create=True) as store:
            return await import_session(store, "/dev/stdin" if file == "-" else file, session_id)

    receipt = asyncio.run(read())
    if settings().json:
        print_json({**msgspec.to_builtins(receipt), "signed_by": signer_name(receipt.key)})
    else:
        done = "was imported before" if receipt.replayed else "imported"
        click.echo(f"{receipt.session_id}  {done} ({receipt.position} records, {signer_text(receipt.key)})")
        if receipt.state == "imported":
            click.echo(dim(f"It does nothing until it is adopted: holdfast adopt {receipt.session_id}"))
    return ExitCode.OK
