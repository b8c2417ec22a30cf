"""The API's table as the page `docs/reference/api.md`."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping

from holdfast.programs.api import (
    CTX,
    GROUPS,
    ConstantSpec,
    FieldSpec,
    FunctionSpec,
    GroupSpec,
    Language,
    NoSpelling,
    ShapeSpec,
)
from holdfast.programs.api.languages import lua_name, lua_signature, native_spelling, spoken, twin_of

_INTRODUCTION = """\
# The API

What a strategy can call, in each of the three languages it may be written in:

- **Lua**: the global `alc`, in code that is run directly and in packages;
- **Python**: the globals of a sandboxed strategy. Nothing has to be imported, and nothing else can be called;
- **native**: the `ctx` of a trusted strategy, `async def run(ctx)`. Its methods take the same arguments as the
  functions of Python, and those that wait are awaited.

This page and the stubs for editors and for the type checker are made from one table (`src/holdfast/programs/api`),
which tests check against running programs. How to run Lua strategies is in
[the how-to](../how-to/run-lua-strategies.md), what happens then in [the concept](../concepts/lua.md).

**⏸** pauses the session until somebody answers. **⛁** is answered by the engine at once, durably; nobody sees a pause.
Everything else returns its result at once. Functions of the first two kinds cannot be called where the language cannot
wait. In Lua these places are the comparison of `table.sort`, the replacement of `string.gsub`, `__tostring`, a module
while `require` loads it, and coroutines that the strategy makes itself. In sandboxed Python they are the `key` of
`sorted`, `max` and `min`, the functions given to `map` and `filter`, and methods such as `__eq__` and `__str__`.

