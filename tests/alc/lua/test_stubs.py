"""The stubs that tell an editor about `alc`."""

from __future__ import annotations

import re

from holdfast.alc.lua.stubs import lua_type, render_stubs
from holdfast.alc.lua.vm import new_runtime
from holdfast.programs.api import CTX, GROUPS
from holdfast.programs.api.languages import lua_name

BUILT_IN = {
    *("string", "number", "integer", "boolean", "false", "any", "nil", "table", "function", "fun", "userdata", "null")
}


def test_the_stubs_are_valid_lua() -> None:
    loaded = new_runtime(0).globals()[b"load"](render_stubs().encode(), b"=alc.d.lua", b"t")
    assert not isinstance(loaded, tuple), loaded


def test_running_the_stubs_defines_every_function_of_lua() -> None:
    lua = new_runtime(0)
    lua.execute(render_stubs().encode())
    for group in GROUPS:
        for name in filter(None, map(lua_name, group.functions)):
            assert lua.eval(f"type({name})".encode()) == b"function"


def test_what_lua_does_not_have_is_not_in_the_stubs() -> None:
    assert "uuid" not in render_stubs()


def test_the_stubs_are_marked_as_such_on_their_first_line() -> None:
    assert render_stubs().startswith("---@meta\n")


def test_every_type_of_the_table_is_built_in_or_a_shape_of_the_table() -> None:
    shapes = {CTX.name, *(shape.name for group in GROUPS for shape in group.shapes)}
    types = [field.type for field in CTX.fields]
    for group in GROUPS:
        types += [constant.type for constant in group.constants]
        types += [field.type for shape in group.shapes for field in shape.fields]
        types += [shape.base for shape in group.shapes if shape.base]
        for function in group.functions:
            types += [field.type for field in (*function.parameters, *function.python_parameters)]
            types += [result.type for result in function.returns]
    # Without texts, and without the names of a function's parameters.
    words = {word for type in types for word in re.findall(r"[A-Za-z]\w*(?!\w*:)", re.sub(r'"[^"]*"', "", type))}
    assert words - BUILT_IN - shapes == set()


def test_no_two_shapes_have_one_name() -> None:
    names = [shape.name for group in GROUPS for shape in group.shapes]
    assert len(names) == len(set(names))


def test_shapes_have_full_names_in_the_stubs() -> None:
    assert lua_type("LlmItem[]|null") == "alc.LlmItem[]|alc.Null"


def test_texts_are_in_the_words_of_lua() -> None:
    assert "nil if there is no such word." in render_stubs()
    assert "None" not in render_stubs()
