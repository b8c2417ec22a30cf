"""Printing: JSON for programs; text and times for people. Tables are in `table`."""

from __future__ import annotations

import os
import re
import sys
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click
import msgspec

if TYPE_CHECKING:
    from rich.console import RenderableType

_STATE_COLOURS = {
    "running": "cyan",
    "paused": "yellow",
    "imported": "blue",
    "completed": "green",
    "done": "green",
    "failed": "red",
    "cancelled": "magenta",
    "expired": "magenta",
    "abandoned": "magenta",
    "waiting": "yellow",
    "caller_departed": "cyan",
}

_PIPE_WIDTH = 160
"""Columns if there is no terminal."""

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def plain(text: str) -> str:
    """Text without control characters, which could drive the terminal: prompts and answers come from anywhere."""
    return _CONTROLS.sub("�", text.replace("\r\n", "\n"))


def one_line(value: object, width: int) -> str:
    """A value on one line of at most `width` characters: text as it is, anything else as JSON."""
    text = value[: width * 4] if isinstance(value, str) else msgspec.json.encode(value).decode()
    text = plain(" ".join(text.split()))
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


def shortened(text: str, most: int) -> str:
    """Text of at most `most` characters: its beginning and its end, where prompts say what they want."""
    if len(text) <= most:
        return text
    tail = most // 3
    first, last = text[: most - tail - 3], text[-tail:]
    # Whole words, unless a single word fills all of it.
    first = first.rsplit(maxsplit=1)[0] if len(first.split()) > 1 else first
    last = last.split(maxsplit=1)[1] if len(last.split()) > 1 else last
    return f"{first} … {last}"


def pretty(value: object) -> str:
    """A value in full; text as it is, anything else as indented JSON."""
    if isinstance(value, str):
        return plain(value)
    return plain(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_json(value: object) -> None:
    """Print a JSON value on one line."""
    click.echo(msgspec.json.encode(value))


def state(name: str) -> str:
    """The name of a state, in its colour."""
    return click.style(name, fg=_STATE_COLOURS.get(name), bold=True)


def state_colour(name: str) -> str:
    """The colour of a state, as rich names it; empty if it has none."""
    return _STATE_COLOURS.get(name, "")


def heading(text: str) -> str:
    return click.style(text, bold=True)


def dim(text: str) -> str:
    return click.style(text, dim=True)


def say(text: str = "", *, err: bool = False) -> None:
    """Print a line from another thread than the command's, where click does not know whether to use colours."""
    click.echo(text, err=err, color=False if os.environ.get("NO_COLOR") else None)


def count(number: int, noun: str) -> str:
    """A number of things: `1 call`, `2 calls`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def width() -> int:
    """The columns to print on."""
    if not sys.stdout.isatty():
        return _PIPE_WIDTH
    import shutil  # with all that compresses files: a command that is piped does without

    return shutil.get_terminal_size((_PIPE_WIDTH, 24)).columns


def clock(at: int) -> str:
    """A time of day, to the millisecond."""
    return _formatted(at, "%H:%M:%S.") + f"{at % 1000:03d}"


def date(at: int) -> str:
    """A date and time, to the second."""
    return _formatted(at, "%Y-%m-%d %H:%M:%S")


def _formatted(at: int, form: str) -> str:
    """A time in a form; what no calendar has, in milliseconds."""
    try:
        return datetime.fromtimestamp(at / 1000).strftime(form)
    except (ValueError, OverflowError, OSError):
        return f"{at} ms "


def ago(at: int) -> str:
    """How long ago something was, or how far in the future it is."""
    passed = int(time.time() * 1000) - at
    return f"{duration(passed)} ago" if passed >= 0 else f"in {duration(-passed)}"


def duration(ms: int) -> str:
    """A length of time, in the largest unit that fits."""
    if ms < 1000:
        return f"{ms} ms"
    for limit, unit, name in ((60, 1, "s"), (3600, 60, "min"), (48 * 3600, 3600, "h")):
        if ms / 1000 < limit:
            return f"{ms / 1000 / unit:.3g} {name}"
    return f"{ms // 86_400_000} days"


def print_rich(shown: RenderableType, columns: int | None = None) -> None:
    """Print something that rich can draw, on so many columns, or those of the terminal."""
    from rich.console import Console

    colours: Any = "auto" if coloured() else None
    console = Console(file=sys.stdout, width=columns or width(), color_system=colours, highlight=False)
    with console.capture() as printed:
        console.print(shown)
    for line in printed.get().splitlines():
        click.echo(line.rstrip())


def coloured() -> bool:
    """Whether to use colours: on a terminal, unless NO_COLOR is set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
