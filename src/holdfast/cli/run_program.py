"""What `run` starts: the program, from whatever was given, and what it is started with."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack

from holdfast.cli.errors import InputError
from holdfast.cli.lookup import find_modules_here, find_program, opened
from holdfast.cli.options import parse_json, read_stdin, settings

if TYPE_CHECKING:
    from holdfast.core.records import Program
    from holdfast.programs.language import ProgramOptions

Language: TypeAlias = Literal["lua", "python"]


def program_of_new(
    given: str, language: Language | None, *, is_dry: bool = False, **options: Unpack[ProgramOptions]
) -> Program:
    """What to start: what can be found here; else what the store has run before under that name."""
    from holdfast.programs import kinds, lookup
    from holdfast.programs.errors import ProgramNotFoundError

    find_modules_here()
    if given == "-":
        return _of_stdin(language or "lua", **options)
    if language is not None and not (language == "python" and options.get("trust") == "trusted"):
        return kinds.get_language(language).read_program(Path(given), **options)
    try:
        return lookup.find_program(given, **options)
    except ProgramNotFoundError:
        if ":" in given or given.endswith((".py", ".lua")):
            raise
        before = _run_before(given, is_dry)
        if before is None:
            raise
        return before


def _of_stdin(language: Language, **options: Unpack[ProgramOptions]) -> Program:
    from holdfast.programs.kinds import get_language

    if language == "python" and options.get("trust") == "trusted":
        raise InputError("--trusted runs Python from a file, as others have to find it again; not from standard input")
    return get_language(language).program(read_stdin("the strategy"), name="stdin", file="<stdin>", **options)


def _run_before(name: str, is_dry: bool) -> Program | None:
    path = settings().url(create=True).removeprefix("sqlite:///")
    if is_dry and "://" not in path and not os.path.exists(path):
        return None  # looking would make the file

    async def find() -> Program | None:
        async with opened(create=True) as store:
            return await find_program(store, name)

    return asyncio.run(find())


def file_of_new(given: str, project: Path | None) -> str:
    """Where the source of a strategy in Python is, as it is told of."""
    from holdfast.programs.sandbox.library import find_strategy

    if given == "-":
        return "<stdin>"
    found = find_strategy(given, project)
    return given if found is None or given.endswith(".py") else str(found.path)


def ctx_of_new(task: str | None, ctx_json: str | None, fields: tuple[str, ...]) -> Any:
    """What the strategy is started with, from `--ctx`, `--set` and `--task`; the later of these win."""
    ctx = parse_json(ctx_json, "--ctx") if ctx_json is not None else None
    given = {**_fields(fields), **({} if task is None else {"task": task})}
    if not given:
        return ctx
    if ctx is not None and not isinstance(ctx, dict):
        raise InputError("--task and --set go into --ctx, so --ctx has to be a JSON object")
    return {**(ctx or {}), **given}


def _fields(given: tuple[str, ...]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for each in given:
        key, equals, text = each.partition("=")
        if not key.strip() or not equals:
            raise InputError(f"--set {each}: expected KEY=VALUE")
        try:
            fields[key.strip()] = parse_json(text, "--set") if not text.startswith("@") else text
        except InputError:
            fields[key.strip()] = text
    return fields


def env_of_new(given: tuple[str, ...]) -> dict[str, str]:
    """The values of `--env`."""
    pairs = [each.partition("=") for each in given]
    for key, equals, _ in pairs:
        if not key or not equals:
            raise InputError(f"--env {key}: expected KEY=VALUE")
    return {key: value for key, _, value in pairs}


def budget_of_new(given: tuple[str, ...]) -> dict[str, Any] | None:
    """The limits of `--budget`."""
    from holdfast.core.budget import Budget

    known = Budget.__struct_fields__
    limits: dict[str, Any] = {}
    for each in given:
        if each.lstrip().startswith("{"):
            limits |= parse_json(each, "--budget")
        else:
            key, _, value = each.partition("=")
            try:
                limits[key.strip()] = json.loads(value)
            except ValueError:
                raise InputError(f"--budget {each}: expected KEY=NUMBER, with one of {', '.join(known)}") from None
    for key in limits:
        if key not in known:
            raise InputError(f"--budget: there is no limit '{key}'; there are {', '.join(known)}")
    return limits or None
