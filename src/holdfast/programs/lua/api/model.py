"""What can be said about a function that programs call: its parameters, results, meaning, and whether it waits.

Types are written in one small notation, which is that of LuaCATS: `string`, `number`, `integer`, `boolean`, `any`,
`T[]`, `table<string, T>`, `A|B`, `"word"`, `fun(name: T): T`, `nil`, and the name of a `Shape`. Nothing else here is
about Lua, except the code of examples.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

Waits: TypeAlias = Literal["no", "host", "engine"]
"""`host`: the session pauses until somebody answers. `engine`: the engine answers at once and keeps the answer; the
session is not seen to pause. Neither can be called where a program cannot wait."""


class Field(msgspec.Struct, frozen=True):
    """A parameter, or a field of a shape."""

    name: str
    type: str
    doc: str
    optional: bool = False


class Result(msgspec.Struct, frozen=True):
    """A value that a function returns."""

    type: str
    doc: str = ""


class Example(msgspec.Struct, frozen=True):
    """A call that can be run as it is, and what it gives, as JSON. None where that depends on an answer."""

    code: str
    gives: str | None = None


class Function(msgspec.Struct, frozen=True):
    """A function, by its full name."""

    name: str
    doc: str
    parameters: tuple[Field, ...] = ()
    returns: tuple[Result, ...] = ()
    example: Example | None = None
    waits: Waits = "no"
    rest: Field | None = None
    """What may follow the parameters, any number of times."""


class Constant(msgspec.Struct, frozen=True):
    """A value that is not a function."""

    name: str
    type: str
    doc: str


class Shape(msgspec.Struct, frozen=True):
    """A table of options, or one that a function gives or takes."""

    name: str
    doc: str
    fields: tuple[Field, ...] = ()
    rest: str | None = None
    """The type of other fields that it may have, where it may."""
    base: str | None = None
    """A shape whose fields it has, too; or a type of the language."""


class Group(msgspec.Struct, frozen=True):
    """Functions that belong together."""

    name: Literal["layer0", "state", "fork", "prelude", "cards", "eval", "math", "std"]
    title: str
    doc: str
    functions: tuple[Function, ...]
    constants: tuple[Constant, ...] = ()
    shapes: tuple[Shape, ...] = ()
    is_brief: bool = False
    """Many small functions, which read best as a table."""


def need(name: str, type: str, doc: str) -> Field:
    """A parameter or field that must be there."""
    return Field(name, type, doc)


def may(name: str, type: str, doc: str) -> Field:
    """A parameter or field that may be left out."""
    return Field(name, type, doc, optional=True)
