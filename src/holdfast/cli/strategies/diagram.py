"""The diagram of a strategy's pauses: boxes on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from holdfast.cli.output import one_line, plain, print_rich, shortened, width
from holdfast.strategies.diagram import DiagramBox, DiagramLoop, DiagramPause, Part

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.panel import Panel

_MOST_COLUMNS = 100
"""Columns of the diagram: wider boxes are hard to read."""

_NARROWEST = 30
"""The least columns of a box that stands beside others."""

_PROMPT_LINES = 3

_MOST_BOXES = 6
"""Boxes shown of one pause; the others are counted."""

_PLAIN_PROMPT = 200


def print_diagram(parts: Sequence[Part], ending: str, *, is_result: bool) -> None:
    """Print the parts in order, and the ending."""
    if sys.stdout.isatty():
        columns = min(width(), _MOST_COLUMNS)
        print_rich(_boxes(parts, ending, is_result, columns), columns)
        return
    for line in _lines(parts, ""):
        click.echo(line)
    click.echo(f"{'result' if is_result else 'failed'}: {one_line(ending, _PLAIN_PROMPT)}")


# --- lines ---------------------------------------------------------------------------------------------


def _lines(parts: Sequence[Part], indent: str) -> Iterator[str]:
    for part in parts:
        if isinstance(part, DiagramLoop):
            yield f"{indent}{part.times} times:"
            yield from _lines(part.steps, f"{indent}  ")
            continue
        for number, box in enumerate(part.boxes):
            label = f"{part.pause}." if number == 0 else " " * len(f"{part.pause}.")
            yield f"{indent}{label} {_title(box)}: {_prompt(box, _PLAIN_PROMPT)}"
            yield f"{indent}{' ' * len(label)} -> {one_line(box.answer, _PLAIN_PROMPT)}"


def _title(box: DiagramBox) -> str:
    kind = "" if box.kind in ("llm", box.label) else f" ({box.kind})"
    return f"{one_line(box.label, 40)}{kind}{f' ×{box.times}' if box.times > 1 else ''}"


def _prompt(box: DiagramBox, most: int) -> str:
    others = "" if box.is_same else f" (and {box.times - 1} like it)"
    return shortened(" ".join(plain(box.prompt).split()), most - len(others)) + others


# --- boxes ---------------------------------------------------------------------------------------------


def _boxes(parts: Sequence[Part], ending: str, is_result: bool, columns: int) -> RenderableType:
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    colour = "green" if is_result else "red"
    word = "result" if is_result else "failed"
    last_line = Text.assemble((f"■ {word} ", f"bold {colour}"), one_line(ending, columns - len(word) - 5))
    return Padding(Group(*_flow(parts, columns - 2), last_line), (0, 0, 0, 1))


def _flow(parts: Sequence[Part], columns: int) -> Iterator[RenderableType]:
    """Each part, followed by the arrow to the next."""
    from rich.text import Text

    for part in parts:
        yield _loop(part, columns) if isinstance(part, DiagramLoop) else _row(part, columns)
        yield Text("    ↓", style="dim")


def _loop(loop: DiagramLoop, columns: int) -> RenderableType:
    from rich.box import SQUARE
    from rich.console import Group
    from rich.panel import Panel
    from rich.text import Text

    inner: list[RenderableType] = []
    for number, step in enumerate(loop.steps):
        inner += [Text("    ↓", style="dim")] if number else []
        inner.append(_row(step, columns - 4))
    title = Text(f"↻ {loop.times} times", style="bold")
    return Panel(Group(*inner), title=title, title_align="left", box=SQUARE, border_style="dim", width=columns)


def _row(step: DiagramPause, columns: int) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    shown = step.boxes[:_MOST_BOXES]
    left = sum(box.times for box in step.boxes[_MOST_BOXES:])
    beside = min(len(shown), max(1, columns // _NARROWEST))
    rows: list[RenderableType] = []
    for at in range(0, len(shown), beside):
        grid = Table.grid(padding=0)
        grid.add_row(*(_panel(box, step.pause, columns // beside) for box in shown[at : at + beside]))
        rows.append(grid)
    return Group(*rows, *([Text(f"    … and {left} more at once", style="dim")] if left else []))


def _panel(box: DiagramBox, pause: int, columns: int) -> Panel:
    from rich.box import ROUNDED
    from rich.panel import Panel
    from rich.text import Text

    inner = columns - 4
    times = f" ×{box.times}" if box.times > 1 else ""
    kind = "" if box.kind in ("llm", box.label) else f" {box.kind}"
    label = one_line(box.label, max(6, inner - len(times) - len(kind) - 8))
    title = Text.assemble((f"{pause} ", "dim"), (label, "bold cyan"), (times, "bold yellow"), (kind, "dim"))
    body = Text.assemble(
        _prompt(box, inner * _PROMPT_LINES - 12), "\n", ("→ ", "green"), (one_line(box.answer, inner - 2), "dim")
    )
    return Panel(body, title=title, title_align="left", box=ROUNDED, border_style="blue", width=columns)
