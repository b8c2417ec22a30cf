"""What is made of the API's table: the stubs for editors and the reference page."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from holdfast.programs.lua.api import CTX, GROUPS
from holdfast.programs.lua.reference import render_page
from holdfast.programs.lua.stubs import lua_type, render_stubs
from holdfast.programs.lua.vm import new_runtime

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "alc-api.md"
BUILT_IN = {"string", "number", "integer", "boolean", "any", "nil", "table", "function", "fun", "userdata", "null"}


def test_the_stubs_are_valid_lua() -> None:
    loaded = new_runtime(0).globals()[b"load"](render_stubs().encode(), b"=alc.d.lua", b"t")
    assert not isinstance(loaded, tuple), loaded


def test_running_the_stubs_defines_every_function() -> None:
    lua = new_runtime(0)
    lua.execute(render_stubs().encode())
    for group in GROUPS:
        for function in group.functions:
            assert lua.eval(f"type({function.name})".encode()) == b"function"


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
            types += [field.type for field in function.parameters] + [result.type for result in function.returns]
    # Without texts, and without the names of a function's parameters.
    words = {word for type in types for word in re.findall(r"[A-Za-z]\w*(?!\w*:)", re.sub(r'"[^"]*"', "", type))}
    assert words - BUILT_IN - shapes == set()


def test_no_two_shapes_have_one_name() -> None:
    names = [shape.name for group in GROUPS for shape in group.shapes]
    assert len(names) == len(set(names))


def test_shapes_have_full_names_in_the_stubs() -> None:
    assert lua_type("LlmItem[]|null") == "alc.LlmItem[]|alc.Null"


def test_the_committed_page_is_what_the_table_says() -> None:
    told = "run `python -m holdfast.programs.lua.stubs --markdown > docs/reference/alc-api.md`"
    assert PAGE.read_text() == render_page(), told


def test_every_link_inside_the_page_leads_to_a_heading() -> None:
    page = render_page()
    headings = {
        re.sub(r"[^\w\- ]", "", line.lstrip("# ").lower()).replace(" ", "-")
        for line in page.splitlines()
        if line.startswith("##")
    }
    assert set(re.findall(r"\]\(#([^)]+)\)", page)) <= headings


def test_the_module_prints_the_stubs_or_the_page() -> None:
    run = [sys.executable, "-m", "holdfast.programs.lua.stubs"]
    assert subprocess.run(run, capture_output=True, text=True, check=True).stdout == render_stubs()
    page = subprocess.run([*run, "--markdown"], capture_output=True, text=True, check=True).stdout
    assert page == render_page()
