"""Checks of strategies, none of which is run: what each language finds in a source. For Python these are types, what
the sandbox lacks, and `META`."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from holdfast.programs.errors import ProgramNotFoundError
from holdfast.programs.findings import SourceFinding
from holdfast.programs.kinds import get_language, language_of_file, languages
from holdfast.programs.language import SourceText, read_code
from holdfast.programs.parameters import MetaError, StrategyDescription, filled, read_description
from holdfast.programs.sandbox.cell import cell_source
from holdfast.programs.sandbox.kind import PythonKind
from holdfast.strategies.catalog import cost_of, samples


class CheckReport(msgspec.Struct, frozen=True):
    """A source, and what was found in it."""

    source: SourceText
    findings: list[SourceFinding]

    @property
    def has_errors(self) -> bool:
        return any(finding.level == "error" for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        findings = msgspec.to_builtins(self.findings)
        return {"file": self.source.file, "language": self.source.language, "findings": findings}


def find_source(given: str, project: Path | None = None) -> SourceText:
    """A source by its file, or by the name under which it would be run; `ProgramNotFoundError` if there is none."""
    language = language_of_file(given)
    if language is not None:
        return SourceText(given, language.name, read_code(Path(given)))
    for language in languages():
        file = language.find_file(given, project)
        if file is not None:
            return SourceText(str(file), language.name, read_code(file))
    endings = ", ".join(f"FILE{language.suffix}" for language in sorted(languages(), key=lambda each: each.suffix))
    why = f"it is neither a file ({endings}) nor a strategy; `holdfast strategies` and `holdfast pkg list` list those"
    raise ProgramNotFoundError(given, why)


async def check(sources: Sequence[SourceText]) -> list[CheckReport]:
    """Look at each source; none is run."""
    findings: dict[SourceText, list[SourceFinding]] = {}
    for name in dict.fromkeys(source.language for source in sources):
        of_language = [source for source in sources if source.language == name]
        findings |= zip(of_language, await get_language(name).check(of_language), strict=True)
    return [CheckReport(source, findings[source]) for source in sources]


async def python_findings(source: SourceText, kind: PythonKind) -> list[SourceFinding]:
    """What is wrong with a strategy in Python."""
    found = await kind.checker.findings(source.code)
    # About a native strategy, or a text that is no Python, there is no more to say.
    if any(finding.rule in ("native", "invalid-syntax", "SyntaxError") for finding in found):
        return found
    return sorted([*found, *meta_findings(source)], key=lambda finding: (finding.line, finding.column))


def meta_findings(source: SourceText) -> list[SourceFinding]:
    """What is wrong with what a strategy says about itself, and with how it is begun."""
    found: list[SourceFinding] = []
    if cell_source(source.code).entry == "last expression":
        message = "there is no `run(ctx)`: the value of the last expression is the result"
        found.append(SourceFinding(1, 1, "warning", "no-run", message))
    line = _line_of_meta(source.code)
    try:
        described = read_description(source.code)
        if described is None:
            return found
        _check_defaults(described)
        cost_of(described.meta)
    except ValueError as error:
        return [*found, SourceFinding(line, 1, "error", "meta", str(error))]
    name = described.meta.name
    if source.name is not None and name.replace("-", "_") != source.name.replace("-", "_"):
        message = f"META calls it '{name}', but it is run by the name of its file, '{source.name}'"
        found.append(SourceFinding(line, 1, "warning", "meta-name", message))
    return found


def _check_defaults(described: StrategyDescription) -> None:
    """Raise if a default has not the type of its parameter, or lies outside its bounds."""
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
