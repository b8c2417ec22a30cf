"""`diff`: two sessions, how far they agree, and how each continues."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from holdfast.cli.engine import open_engine
from holdfast.cli.options import common, settings
from holdfast.cli.output import count, dim, heading, plain, print_json, print_rich, shortened, state, width
from holdfast.cli.parameter_types import SessionType
from holdfast.cli.session_lookup import find_session
from holdfast.core.errors import ExitCode

if TYPE_CHECKING:
    from rich.text import Text

    from holdfast.core.compare import ComparedRow, ComparedSession, ComparedStep, Comparison, ModelUsage

_SIDE_BY_SIDE = 100
"""Columns from which the two are shown side by side: with fewer, neither has room for a short sentence."""

_MOST_CHARS = 600
"""Characters shown of one question or answer; --full shows all."""

_COLOURS = {
    "asked": "yellow",
    "answered": "green",
    "assistant": "green",
    "tool": "green",
    "user": "cyan",
    "joined": "cyan",
    "failed": "red",
    "refused": "red",
}


@click.command("diff")
@click.argument("left", type=SessionType(), metavar="A")
@click.argument("right", type=SessionType(), metavar="B")
@click.option("--full", is_flag=True, help="Show all questions and answers in full.")
@common()
def diff_command(left: str, right: str, full: bool) -> int:
    """Compare two sessions: how far they agree, and how each continues from there.

    Times, costs and logs are not compared. On a wide terminal the two are shown side by side.
    """

    async def compare() -> Comparison:
        async with open_engine() as hf:
            return await hf.compare(await find_session(hf.store, left), await find_session(hf.store, right))

    comparison = asyncio.run(compare())
    if settings().json:
        print_json(comparison)
        return ExitCode.OK
    for line in _summary_lines(comparison):
        click.echo(line)
    if comparison.rows:
        click.echo()
        _print_wide(comparison, full) if width() >= _SIDE_BY_SIDE else _print_narrow(comparison, full)
    return ExitCode.OK


# --- the head --------------------------------------------------------------------------------------


def _summary_lines(found: Comparison) -> list[str]:
    lines = [_side_line("A", found.left), _side_line("B", found.right)]
    if found.descent is not None:
        lines.append(f"Both begin as {found.descent.session_id}, up to position {found.descent.position}.")
    if found.left.common:
        where = str(found.left.common)
        if found.right.common != found.left.common:
            where += f" in A, {found.right.common} in B"
        lines.append(f"They agree up to position {where}.")
    else:
        lines.append("They have nothing in common.")
    if found.difference is None:
        lines.append("There is no difference.")
    else:
        lines.append(f"{heading('The first difference:')} {plain(found.difference)}.")
    return lines


def _side_line(name: str, side: ComparedSession) -> str:
    fork = side.forked_from
    facts = [count(side.position, "record"), _spending_text(side.total)]
    facts += [f"{_spending_text(side.branch)} since"] if side.branch.llm_calls else []
    facts += [f"forked from {fork.session_id} at {fork.position}"] if fork is not None else []
    return f"{heading(name)}  {side.session_id}  {state(side.state)}  {dim(' · '.join(facts))}"


def _spending_text(spent: ModelUsage) -> str:
    cost = f", {spent.cost:.4g} spent" if spent.cost else ""
    return f"{count(spent.llm_calls, 'model call')}, {count(spent.tokens, 'token')}{cost}"


# --- the rows --------------------------------------------------------------------------------------


def _print_wide(found: Comparison, full: bool) -> None:
    """Side by side: what both have is dim, what differs is marked."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 1, 1, 0), header_style="bold", expand=True)
    table.add_column("A", ratio=1)
    table.add_column("", width=1)
    table.add_column("B", ratio=1)
    for row in found.rows:
        table.add_row(_cell(row.left, row, full), _mark(row), _cell(row.right, row, full))
    print_rich(table)


def _print_narrow(found: Comparison, full: bool) -> None:
    """One above the other; what both have is printed once."""
    for row in found.rows:
        for name, step in (("A", row.left), ("B", row.right)):
            if step is None or (row.same and name == "B"):
                continue
            text = shortened(plain(step.text), len(step.text) if full else _MOST_CHARS)
            word = click.style(_step_label(step), fg=_COLOURS.get(step.kind))
            mark = " =" if row.same else name.rjust(2)
            first, *rest = text.split("\n")
            click.echo(f"{mark} {dim(f'{step.position:>4}')}  {word}  {dim(first) if row.same else first}")
            for line in rest:
                click.echo(f"{' ' * 9}{dim(line) if row.same else line}")


def _cell(step: ComparedStep | None, row: ComparedRow, full: bool) -> Text:
    from rich.text import Text

    if step is None:
        return Text("")
    text = shortened(plain(step.text), len(step.text) if full else _MOST_CHARS)
    return Text.assemble(
        (f"{step.position:>4}  ", "dim"),
        (_step_label(step), _COLOURS.get(step.kind, "bold")),
        (f"\n{text}", "dim" if row.same else ""),
    )


def _step_label(step: ComparedStep) -> str:
    return f"{step.kind} {step.id}" if step.kind in ("asked", "answered", "failed") else step.kind


def _mark(row: ComparedRow) -> str:
    if row.same:
        return "="
    if row.left is None or row.right is None:
        return ">" if row.left is None else "<"
    return "≠"
