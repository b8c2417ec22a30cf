"""What a session records of its sandboxed Python program: the code, its limits, and where it looks for others. It is
JSON in `Program.source`, so that any process can run the session again."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict, Unpack

import msgspec

from holdfast.core.errors import InvalidValueError
from holdfast.core.ids import check_id
from holdfast.core.records import Program
from holdfast.core.values import check_value
from holdfast.programs.errors import ProgramNotFoundError
from holdfast.programs.language import StepLimits
from holdfast.programs.names import UNNAMED
from holdfast.programs.paths import find_project
from holdfast.programs.sandbox.limits import MAX_CODE_CHARS, MAX_DEADLINE_S, MAX_MEMORY_MIB

KIND = "python"


class PythonSource(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Everything that a session of sandboxed Python is run from. Recorded when it starts, so a replay sees the same."""

    code: str
    file: str = "strategy.py"
    """What tracebacks call it."""
    project: str | None = None
    """Where the project is whose strategies it may run by name."""
    env: dict[str, str] = {}
    """What the global `env` shows."""
    deadline_s: float | None = None
    """Seconds of computing between two questions, where it is not what the kind allows."""
    memory_mib: int | None = None
    """MiB that the interpreter may hold, where it is not what the kind allows."""


class PythonOptions(TypedDict, total=False):
    """How sandboxed Python is run, as its callers say it."""

    file: str
    project: Path | None
    env: Mapping[str, str] | None
    deadline_s: float | None
    memory_mib: int | None


def python_code(code: str, *, name: str = UNNAMED, **options: Unpack[PythonOptions]) -> Program:
    """A program of Python source text, to be run in the sandbox.

    If it defines `run(ctx)`, what that returns is the result; else the value of the last expression is.
    """
    if len(code) > MAX_CODE_CHARS:
        raise InvalidValueError("source", f"{len(code)} characters; a strategy has at most {MAX_CODE_CHARS}")
    check_value(code, "source")
    project = options.get("project") or find_project() or _here()
    source = PythonSource(
        code=code,
        file=options.get("file", f"{name}.py"),
        project=str(project.resolve()) if project is not None else None,
        env=dict(options.get("env") or {}),
        deadline_s=_within(options.get("deadline_s"), "deadline_s", MAX_DEADLINE_S),
        memory_mib=_whole(_within(options.get("memory_mib"), "memory_mib", MAX_MEMORY_MIB)),
    )
    # Interned: many sessions have the same, and it may be long.
    text = sys.intern(msgspec.json.encode(source).decode())
    return Program(kind=KIND, name=check_id(name, "strategy name"), source=text)


def limited_program(program: Program, limits: StepLimits) -> Program:
    """A recorded program with other limits."""
    source = source_of(program)
    deadline_s = _within(limits.deadline_s, "deadline_s", MAX_DEADLINE_S)
    memory_mib = _whole(_within(limits.memory_mib, "memory_mib", MAX_MEMORY_MIB))
    changed = msgspec.structs.replace(
        source,
        deadline_s=source.deadline_s if deadline_s is None else deadline_s,
        memory_mib=source.memory_mib if memory_mib is None else memory_mib,
    )
    return msgspec.structs.replace(program, source=msgspec.json.encode(changed).decode())


def _here() -> Path | None:
    """The working directory, by its full name; None if it was removed."""
    try:
        return Path.cwd()
    except OSError:
        return None


def source_of(program: Program) -> PythonSource:
    """What a session was started with; `ProgramNotFoundError` if that cannot be read."""
    try:
        return msgspec.json.decode(program.source or "", type=PythonSource)
    except msgspec.MsgspecError as error:
        raise ProgramNotFoundError(program.name, f"its source cannot be read: {error}") from None


def _within(given: float | None, what: str, most: float) -> float | None:
    if given is not None and not 0 < given <= most:
        raise InvalidValueError(what, f"must lie above 0 and be at most {most:g}, got {given:g}")
    return given


def _whole(given: float | None) -> int | None:
    return None if given is None else int(given)
