"""The program that `run` starts: found by name or file, read from standard input, or run before."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, Unpack

from holdfast.cli.engine import open_store
from holdfast.cli.errors import InputError
from holdfast.cli.options import read_stdin, settings
from holdfast.cli.served import load_served
from holdfast.cli.session_lookup import find_program_run_before

if TYPE_CHECKING:
    from holdfast.core.records import Program
    from holdfast.programs.language import ProgramOptions

Language: TypeAlias = Literal["lua", "python"]


def find_program(
    name_or_file: str, language: Language | None, *, is_dry: bool = False, **options: Unpack[ProgramOptions]
) -> Program:
    """The program that can be found here; otherwise the one that the store has run before under that name."""
    from holdfast.programs import kinds, lookup
    from holdfast.programs.errors import ProgramNotFoundError

    load_served()
    if name_or_file == "-":
        return _from_stdin(language or "lua", **options)
    if language is not None and not (language == "python" and options.get("trust") == "trusted"):
        return kinds.get_language(language).read_program(Path(name_or_file), **options)
    try:
        return lookup.find_program(name_or_file, **options)
    except ProgramNotFoundError:
        if ":" in name_or_file or name_or_file.endswith((".py", ".lua")):
            raise
        before = _find_run_before(name_or_file, is_dry)
        if before is None:
            raise
        return before


def _from_stdin(language: Language, **options: Unpack[ProgramOptions]) -> Program:
    from holdfast.programs.kinds import get_language

    if language == "python" and options.get("trust") == "trusted":
        raise InputError("--trusted runs Python from a file only: other processes have to find it again")
    return get_language(language).program(read_stdin("the strategy"), name="stdin", file="<stdin>", **options)


def _find_run_before(name: str, is_dry: bool) -> Program | None:
    path = settings().url(create=True).removeprefix("sqlite:///")
    if is_dry and "://" not in path and not os.path.exists(path):
        return None  # looking would create the file

    async def find() -> Program | None:
        async with open_store(create=True) as store:
            return await find_program_run_before(store, name)

    return asyncio.run(find())


def source_file(name_or_file: str, project: Path | None) -> str:
    """The file of a strategy in Python, as messages name it."""
    from holdfast.programs.sandbox.library import find_strategy

    if name_or_file == "-":
        return "<stdin>"
    found = find_strategy(name_or_file, project)
    return name_or_file if found is None or name_or_file.endswith(".py") else str(found.path)
