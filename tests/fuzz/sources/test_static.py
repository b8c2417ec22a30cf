"""Sources of strategies and packages, changed, and read without being run: described, or refused with a reason."""

from __future__ import annotations

import json

import msgspec

from holdfast.alc.lua.meta import docstring, meta_of, requires_of
from holdfast.core.values import Json
from holdfast.programs.language import SourceText
from holdfast.programs.parameters import MetaError, as_meta, calls_of, filled, read_description
from holdfast.programs.sandbox.features import look_through
from holdfast.strategies.catalog import cost_of, samples
from holdfast.strategies.checks import meta_findings
from tests.fuzz.fuzzer import Fuzzer
from tests.fuzz.generation import changed_json, changed_text
from tests.paths import REPO
from tests.serve.mcp_hosts import COMPUTED, LIBRARY, TWICE

LIBRARY_FILES = REPO / "src" / "holdfast" / "strategies" / "library"
PYTHON = [(LIBRARY_FILES / f"{name}.py").read_text() for name in ("cot", "self_consistency", "panel")]
PYTHON_WORDS = [
    "(",
    ")",
    "[",
    "{",
    ":",
    "\n",
    "\n    ",
    "META = ",
    "lambda: ",
    "await ",
    "'''",
    "def run(ctx):\n",
    "\\",
    "0x",
    "f'{",
]
LUA = [TWICE, COMPUTED, LIBRARY]
LUA_WORDS = [
    "{",
    "}",
    "[[",
    "]]",
    "[==[",
    "--[[",
    "end",
    "function",
    "meta",
    "M.meta",
    "=",
    '"',
    "\\z",
    "\\u{",
    "0x",
    "..",
    "(",
]

META = {
    "name": "panel",
    "description": "Asks several.",
    "category": "x",
    "parameters": {
        "task": {"type": "str", "description": "the task", "required": True, "choices": ["a", "b"]},
        "n": {"type": "int", "description": "how many", "default": 3, "min": 1, "max": 9},
        "share": {"type": "float", "description": "x", "default": 0.5},
        "more": {"type": "list", "description": "x", "default": [1]},
    },
    "calls": "n * 2 + max(len(more), 1) // 1",
    "paper": {"title": "t", "authors": "a", "year": 2020, "url": "u"},
    "script": [{"when": "x", "answer": "y"}],
}
_NAMED: dict[str, Json] = {"name": "x", "description": "x"}
_NUMBER: dict[str, Json] = {"type": "int", "description": "x", "required": True}

KNOWN_METAS: list[Json] = [
    {**_NAMED, "category": "\ud800"},
    {**_NAMED, "calls": "n", "parameters": {"n": {**_NUMBER, "min": float("inf")}}},
    {**_NAMED, "calls": "task * 99999999999", "parameters": {"task": {**_NUMBER, "type": "str"}}},
    {**_NAMED, "calls": "1e308 * 10"},
    {**_NAMED, "calls": "(" * 5_000},
    {
        **_NAMED,
        "calls": "len(text)",
        "parameters": {"text": {**_NUMBER, "type": "str"}, "size": {**_NUMBER, "default": 10**12, "required": False}},
    },
]
"""What once took all memory, or ended in an undeclared error."""


def test_changed_python_is_described_or_found_faulty(fuzzer: Fuzzer) -> None:
    def check(code: str) -> None:
        look_through(code)
        for finding in meta_findings(SourceText("panel.py", "python", code)):
            assert finding.message
        try:
            read_description(code)
        except MetaError as error:
            _assert_says_why(error)

    fuzzer.run(check, changed_text(PYTHON, words=PYTHON_WORDS), examples=75)


def test_a_changed_meta_is_used_or_refused(fuzzer: Fuzzer) -> None:
    def check(given: object) -> None:
        try:
            meta = as_meta(given)
            values = filled(given, {**samples(meta), **samples(meta, {"n": 4})})
            calls = calls_of(meta, values)
            cost = cost_of(meta)
            assert calls is None or isinstance(calls, int)
            if cost is not None:
                json.dumps(msgspec.to_builtins(cost))
        except ValueError as error:
            _assert_says_why(error)

    fuzzer.run(check, changed_json([META]), examples=150, known=KNOWN_METAS)


def test_the_changed_source_of_a_lua_package_is_described_or_not(fuzzer: Fuzzer) -> None:
    def check(source: str) -> None:
        meta = meta_of(source)
        if meta is not None:
            msgspec.json.encode(meta)
        docstring(source).encode()
        requires_of(source)

    halves = ["\n---\ud800 what it does\nlocal M = {}", 'local M = {}\nM.meta = { name = "\ud800" }\nreturn M']
    fuzzer.run(check, changed_text(LUA, words=LUA_WORDS), examples=150, known=halves)


def _assert_says_why(error: ValueError) -> None:
    assert not isinstance(error, UnicodeError), error
    assert str(error)


def test_the_samples_are_read_as_they_are() -> None:
    assert all(read_description(code) is not None for code in PYTHON)
    assert meta_of(TWICE) is not None
    assert as_meta(META).name == "panel"
