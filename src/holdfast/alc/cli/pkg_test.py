"""`pkg test`: run the specs of a package or a collection, and report failures."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.options import common, settings
from holdfast.cli.output import count, dim, duration, heading, plain, print_json
from holdfast.core.errors import ExitCode

if TYPE_CHECKING:
    from holdfast.alc.specs.results import FileResult, TestReport

_SAY_EVERY_S = 5.0
"""Seconds between two lines of progress if stderr is not a terminal."""


@click.command("test")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "--live", is_flag=True, help="Send every model call of a package through the engine; the spec answers it."
)
@click.option("--filter", "text", metavar="TEXT", help="Only spec files with TEXT in their path.")
@click.option(
    "--jobs", type=click.IntRange(min=1), metavar="N", help="Files at once.  [default: one per processor, up to 8]"
)
@click.option(
    "--deadline",
    type=click.FloatRange(min=0, min_open=True),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="How long one spec file may take.",
)
@common()
def test_command(directory: Path, live: bool, text: str | None, jobs: int | None, deadline: float) -> int:
    """Run the specs of the package in DIRECTORY, or of every package in it.

    Specs are spec/**/*_spec.lua and tests/**/test_*.lua. They run trusted: they may open files and start processes.
    The last line printed is the result as JSON.
    """
    from holdfast.alc.specs.discovery import discover
    from holdfast.alc.specs.runner import run_specs

    specs = discover(directory, text)
    progress = _Progress(len(specs.files))
    try:
        report = asyncio.run(run_specs(specs, live=live, jobs=jobs, deadline_s=deadline, on_file=progress.tell))
    finally:
        progress.clear()
    if not settings().json:
        _print_failures(report)
        _print_summary(report)
    print_json(report.to_json())
    return ExitCode.ENDED_BADLY if report.failed else ExitCode.OK


def _print_failures(report: TestReport) -> None:
    for file in report.files:
        if not file.failed:
            continue
        click.echo(heading(plain(file.path)))
        for failure in file.failures:
            click.echo(f"  {click.style('✗', fg='red')} {plain(failure.name)}")
            for line in plain(failure.message).splitlines():
                click.echo(f"      {line}")
            if failure.position and not failure.message.startswith(failure.position):
                click.echo(dim(f"      at {plain(failure.position)}"))
        if file.output:
            click.echo(dim("  last lines printed:"))
            for said in file.output:
                for line in plain(said).splitlines():
                    click.echo(dim(f"  | {line}"))
        click.echo()


def _print_summary(report: TestReport) -> None:
    counts = [click.style(f"{report.passed} passed", fg="green")]
    if report.failed:
        counts.append(click.style(f"{report.failed} failed", fg="red", bold=True))
    if report.pending:
        counts.append(click.style(f"{report.pending} pending", fg="yellow"))
    files = "1 file" if len(report.files) == 1 else f"{len(report.files)} files"
    click.echo(f"{', '.join(counts)} in {files} ({duration(report.duration_ms)})")
    if report.live:
        counted = report.to_json()["live"]
        calls, pauses = counted["llm_calls"], counted["pauses"]
        click.echo(dim(f"live: {count(calls, 'model call')} in {count(pauses, 'pause')}"))


class _Progress:
    """Progress on stderr: one line that is overwritten in a terminal, elsewhere a line now and then."""

    def __init__(self, files: int) -> None:
        self._files = files
        self._done = self._passed = self._failed = 0
        self._is_terminal = sys.stderr.isatty()
        self._said = time.monotonic()

    def tell(self, file: FileResult) -> None:
        self._done += 1
        self._passed += file.passed
        self._failed += file.failed
        line = f"{self._done}/{self._files} files: {self._passed} passed, {self._failed} failed"
        if self._is_terminal:
            click.echo(f"\r\x1b[K{line}", nl=False, err=True)
        elif time.monotonic() - self._said > _SAY_EVERY_S:
            self._said = time.monotonic()
            click.echo(line, err=True)

    def clear(self) -> None:
        if self._is_terminal:
            click.echo("\r\x1b[K", nl=False, err=True)
