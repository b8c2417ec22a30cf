"""The last lines on a terminal, which can be written anew; and how to keep what is typed meanwhile out of them."""

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


class Tail:
    """Lines at the end of what was printed. They are taken back and written anew, until they are kept.

    No line is as long as the terminal is wide: a row that the terminal breaks by itself would be counted as one.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._size = shutil.get_terminal_size()

    def show(self, lines: Sequence[str]) -> bool:
        """Show these lines in place of those before. False if some of those cannot be reached any more.

        What has scrolled out of the terminal stays as it is.
        """
        size = shutil.get_terminal_size()
        if size.columns != self._size.columns:
            self._lines = []  # the terminal has broken them anew: nobody knows how many rows they are
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
        """Leave the lines as they are: what is shown next stands below."""
        self._lines = []


class Pen:
    """Turns what rich can draw into lines for a terminal."""

    def __init__(self) -> None:
        self._console: Console | None = None

    def lines(self, shown: RenderableType, *, indent: int = 0, is_cut: bool = False) -> list[str]:
        """Lines as wide as the terminal and no wider; `is_cut` leaves out what does not fit, instead of wrapping it."""
        console = self._at(shutil.get_terminal_size().columns)
        options: dict[str, Any] = {"no_wrap": True, "overflow": "ellipsis"} if is_cut else {}
        with console.capture() as drawn:
            console.print(shown, width=max(10, console.width - indent), **options)
        margin = " " * indent
        return [f"{margin}{line}".rstrip() for line in drawn.get().removesuffix("\n").split("\n")]

    @property
    def width(self) -> int:
        """Columns of a line."""
        return self._at(shutil.get_terminal_size().columns).width

    def _at(self, columns: int) -> Console:
        width = max(20, min(columns, MOST_COLUMNS) - 1)
        if self._console is None or self._console.width != width:
            from rich.console import Console
            from rich.theme import Theme

            colours: Any = "auto" if coloured() else None
            theme = Theme({"markdown.code": "cyan"})  # without a background, which is dark on every terminal
            self._console = Console(file=sys.stdout, width=width, color_system=colours, highlight=False, theme=theme)
        return self._console


def can_move() -> bool:
    """Whether standard output is a terminal on which lines can be written anew."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


@contextlib.contextmanager
def unechoed() -> Iterator[None]:
    """Do not show what is typed: it would move the lines. It is read afterwards. Ctrl-C is heard as ever."""
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
