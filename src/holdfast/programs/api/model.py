"""How a function that programs call is described: what it means, its parameters and results, whether it waits, and how
each language spells it.

There are three languages: `lua` (the global `alc`), `python` (the globals of a sandboxed strategy) and `native` (the
`ctx` of a trusted one). A meaning is written once, for all of them:

- Types are written in one small notation, which is that of LuaCATS: `string`, `number`, `integer`, `boolean`, `any`,
  `T[]`, `table<string, T>`, `A|B`, `"word"`, `fun(name: T): T`, `nil`, and the name of a `ShapeSpec`. Python's types
  are in its signature.
- In texts, `{llm}` is a function of the table, by its `name`: each language puts its own name there. `{nil|None}` is
  for words that differ: Lua's, then Python's. What is about one language only is a note.
- What Lua takes as a table of options, Python takes as keyword arguments: they are described as the fields of a shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

Language: TypeAlias = Literal["lua", "python", "native"]

Waits: TypeAlias = Literal["no", "host", "engine"]
"""`host`: the session pauses until somebody answers. `engine`: the engine answers at once and keeps the answer; the
session is not seen to pause. Neither can be called where a program cannot wait."""


class FieldSpec(msgspec.Struct, frozen=True):
    """A parameter, or a field of a shape."""

    name: str
    type: str
    doc: str
    optional: bool = False
    python: str = ""
    """Its name in Python, where that differs."""


class ResultSpec(msgspec.Struct, frozen=True):
    """A value that a function returns."""

    type: str
    doc: str = ""


class Example(msgspec.Struct, frozen=True):
    """A call that can be run as it stands, and its result as JSON: None where that depends on an answer."""

    lua: str = ""
    gives: str | None = None
    python: str = ""


class NoSpelling(msgspec.Struct, frozen=True):
    """In place of the spelling, where a language lacks the function: what to use instead, if anything."""

    use: str = ""


class FunctionSpec(msgspec.Struct, frozen=True):
    """A function, and how it is spelled."""

    name: str
    """As Python has it, where Python does: `llm`, `state.get`."""
    doc: str
    parameters: tuple[FieldSpec, ...] = ()
    """In the order of Lua, where Lua has it."""
    returns: tuple[ResultSpec, ...] = ()
    example: Example | None = None
    waits: Waits = "no"
    rest: FieldSpec | None = None
    """What may follow the parameters, any number of times."""
    lua: str | NoSpelling = "alc.*"
    """Its full name; the star is for `name`."""
    python: str | NoSpelling = NoSpelling()
    """Its signature, as in a stub: `vote(answers: Sequence[Any]) -> dict[str, Any]`."""
    native: str | NoSpelling | None = None
    """The signature of the method of `ctx`, where it differs from Python's; None where it does not, or where neither
    language has the function. What waits is awaited, which need not be said here."""
    python_parameters: tuple[FieldSpec, ...] = ()
    """Parameters that Lua does not have."""
    has_twin: bool = False
    """Sandboxed Python has it twice: the twin, whose name ends in `_async`, returns an awaitable of the same result."""
    notes: Mapping[Language, str] = {}
    """What is true in one language only; for `native`, what differs from Python."""


class ConstantSpec(msgspec.Struct, frozen=True):
    """A value that is not a function."""

    name: str
    type: str
    doc: str
    lua: str | NoSpelling = "alc.*"
    """Its full name; the star is for `name`."""
    python: str | NoSpelling = NoSpelling()
    """The type of the global in Python."""
    native: str | None = None
    """The Python type of the attribute of `ctx`, where there is one."""


class ShapeSpec(msgspec.Struct, frozen=True):
    """A table of options, or a table that a function returns or takes."""

    name: str
    doc: str
    fields: tuple[FieldSpec, ...] = ()
    rest: str | None = None
    """The type of other fields that it may have, where it may."""
    base: str | None = None
    """A shape whose fields it has too, or a type of the language."""


class GroupSpec(msgspec.Struct, frozen=True):
    """Functions that belong together."""

    title: str
    doc: str
    functions: tuple[FunctionSpec, ...]
    constants: tuple[ConstantSpec, ...] = ()
    shapes: tuple[ShapeSpec, ...] = ()
    is_brief: bool = False
    """Whether it holds many small functions of Lua alone, which read best as a table."""
    notes: Mapping[Language, str] = {}
    """As in a function."""


def need(name: str, type: str, doc: str, *, python: str = "") -> FieldSpec:
    """A parameter or field that must be there."""
    return FieldSpec(name, type, doc, python=python)


def may(name: str, type: str, doc: str, *, python: str = "") -> FieldSpec:
    """A parameter or field that may be left out."""
    return FieldSpec(name, type, doc, optional=True, python=python)
