"""Prints what is made of the API's table: `python -m holdfast.programs.api page` (or `lua`, or `python`)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from holdfast.programs.api.lua_stubs import render_stubs
from holdfast.programs.api.page import render_page
from holdfast.programs.api.python_stubs import render_python_stubs

_MADE: Mapping[str, Callable[[], str]] = {"page": render_page, "lua": render_stubs, "python": render_python_stubs}

if __name__ == "__main__":
    match sys.argv[1:]:
        case [what] if what in _MADE:
            sys.stdout.write(_MADE[what]())
        case _:
            sys.exit(f"Say what to print: one of {', '.join(_MADE)}.")
