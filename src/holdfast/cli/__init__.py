"""The command line. Here: the entry point, which imports as little as what it is asked for needs."""

from __future__ import annotations

import sys
from gc import freeze, set_threshold  # `gc` is a command here, too

TYPE_CHECKING = False  # as in `typing`, whose import takes longer than help does
if TYPE_CHECKING:
    from typing import NoReturn

_GARBAGE_OBJECTS = 50_000
"""New objects after which garbage is looked for. With Python's 700, that is a tenth of what a short command takes."""


def main() -> NoReturn:
    """The entry point of `holdfast`."""
    set_threshold(_GARBAGE_OBJECTS)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # an odd locale must not turn a result into an error
    match sys.argv[1:]:
        case ["--help" | "-h"]:
            from holdfast.cli.front_page import front_page, help_columns

            _print(front_page(help_columns()))
        case ["--version"]:
            from holdfast import __version__

            _print(f"holdfast {__version__}")
        case _:
            from holdfast.cli.group import run_command

            try:
                run_command()
            finally:
                freeze()  # or Python looks for garbage through all that was imported, before it ends


def _print(text: str) -> NoReturn:
    """Print what needs no parser of command lines, and exit."""
    try:
        print(text, flush=True)
    except OSError as error:  # nobody reads it, or there is no room
        from holdfast.cli.errors import report_error

        sys.exit(report_error(error, as_json=False))
    sys.exit(0)
