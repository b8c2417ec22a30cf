"""`new --lua`: a Lua package to start from, and its test."""

from __future__ import annotations

import shlex
from pathlib import Path

from holdfast.alc.packages.scaffold import scaffold
from holdfast.cli.new import print_next_steps, print_written
from holdfast.cli.options import settings
from holdfast.cli.output import print_json
from holdfast.core.errors import ExitCode


def new_package(name: str, directory: Path) -> int:
    """Write a new package with a test, and say what to do next."""
    report = scaffold(name, directory)
    if settings().json:
        print_json(report)
        return ExitCode.OK
    package = directory / name
    print_written([str(package / file) for file in report.files])
    path = shlex.quote(str(package))
    print_next_steps(
        (f"holdfast check {path}/init.lua", "check it"),
        (f"holdfast pkg test {path}", "test it"),
        (f"holdfast run {path}/init.lua --task test --dry-run", "see what it would ask"),
        (f"holdfast pkg link {path}", f"so that `holdfast run {name}` finds it"),
    )
    return ExitCode.OK
