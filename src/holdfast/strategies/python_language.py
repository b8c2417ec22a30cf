"""Sandboxed Python as a language of programs: strategies in files, found by name in the project, the user's own
directories and the bundled library."""

from __future__ import annotations

import keyword
from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

import msgspec

from holdfast.core.records import Program
from holdfast.core.values import Json, repaired
from holdfast.programs.errors import ProgramNotFoundError
from holdfast.programs.findings import SourceFinding
from holdfast.programs.language import Language, ProgramEntry, ProgramOptions, SourceText, StepLimits
from holdfast.programs.parameters import StrategyMeta
from holdfast.programs.sandbox.library import find_strategy, list_strategies
from holdfast.programs.sandbox.source import KIND, limited_program, python_code, source_of


class PythonLanguage(Language):
    """Sandboxed Python."""

    name = KIND
    suffix = ".py"
    reserved = frozenset(keyword.kwlist)

    def program(self, code: str, *, name: str, file: str, **options: Unpack[ProgramOptions]) -> Program:
        return python_code(
            code,
            name=name,
            file=file,
            project=options.get("project"),
            env=options.get("env"),
            deadline_s=options.get("deadline_s"),
            memory_mib=options.get("memory_mib"),
        )

    def find_program(self, name: str, **options: Unpack[ProgramOptions]) -> Program:
        found = find_strategy(name, options.get("project"))
        if found is None:
            raise ProgramNotFoundError(name, "`holdfast strategies` lists those in Python")
        return self.read_program(found.path, **options)

    def find_file(self, name: str, project: Path | None = None) -> Path | None:
        found = find_strategy(name, project)
        return None if found is None else found.path

    def with_limits(self, program: Program, limits: StepLimits) -> Program:
        return limited_program(program, limits)

    def project_of(self, program: Program) -> Path | None:
        project = source_of(program).project
        return None if project is None else Path(project)

    def list_names(self, project: Path | None = None) -> dict[str, str]:
        return {each.name: f"{each.origin} strategy" for each in list_strategies(project)}

    async def list_programs(self, project: Path | None = None) -> list[ProgramEntry]:
        """Those without a fault, except where a program of another kind has the same name and is run instead."""
        from asyncio import to_thread

        from holdfast.strategies.catalog import catalog

        return [
            ProgramEntry(
                name=each.name,
                kind=KIND,
                description=each.meta.description if each.meta is not None else "",
                category=each.category,
                calls=each.cost.formula if each.cost is not None else None,
                parameters=list(each.meta.parameters) if each.meta is not None else None,
                keywords=_keywords(each.meta),
            )
            for each in await to_thread(catalog, project)
            if each.error is None and each.hidden_by is None
        ]

    async def describe(self, name: str, project: Path | None = None) -> dict[str, Json]:
        from asyncio import to_thread

        from holdfast.strategies.catalog import find_entry

        found = await to_thread(find_entry, name, project)
        meta = msgspec.to_builtins(found.meta) if found.meta is not None else {}
        return {"text": repaired(found.doc), "meta": meta, "path": repaired(found.path)}

    async def check(self, sources: Sequence[SourceText]) -> list[list[SourceFinding]]:
        """Types, what the sandbox lacks, and `META`."""
        from holdfast.programs.sandbox.kind import PythonKind
        from holdfast.strategies.checks import python_findings

        kind = PythonKind(workers=1)
        try:
            return [await python_findings(source, kind) for source in sources]
        finally:
            kind.close()


def _keywords(meta: StrategyMeta | None) -> str:
    if meta is None:
        return ""
    paper = "" if meta.paper is None else meta.paper.title
    return f"{paper} {meta.result}"
