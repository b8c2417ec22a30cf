"""`run --dry-run`: what a strategy would ask, pause by pause."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any

import click
import msgspec

from holdfast.cli.display.events import show_error
from holdfast.cli.options import settings
from holdfast.cli.output import dim, heading, one_line, plain, pretty, print_json, shortened, state
from holdfast.core.errors import ExitCode
from holdfast.core.queries import Query

if TYPE_CHECKING:
    from holdfast.core.records import Program
    from holdfast.strategies.dry_run import DryRun, DryRunPause, DryRunQuery

_PROMPT = 480
"""Characters of a prompt that are shown without --full."""

_ANSWER = 160

_RESULT = 1200

_LANGUAGES = {"python": "sandboxed Python", "lua": "Lua", "native": "native Python"}


def show_dry_run(program: Program, ctx: Any, budget: dict[str, Any] | None, *, is_full: bool) -> int:
    """Rehearse a program, print what it asked, and return the exit code."""
    from holdfast.strategies.dry_run import dry_run

    run = asyncio.run(dry_run(program, ctx, budget=budget))
    if settings().json:
        print_json(run.to_json())
    else:
        for line in _report_lines(run, is_full):
            click.echo(line)
    return ExitCode.OK if run.error is None else ExitCode.ENDED_BADLY


def _report_lines(run: DryRun, is_full: bool) -> Iterator[str]:
    kind = _LANGUAGES.get(run.program.kind, run.program.kind)
    yield f"{heading('Dry run of ' + plain(run.program.name))}  {dim(f'{kind}; nothing is stored, nobody is asked')}"
    for name, value in run.assumed.items():
        yield dim(f"{name} was not given; {one_line(value, 60)} is used instead")
    for pause in run.pauses:
        yield ""
        at_once = f"  {dim(f'{len(pause.asked)} questions at once')}" if len(pause.asked) > 1 else ""
        yield f"{heading(f'Pause {pause.number}')}{at_once}"
        yield from _questions(pause, is_full)
    yield ""
    if run.error is not None:
        yield f"{state('failed')}\n{show_error(run.error)}"
        if run.program.kind == "python" and any(each.by == "default" for pause in run.pauses for each in pause.asked):
            yield dim('If an answer was to blame: META["script"] can hold answers that fit the prompts.')
    else:
        yield state("completed")
        yield pretty(run.result) if is_full else shortened(pretty(run.result), _RESULT)
    yield ""
    yield _totals(run)


def _questions(pause: DryRunPause, is_full: bool) -> Iterator[str]:
    """Each question, but only once if it was repeated and got the same answer."""

    def likeness(asked: DryRunQuery) -> tuple[Query, str]:
        return (msgspec.structs.replace(asked.query, id=""), repr(asked.answer))

    for _, group in groupby(pause.asked, key=likeness):
        asked = list(group)
        first = asked[0]
        ids = first.query.id if len(asked) == 1 else f"{first.query.id} … {asked[-1].query.id} ×{len(asked)}"
        tokens = f"about {_count(first.prompt_tokens, 'token')}" if first.prompt_tokens else ""
        yield f"  {click.style(ids, fg='yellow')} {dim(' · '.join(filter(None, (_kind(first), tokens))))}"
        system = getattr(first.query, "system", None)
        if system:
            yield _indented(f"{dim('system:')} {plain(system if is_full else shortened(system, _ANSWER))}")
        yield _indented(plain(first.text if is_full else shortened(first.text, _PROMPT)))
        said = first.answer if isinstance(first.answer, str) else pretty(first.answer)
        lines = plain(said if is_full else shortened(said, _ANSWER)).split("\n")
        by = dim("  (by default)") if first.by == "default" else ""
        yield f"  {click.style('→', fg='green')} " + "\n    ".join(lines) + by


def _kind(asked: DryRunQuery) -> str:
    return " · ".join(filter(None, (asked.query.kind, asked.role)))


def _indented(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.split("\n"))


def _totals(run: DryRun) -> str:
    calls = _count(run.llm_calls, "model call")
    others = f" and {_count(run.other_calls, 'other question')}" if run.other_calls else ""
    totals = (
        f"{calls}{others} in {_count(len(run.pauses), 'pause')}, about {_count(run.prompt_tokens, 'prompt token')}."
    )
    return totals + (dim(f" META says at most {_count(run.most_calls, 'call')}.") if run.most_calls is not None else "")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
