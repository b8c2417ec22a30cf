"""New packages: readable without running, runnable, tested, and never written over anything."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lupa.lua54 import LuaRuntime

from holdfast.alc.lua.meta import meta_of, read_meta
from holdfast.alc.packages.errors import PackageExistsError, PackageNameError
from holdfast.alc.packages.scaffold import quoted, scaffold
from tests.alc.packages.helpers import User

ODD = 'a "quote", a \\ backslash,\na line, {braces}, ]] and \x01 ü'


def test_a_new_package_has_code_a_test_and_metadata(tmp_path: Path) -> None:
    report = scaffold("my_pkg", tmp_path, category="selection", description="Picks one")
    assert report.path == str(tmp_path / "my_pkg")
    assert report.bytes_written == sum((tmp_path / "my_pkg" / file).stat().st_size for file in report.files)
    meta = read_meta(tmp_path / "my_pkg" / "init.lua")
    assert meta is not None
    assert meta.values == {
        "name": "my_pkg",
        "version": "0.1.0",
        "description": "Picks one",
        "category": "selection",
    }
    assert meta.type == "runnable"
    assert meta.docstring.startswith("my_pkg — Picks one")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["my_pkg"]


def test_its_metadata_is_found_by_a_search_for_the_text(tmp_path: Path) -> None:
    scaffold("p", tmp_path, description="One")
    lines = (tmp_path / "p" / "init.lua").read_text().splitlines()
    begin = lines.index("M.meta = {")
    assert lines[begin + 1 : begin + 6] == [
        '    name = "p",',
        '    version = "0.1.0",',
        '    description = "One",',
        '    category = "reasoning",',
        "}",
    ]


def test_it_runs_in_lua_and_says_the_same_of_itself(tmp_path: Path) -> None:
    scaffold("p", tmp_path, description=ODD, category=ODD)
    lua = LuaRuntime(encoding=None)
    module = lua.execute((tmp_path / "p" / "init.lua").read_bytes())
    meta = read_meta(tmp_path / "p" / "init.lua")
    assert meta is not None
    assert module[b"meta"][b"description"].decode() == meta.description == ODD
    assert module[b"meta"][b"category"].decode() == meta.category == ODD
    run = lua.eval(
        b"function(module) alc = { llm = function(p) return p:sub(1, 4) end }"
        b" return module.run({ task = 'x' }).result.answer end"
    )
    assert run(module) == b"Work"


@pytest.mark.parametrize(
    "name", ["", "A", "1a", "_a", "a-b", "a.b", "../a", "a" * 65, "a b", "ä", "a\n", "string", "alc"]
)
def test_a_name_that_a_new_package_may_not_have_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(PackageNameError):
        scaffold(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_longest_name_is_taken(tmp_path: Path) -> None:
    scaffold("a" * 64, tmp_path)
    assert (tmp_path / ("a" * 64) / "init.lua").is_file()


def test_nothing_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    with pytest.raises(PackageExistsError):
        scaffold("p", tmp_path)
    assert list((tmp_path / "p").iterdir()) == []


def test_a_new_package_can_be_installed(user: User, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    scaffold("p", tmp_path / "src")
    assert user.install(tmp_path / "src" / "p").to_json()["installed"] == ["p"]


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_text_that_is_quoted_for_lua_is_read_back(text: str) -> None:
    meta = meta_of(f"return {{ meta = {{ description = {quoted(text)} }} }}")
    assert meta is not None
    assert meta.description == text
