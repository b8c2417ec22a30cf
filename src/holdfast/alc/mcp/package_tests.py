"""`alc_pkg_test`: the specs of a package, of one file, or of a text, run in a process beside the server."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from holdfast.agent.tools.subprocesses import reap
from holdfast.alc.lua.packages import find_package
from holdfast.alc.mcp.directories import directories_of
from holdfast.alc.mcp.package_list import cleaned
from holdfast.alc.mcp.spec_child import SpecRunRequest
from holdfast.alc.packages.directories import PackageDirectories
from holdfast.alc.specs.discovery import Specs, discover, spec_files_below
from holdfast.alc.specs.errors import NoSpecsError
from holdfast.core.values import repaired
from holdfast.programs.language import MAX_SOURCE_BYTES
from holdfast.serve.mcp.directories import directory, file_below, on_files, shown
from holdfast.serve.mcp.tools import McpCall, McpTool, McpToolError, Object, Params, ProjectRoot, about

INLINE = "inline.lua"
"""What specs given as text are called in results."""

MAX_LINE_BYTES = 64 << 20
"""Bytes of one line that the child may tell: the report of a large collection that fails in every case."""


GRACE_S = 3.0
"""Seconds that the child has to end after it was asked to."""


class TestParams(Params):
    __test__ = False

    pkg: Annotated[str | None, about("The package whose spec/**/*_spec.lua and tests/**/test_*.lua are run.")] = None
    code_file: Annotated[str | None, about("One spec file to run, instead of a package.")] = None
    code: Annotated[str | None, about("Specs as Lua text, instead of a package or a file.")] = None
    spec_dir: Annotated[str | None, about("With pkg: only the *_spec.lua below this directory of the package.")] = None
    filter: Annotated[str | None, about("With pkg: only spec files that have this text in their name.")] = None
    search_paths: Annotated[list[str] | None, about("More directories in which `require` looks for packages.")] = None
    project_root: ProjectRoot = None
    live: Annotated[bool, about("Send every model call through the engine, answered by the spec's own mock.")] = False


async def alc_pkg_test(call: McpCall, params: TestParams) -> Object:
    if sum(given is not None for given in (params.pkg, params.code_file, params.code)) != 1:
        raise McpToolError("pkg_test: provide exactly one of pkg, code_file, code")
    if params.live and not call.allowed.trusts_specs:
        raise McpToolError(
            "pkg_test: live specs load modules outside of the sandbox, which whoever runs this server has to allow:"
            " `holdfast mcp --trust-specs`; without `live`, specs run in the sandbox"
        )
    where = directories_of(params.project_root)
    environ = _environ(where, params.search_paths or [])
    with tempfile.TemporaryDirectory(prefix="holdfast-spec-") as scratch:
        specs = await on_files(_specs, call, params, where, Path(scratch))
        report = await _run(
            call, SpecRunRequest.of(specs, live=params.live, is_confined=not call.allowed.trusts_specs), environ
        )
    for file in report["spec_files"]:
        file["tests"] = [
            {"suite": file["path"], "name": each["name"], "passed": False, "pending": False, "error": each["message"]}
            for each in file["failures"]
        ]
    clean: Object = cleaned(report)
    return clean


# --- what is run -----------------------------------------------------------------------------------


def _specs(call: McpCall, params: TestParams, where: PackageDirectories, scratch: Path) -> Specs:
    if params.pkg is not None:
        return _of_package(params.pkg, params, where)
    if params.code_file is not None:
        return _of_file(file_below(params.code_file, call.code_directories, "code_file"))
    code = repaired(params.code or "").encode()
    if len(code) > MAX_SOURCE_BYTES:
        raise McpToolError(f"pkg_test: the code is larger than {MAX_SOURCE_BYTES} bytes; put it into files")
    (scratch / INLINE).write_bytes(code)
    return Specs(scratch.resolve(), [scratch.resolve() / INLINE])


def _of_package(name: str, params: TestParams, where: PackageDirectories) -> Specs:
    package = find_package(where.roots(), name)
    if package is None:
        raise McpToolError(
            f"pkg_test: package '{shown(name)}' not found in the project or in {where.packages};"
            " alc_pkg_list shows what there is"
        )
    home = Path(package.directory).resolve()
    looked_in = _inside(home, params.spec_dir) if params.spec_dir is not None else home
    if params.spec_dir is None:
        try:
            found = discover(home)
        except NoSpecsError:
            found = Specs(home.parent, [], home)
    else:
        found = Specs(home.parent, sorted(spec_files_below(looked_in)), home)
    kept = [file for file in found.files if params.filter is None or params.filter in _stem(file)]
    if not kept:
        those = f" with '{shown(params.filter)}' in their name" if params.filter is not None else ""
        raise McpToolError(f"pkg_test: no spec files found in {looked_in}{those} (looked for *_spec.lua)")
    return Specs(found.root, kept, found.package)


def _inside(home: Path, inner: str) -> Path:
    """A directory of the package, and of nothing else."""
    path = (home / inner).resolve()
    if not path.is_relative_to(home):
        raise McpToolError(
            f"pkg_test: spec_dir '{shown(inner)}' leads out of the package; give a directory inside {home}"
        )
    return path


def _stem(file: Path) -> str:
    return file.stem.removesuffix("_spec")


def _of_file(file: Path) -> Specs:
    """One file. If it is a spec of a package, that can be required, as when all specs of the package are run."""
    if file.suffix != ".lua" or not os.path.isfile(file):
        raise McpToolError(f"pkg_test: failed to read {shown(str(file))}: there is no such .lua file")
    home = file.parent.parent
    if (home / "init.lua").is_file():
        return Specs(home.parent, [file], home)
    return Specs(file.parent, [file])


def _environ(where: PackageDirectories, search_paths: list[str]) -> dict[str, str]:
    """The environment of the child: packages and project are found as they are from here."""
    environ = dict(where.environ)
    more = [str(directory(each, "search_paths")) for each in search_paths]
    if any(os.pathsep in each for each in more):
        raise McpToolError(f"`search_paths`: a directory with '{os.pathsep}' in its name cannot be searched")
    if more:
        before = environ.get("HOLDFAST_PACKAGES_PATH")
        environ["HOLDFAST_PACKAGES_PATH"] = os.pathsep.join([*more, *([before] if before else [])])
    if where.root is not None:
        environ["HOLDFAST_PROJECT_ROOT"] = str(where.root)
    return environ


# --- running it ------------------------------------------------------------------------------------


async def _run(call: McpCall, job: SpecRunRequest, environ: Mapping[str, str]) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "holdfast.alc.mcp.spec_child",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=environ,
        limit=MAX_LINE_BYTES,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    report: dict[str, Any] | None = None
    try:
        process.stdin.write(msgspec.json.encode(job))
        process.stdin.close()
        done = passed = failed = 0
        async for line in process.stdout:
            match msgspec.json.decode(line):
                case {"file": dict(file)}:
                    done, passed, failed = done + 1, passed + file["passed"], failed + file["failed"]
                    counts = f"{passed} passed, {failed} failed so far"
                    await call.progress(done, len(job.files), f"{file['path']}: {counts}")
                case {"report": dict(report)}:
                    pass
                case {"error": str(why)}:
                    raise McpToolError(f"pkg_test: {why}")
                case other:
                    raise McpToolError(f"pkg_test: the process that ran the specs said something odd: {other!r}")
        code = await process.wait()
    finally:
        await _end(process)
    if report is None:
        raise McpToolError(f"pkg_test: the process that ran the specs ended early (exit code {code}); run it again")
    return report


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a process whose result nobody waits for any more. It may tidy up first, unless this is cancelled in turn."""
    if process.returncode is None:
        process.send_signal(signal.SIGINT)
        try:
            async with asyncio.timeout(GRACE_S):
                await process.wait()
        except TimeoutError:
            pass
        finally:
            if process.returncode is None:
                process.kill()
                await reap(process)


TOOL: McpTool[TestParams] = McpTool(
    "alc_pkg_test",
    "Test a strategy package",
    "Run the specs of a package, one spec file, or specs given as Lua text (exactly one of pkg, code_file, code), with"
    " `lust` (describe, it, expect) and `with_alc` at hand. Gives the counts, and for each file the tests that failed"
    " with their messages. Specs run in the sandbox, without files and processes, as strategies do; unless the server"
    " was started with --trust-specs: then they have its rights, so run only what you would run in a shell.",
    TestParams,
    alc_pkg_test,
    destructive=True,
    open_world=True,
    output={
        "type": "object",
        "properties": {
            **{name: {"type": "integer"} for name in ("passed", "failed", "pending", "total", "duration_ms")},
            "spec_files": {"type": "array", "items": {"type": "object"}},
        },
        "required": ["passed", "failed", "pending", "total", "duration_ms", "spec_files"],
    },
)