Parameters and fields are described once, in the terms of Lua: `T[]` is a list, `?` marks what may
be left out. In Lua, a parameter that takes text also takes a number. Where Python has another name, it follows in
brackets. What Lua takes as a table of options (`opts`), Python takes as keyword arguments of the same names.
"""

_WIDTH = 120

_SIGNS = {"no": "", "host": "⏸ ", "engine": "⛁ "}

_LANGUAGES: Mapping[Language, str] = {"lua": "Lua", "python": "Python", "native": "Native"}

_COLUMN = "        "
"""As wide as the names of languages before signatures."""

_NO_BREAK = "\N{NO-BREAK SPACE}"


def render_page() -> str:
    """The text of the page."""
    lines = [_INTRODUCTION]
    for group in GROUPS:
        links = ", ".join(f"[`{name}`](#{_anchor(name)})" for name in _linked(group))
        lines.append(_item(f"- **[{group.title}](#{_anchor(group.title)})**{f': {links}' if links else ''}"))
    lines.append("")
    for group in GROUPS:
        lines += [f"## {group.title}", "", _wrapped(spoken(group.doc)), "", *_notes(group.notes)]
        lines += _brief(group) if group.is_brief else _full(group)
        lines += _constants(group)
        lines += [line for shape in group.shapes for line in _shape(shape)]
    lines += ["## The global `ctx`", "", *_shape(CTX)]
    return "\n".join(lines).rstrip("\n") + "\n"


def _linked(group: GroupSpec) -> list[str]:
    return [] if group.is_brief else [function.name for function in group.functions]


def _anchor(heading: str) -> str:
    kept = re.sub(r"[^\w\- ]", "", heading.lower())
    return kept.replace(" ", "-")


def _full(group: GroupSpec) -> Iterator[str]:
    for function in group.functions:
        yield from (f"### {function.name}", "", "```text", *_spellings(function), "```", "")
        yield from (_wrapped(f"{_SIGNS[function.waits]}{spoken(function.doc)}"), "", *_notes(function.notes))
        fields = [*function.parameters, *([function.rest] if function.rest else []), *function.python_parameters]
        results = [result for result in function.returns if result.doc]
        yield from (_row(field, only_python=field in function.python_parameters) for field in fields)
        yield from (_item(f"- returns `{result.type}`: {spoken(result.doc)}") for result in results)
        if fields or results:
            yield ""
        yield from _example(function)


def _spellings(function: FunctionSpec) -> Iterator[str]:
    yield from _spelled("Lua", lua_signature(function) if lua_name(function) else function.lua)
    yield from _spelled("Python", function.python)
    if function.has_twin and isinstance(function.python, str):
        twin = twin_of(function.python)
        yield from _spelled("", f"{twin.partition('(')[0]}(…) -> {twin.rpartition(' -> ')[2]}")
    if isinstance(native := native_spelling(function), str):
        name, _, rest = native.partition("(")
        arguments = "…)" if function.native is None and not rest.startswith(")") else rest
        native = f"{'await ' if function.waits != 'no' else ''}ctx.{name}({arguments}"
    if not isinstance(function.python, NoSpelling) or native != function.python:
        yield from _spelled("native", native)


def _spelled(language: str, spelling: str | NoSpelling) -> list[str]:
    """A line of a table of spellings, or several if it is long."""
    if isinstance(spelling, NoSpelling):
        spelling = f"none; use {spelling.use}".replace("`", "") if spelling.use else "none"
    kept = _together(spelling)
    lines = textwrap.wrap(kept, _WIDTH - len(_COLUMN), subsequent_indent="    ", break_on_hyphens=False)
    labels = [language] + [""] * (len(lines) - 1)
    return [f"{label:{len(_COLUMN)}}{line}".replace(_NO_BREAK, " ") for label, line in zip(labels, lines, strict=True)]


def _together(signature: str) -> str:
    """A signature that may be broken between parameters only."""
    depth, kept = 0, ""
    for character in signature:
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(character, 0)
        may_break = kept.endswith((",", ")")) and depth <= 1
        kept += _NO_BREAK if character == " " and not may_break else character
    return kept


def _notes(notes: Mapping[Language, str]) -> Iterator[str]:
    for language, note in notes.items():
        yield from (_wrapped(f"*{_LANGUAGES[language]}:* {spoken(note)}"), "")


def _example(function: FunctionSpec) -> Iterator[str]:
    if not (example := function.example):
        return
    gives = None if example.gives is None else json.loads(example.gives)
    if example.lua:
        yield from ("```lua", example.lua + (f"  --> {example.gives}" if gives is not None else ""), "```", "")
    if example.python:
        yield from ("```py", example.python + (f"  # {gives!r}" if gives is not None else ""), "```", "")


def _brief(group: GroupSpec) -> Iterator[str]:
    yield from ("| function | what it returns | example |", "|---|---|---|")
    for function in group.functions:
        example = function.example
        shown = f"`{example.lua}` → `{example.gives}`" if example and example.gives else ""
        cells = [f"`{lua_signature(function)}`", _summary(function), shown]
        yield _table_row(cells)
    yield ""


def _summary(function: FunctionSpec) -> str:
    limits = [f"`{each.name}`: {each.doc[0].lower()}{each.doc[1:].rstrip('.')}" for each in function.parameters]
    return spoken(function.doc) + (f" ({'; '.join(limits)})" if limits else "")


def _constants(group: GroupSpec) -> Iterator[str]:
    if not group.constants:
        return
    yield from ("**Values**", "", "| Lua | Python | native | value |", "|---|---|---|---|")
    yield from map(_constant, group.constants)
    yield ""


def _constant(constant: ConstantSpec) -> str:
    lua = constant.lua.use if isinstance(constant.lua, NoSpelling) else f"`{lua_name(constant)}`"
    python = constant.python.use if isinstance(constant.python, NoSpelling) else f"`{constant.name}`"
    instead = constant.python.use if isinstance(constant.python, NoSpelling) else ""
    native = instead if constant.native is None else f"`ctx.{constant.name}`"
    return _table_row([lua, python, native, f"`{constant.type}`: {spoken(constant.doc)}"])


def _table_row(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _shape(shape: ShapeSpec) -> Iterator[str]:
    base = f" With the fields of `{shape.base}`." if shape.base else ""
    rest = " It may have other fields." if shape.rest else ""
    yield from (_wrapped(f"**{shape.name}**: {spoken(shape.doc)}{base}{rest}"), "")
    if shape.fields:
        yield from (*(_row(field) for field in shape.fields), "")


def _row(field: FieldSpec, *, only_python: bool = False) -> str:
    other = " (Python only)" if only_python else f" (`{field.python}`)" if field.python else ""
    return _item(f"- `{field.name}`{other}{' ?' if field.optional else ''} `{field.type}`: {spoken(field.doc)}")


def _wrapped(text: str) -> str:
    return textwrap.fill(text, _WIDTH, break_long_words=False, break_on_hyphens=False)


def _item(text: str) -> str:
    return textwrap.fill(text, _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
