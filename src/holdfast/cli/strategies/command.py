"""`strategies`: list the strategies in Python, and show what each does and asks."""

from __future__ import annotations

import asyncio
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options import json_option, project_option, settings
from holdfast.cli.output import count, dim, heading, one_line, plain, print_json, print_rich, width
from holdfast.cli.parameter_types import StrategyType
from holdfast.core.errors import ExitCode

if TYPE_CHECKING:
    from rich.text import Text

    from holdfast.programs.parameters import Parameter
    from holdfast.strategies.catalog import Cost, StrategyEntry
    from holdfast.strategies.dry_run import DryRun

_UNCUT = 10_000
"""Columns if the output is piped: each strategy stays on its line."""

_FORMULA_COLUMNS = 22
"""Columns of a cost formula on a terminal; `show` prints it in full."""

_NARROW = 90
"""Columns below which formulas and origins are left out, to make room for the descriptions."""

_LONG_DEFAULT = 16
"""Characters from which a default is printed after the description."""

_DOC_COLUMNS = 100
"""Columns of a docstring: longer lines are hard to read."""

_project = project_option("The project whose strategies are listed.  [default: the nearest around this directory]")


@click.group("strategies", invoke_without_command=True)
@click.option("--category", metavar="NAME", help="Only strategies of this category, such as reasoning.")
@_project
@json_option
@click.pass_context
def strategies_command(ctx: click.Context, category: str | None, project: Path | None) -> int:
    """List the strategies in Python that can be run by name: bundled, the user's, and the project's.

    CALLS is the largest number of model calls that a strategy makes, by default and as a formula of its parameters.
    """
    if ctx.invoked_subcommand is not None:
        return ExitCode.OK
    from holdfast.strategies.catalog import catalog

    listed = catalog(project, category=category)
    if settings().json:
        print_json({"strategies": [each.to_json() for each in listed]})
        return ExitCode.OK
    if listed:
        _print_table(listed)
    else:
        click.echo(f"No strategies in the category '{plain(category)}'." if category else "No strategies.")
    click.echo(dim("\nDetails: holdfast strategies show NAME. Lua packages: holdfast pkg list"))
    return ExitCode.OK


def _print_table(listed: list[StrategyEntry]) -> None:
    """On a terminal, grouped by category with formulas cut to fit; elsewhere, one full line for each strategy."""
    from rich.table import Table
    from rich.text import Text

    is_terminal = sys.stdout.isatty()
    is_narrow = is_terminal and width() < _NARROW
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    columns = [
        "NAME",
        *([] if is_terminal else ["CATEGORY"]),
        "CALLS",
        *([] if is_narrow else ["FROM"]),
        "WHAT IT DOES",
    ]
    for column in columns:
        cut = (len("CALLS") if is_narrow else _FORMULA_COLUMNS) if is_terminal and column == "CALLS" else None
        table.add_column(column, no_wrap=not is_terminal or column != columns[-1], overflow="ellipsis", max_width=cut)
    category = None
    for each in listed:
        if is_terminal and each.category != category:
            category = each.category
            table.add_row(*([""] if table.rows else []))
            table.add_row(Text(plain(category), style="bold cyan"))
        name = Text(("  " if is_terminal else "") + plain(each.name))
        category_cell = [] if is_terminal else [plain(each.category)]
        calls = _cost_text(each.cost).partition(" = ")[0] if is_narrow else _cost_text(each.cost)
        table.add_row(name, *category_cell, Text(calls), *([] if is_narrow else [each.origin]), _description(each))
    print_rich(table, None if is_terminal else _UNCUT)


def _description(listed: StrategyEntry) -> Text:
    from rich.text import Text

    text = Text(plain(listed.meta.description)) if listed.meta is not None else Text("no META", style="dim")
    if listed.error is not None:
        text = Text(plain(f"fault: {listed.error}"), style="red")
    if listed.hidden_by is not None:
        text.append(" (hidden by the Lua package of the same name)", style="yellow")
    return text


def _cost_text(cost: Cost | None) -> str:
    if cost is None:
        return "-"
    if cost.by_default is None or str(cost.by_default) == cost.formula:
        return plain(cost.formula)
    return plain(f"{cost.by_default} = {cost.formula}")


# --- show ----------------------------------------------------------------------------------------------


