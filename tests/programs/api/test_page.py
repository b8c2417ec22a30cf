"""The reference page that is made of the API's table."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from holdfast.alc.lua.stubs import render_stubs
from holdfast.programs.api import GROUPS
from holdfast.programs.api.languages import lua_name
from holdfast.programs.api.page import render_page
from holdfast.programs.api.python_stubs import render_python_stubs
from tests.tables import each_row

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "api.md"


def test_the_committed_page_is_what_the_table_says() -> None:
    assert PAGE.read_text() == render_page(), "run `python -m holdfast.programs.api page > docs/reference/api.md`"


def test_every_link_inside_the_page_leads_to_a_heading() -> None:
    page = render_page()
    headings = {
        re.sub(r"[^\w\- ]", "", line.lstrip("# ").lower()).replace(" ", "-")
        for line in page.splitlines()
        if line.startswith("##")
    }
    assert set(re.findall(r"\]\(#([^)]+)\)", page)) <= headings


def test_no_two_headings_are_alike() -> None:
    headings = [line for line in render_page().splitlines() if line.startswith("#")]
    assert len(headings) == len(set(headings))


def test_a_function_is_spelled_in_each_language_that_has_it() -> None:
    section = render_page().partition("### now\n")[2].partition("###")[0]
    assert "Lua     alc.time() -> number\nPython  now() -> float\nnative  ctx.now() -> float\n" in section


def test_what_waits_is_awaited_natively() -> None:
    assert "native  await ctx.state.get(…)\n" in render_page()


def test_a_language_without_a_function_is_told_what_to_use() -> None:
    assert "Python  none; use json.loads\n" in render_page()


def test_the_page_has_every_function_of_the_table() -> None:
    page = render_page()
    for group in GROUPS:
        for function in group.functions:
            assert (f"| `{lua_name(function)}(" if group.is_brief else f"\n### {function.name}\n") in page


@each_row(("what", "made"), [("page", render_page()), ("lua", render_stubs()), ("python", render_python_stubs())])
def test_the_module_prints_what_is_asked_for(what: str, made: str) -> None:
    run = [sys.executable, "-m", "holdfast.programs.api", what]
    assert subprocess.run(run, capture_output=True, text=True, check=True).stdout == made


def test_the_module_says_what_can_be_asked_for() -> None:
    run = [sys.executable, "-m", "holdfast.programs.api", "ruby"]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "page, lua, python" in done.stderr
