"""Finds the program that a caller means: by function, name, file or package."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from holdfast.core.budget import Budget
from holdfast.core.records import Program
from holdfast.core.values import Json
from holdfast.programs.errors import ProgramNotFoundError
from holdfast.programs.kinds import find_language, language_names, language_of_file, languages
from holdfast.programs.language import ProgramOptions
from holdfast.programs.names import did_you_mean, invalid_name_reason
from holdfast.programs.registry import KIND, Function, Strategy, find, find_registered, resolve


def find_program(given: Strategy | Function | Program | str, **options: Unpack[ProgramOptions]) -> Program:
    """The program that the caller means.

    A text is the name of a native strategy, `module:name`, `FILE.py:name`, `FILE.lua`, `FILE.py` (sandboxed, unless
    trusted), or the name of a Lua package or of a Python strategy.
    """
    if isinstance(given, Program):
        return given
    if not isinstance(given, str):
        return find(given).program
    language = language_of_file(given)
    if language is not None and not (given.endswith(".py") and options.get("trust") == "trusted"):
        return language.read_program(Path(given), **options)
    try:
        return find(given).program
    except ProgramNotFoundError as unknown:
        if ":" in given or given.endswith(".py"):
            raise
        reasons = []
        for each in languages():
            try:
                return each.find_program(given, **options)
            except ProgramNotFoundError as missing:
                reasons.append(missing.why)
        names = [name for each in languages() for name in each.list_names(options.get("project"))]
        if hint := did_you_mean(given, names):
            raise ProgramNotFoundError(given, f"no strategy has that name; {hint}") from None
        raise ProgramNotFoundError(given, f"{unknown.why}, and {'; '.join(reasons)}") from None


def registered_program(name: str) -> Program:
    """The native program that is registered here under exactly this name; `ProgramNotFoundError` if none is."""
    return resolve(Program(kind=KIND, name=name)).program


def child_program(name: str, parent: Program) -> Program:
    """The program that a session means by a name: a native strategy, otherwise one found as by `find_program`, in the
    project of the session's own program.

    By name only, and nothing is imported: a name may come from anywhere, and a file would run outside every sandbox.
    """
    if (native := find_registered(name)) is not None:
        return native.program
    if ":" in name:
        raise ProgramNotFoundError(name, "no strategy has that name in this process; import its module, or serve it")
    if (why := invalid_name_reason(name)) is not None:
        raise ProgramNotFoundError(name, f"no strategy has that name: {why}")
    language = find_language(parent.kind)
    if language is None:
        return find_program(name)
    return language.find_child(name, parent) or find_program(name, project=language.project_of(parent))


def budget_in_ctx(program: Program, ctx: Json) -> Budget | None:
    """The budget that a caller put into `ctx` for a program that is source text: its valid limits; the rest is
    ignored."""
    given = ctx.get("budget") if isinstance(ctx, dict) and program.kind in language_names() else None
    if not isinstance(given, dict):
        return None
    limits = {
        name: value
        for name, value in given.items()
        if name in Budget.__struct_fields__ and name != "max_cost" and type(value) is int and value >= 0
    }
    return Budget(**limits) if limits else None
