"""Looking at strategies without running them: types, what the sandbox lacks, `META`; for Lua, the syntax."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from holdfast.alc.lua.packages import find_package, find_roots
from holdfast.programs.errors import ProgramNotFoundError
from holdfast.programs.lookup import read_code
from holdfast.programs.parameters import Described, MetaError, filled, read_described
from holdfast.programs.sandbox.cell import cell_source
from holdfast.programs.sandbox.features import SourceFinding
from holdfast.programs.sandbox.kind import PythonKind
from holdfast.programs.sandbox.library import find_strategy
from holdfast.strategies.catalog import cost_of, samples

Language: TypeAlias = Literal["lua", "python"]

_LUA_MEMORY = 64 * 1024 * 1024
"""Bytes that compiling a file of Lua may take."""

_LUA_PLACE = re.compile(r"^[^\n]*?:(\d+): (.*)$", re.DOTALL)


class Source(msgspec.Struct, frozen=True):
    """What is to be looked at."""

    file: str
    """As it is told of: a path, or `<stdin>`."""
    language: Language
    code: str

    @property
    def name(self) -> str | None:
        """The name under which it would be run, if it is a file."""
        return Path(self.file).stem if self.file.endswith(".py") else None


class Checked(msgspec.Struct, frozen=True):
    """A source, and what was found in it."""

    source: Source
    findings: list[SourceFinding]

    @property
    def has_errors(self) -> bool:
        return any(finding.level == "error" for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        findings = msgspec.to_builtins(self.findings)
        return {"file": self.source.file, "language": self.source.language, "findings": findings}


def find_source(given: str, project: Path | None = None) -> Source:
    """A source by its file, or by the name under which it would be run; `ProgramNotFoundError` if there is none."""
    if given.endswith((".py", ".lua")):
        return Source(given, "lua" if given.endswith(".lua") else "python", read_code(Path(given)))
    package = find_package(find_roots(project), given)
    if package is not None:
        path = Path(package.directory) / "init.lua"
        return Source(str(path), "lua", read_code(path))
    found = find_strategy(given, project)
    if found is None:
        why = "it is neither FILE.py, FILE.lua nor a strategy; `holdfast strategies` and `holdfast pkg list` list those"
        raise ProgramNotFoundError(given, why)
    return Source(str(found.path), "python", read_code(found.path))


async def check(sources: Sequence[Source]) -> list[Checked]:
    """Look at each source; none is run."""
    kind = PythonKind(workers=1)
    try:
        return [Checked(source, await _findings(source, kind)) for source in sources]
    finally:
        kind.close()


async def _findings(source: Source, kind: PythonKind) -> list[SourceFinding]:
    if source.language == "lua":
        return lua_findings(source.code)
    found = await kind.checker.findings(source.code)
    # About a native strategy, or a text that is no Python, there is no more to say.
    if any(finding.rule in ("native", "invalid-syntax", "SyntaxError") for finding in found):
        return found
    return sorted([*found, *about_meta(source)], key=lambda finding: (finding.line, finding.column))


# --- Python --------------------------------------------------------------------------------------------


def about_meta(source: Source) -> list[SourceFinding]:
    """What is wrong with what a strategy says about itself, and with how it is begun."""
    found: list[SourceFinding] = []
    if cell_source(source.code).entry == "last expression":
        told = "there is no `run(ctx)`: the value of the last expression is the result"
        found.append(SourceFinding(1, 1, "warning", "no-run", told))
    line = _line_of_meta(source.code)
    try:
        described = read_described(source.code)
        if described is None:
            return found
        _check_defaults(described)
        cost_of(described.meta)
    except ValueError as error:
        return [*found, SourceFinding(line, 1, "error", "meta", str(error))]
    name = described.meta.name
    if source.name is not None and name.replace("-", "_") != source.name.replace("-", "_"):
        told = f"META calls it '{name}', but it is run by the name of its file, '{source.name}'"
        found.append(SourceFinding(line, 1, "warning", "meta-name", told))
    return found


def _check_defaults(described: Described) -> None:
    """Each default is of the type, and within the bounds, that it is the default of."""
    meta = described.meta
    defaults = {name: each.default for name, each in meta.parameters.items() if each.default is not None}
    try:
        filled(meta, {**samples(meta), **defaults})
    except ValueError as error:
        raise MetaError(f"META: a default is wrong: {error}") from None


def _line_of_meta(code: str) -> int:
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return 1
    lines = [
        node.lineno
        for node in tree.body
        if isinstance(node, ast.Assign) and any(getattr(target, "id", "") == "META" for target in node.targets)
    ]
    return lines[0] if lines else 1


# --- Lua -----------------------------------------------------------------------------------------------


def lua_findings(code: str) -> list[SourceFinding]:
    """The fault that the Lua compiler finds in a source, if it finds one."""
    from holdfast.alc.lua.vm import new_runtime

    compiled = new_runtime(_LUA_MEMORY).globals()[b"load"](code.encode(), b"=source", b"t")
    if not isinstance(compiled, tuple):
        return []
    told = compiled[1].decode("utf-8", "replace")
    placed = _LUA_PLACE.match(told)
    if placed is None:
        return [SourceFinding(1, 1, "error", "syntax", told)]
    return [SourceFinding(int(placed[1]), 1, "error", "syntax", placed[2])]
