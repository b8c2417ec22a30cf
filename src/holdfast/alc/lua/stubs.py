"""The API's table as `alc.d.lua`, which tells an editor about `alc`, `ctx` and `std` (LuaCATS)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast.programs.api import CTX, GROUPS, FieldSpec, FunctionSpec, GroupSpec, ShapeSpec
from holdfast.programs.api.languages import lua_name, meaning, spoken

STUB_NAME = "alc.d.lua"

_PREFIX = "alc."
"""Before the names of shapes, which are global in an editor."""

_WAITS = {
    "no": "",
    "host": "Pauses the session until somebody answers.",
    "engine": "Answered by the engine at once, and kept.",
}


def render_stubs() -> str:
    """The text of `alc.d.lua`."""
    lines = [
        "---@meta",
        "-- The globals of a Lua strategy. Made by `holdfast pkg types` from the table that documents the API.",
        "",
        "---JSON's null, to write it. It is a userdata, and true in a condition; what is read has nil instead.",
        f"---@class {_PREFIX}Null: userdata",
        "",
    ]
    for shape in (CTX, *(shape for group in GROUPS for shape in group.shapes)):
        lines += [*_class(shape), ""]
    for name in namespaces():
        lines += [f"---@class {name}", f"{name} = {{}}", ""]
    lines += ["---What the program was started with.", f"---@type {lua_type('Ctx')}", "ctx = nil", ""]
    for group in GROUPS:
        lines += [f"-- {group.title}", "", *_members(group)]
    return "\n".join(lines).rstrip("\n") + "\n"


def namespaces() -> list[str]:
    """The tables that functions and constants are in, outer ones first."""
    found: dict[str, None] = {}
    for group in GROUPS:
        names = [*map(lua_name, group.functions), *map(lua_name, group.constants)]
        for name in filter(None, names):
            parts = name.split(".")
            for depth in range(1, len(parts)):
                found.setdefault(".".join(parts[:depth]))
    return sorted(found)


def lua_type(type: str) -> str:
    """A type of the table as LuaCATS has it: the shapes by their full names."""
    return _NAMES.sub(lambda found: _PREFIX + (found[0] if found[0] != "null" else "Null"), type)


def _shape_names() -> Iterator[str]:
    yield CTX.name
    yield "null"
    for group in GROUPS:
        yield from (shape.name for shape in group.shapes)


_NAMES = re.compile(r"\b(?:" + "|".join(sorted(_shape_names(), key=len, reverse=True)) + r")\b")


def _class(shape: ShapeSpec) -> list[str]:
    base = f": {lua_type(shape.base)}" if shape.base else ""
    lines = [f"---{spoken(shape.doc, 'lua')}", f"---@class {lua_type(shape.name)}{base}"]
    lines += [f"---@field {_labelled(field)}" for field in shape.fields]
    if shape.rest is not None:
        lines.append(f"---@field [string] {lua_type(shape.rest)}")
    return lines


def _members(group: GroupSpec) -> Iterator[str]:
    for constant in group.constants:
        if name := lua_name(constant):
            doc = spoken(constant.doc, "lua")
            yield from (f"---{doc}", f"---@type {lua_type(constant.type)}", f"{name} = nil", "")
    for function in group.functions:
        if name := lua_name(function):
            yield from (*_function(name, function), "")


def _function(name: str, function: FunctionSpec) -> Iterator[str]:
    yield f"---{meaning(function, 'lua')}"
    if waits := _WAITS[function.waits]:
        yield "---"
        yield f"---{waits}"
    if function.example is not None:
        yield from ("---", "---```lua", f"---{function.example.lua}", "---```")
    for parameter in function.parameters:
        yield f"---@param {_labelled(parameter)}"
    if function.rest is not None:
        yield f"---@param {_labelled(function.rest)}"
    for result in function.returns:
        doc = spoken(result.doc, "lua")
        yield f"---@return {lua_type(result.type)}{f' # {doc}' if doc else ''}"
    names = [parameter.name for parameter in (*function.parameters, *([function.rest] if function.rest else []))]
    yield f"function {name}({', '.join(names)}) end"


def _labelled(field: FieldSpec) -> str:
    return f"{field.name}{'?' if field.optional else ''} {lua_type(field.type)} # {spoken(field.doc, 'lua')}"
