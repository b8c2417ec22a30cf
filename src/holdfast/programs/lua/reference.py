"""The API's table as the page `docs/reference/alc-api.md`."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from holdfast.programs.lua.api import CTX, GROUPS, Field, Function, Group, Shape

_INTRODUCTION = """\
# The `alc` API

What a Lua strategy can call. This page, and the stubs for editors that `holdfast pkg types` writes, are made from one
table (`src/holdfast/programs/lua/api`), and a test holds that table against a running program.

How to run strategies is in [the how-to](../how-to/run-lua-strategies.md), what happens then in
[the concept](../concepts/lua.md).

**⏸** pauses the session until somebody answers. **⛁** is answered by the engine at once, durably; nobody sees a pause.
Neither can be called where Lua cannot wait: in the comparison of `table.sort`, the replacement of `string.gsub`,
`__tostring`, while a module is loaded by `require`, or in a coroutine of the strategy's own making. Everything else
gives its result at once.

A parameter that takes text also takes a number. `T[]` is a list, `null` is `alc.null`, `?` marks what may be left out.
"""

_WIDTH = 120

_SIGNS = {"no": "", "host": " ⏸", "engine": " ⛁"}


def render_page() -> str:
    """The text of the page."""
    lines = [_INTRODUCTION]
    for group in GROUPS:
        links = ", ".join(f"[`{name}`](#{_anchor(name)})" for name in _linked(group))
        lines.append(_item(f"- **[{group.title}](#{_anchor(group.title)})**{f': {links}' if links else ''}"))
    lines.append("")
    for group in GROUPS:
        lines += [f"## {group.title}", "", _wrapped(group.doc), ""]
        lines += _brief(group) if group.is_brief else _full(group)
        lines += _constants(group)
        lines += [line for shape in group.shapes for line in _shape(shape)]
    lines += ["## The global `ctx`", "", *_shape(CTX)]
    return "\n".join(lines).rstrip("\n") + "\n"


def _linked(group: Group) -> list[str]:
    return [] if group.is_brief else [function.name for function in group.functions]


def _anchor(heading: str) -> str:
    kept = re.sub(r"[^\w\- ]", "", heading.lower())
    return kept.replace(" ", "-")


def signature(function: Function) -> str:
    """A function as it is called: `alc.llm(prompt, opts?) -> string`."""
    names = [f"{each.name}{'?' if each.optional else ''}" for each in function.parameters]
    names += [function.rest.name] if function.rest else []
    returns = ", ".join(result.type for result in function.returns)
    return f"{function.name}({', '.join(names)}){f' -> {returns}' if returns else ''}"


def _full(group: Group) -> Iterator[str]:
    for function in group.functions:
        yield from (f"### {function.name}", "", f"`{signature(function)}`{_SIGNS[function.waits]}", "")
        yield from (_wrapped(function.doc), "")
        fields = [*function.parameters, *([function.rest] if function.rest else [])]
        told = [result for result in function.returns if result.doc]
        yield from (_row(field) for field in fields)
        yield from (_item(f"- gives `{result.type}`: {result.doc}") for result in told)
        if fields or told:
            yield ""
        if function.example is not None:
            gives = f"  --> {function.example.gives}" if function.example.gives not in (None, "null") else ""
            yield from ("```lua", f"{function.example.code}{gives}", "```", "")


def _brief(group: Group) -> Iterator[str]:
    yield from ("| function | what it gives | example |", "|---|---|---|")
    for function in group.functions:
        cells = [f"`{signature(function)}`", _told(function), _example(function)]
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    yield ""


def _told(function: Function) -> str:
    limits = [f"`{each.name}`: {each.doc[0].lower()}{each.doc[1:].rstrip('.')}" for each in function.parameters]
    return function.doc + (f" ({'; '.join(limits)})" if limits else "")


def _example(function: Function) -> str:
    if function.example is None or function.example.gives is None:
        return ""
    return f"`{function.example.code}` → `{function.example.gives}`"


def _constants(group: Group) -> Iterator[str]:
    for constant in group.constants:
        yield from (f"### {constant.name}", "", f"`{constant.type}`: {constant.doc}", "")


def _shape(shape: Shape) -> Iterator[str]:
    base = f" With the fields of `{shape.base}`." if shape.base else ""
    rest = " It may have other fields." if shape.rest else ""
    yield from (_wrapped(f"**{shape.name}**: {shape.doc}{base}{rest}"), "")
    if shape.fields:
        yield from (*(_row(field) for field in shape.fields), "")


def _row(field: Field) -> str:
    return _item(f"- `{field.name}`{' ?' if field.optional else ''} `{field.type}`: {field.doc}")


def _wrapped(text: str) -> str:
    return textwrap.fill(text, _WIDTH, break_long_words=False, break_on_hyphens=False)


def _item(text: str) -> str:
    return textwrap.fill(text, _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
