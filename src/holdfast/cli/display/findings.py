"""Faults in source code, shown as compilers do: with the line and a caret below it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from holdfast.cli.output import dim, heading, plain, width
from holdfast.core.errors import ExitCode

if TYPE_CHECKING:
    from holdfast.core.errors import HoldfastError
    from holdfast.core.records import Program
    from holdfast.programs.findings import SourceFinding

_COLOURS = {"error": "red", "warning": "yellow"}

_MARGIN = 7
"""Columns of the line number and the bar."""


def show_findings(file: str, code: str, findings: Sequence[SourceFinding]) -> Iterator[str]:
    """What was found in a source, as lines."""
    lines = code.splitlines()
    for finding in findings:
        location = heading(plain(f"{file}:{finding.line}:{finding.column}:"))
        level = click.style(f"{finding.level}:", fg=_COLOURS[finding.level], bold=True)
        yield f"{location} {level} {plain(finding.message)} {dim(f'[{finding.rule}]')}"
        if 1 <= finding.line <= len(lines) and lines[finding.line - 1].strip():
            text, caret = _fit(plain(lines[finding.line - 1].replace("\t", " ")), finding.column - 1)
            yield f"{dim(f'{finding.line:>4} |')} {text}"
            yield f"{dim('     |')} {' ' * caret}{click.style('^', fg=_COLOURS[finding.level], bold=True)}"


def _fit(line: str, column: int) -> tuple[str, int]:
    """The part of a line that fits and has the column, and where the column is in it."""
    room = max(20, width() - _MARGIN)
    column = min(column, len(line))
    if len(line) <= room:
        return line, column
    start = max(0, min(column - room // 2, len(line) - room))
    shown = line[start : start + room]
    head, tail = ("…" if start else ""), ("…" if start + room < len(line) else "")
    return head + shown[len(head) : room - len(tail)] + tail, column - start


def report_invalid_source(error: HoldfastError, program: Program, file: str) -> int:
    """Print on standard error why a strategy was not started, and return the exit code."""
    from holdfast.programs.sandbox.check import InvalidSourceError
    from holdfast.programs.sandbox.source import source_of

    assert isinstance(error, InvalidSourceError)
    colour = False if os.environ.get("NO_COLOR") else None
    count = "1 fault" if len(error.findings) == 1 else f"{len(error.findings)} faults"
    head = f"{click.style('holdfast:', fg='red')} strategy '{plain(error.name)}' was not started: it has {count}"
    for line in (head, *show_findings(file, source_of(program).code, error.findings)):
        click.echo(line, err=True, color=colour)
    return ExitCode.BAD_INPUT
