"""How each language spells what the table has: names, signatures, and the words of texts."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Literal

from holdfast.programs.api import GROUPS
from holdfast.programs.api.model import ConstantSpec, FieldSpec, FunctionSpec, NoSpelling, ShapeSpec

TWIN = "_async"
"""What a twin's name ends with."""

_NAMED = re.compile(r"\{([a-z_0-9.]+)\}")
_WORDS = re.compile(r"\{([^{}|]*)\|([^{}|]*)\}")

_FUNCTIONS = {function.name: function for group in GROUPS for function in group.functions}
_SHAPES = {shape.name: shape for group in GROUPS for shape in group.shapes}


def lua_name(entry: FunctionSpec | ConstantSpec) -> str | None:
    """The full name in Lua; None if Lua does not have it."""
    return None if isinstance(entry.lua, NoSpelling) else entry.lua.replace("*", entry.name)


def lua_signature(function: FunctionSpec) -> str:
    """A function as Lua calls it: `alc.llm(prompt, opts?) -> string`."""
    names = [f"{each.name}{'?' if each.optional else ''}" for each in function.parameters]
    names += [function.rest.name] if function.rest else []
    returns = ", ".join(result.type for result in function.returns)
    return f"{lua_name(function)}({', '.join(names)}){f' -> {returns}' if returns else ''}"


def native_spelling(function: FunctionSpec) -> str | NoSpelling:
    """The signature as a method of `ctx`, without `ctx`."""
    return function.python if function.native is None else function.native


def definition(signature: str) -> tuple[str, ast.FunctionDef]:
    """The area and the definition that a Python signature stands for; the area is empty for a global function."""
    name, bracket, rest = signature.partition("(")
    area, _, own = name.rpartition(".")
    parsed = ast.parse(f"def {own}{bracket}{rest}: ...").body[0]
    assert isinstance(parsed, ast.FunctionDef)
    return area, parsed


def twin_of(signature: str) -> str:
    """The signature of the twin: `llm_async(prompt: str) -> Awaitable[str]`."""
    name, bracket, rest = signature.partition("(")
    arguments, arrow, result = rest.rpartition(" -> ")
    return f"{name}{TWIN}{bracket}{arguments}{arrow}Awaitable[{result}]"


def described_parameters(function: FunctionSpec) -> Iterator[tuple[str, str]]:
    """The parameters that a function has in Python, each with its description."""
    if isinstance(function.python, NoSpelling):
        return
    arguments = definition(function.python)[1].args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    every += [arguments.kwarg] if arguments.kwarg else []
    known = {each.python or each.name: each.doc for each in reversed([*_fields_of(function)])}
    for argument in every:
        yield argument.arg, known[argument.arg]


def result_keys(function: FunctionSpec) -> list[str]:
    """The keys of what a function returns, or of each item of it; none where that is not a shape of the table."""
    type = function.returns[0].type if function.returns else ""
    shape = _SHAPES.get(re.split(r"[|\[]", type)[0])
    return [field.name for field in shape.fields] if shape else []


def _fields_of(function: FunctionSpec) -> Iterator[FieldSpec]:
    """What may be a parameter in Python: those of the table, and the options in them."""
    yield from function.python_parameters
    yield from function.parameters
    if function.rest:
        yield function.rest
    for parameter in function.parameters:
        if parameter.type in _SHAPES:
            yield from _options(_SHAPES[parameter.type])


def _options(shape: ShapeSpec) -> Iterator[FieldSpec]:
    yield from shape.fields
    if shape.base in _SHAPES:
        yield from _options(_SHAPES[shape.base])


def meaning(function: FunctionSpec, language: Literal["lua", "python"]) -> str:
    """What a function does, for somebody who writes in that language."""
    return spoken(f"{function.doc} {function.notes.get(language, '')}".rstrip(), language)


def spoken(text: str, language: Literal["lua", "python"] | None = None) -> str:
    """A text of the table in the words of one language; in those of all languages if none is given."""

    def named(found: re.Match[str]) -> str:
        function = _FUNCTIONS[found[1]]
        return (lua_name(function) if language == "lua" else None) or found[1]

    def worded(found: re.Match[str]) -> str:
        lua, python = found[1], found[2]
        if language is not None:
            return lua if language == "lua" else python
        return f"{lua} ({python})" if python else f"{lua} (Lua only)"

    return _NAMED.sub(named, _WORDS.sub(worded, text))
