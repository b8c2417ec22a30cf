"""Metadata of packages, read from their text without running them."""

from __future__ import annotations

import time
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from holdfast.alc.lua.meta import PackageMeta, docstring, meta_of, read_meta, requires_of
from holdfast.alc.lua.tokens import LuaSyntaxError, tokenize
from tests.tables import each_row

FLAT = """--- flat — an example
--- It has two lines.

local M = {}

---@type AlcMeta
M.meta = {
    name = "flat",
    version = "1.2.0",
    description = "one " -- a comment in between
        .. 'two ' .. [[three]],
    category = "reasoning",
    tags = { "a", 'b' },
    deep = { x = { y = 1.5, z = -2 }, ["odd key"] = true, off = false, none = nil },
}

function M.run(ctx) return ctx end

return M
"""


def test_a_flat_assignment_is_read_with_everything_in_it() -> None:
    meta = meta_of(FLAT)
    assert meta is not None
    assert (meta.name, meta.version, meta.category) == ("flat", "1.2.0", "reasoning")
    assert meta.description == "one two three"
    assert meta.values["tags"] == ["a", "b"]
    assert meta.values["deep"] == {"x": {"y": 1.5, "z": -2}, "odd key": True, "off": False}
    assert meta.type == "runnable"
    assert meta.docstring == "flat — an example\nIt has two lines."


@each_row(
    "source",
    [
        'local M = { meta = { name = "inner" } } return M',
        'local M = { f = function(a) local x, meta = 1, { name = "wrong" } end, meta = { name = "inner" } } return M',
        'return { meta = { name = "inner" } }',
        'local M = { ["meta"] = { name = "inner" } } return M;',
        'local Other = {} Other.meta = { name = "wrong" } local M = {} M.meta = { name = "inner" } return M',
        'local M = {} local function f() M.meta = { name = "wrong" } end M.meta = { name = "inner" } return M',
        'local M = {} M.meta = { name = "first" } M.meta = { name = "inner" } return M',
        'local pkg = {} pkg.meta = { name = "inner" } return pkg',
        '#!/usr/bin/lua\nreturn { meta = { name = "inner" } }',
    ],
)
def test_metadata_inside_the_module_table_is_read_too(source: str) -> None:
    meta = meta_of(source)
    assert meta is not None
    assert meta.name == "inner"


@each_row(
    "source",
    [
        "local M = {} M.meta = { name = os.getenv('X') } return M",
        "local M = {} M.meta = make() return M",
        'local M = {} M.meta = { name = "a" .. b } return M',
        'local M = {} M.meta = { name = ("a"):upper() } return M',
        "local M = {} M.meta = { n = 1 + 2 } return M",
        'local M = {} M.meta = { name = "a" } M.meta.version = "2" return M',
        'local M = {} M.meta = { name = "a" } M.meta["version"] = "2" return M',
        "return require('other')",
        "return setmetatable({}, { __index = other })",
        "local M = build() return M",
        'local M = { meta = { name = "unfinished',
        "local M = {} M.meta = " + "{" * 50_000,
        "local M = {} M.meta = " + "-" * 3 + "1 return M",
        "",
    ],
)
def test_what_only_running_would_tell_is_not_guessed(source: str) -> None:
    assert meta_of(source) is None


def test_a_module_that_surely_has_no_metadata_has_empty_metadata() -> None:
    assert meta_of("local M = {} function M.f() end return M") == PackageMeta(type="library")


@each_row("body", ["function M.run(ctx) end", "function M:run(ctx) end", "M.run = f", "M.run = S.instrument(M, 'run')"])
def test_a_module_with_run_is_runnable(body: str) -> None:
    meta = meta_of(f"local M = {{}} M.meta = {{}} {body} return M")
    assert meta is not None
    assert meta.type == "runnable"


@each_row(
    "body", ["function M.runs(ctx) end", "M.run = nil", "N.run = f", "function f() M.run = g end", "-- M.run = f\n"]
)
def test_a_module_without_run_is_a_library(body: str) -> None:
    meta = meta_of(f"local M = {{}} M.meta = {{}} {body} return M")
    assert meta is not None
    assert meta.type == "library"


def test_strings_are_read_as_lua_reads_them() -> None:
    source = r"""return { meta = { a = "\65\x42\u{43}\z
        D\n\"\'\\", b = [==[
]]x]==], c = '\xff' } }"""
    meta = meta_of(source)
    assert meta is not None
    assert meta.values == {"a": "ABCD\n\"'\\", "b": "]]x", "c": "�"}


def test_numbers_are_read_as_lua_reads_them() -> None:
    values = meta_of("return { meta = { a = 0x10, b = 1e3, c = .5, d = 0x.8p1, e = 3., f = 7 } }")
    assert values is not None
    assert values.values == {"a": 16, "b": 1000.0, "c": 0.5, "d": 1.0, "e": 3.0, "f": 7}


def test_requires_are_found_with_their_weight() -> None:
    found = requires_of(
        """
        local a = require("a.b")
        local c = require 'c'
        local ok, d = pcall(require, "d")
        local function later() return require[[e]] end
        -- require("comment")
        local t = "require('text')"
        x.require("method")
        require(name)
        """
    )
    assert [(each.name, each.at_load) for each in found] == [("a.b", True), ("c", True), ("d", False), ("e", False)]
    assert found[0].line == 2


def test_a_docstring_ends_with_the_first_other_line() -> None:
    assert docstring("\n--- one\n---two\n-- three\n--- four") == "one\ntwo"
    assert docstring("local x") == ""


def test_a_file_that_cannot_be_read_has_no_metadata(tmp_path: Path) -> None:
    assert read_meta(tmp_path / "absent.lua") is None
    assert read_meta(tmp_path) is None
    big = tmp_path / "big.lua"
    big.write_bytes(b"-" * (5 << 20))
    assert read_meta(big) is None


def test_a_file_with_bytes_that_are_not_text_is_still_read(tmp_path: Path) -> None:
    file = tmp_path / "init.lua"
    file.write_bytes(b'\xef\xbb\xbfreturn { meta = { name = "x", description = "\xff" } } -- \xfe')
    meta = read_meta(file)
    assert meta is not None
    assert meta.values == {"name": "x", "description": "�"}


@each_row("hostile", ["a." * 100_000, "[" * 100_000, "--[[" + "x" * 100_000, '"' + "\\z " * 100_000])
def test_hostile_text_is_refused_in_time(hostile: str) -> None:
    began = time.process_time()
    assert meta_of(hostile) is None
    assert time.process_time() - began < 30


@given(st.text())
def test_any_text_is_read_or_refused_but_never_an_accident(source: str) -> None:
    try:
        tokenize(source)
    except LuaSyntaxError:
        assert meta_of(source) is None
    requires_of(source)
    meta_of(source)
