"""What a model writes, for a terminal: Markdown, drawn block by block while it comes."""

from __future__ import annotations

import re
from typing import ClassVar

from click import unstyle
from markdown_it import MarkdownIt
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Heading, Markdown
from rich.text import Text

from holdfast.cli.output import plain
from holdfast.cli.tail import Pen

_FENCE = re.compile(r"\s{0,3}(`{3,}|~{3,})")
_ITEM = re.compile(r"([-*+]|\d{1,9}[.)])\s")
_SURE = 4
"""Characters of a line after which it is plain whether it goes on with a list."""


class Said:
    """What one attempt of a model has said so far, as lines. Of finished blocks the lines are kept."""

    def __init__(self, pen: Pen) -> None:
        self._pen = pen
        self._lines: list[str] = []
        self._is_thought = False
        self._open = ""

    def add(self, text: str, *, is_thought: bool) -> None:
        """More of it."""
        if is_thought != self._is_thought:
            self._finish(len(self._open))
            self._is_thought = is_thought
        self._open += plain(text).expandtabs(4)
        while end := block_end(self._open):
            self._finish(end)

    def lines(self) -> list[str]:
        """All of it."""
        return [*self._lines, *self._drawn(self._open)]

    def _finish(self, end: int) -> None:
        self._lines += self._drawn(self._open[:end])
        self._open = self._open[end:]

    def _drawn(self, text: str) -> list[str]:
        if not text.strip():
            return []
        shown = Text(text.strip(), style="dim italic") if self._is_thought else Drawn(text)
        lines = self._pen.lines(shown)
        while lines and not unstyle(lines[0]).strip():
            del lines[0]
        while lines and not unstyle(lines[-1]).strip():
            del lines[-1]
        return ["", *lines] if lines else []


def block_end(text: str) -> int:
    """Where the first block of a text ends and another one has begun; 0 if none has.

    A block ends with an empty line, unless that is within a code block or a list.
    """
    fence, is_list, is_begun, is_after_gap, at = "", False, False, False, 0
    for line in text.splitlines(keepends=True):
        found = _FENCE.match(line)
        if fence:
            if found and found[1].startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
        elif not line.strip():
            is_after_gap = is_begun
        else:
            is_item = _ITEM.match(line) is not None
            is_sure = not is_list or len(line) >= _SURE or line.endswith("\n")
            if is_after_gap and is_sure and not line[0].isspace() and not (is_list and is_item):
                return at
            is_list = is_list or (is_item and not is_begun)
            fence = found[1] if found else ""
            is_begun, is_after_gap = True, False
        at += len(line)
    return 0


def _broken(text: str) -> str:
    """With every line break a real one: in chats they are meant."""
    lines, fence = [], ""
    for line in text.split("\n"):
        found = _FENCE.match(line)
        if found and (not fence or found[1].startswith(fence)):
            fence = "" if fence else found[1]
            lines.append(line)
        else:
            lines.append(line if fence or not line.strip() else f"{line}  ")
    return "\n".join(lines)


class _Heading(Heading):
    """A heading at the left, as all text is."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class Drawn(Markdown):
    """Markdown in which nothing is lost: tags are text, and links are told."""

    elements: ClassVar = {**Markdown.elements, "heading_open": _Heading}

    def __init__(self, text: str) -> None:
        super().__init__("", code_theme="ansi_dark", hyperlinks=False)
        self.markup = _broken(text)
        parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
        self.parsed = parser.parse(self.markup)
