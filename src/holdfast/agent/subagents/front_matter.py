"""Front matter: the settings at the head of a Markdown file, in the plain part of YAML that such files use.

    ---
    name: researcher
    tools: [search, read_page]      # or one `- item` a line
    budget:
      max_tokens: 20000
    ---
    The text.

Values are text (quoted or not), numbers, `true`, `false`, `null`, lists of those, and one level of settings beneath a
setting. Anything else is an error with its line, and never guessed at. There is no YAML parser in the base install, and
a dozen keys are no reason for one.
"""

from __future__ import annotations

import re

from holdfast.core.values import Json

_FENCE = "---"
_KEY = re.compile(r"([A-Za-z_][A-Za-z0-9_-]*):(?:[ \t]+(.*))?$")
_WORDS: dict[str, Json] = {"true": True, "false": False, "null": None, "~": None}
_SPECIAL = "&*!|>%@`{"
"""What begins a value that means something else in YAML."""


class FrontMatterError(ValueError):
    """Front matter that cannot be read."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(f"line {line}: {why}")


def split_front_matter(text: str) -> tuple[dict[str, Json], str]:
    """The settings of a file, and the text after them. Raises `FrontMatterError`."""
    lines = text.removeprefix("\ufeff").splitlines()
    if not lines or lines[0].rstrip() != _FENCE:
        raise FrontMatterError(1, "the file begins with its settings, between two lines of '---'")
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == _FENCE), None)
    if end is None:
        raise FrontMatterError(len(lines), "the settings have no end: add a line of '---' after them")
    return _Reader(lines[1:end]).settings(), "\n".join(lines[end + 1 :]).strip()


class _Reader:
    def __init__(self, lines: list[str]) -> None:
        numbered = ((number, _uncommented(line)) for number, line in enumerate(lines, 2))
        self._lines = [(number, line) for number, line in numbered if line.strip()]
        self._next = 0

    def settings(self) -> dict[str, Json]:
        found = self._block(0)
        if self._next < len(self._lines):
            raise FrontMatterError(self._lines[self._next][0], "it is indented, and belongs to no setting")
        return found

    def _block(self, indent: int) -> dict[str, Json]:
        """The settings at one indentation."""
        found: dict[str, Json] = {}
        while self._next < len(self._lines):
            number, line = self._lines[self._next]
            if _indent(number, line) != indent:
                break
            parts = _KEY.match(line.strip())
            if parts is None:
                raise FrontMatterError(number, f"expected 'name: value', got '{line.strip()[:60]}'")
            name, value = parts[1], (parts[2] or "").strip()
            if name in found:
                raise FrontMatterError(number, f"'{name}' is set a second time")
            self._next += 1
            found[name] = _value(number, value) if value else self._below(indent)
        return found

    def _below(self, indent: int) -> Json:
        """What is written in the lines after a name: a list, settings, or nothing."""
        if self._next == len(self._lines):
            return None
        number, line = self._lines[self._next]
        depth = _indent(number, line)
        if line.lstrip().startswith("- ") and depth >= indent:
            return self._items(depth)
        if depth <= indent:
            return None
        if indent:
            raise FrontMatterError(number, "settings go one level deep")
        return self._block(depth)

    def _items(self, indent: int) -> list[Json]:
        items: list[Json] = []
        while self._next < len(self._lines):
            number, line = self._lines[self._next]
            if _indent(number, line) != indent or not line.lstrip().startswith("- "):
                break
            items.append(_scalar(number, line.lstrip()[2:].strip()))
            self._next += 1
        return items


def _uncommented(line: str) -> str:
    """A line without its comment, which begins with a '#' after a space, outside of quotes."""
    quote = ""
    for at, char in enumerate(line):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"" and (at == 0 or line[at - 1] in " ,[:"):
            quote = char
        elif char == "#" and (at == 0 or line[at - 1].isspace()):
            return line[:at]
    return line


def _indent(number: int, line: str) -> int:
    if "\t" in line[: len(line) - len(line.lstrip())]:
        raise FrontMatterError(number, "indent with spaces, not with tabs")
    return len(line) - len(line.lstrip())


def _value(number: int, text: str) -> Json:
    if not text.startswith("["):
        return _scalar(number, text)
    if not text.endswith("]"):
        raise FrontMatterError(number, "a list in brackets ends in the same line")
    inner = text[1:-1].strip()
    return [_scalar(number, each.strip()) for each in _split(inner)] if inner else []


def _split(text: str) -> list[str]:
    parts, quote, start = [], "", 0
    for at, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char == ",":
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]


def _scalar(number: int, text: str) -> Json:
    if not text:
        raise FrontMatterError(number, "a value is missing")
    if text[0] in "'\"":
        if len(text) < 2 or text[-1] != text[0] or text[0] in text[1:-1]:
            raise FrontMatterError(number, f"the quotes of {text[:60]} do not match")
        return text[1:-1]
    if text[0] in _SPECIAL or text.startswith("- "):
        raise FrontMatterError(number, f"'{text[:60]}' is not plain text; put it in quotes")
    if text in _WORDS:
        return _WORDS[text]
    if re.fullmatch(r"-?[0-9][0-9_]*", text):
        return int(text)
    return float(text) if re.fullmatch(r"-?[0-9]+\.[0-9]+", text) else text