@strategies_command.command("show")
@click.argument("name", type=StrategyType())
@_project
@json_option
def show_command(name: str, project: Path | None) -> int:
    """Show what a strategy does, its parameters, its cost, and a diagram of its pauses.

    The diagram comes from a rehearsal with answers that the author wrote: nothing is stored, nobody is asked.
    """
    from holdfast.strategies.catalog import find_entry
    from holdfast.strategies.diagram import diagram, diagram_json
    from holdfast.strategies.dry_run import dry_run
    from holdfast.strategies.python_language import PythonLanguage

    listed = find_entry(name, project)
    run = None
    if listed.error is None:
        run = asyncio.run(dry_run(PythonLanguage().read_program(Path(listed.path), project=project)))
    if settings().json:
        print_json(
            {**listed.to_json(), "rehearsal": _rehearsal_to_json(run, diagram_json(diagram(run))) if run else None}
        )
        return ExitCode.OK
    _print_details(listed)
    if run is None:
        return ExitCode.OK
    from holdfast.cli.strategies.diagram import print_diagram

    click.echo(f"\n{heading('Pauses')}  {dim(_rehearsal_line(listed, run))}")
    result = run.result.get("result") if isinstance(run.result, dict) and "result" in run.result else run.result
    ending = run.error if run.error is not None else result if isinstance(result, str) else one_line(result, 300)
    print_diagram(diagram(run), ending, is_result=run.error is None)
    return ExitCode.OK


def _rehearsal_to_json(run: DryRun, parts: list[dict[str, Any]]) -> dict[str, Any]:
    fields = run.to_json()
    return {"diagram": parts, **{key: fields[key] for key in ("totals", "result", "error") if key in fields}}


def _rehearsal_line(listed: StrategyEntry, run: DryRun) -> str:
    script = "the script in its META" if listed.meta is not None and listed.meta.script else "the same answer to all"
    calls, pauses = count(run.llm_calls, "call"), count(len(run.pauses), "pause")
    return f"a rehearsal with {script}: {calls} in {pauses}"


def _print_details(listed: StrategyEntry) -> None:
    meta = listed.meta
    click.echo(f"{heading(plain(listed.name))}  {dim(f'{listed.category} · {listed.origin} · {listed.path}')}")
    if listed.error is not None:
        click.echo(click.style(f"fault: {plain(listed.error)}", fg="red"))
    if listed.hidden_by is not None:
        click.echo(click.style(f"hidden: the Lua package {plain(listed.hidden_by)} is run instead", fg="yellow"))
    if meta is None:
        if listed.error is None:
            click.echo("It has no META, so there is no description.")
        return
    click.echo(plain(meta.description))
    if listed.doc:
        click.echo(f"\n{_reflowed(plain(listed.doc))}")
    if meta.parameters:
        click.echo(f"\n{heading('Parameters')}")
        _print_facts([(name, _type_text(each), _parameter_text(each)) for name, each in meta.parameters.items()])
    facts: list[tuple[str, ...]] = []
    if listed.cost is not None:
        facts.append(("calls", f"at most {_cost_text(listed.cost)}"))
    if meta.result:
        facts.append(("result", meta.result))
    if meta.paper is not None:
        paper = meta.paper
        facts.append(("paper", f"{paper.authors} ({paper.year}): {paper.title}. {paper.url}"))
    if facts:
        click.echo(f"\n{heading('Facts')}")
        _print_facts(facts)


def _reflowed(doc: str) -> str:
    """A docstring as wide as the terminal. Lists and indented text stay as they are."""
    if not sys.stdout.isatty():
        return doc
    paragraphs = []
    for paragraph in doc.split("\n\n"):
        is_prose = not any(line.startswith((" ", "-", "*", "|", "`")) for line in paragraph.split("\n"))
        paragraphs.append(textwrap.fill(paragraph, min(width(), _DOC_COLUMNS)) if is_prose else paragraph)
    return "\n\n".join(paragraphs)


def _print_facts(rows: list[tuple[str, ...]]) -> None:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    for number in range(len(rows[0])):
        table.add_column(no_wrap=number < len(rows[0]) - 1)
    for name, *others in rows:
        table.add_row(Text(plain(name), style="cyan"), *(Text(plain(each)) for each in others))
    print_rich(Padding(table, (0, 0, 0, 2)), width() if sys.stdout.isatty() else _UNCUT)


def _type_text(parameter: Parameter) -> str:
    if parameter.required:
        return f"{parameter.type}, required"
    default = _default_text(parameter)
    return f"{parameter.type} = {default}" if default and len(default) <= _LONG_DEFAULT else parameter.type


def _parameter_text(parameter: Parameter) -> str:
    sentences = [parameter.description]
    low, high = parameter.min, parameter.max
    if parameter.choices:
        sentences.append(f"One of {', '.join(str(choice) for choice in parameter.choices)}.")
    elif low is not None and high is not None:
        sentences.append(f"{_number_text(low)} to {_number_text(high)}.")
    elif low is not None or high is not None:
        sentences.append(f"At least {_number_text(low)}." if low is not None else f"At most {_number_text(high or 0)}.")
    default = _default_text(parameter)
    if len(default) > _LONG_DEFAULT:
        sentences.append(f"Default: {default}")
    return " ".join(sentences)


def _default_text(parameter: Parameter) -> str:
    return "" if parameter.default is None else one_line(parameter.default, 300)


def _number_text(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)
