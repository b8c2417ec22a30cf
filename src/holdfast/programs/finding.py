"""What a caller means by a program: a function, a name, a file, a package."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from holdfast.core.records import Program
from holdfast.programs.errors import ProgramNotFoundError
from holdfast.programs.lua.source import LuaOptions, lua_code, lua_package
from holdfast.programs.registry import Function, Strategy, find

MAX_SOURCE_BYTES = 4 * 1024 * 1024
"""Bytes of a file of code: it is recorded with every session that runs it."""


def find_program(given: Strategy | Function | Program | str, **options: Unpack[LuaOptions]) -> Program:
    """The program behind whatever the caller has.

    A text is the name of a native strategy, `module:name`, `FILE.py:name`, `FILE.lua`, or the name of a Lua package.
    """
    if isinstance(given, Program):
        return given
    if not isinstance(given, str):
        return find(given).program
    if given.endswith(".lua"):
        return lua_file(Path(given), **options)
    try:
        return find(given).program
    except ProgramNotFoundError as unknown:
        if ":" in given or given.endswith(".py"):
            raise
        try:
            return lua_package(given, **options)
        except ProgramNotFoundError as missing:
            why = f"{unknown.why}, and {missing.why}"
            raise ProgramNotFoundError(given, why) from None


def lua_file(path: Path, **options: Unpack[LuaOptions]) -> Program:
    """The program in a file of Lua. Its text is recorded: the session does not change when the file does."""
    try:
        if path.stat().st_size > MAX_SOURCE_BYTES:
            raise ProgramNotFoundError(str(path), f"the file is larger than {MAX_SOURCE_BYTES} bytes")
        code = path.read_bytes().decode()
    except OSError as error:
        raise ProgramNotFoundError(str(path), f"it cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ProgramNotFoundError(str(path), "it is not text in UTF-8") from None
    return lua_code(code, name=_name(path), **options)


def _name(path: Path) -> str:
    """The file's name as an id; that of its directory for an `init.lua`."""
    stem = path.resolve().parent.name if path.name == "init.lua" else path.stem
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in stem).lstrip("._-")
    return kept or "strategy"
