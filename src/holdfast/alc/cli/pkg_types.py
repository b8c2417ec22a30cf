"""`pkg types`: type stubs of `alc`, `ctx` and `std` for editors."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

from holdfast.alc.cli.pkg import with_json
from holdfast.cli.options import settings
from holdfast.cli.output import plain, print_json
from holdfast.core.errors import ExitCode


@click.command("types")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write alc.d.lua into this directory, which is created if needed.",
)
@with_json
def types_command(output: Path | None) -> int:
    """Print type stubs for editors, or write them to a file: alc.d.lua, in LuaCATS notation.

    With --output, the settings for the project's .luarc.json with which the language server finds them are printed.
    """
    from holdfast.alc.lua.stubs import STUB_NAME, render_stubs

    stubs = render_stubs()
    if output is None:
        if settings().json:
            print_json({"file": STUB_NAME, "stubs": stubs, "luarc": luarc(Path("types"))})
        else:
            click.echo(stubs, nl=False)
        return ExitCode.OK
    path = output / STUB_NAME
    _write(path, stubs)
    settings_of_editor = luarc(output.absolute())
    if settings().json:
        print_json({"path": str(path.absolute()), "luarc": settings_of_editor})
        return ExitCode.OK
    click.echo(f"{plain(str(path))} written. In the .luarc.json of your project:")
    click.echo(json.dumps(settings_of_editor, indent=2))
    return ExitCode.OK


def luarc(directory: Path) -> dict[str, Any]:
    """The settings of the Lua language server for stubs in that directory."""
    return {"runtime.version": "Lua 5.4", "workspace.library": [str(directory)]}


def _write(path: Path, text: str) -> None:
    """Write the whole file or nothing: an editor may be reading it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
