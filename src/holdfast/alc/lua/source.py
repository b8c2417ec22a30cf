"""What a session records of its Lua program: the code or the package, where modules are looked for, and whether it
needs more than the sandbox has. It is JSON in `Program.source`, so that any process can run the session again."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar, Unpack, cast, get_args

import msgspec

from holdfast.alc.lua.kept import Module, absent_names, kept_modules
from holdfast.alc.lua.limits import MAX_DEADLINE_S, MAX_MEMORY_MIB
from holdfast.alc.lua.packages import Roots, find_package, find_roots
from holdfast.alc.lua.trust import NOT_ALLOWED, allow, is_allowed, serve
from holdfast.alc.lua.trusted_roots import is_below, trusted_roots
from holdfast.core.errors import InvalidValueError
from holdfast.core.ids import check_id
from holdfast.core.records import Program
from holdfast.core.values import check_value
from holdfast.programs.errors import ProgramNotFoundError
from holdfast.programs.language import NullForm, ProgramOptions, StepLimits
from holdfast.programs.names import UNNAMED

KIND = "lua"

N = TypeVar("N", float | None, int | None)

SEEN_VARIABLES = ("ALC_SHAPE_CHECK", "HOME", "LANG", "TZ")
"""Environment variables that `os.getenv` shows in the sandbox: they choose behaviour and hold no secrets."""


NULL_VARIABLE = "HOLDFAST_LUA_NULL"
"""The environment variable that says what JSON's null is in Lua, where the caller of a program does not."""


class LuaSource(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Everything that a Lua session is run from. Recorded when it starts, so a replay sees the same."""

    code: str | None = None
    package: str | None = None
    """Instead of code: the package whose `run(ctx)` is called."""
    modules: dict[str, Module] = {}
    """What it requires, as it was when the session began."""
    absent: list[str] | None = None
    """Names in its forks and pipes that were no module then, and stay none for it. None if it began when a name that
    was no module was an error, and nothing else."""
    roots: Roots = Roots()
    """Where the others are looked for."""
    is_unconfined: bool = False
    """Whether it needs files, processes and the environment. What it is allowed, each process decides by itself."""
    variables: dict[str, str] = {}
    """What `os.getenv` shows."""
    env: dict[str, str] = {}
    """What `alc.env` shows."""
    deadline_s: float | None = None
    """Seconds of computing between two questions, where it is not what the kind allows."""
    memory_mib: int | None = None
    """MiB that the VM may hold, where it is not what the kind allows."""
    null: NullForm = "userdata"
    """What JSON's null is in it. Sessions that do not say began when it was always a value."""


def lua_code(code: str, *, name: str = UNNAMED, **options: Unpack[ProgramOptions]) -> Program:
    """A program of Lua source text. Its first return value is the result; a table with a function `run` is run."""
    check_value(code, "source")
    roots = find_roots(options.get("project"))
    if options.get("trust") == "trusted" and (trusted := options.get("trusted")):
        roots = trusted_roots(roots, trusted)
    return _program(name, _source(roots, code=code), options)


def lua_package(name: str, **options: Unpack[ProgramOptions]) -> Program:
    """The program that a package is. `ProgramNotFoundError` if there is no such package."""
    roots = find_roots(options.get("project"))
    package = find_package(roots, name)
    if package is None:
        where = ", ".join(roots.roots) or "no directories"
        raise ProgramNotFoundError(
            name, f"there is no such package in {where}; `holdfast pkg list` shows what there is"
        )
    if (trusted := options.get("trusted")) and is_below(package.directory, trusted):
        options["trust"] = "trusted"
        roots = trusted_roots(roots, trusted)
    return _program(name, _source(roots, package=name), options)


def serve_packages_of(directories: Sequence[Path]) -> None:
    """Let this process continue programs that are packages in these directories, as they are there now."""

    def served(source: LuaSource) -> LuaSource | None:
        if source.package is None:
            return None
        project = None if source.roots.project is None else Path(source.roots.project)
        roots = trusted_roots(find_roots(project), directories)
        return None if find_package(roots, source.package) is None else _source(roots, package=source.package)

    serve(served)


def lua_child(name: str, parent: LuaSource) -> Program | None:
    """The package of that name as a Lua program finds it, run with the options of its parent; None if there is none."""
    child = parent
    if not is_allowed(parent):
        raise ProgramNotFoundError(name, f"its parent {NOT_ALLOWED}")
    if name not in parent.modules:
        if find_package(parent.roots, name) is None:
            return None
        found = _source(parent.roots, package=name)
        child = msgspec.structs.replace(parent, modules=found.modules, absent=found.absent)
    return recorded_program(name, msgspec.structs.replace(child, code=None, package=name))


def _source(roots: Roots, *, code: str | None = None, package: str | None = None) -> LuaSource:
    modules = kept_modules(roots, code=code, package=package)
    absent = absent_names(roots, modules, code)
    return LuaSource(code=code, package=package, modules=modules, absent=absent, roots=roots)


def _program(name: str, source: LuaSource, options: ProgramOptions) -> Program:
    """The program, with the environment as it is now: a replay sees the same."""
    recorded = msgspec.structs.replace(
        source,
        is_unconfined=options.get("trust") == "trusted",
        variables={name: os.environ[name] for name in SEEN_VARIABLES if name in os.environ},
        env=dict(options.get("env") or {}),
        deadline_s=_limit(options.get("deadline_s"), "deadline_s", MAX_DEADLINE_S),
        memory_mib=_limit(options.get("memory_mib"), "memory_mib", MAX_MEMORY_MIB),
        null=null_form(options.get("null")),
    )
    return recorded_program(name, recorded)


def null_form(given: NullForm | None = None) -> NullForm:
    """What JSON's null is in a new program: what its caller says, else the environment, else nil."""
    form = given if given is not None else os.environ.get(NULL_VARIABLE) or "nil"
    for known in get_args(NullForm):
        if form == known:
            return cast(NullForm, known)
    raise InvalidValueError(NULL_VARIABLE, f"must be one of {', '.join(get_args(NullForm))}, got '{form}'")


def recorded_program(name: str, source: LuaSource) -> Program:
    """The program as sessions record it. This process may run it from now on, also outside of the sandbox."""
    # Interned: many sessions have the same, and it may be long.
    text = sys.intern(msgspec.json.encode(source).decode())
    if source.is_unconfined:
        allow(source)
    return Program(kind=KIND, name=check_id(name, "strategy name"), source=text)


def limited_program(program: Program, limits: StepLimits) -> Program:
    """A recorded program with other limits. Whether a process may run it is not changed by that."""
    source = source_of(program)
    deadline_s = _limit(limits.deadline_s, "deadline_s", MAX_DEADLINE_S)
    memory_mib = _limit(limits.memory_mib, "memory_mib", MAX_MEMORY_MIB)
    changed = msgspec.structs.replace(
        source,
        deadline_s=source.deadline_s if deadline_s is None else deadline_s,
        memory_mib=source.memory_mib if memory_mib is None else memory_mib,
    )
    return msgspec.structs.replace(program, source=msgspec.json.encode(changed).decode())


def _limit(given: N, what: str, most: float) -> N:
    if given is not None and not 0 < given <= most:
        raise InvalidValueError(what, f"must lie above 0 and be at most {most:g}, got {given:g}")
    return given


def source_of(program: Program) -> LuaSource:
    """What a session was started with; `ProgramNotFoundError` if that cannot be read."""
    try:
        return msgspec.json.decode(program.source or "", type=LuaSource)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ProgramNotFoundError(program.name, f"its source cannot be read: {error}") from None
