"""Reads docstrings: the description of a function and of each parameter, in the three usual styles.

Google                     NumPy                      reST
Args:                      Parameters                 :param name: what it is
    name: what it is       ----------
                           name : str
                               what it is
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

_PARAMETERS = frozenset(["args", "arguments", "parameters", "params", "keyword args", "keyword arguments"])
_OTHERS = frozenset(
    ["returns", "return", "yields", "yield", "raises", "raise", "receives", "example", "examples", "note", "notes"]
) | frozenset(["warning", "warnings", "warns", "attributes", "methods", "references", "todo", "see also"])
_SECTIONS = _PARAMETERS | _OTHERS

_RULE = re.compile(r"(-{3,}|={3,})\s*\Z")
_GOOGLE_ITEM = re.compile(r"\*{0,2}(\w+)\s*(?:\(.*?\))?\s*:(?:\s+(.*)|)\Z")
_NUMPY_ITEM = re.compile(r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?\Z")
_REST_PARAMETER = re.compile(r":(?:param|parameter|arg|argument|key|keyword)\s+(?:.+?\s+)?\*{0,2}(\w+)\s*:\s*(.*)\Z")
_REST_FIELD = re.compile(r":(?:\w+)(?:\s+[^:]+)?:(?:\s|\Z)")


class Docstring:
    """A parsed docstring."""

    def __init__(self, text: str | None) -> None:
        self._lines = inspect.cleandoc(text or "").splitlines()
        self._said: list[str] = []
        self._of: dict[str, list[str]] = {}
        self._read()
        self.description = re.sub(r"\n{3,}", "\n\n", "\n".join(self._said)).strip()
        """Everything outside the sections about parameters, results, errors and the like."""
        self.parameters = {name: " ".join(part for part in parts if part) for name, parts in self._of.items()}
        """The description of each parameter, on one line."""

    def _read(self) -> None:
        lines = iter(enumerate(self._lines))
        section: str | None = None
        for at, line in lines:
            if _is_indented(line) and section is not None:
                continue
            header = line.strip().removesuffix(":").strip().lower()
            if header in _SECTIONS and not _is_indented(line):
                if self._has_rule(at):
                    section = "numpy"
                    body = list(self._numpy_body(at + 2))
                    if header in _PARAMETERS:
                        self._numpy(body)
                    _skip(lines, len(body) + 1)
                    continue
                if line.rstrip().endswith(":"):
                    section = "google"
                    if header in _PARAMETERS:
                        self._google(self._indented_after(at))
                    continue
            if found := _REST_PARAMETER.match(line):
                section = "rest"
                self._of[found[1]] = [found[2], *(each.strip() for each in self._continued_after(at))]
                continue
            if _REST_FIELD.match(line):
                section = "rest"
                continue
            if line.strip():
                section = None
            self._said.append(line)

    def _has_rule(self, at: int) -> bool:
        return at + 1 < len(self._lines) and _RULE.match(self._lines[at + 1]) is not None

    def _indented_after(self, at: int) -> Iterator[str]:
        for line in self._lines[at + 1 :]:
            if line.strip() and not _is_indented(line):
                return
            yield line

    def _continued_after(self, at: int) -> Iterator[str]:
        for line in self._lines[at + 1 :]:
            if not _is_indented(line):
                return
            yield line

    def _numpy_body(self, first: int) -> Iterator[str]:
        for at in range(first, len(self._lines)):
            if self._lines[at].strip().lower() in _SECTIONS and self._has_rule(at):
                return
            yield self._lines[at]

    def _google(self, body: Iterator[str]) -> None:
        base, parts = -1, None
        for line in body:
            if not line.strip():
                continue
            depth = len(line) - len(line.lstrip())
            base = depth if base < 0 else base
            found = _GOOGLE_ITEM.match(line.strip()) if depth <= base else None
            if found:
                parts = self._of[found[1]] = [found[2] or ""]
            elif parts is not None:
                parts.append(line.strip())

    def _numpy(self, body: list[str]) -> None:
        of: list[list[str]] = []
        for line in body:
            if not line.strip():
                continue
            found = _NUMPY_ITEM.match(line) if not _is_indented(line) else None
            if found:
                of = [self._of.setdefault(name.strip().lstrip("*"), []) for name in found[1].split(",")]
            else:
                for parts in of:
                    parts.append(line.strip())


def _is_indented(line: str) -> bool:
    return line[:1].isspace()


def _skip(lines: Iterator[tuple[int, str]], count: int) -> None:
    for _ in range(count):
        next(lines, None)
