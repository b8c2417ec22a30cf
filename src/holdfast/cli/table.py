"""Tables of plain text: columns side by side, as wide as what is in them, and cut where the terminal ends.

`rich` draws more, but importing it takes a third of the time that listing sessions takes.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import click

from holdfast.cli.output import plain, state_colour, width

_GAP = "  "
"""Between two columns."""


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], states: int | None = None) -> None:
    """Print a table. The first column is never cut, and the one numbered `states` is coloured."""
    lines = [[plain(cell).replace("\n", " ") for cell in line] for line in (columns, *rows)]
    widths = _fitting([max(map(_width, column)) for column in zip(*lines, strict=True)], width())
    for number, line in enumerate(lines):
        cells = [_cut(text, columns) for text, columns in zip(line, widths, strict=True)]
        gaps = [" " * (columns - _width(cell)) for cell, columns in zip(cells, widths, strict=True)]
        if number == 0:
            cells = [click.style(cell, bold=True) for cell in cells]
        elif states is not None:
            cells[states] = click.style(cells[states], fg=state_colour(line[states]) or None)
        click.echo(_GAP.join(cell + gap for cell, gap in zip(cells, gaps, strict=True)).rstrip())


def _fitting(widths: list[int], most: int) -> list[int]:
    """The widths of columns that together are at most so wide; the widest shrink first, and the first one never."""
    fitting = list(widths)
    for _ in range(sum(widths) + len(_GAP) * (len(widths) - 1) - most):
        widest = max(range(1, len(fitting)), key=fitting.__getitem__, default=0)
        if widest == 0 or fitting[widest] == 1:
            break
        fitting[widest] -= 1
    return fitting


def _cut(text: str, columns: int) -> str:
    """Text on at most so many columns."""
    return text if _width(text) <= columns else _beginning(text, columns - 1) + "…"


def _beginning(text: str, columns: int) -> str:
    """As much of a text as fits."""
    if text.isascii():
        return text[:columns]
    taken = 0
    for number, character in enumerate(text):
        taken += _width(character)
        if taken > columns:
            return text[:number]
    return text


def _width(text: str) -> int:
    """The columns that a text takes on a terminal: some characters take two, some none."""
    if text.isascii():
        return len(text)
    return sum(_character_width(character) for character in text)


def _character_width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
