"""Markdown from a model, drawn on a terminal block by block while it arrives."""

from __future__ import annotations

import re
from typing import ClassVar

from click import unstyle
from markdown_it import MarkdownIt
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Heading, Markdown
from rich.text import Text

from holdfast.cli.display.live_block import Renderer
from holdfast.cli.output import plain

_FENCE = re.compile(r"\s{0,3}(`{3,}|~{3,})")
_ITEM = re.compile(r"([-*+]|\d{1,9}[.)])\s")
_SURE = 4
"""Characters of a line after which it is clear whether it continues a list."""


class MarkdownStream:
    """What one attempt of a model has said so far, as lines. The lines of finished blocks are not drawn again."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        self._lines: list[str] = []
        self._is_thought = False
        self._open = ""

    def add(self, text: str, *, is_thought: bool) -> None:
        """Append a piece of text."""
        if is_thought != self._is_thought:
            self._finish(len(self._open))
            self._is_thought = is_thought
        self._open += plain(text).expandtabs(4)
        while end := block_end(self._open):
            self._finish(end)

    def lines(self) -> list[str]:
        """Everything so far, as lines."""
        return [*self._lines, *self._draw(self._open)]

    def _finish(self, end: int) -> None:
        self._lines += self._draw(self._open[:end])
        self._open = self._open[end:]

    def _draw(self, text: str) -> list[str]:
        if not text.strip():
            return []
        shown = Text(text.strip(), style="dim italic") if self._is_thought else _ChatMarkdown(text)
        lines = self._renderer.lines(shown)
        while lines and not unstyle(lines[0]).strip():
            del lines[0]
        while lines and not unstyle(lines[-1]).strip():
            del lines[-1]
        return ["", *lines] if lines else []


def block_end(text: str) -> int:
    """Where the first block of a text ends, if another one has begun after it; otherwise 0.

    A block ends with an empty line, unless that line is within a code block or a list.
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


def _with_hard_breaks(text: str) -> str:
    """The text with every line break made a hard one: in chats they are meant."""
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
    """A heading on the left, like all other text."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class _ChatMarkdown(Markdown):
    """Markdown in which nothing is lost: tags are shown as text, and links with their URL."""

    elements: ClassVar = {**Markdown.elements, "heading_open": _Heading}

    def __init__(self, text: str) -> None:
        super().__init__("", code_theme="ansi_dark", hyperlinks=False)
        self.markup = _with_hard_breaks(text)
        parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
        self.parsed = parser.parse(self.markup)
