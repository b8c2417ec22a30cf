"""Finds the cell in a reply, while it streams: the first fenced block of Python, and where to cut the stream.

The rules
---------
- A cell begins with a line of at most three spaces, three or more backticks or tildes, and a label for Python.
- It ends with a line of the same characters, at least as many, and nothing else, unless the code so far ends inside a
  triple-quoted string: a report in Markdown may have fences of its own.
- A block with another label is prose. So is everything after the cell, which is not even read.
- Only whole lines count, so it does not matter how the reply was split into deltas.
"""

from __future__ import annotations

import re
import textwrap

_OPENING = re.compile(r"( {0,3})(`{3,}|~{3,})[ \t]*(?:python3?|py|repl)(?:[ \t{][^`]*)?", re.IGNORECASE)
_OTHER = re.compile(r"( {0,3})(`{3,}|~{3,})[^`]*")
_CLOSING = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*")
_QUOTES = re.compile(r"'''|\"\"\"|'|\"|#|\\")


class CellCutter:
    """Takes a reply piece by piece, and says when the cell is closed."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._rest = ""
        """The last line, as far as it has come."""
        self._fence: str | None = None
        """The fence that the cell began with, once it has begun."""
        self._indent = 0
        self._other: str | None = None
        """The fence of the block of something else that the reply is in."""
        self._code: list[str] = []
        self._string: str | None = None
        """The quotes of the triple-quoted string that the code so far ends in."""
        self.is_closed = False

    def feed(self, delta: str) -> bool:
        """Take the next piece; whether the cell is closed, so that nothing more is wanted."""
        if self.is_closed:
            return True
        *lines, self._rest = (self._rest + delta).split("\n")
        for line in lines:
            self._line(line, "\n")
            if self.is_closed:
                self._rest = ""
                return True
        return False

    def end(self) -> None:
        """The reply is over: its last line needs no line break."""
        if not self.is_closed and self._rest:
            rest, self._rest = self._rest, ""
            self._line(rest, "")

    @property
    def text(self) -> str:
        """The reply as far as it counts: up to the end of the cell, or all of it if there is none."""
        return "".join(self._text) + self._rest

    @property
    def is_open(self) -> bool:
        """Whether the reply is inside a cell."""
        return self._fence is not None and not self.is_closed

    @property
    def code(self) -> str:
        """The code of the cell."""
        return _dedented(self._code)

    @property
    def last_line(self) -> str:
        """The last line of the code that says something."""
        return next((line for line in reversed(self._code) if line.strip()), "")

    def _line(self, line: str, end: str) -> None:
        bare = line.removesuffix("\r")
        if self._fence is None:
            self._text.append(line + end)
            self._prose(bare)
        elif self._string is None and _closes(bare, self._fence):
            self._text.append(bare)
            self.is_closed = True
        else:
            self._text.append(line + end)
            self._code.append(_unindented(bare, self._indent))
            self._string = _open_string(bare, self._string)

    def _prose(self, line: str) -> None:
        opening = _OPENING.fullmatch(line)
        if opening is not None and (self._other is None or len(opening[2]) >= len(self._other)):
            self._indent, self._fence, self._other = len(opening[1]), opening[2], None
        elif self._other is not None:
            if _closes(line, self._other):
                self._other = None
        elif (other := _OTHER.fullmatch(line)) is not None:
            self._other = other[2]


def find_cell(text: str) -> CellCutter:
    """A whole reply, cut."""
    cutter = CellCutter()
    cutter.feed(text)
    cutter.end()
    return cutter


def guessed_cell(text: str) -> str | None:
    """The code of a reply without a labelled block: its only bare block, or its lines in `<code>`; None if neither is
    there. Whether it is Python is for the caller to find out."""
    lines = text.replace("\r\n", "\n").split("\n")
    marks = [number for number, line in enumerate(lines) if re.fullmatch(r" {0,3}(`{3,}|~{3,})[ \t]*", line)]
    if len(marks) == 2:
        return _dedented(lines[marks[0] + 1 : marks[1]])
    tagged = re.search(r"^[ \t]*<code>[ \t]*\n(.*?)\n[ \t]*</code>[ \t]*$", "\n".join(lines), re.DOTALL | re.MULTILINE)
    return None if tagged is None else _dedented(tagged[1].split("\n"))


def _closes(line: str, fence: str) -> bool:
    found = _CLOSING.fullmatch(line)
    return found is not None and found[1][0] == fence[0] and len(found[1]) >= len(fence)


def _unindented(line: str, indent: int) -> str:
    """A line without the spaces that its block is indented by."""
    return line[min(indent, len(line) - len(line.lstrip(" "))) :]


def _dedented(lines: list[str]) -> str:
    first = next((line for line in lines if line.strip()), "")
    code = "\n".join(lines)
    return textwrap.dedent(code) if first[:1] in (" ", "\t") else code


def _open_string(line: str, string: str | None) -> str | None:
    """The quotes of the triple-quoted string that code ends in after one more line.

    Only what decides that is read: quotes, comments and backslashes. What is inside the braces of an f-string counts as
    text, which differs from Python only for triple quotes of the same kind in there.
    """
    at = 0
    while (found := _QUOTES.search(line, at)) is not None:
        mark, at = found[0], found.end()
        if mark == "\\":
            at += 1
        elif string is not None:
            string = None if mark == string else string
        elif mark == "#":
            return None
        elif len(mark) == 3:
            string = mark
        else:
            at = _end_of_string(line, at, mark)
    return string


def _end_of_string(line: str, at: int, quote: str) -> int:
    """Where a string of one line ends: after its quote, or with the line."""
    while at < len(line):
        if line[at] == "\\":
            at += 2
        elif line[at] == quote:
            return at + 1
        else:
            at += 1
    return at
