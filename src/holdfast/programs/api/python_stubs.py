"""The API's table as Python stubs: sandboxed strategies are type-checked against them before they run, and editors that
find them as `__builtins__.pyi` know the same names."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from functools import cache

from holdfast.programs.api import CTX, GROUPS, FunctionSpec
from holdfast.programs.api.languages import described_parameters, meaning, result_keys, spoken, twin_of
from holdfast.programs.api.model import NoSpelling

PYTHON_STUB_NAME = "__builtins__.pyi"
"""Under this name, in the root of a project, Pyright takes what is in it for built in."""

_HEAD = """\
# The globals of a sandboxed Python strategy. Made from the table that documents the API.
import builtins
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, TypeVar

_T = TypeVar("_T")
"""

_WAITS = {
    "no": "",
    "host": "Pauses the session until somebody answers.",
    "engine": "Answered by the engine at once, and kept.",
}

_WIDTH = 112
"""Of the lines of docstrings, before they are indented."""


@cache
def render_python_stubs() -> str:
    """The text of the stubs."""
    lines = [_HEAD, "ctx: dict[str, Any]"]
    fields = [f"- {field.name}: {spoken(field.doc, 'python')}" for field in CTX.fields]
    lines += [*_docstring([spoken(CTX.doc, "python"), "\n".join(fields)]), ""]
    for constant in (constant for group in GROUPS for constant in group.constants):
        if isinstance(constant.python, str):
            lines += [f"{constant.name}: {constant.python}", *_docstring([spoken(constant.doc, "python")]), ""]
    areas: dict[str, dict[str, list[str]]] = {}
    for signature, paragraphs in _signatures():
        area = signature.partition("(")[0].rpartition(".")[0]
        areas.setdefault(area, {})[signature.removeprefix(f"{area}.")] = paragraphs
    for signature, paragraphs in areas.pop("").items():
        lines += [*_stub(signature, paragraphs), ""]
    for area, members in areas.items():
        lines.append(f"class _{area.capitalize()}:")
        lines += [f"    {line}".rstrip() for method in _methods(members) for line in (*method, "")]
        lines += [f"{area}: _{area.capitalize()}", ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _signatures() -> Iterator[tuple[str, list[str]]]:
    """The signatures, each with the paragraphs of its docstring."""
    for function in (function for group in GROUPS for function in group.functions):
        if isinstance(function.python, NoSpelling):
            continue
        yield function.python, [*_paragraphs(function)]
        if function.has_twin:
            text = f"As `{function.name}`, to be awaited. Calls passed to `asyncio.gather` are asked in one pause."
            yield twin_of(function.python), [text]


def _paragraphs(function: FunctionSpec) -> Iterator[str]:
    yield meaning(function, "python")
    if waits := _WAITS[function.waits]:
        yield waits
    if parameters := [f"- {name}: {spoken(doc, 'python')}" for name, doc in described_parameters(function)]:
        yield "\n".join(parameters)
    returns = [spoken(function.returns[0].doc, "python")] if function.returns and function.returns[0].doc else []
    if keys := result_keys(function):
        returns.append(f"Its keys: {', '.join(f'`{key}`' for key in keys)}.")
    if returns:
        yield f"Returns: {' '.join(returns)}"
    if function.example and function.example.python:
        yield f"```python\n{function.example.python}\n```"


def _stub(signature: str, paragraphs: list[str]) -> Iterator[str]:
    # A name without `_` in front would be one that strategies can use.
    private = re.sub(r"\bT\b", "_T", signature)
    yield f"def {private}:"
    yield from (f"    {line}".rstrip() for line in _docstring(paragraphs))


def _methods(members: dict[str, list[str]]) -> Iterator[list[str]]:
    names = "|".join(signature.partition("(")[0] for signature in members)
    for signature, paragraphs in members.items():
        name, _, rest = signature.partition("(")
        # In a class with a method `list`, `list[str]` would mean that method.
        rest = re.sub(rf"\b({names})\[", r"builtins.\1[", rest)
        yield [*_stub(f"{name}(self{'' if rest.startswith(')') else ', '}{rest}", paragraphs)]


def _docstring(paragraphs: list[str]) -> list[str]:
    text = "\n\n".join("\n".join(map(_wrapped, each.split("\n"))) for each in paragraphs).replace("\\", "\\\\")
    return f'"""{text}\n"""'.split("\n") if "\n" in text else [f'"""{text}"""']


def _wrapped(line: str) -> str:
    if len(line) <= _WIDTH:
        return line
    indent = "  " if line.startswith("- ") else ""
    return textwrap.fill(line, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
