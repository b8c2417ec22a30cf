"""Lua as a language of programs: packages that are found by name, and files."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

from holdfast.alc.lua.packages import BUILT_IN, find_package, find_roots, list_packages
from holdfast.alc.lua.source import (
    KIND,
    limited_program,
    lua_child,
    lua_code,
    lua_package,
    serve_packages_of,
    source_of,
)
from holdfast.alc.lua.trusted_roots import is_below
from holdfast.core.records import Program
from holdfast.core.values import Json
from holdfast.programs.errors import ProgramNotFoundError
from holdfast.programs.findings import SourceFinding
from holdfast.programs.language import Language, ProgramEntry, ProgramOptions, ProgramText, SourceText, StepLimits

_CHECK_BYTES = 64 * 1024 * 1024
"""Bytes that compiling a file of Lua may take."""

_COMPILER_ERROR = re.compile(r"^[^\n]*?:(\d+): (.*)$", re.DOTALL)


class LuaLanguage(Language):
    """Lua."""

    name = KIND
    suffix = ".lua"
    reserved = BUILT_IN

    def program(self, code: str, *, name: str, file: str, **options: Unpack[ProgramOptions]) -> Program:
        return lua_code(code, name=name, **options)

    def read_program(self, path: Path, **options: Unpack[ProgramOptions]) -> Program:
        if is_below(path, options.get("trusted", ())):
            options["trust"] = "trusted"
        return super().read_program(path, **options)

    def find_program(self, name: str, **options: Unpack[ProgramOptions]) -> Program:
        return lua_package(name, **options)

    def find_file(self, name: str, project: Path | None = None) -> Path | None:
        package = find_package(find_roots(project), name)
        return None if package is None else Path(package.directory) / "init.lua"

    def find_child(self, name: str, parent: Program) -> Program | None:
        return lua_child(name, source_of(parent))

    def with_limits(self, program: Program, limits: StepLimits) -> Program:
        return limited_program(program, limits)

    def serve_trusted(self, directories: Sequence[Path]) -> None:
        serve_packages_of(directories)

    def text_of(self, program: Program) -> ProgramText:
        source = source_of(program)
        parts = [f"package {source.package}"] if source.package is not None else [source.code or ""]
        parts += [f"\n-- module {name}\n{module.text}" for name, module in source.modules.items()]
        return ProgramText("".join(parts), source.is_unconfined)

    def project_of(self, program: Program) -> Path | None:
        project = source_of(program).roots.project
        return None if project is None else Path(project)

    def list_names(self, project: Path | None = None) -> dict[str, str]:
        """Packages are included that only running them would tell apart from libraries."""
        from holdfast.alc.packages.package_list import SYSTEM_PACKAGES

        return {
            package.name: "Lua package"
            for package in list_packages(find_roots(project))
            if (package.meta is None or package.meta.type == "runnable")
            and package.active
            and package.error is None
            and package.name not in SYSTEM_PACKAGES
        }

    async def list_programs(self, project: Path | None = None) -> list[ProgramEntry]:
        from holdfast.alc.packages.directories import PackageDirectories
        from holdfast.alc.packages.package_list import listing
        from holdfast.alc.packages.run_meta import fill_in

        found = await asyncio.to_thread(listing, PackageDirectories(project))
        found.packages = [each for each in found.packages if each.package.active and each.package.error is None]
        await fill_in(found)
        return [
            ProgramEntry(
                name=package.name,
                kind=KIND,
                description=package.meta.description or package.meta.docstring,
                category=package.meta.category,
                version=package.version,
            )
            for package in (each.package for each in found.packages)
            if package.meta is not None and package.meta.type == "runnable"
        ]

    async def describe(self, name: str, project: Path | None = None) -> dict[str, Json]:
        package = await asyncio.to_thread(lambda: find_package(find_roots(project), name))
        if package is None:
            raise ProgramNotFoundError(name, f"no package '{name}' is installed")
        text = package.meta.docstring if package.meta is not None else ""
        values = package.meta.values if package.meta is not None else {}
        return {"text": text, "meta": values, "path": package.directory}

    async def check(self, sources: Sequence[SourceText]) -> list[list[SourceFinding]]:
        """The fault that the Lua compiler finds in a source, if it finds one."""
        return [_syntax_findings(source.code) for source in sources]


def _syntax_findings(code: str) -> list[SourceFinding]:
    from holdfast.alc.lua.vm import new_runtime

    compiled = new_runtime(_CHECK_BYTES).globals()[b"load"](code.encode(), b"=source", b"t")
    if not isinstance(compiled, tuple):
        return []
    message = compiled[1].decode("utf-8", "replace")
    found = _COMPILER_ERROR.match(message)
    if found is None:
        return [SourceFinding(1, 1, "error", "syntax", message)]
    return [SourceFinding(int(found[1]), 1, "error", "syntax", found[2])]
