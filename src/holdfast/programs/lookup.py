"""What a caller means by a program: a function, a name, a file, a package."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from holdfast.alc.lua import source as lua
from holdfast.alc.lua.project import check_package_name
from holdfast.alc.lua.source import LuaOptions, lua_code, lua_package
from holdfast.core.records import Program
from holdfast.programs.errors import ProgramNotFoundError
from holdfast.programs.registry import Function, Strategy, find, registered
from holdfast.programs.sandbox import source as sandbox
from holdfast.programs.sandbox.library import find_strategy
from holdfast.programs.sandbox.source import python_code

MAX_SOURCE_BYTES = 4 * 1024 * 1024
"""Bytes of a file of code: it is recorded with every session that runs it."""


def find_program(given: Strategy | Function | Program | str, **options: Unpack[LuaOptions]) -> Program:
    """The program behind whatever the caller has.

    A text is the name of a native strategy, `module:name`, `FILE.py:name`, `FILE.lua`, `FILE.py` (sandboxed, unless it
    is trusted), or the name of a Lua package or of a strategy in Python.
    """
    if isinstance(given, Program):
        return given
    if not isinstance(given, str):
        return find(given).program
    if given.endswith(".lua"):
        return lua_file(Path(given), **options)
    if given.endswith(".py") and options.get("trust") != "trusted":
        return python_file(Path(given), **options)
    try:
        return find(given).program
    except ProgramNotFoundError as unknown:
        if ":" in given or given.endswith(".py"):
            raise
        try:
            return lua_package(given, **options)
        except ProgramNotFoundError as missing:
            found = find_strategy(given, options.get("project"))
            if found is not None:
                return python_file(found.path, **options)
            why = f"{unknown.why}, and {missing.why}; `holdfast strategies` lists those in Python"
            raise ProgramNotFoundError(given, why) from None


def child_program(name: str, parent: Program) -> Program:
    """The program that a session means by a name: that of a native strategy, else as `find_program` finds it, looked
    for where the session's own program was.

    By name only: a path or `module:name` would have a sandboxed program import any Python file, outside its sandbox.
    """
    if name in registered():
        return find(name).program
    if (why := check_package_name(name)) is not None:
        raise ProgramNotFoundError(name, f"no strategy has that name: {why}")
    project: str | None = None
    match parent.kind:
        case lua.KIND:
            source = lua.source_of(parent)
            if (found := lua.lua_child(name, source)) is not None:
                return found
            project = source.roots.project
        case sandbox.KIND:
            project = sandbox.source_of(parent).project
        case _:
            pass
    return find_program(name, project=None if project is None else Path(project))


def lua_file(path: Path, **options: Unpack[LuaOptions]) -> Program:
    """The program in a file of Lua. Its text is recorded: the session does not change when the file does."""
    return lua_code(read_code(path), name=_name(path), **options)


def python_file(path: Path, **options: Unpack[LuaOptions]) -> Program:
    """The program in a file of sandboxed Python. Its text is recorded, too."""
    return python_code(
        read_code(path),
        name=_name(path),
        file=path.name,
        project=options.get("project"),
        env=options.get("env"),
        deadline_s=options.get("deadline_s"),
        memory_mib=options.get("memory_mib"),
    )


def read_code(path: Path) -> str:
    """The text of a file of code; `ProgramNotFoundError` if it cannot be had."""
    try:
        if path.stat().st_size > MAX_SOURCE_BYTES:
            raise ProgramNotFoundError(str(path), f"the file is larger than {MAX_SOURCE_BYTES} bytes")
        return path.read_bytes().decode()
    except OSError as error:
        raise ProgramNotFoundError(str(path), f"it cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ProgramNotFoundError(str(path), "it is not text in UTF-8") from None


def _name(path: Path) -> str:
    """The file's name as an id; that of its directory for an `init.lua`."""
    stem = path.resolve().parent.name if path.name == "init.lua" else path.stem
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in stem).lstrip("._-")
    return kept or "strategy"
