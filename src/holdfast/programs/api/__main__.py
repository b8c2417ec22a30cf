"""Prints what is made of the API's table: `python -m holdfast.programs.api page` (or `lua`, or `python`)."""

from __future__ import annotations

import sys

from holdfast.programs.kinds import load_object

_HOMES = {
    "page": "holdfast.programs.api.page:render_page",
    "lua": "holdfast.alc.lua.stubs:render_stubs",
    "python": "holdfast.programs.api.python_stubs:render_python_stubs",
}

if __name__ == "__main__":
    match sys.argv[1:]:
        case [what] if what in _HOMES:
            sys.stdout.write(load_object(_HOMES[what])())
        case _:
            sys.exit(f"Say what to print: one of {', '.join(_HOMES)}.")
