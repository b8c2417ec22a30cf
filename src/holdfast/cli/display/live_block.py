"""Lines at the end of a terminal that are redrawn in place, and how to keep typed characters out of them."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.cli.output import coloured

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

MOST_COLUMNS = 110
"""Columns of running text: longer lines are hard to read."""


class LiveBlock:
    """The last lines that were printed. They are erased and redrawn until they are kept.

    No line is as long as the terminal is wide: a line that the terminal wraps would be counted as one row.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._size = shutil.get_terminal_size()

    def show(self, lines: Sequence[str]) -> bool:
        """Replace the lines shown so far.

        Lines that have scrolled out of the terminal stay as they are; False if one of them should have changed.
        """
        size = shutil.get_terminal_size()
        if size.columns != self._size.columns:
            self._lines = []  # the terminal has wrapped them again: nobody knows how many rows they take
        self._size = size
        gone = max(0, len(self._lines) - (size.lines - 1))
        same = next(
            (at for at, (old, new) in enumerate(zip(self._lines, lines, strict=False)) if old != new),
            min(len(self._lines), len(lines)),
        )
        kept = max(same, gone)
        up = len(self._lines) - kept
        if up or len(lines) > kept:
            back = f"\x1b[{up}A\r\x1b[J" if up else ""
            sys.stdout.write(back + "".join(f"{line}\n" for line in lines[kept:]))
            sys.stdout.flush()
        self._lines = [*self._lines[:kept], *lines[kept:]]
        return gone <= same

    def keep(self) -> None:
        """Leave the lines as they are; whatever comes next goes below them."""
        self._lines = []


class Renderer:
    """Turns what rich can draw into lines for a terminal."""

    def __init__(self) -> None:
        self._console: Console | None = None

    def lines(self, shown: RenderableType, *, indent: int = 0, is_cut: bool = False) -> list[str]:
        """Lines that fit the terminal; `is_cut` drops what does not fit instead of wrapping it."""
        console = self._console_for(shutil.get_terminal_size().columns)
        options: dict[str, Any] = {"no_wrap": True, "overflow": "ellipsis"} if is_cut else {}
        with console.capture() as drawn:
            console.print(shown, width=max(10, console.width - indent), **options)
        margin = " " * indent
        return [f"{margin}{line}".rstrip() for line in drawn.get().removesuffix("\n").split("\n")]

    @property
    def width(self) -> int:
        """The columns of a line."""
        return self._console_for(shutil.get_terminal_size().columns).width

    def _console_for(self, columns: int) -> Console:
        width = max(20, min(columns, MOST_COLUMNS) - 1)
        if self._console is None or self._console.width != width:
            from rich.console import Console
            from rich.theme import Theme

            colours: Any = "auto" if coloured() else None
            theme = Theme({"markdown.code": "cyan"})  # without rich's background, which is dark on every terminal
            self._console = Console(file=sys.stdout, width=width, color_system=colours, highlight=False, theme=theme)
        return self._console


def can_redraw() -> bool:
    """Whether standard output is a terminal on which lines can be redrawn."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


@contextlib.contextmanager
def no_echo() -> Iterator[None]:
    """Do not echo what is typed, as that would move the lines. It is read later; Ctrl-C still works."""
    import termios

    try:
        before = termios.tcgetattr(sys.stdin)
    except (OSError, ValueError, termios.error):
        yield
        return
    try:
        quiet = [*before]
        quiet[3] = before[3] & ~termios.ECHO
        termios.tcsetattr(sys.stdin, termios.TCSANOW, quiet)
        yield
    finally:
        with contextlib.suppress(OSError, termios.error):
            termios.tcsetattr(sys.stdin, termios.TCSANOW, before)
