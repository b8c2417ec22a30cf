"""The text that is run for a strategy: its own source with the call of `run`, and before it what it uses of the
prelude."""

from __future__ import annotations

import ast
import bisect
import re
from functools import cache, lru_cache
from importlib import resources
from typing import Literal, NamedTuple

from holdfast.programs import prompts
from holdfast.programs.sandbox.limits import CHECKED_SOURCES

Entry = Literal["run", "async run", "last expression"]


class CellSource(NamedTuple):
    """What is fed to the interpreter."""

    prelude: str
    """Nothing, if the strategy uses nothing of it."""
    main: str
    entry: Entry
    lines: int
    """Of the author's own source; what follows in `main` is ours."""


@lru_cache(CHECKED_SOURCES)
def cell_source(code: str) -> CellSource:
    """The cells of a strategy's source. A text that cannot be parsed is left to the interpreter to complain about."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        entry, names = _guessed(code)
    else:
        entry = _entry(tree)
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    if not names.isdisjoint(("eval", "exec")):
        names |= prelude_names()  # whatever it is that will be made up
    call = {"run": "\n\nrun(ctx)\n", "async run": "\n\nawait run(ctx)\n", "last expression": ""}[entry]
    return CellSource(prelude_for(names), code + call, entry, code.count("\n") + 1)


def _entry(tree: ast.Module) -> Entry:
    for node in reversed(tree.body):
        match node:
            case ast.FunctionDef(name="run"):
                return "run"
            case ast.AsyncFunctionDef(name="run"):
                return "async run"
            case _:
                pass
    return "last expression"


def _guessed(code: str) -> tuple[Entry, set[str]]:
    """For syntax that this Python does not know and the interpreter may."""
    found = re.search(r"^(async\s+)?def\s+run\s*\(", code, re.MULTILINE)
    entry: Entry = "last expression" if found is None else "async run" if found[1] else "run"
    return entry, set(re.findall(r"\w+", code))


# --- the prelude ---------------------------------------------------------------------------------------


class _Definition(NamedTuple):
    text: str
    needs: frozenset[str]


def prelude_for(names: set[str]) -> str:
    """The definitions of these names, of those that they need, and nothing else."""
    definitions = _prelude()
    wanted: set[str] = set()
    new = names & definitions.keys()
    while new:
        wanted |= new
        new = {need for name in new for need in definitions[name].needs} - wanted
    used = "".join(definitions[name].text for name in wanted)
    lines = [f"import {module} as {ours}" for module, ours in _MODULES.items() if f"{ours}." in used]
    return "\n".join([*lines, *(each.text for name, each in definitions.items() if name in wanted)])


def prelude_names() -> frozenset[str]:
    """What the prelude offers to authors."""
    return frozenset(name for name in _prelude() if not name.startswith("_"))


@cache
def _prelude() -> dict[str, _Definition]:
    """The prelude's definitions in their order, without annotations and documentation: they are kept with the state of
    every session that uses them."""
    source = resources.files("holdfast.programs.sandbox").joinpath("prelude.py").read_text("utf-8")
    found = {_OURS[name]: _Definition(f"{_OURS[name]} = {value!r}", frozenset()) for name, value in _CONSTANTS.items()}
    for node in ast.parse(source).body:
        name = _defined(node)
        if name is not None:
            bare = _Bare().visit(node)
            found[name] = _Definition(ast.unparse(ast.fix_missing_locations(bare)), frozenset())
    for name, (text, _) in list(found.items()):
        used = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)} - {name}
        found[name] = _Definition(text, frozenset(used & found.keys()))
    return found


def _defined(node: ast.stmt) -> str | None:
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
            return name
        case _:
            return None


_MODULES = {module: f"_holdfast_{module}" for module in ("copy", "json", "re")}
"""Modules that the prelude uses, under names of their own: authors like to call something `json`."""

_CONSTANTS = {"JSON_ONLY": prompts.JSON_ONLY, "JSON_REPAIR": prompts.JSON_REPAIR, "MAX_CACHED": prompts.MAX_CACHED}
"""What the prelude imports of `programs.prompts`: those who use it are given the values."""

_OURS = _MODULES | {name: f"_holdfast_{name}" for name in _CONSTANTS}
"""The names of both, as programs have them."""


class _Bare(ast.NodeTransformer):
    """Takes away what only readers and type checkers need."""

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = _OURS.get(node.id, node.id)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        self.generic_visit(node)
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        assert node.value is not None
        return ast.Assign(targets=[node.target], value=node.value)


# --- places --------------------------------------------------------------------------------------------


def line_at(main: str, byte: int) -> int:
    """The line, counted from 1, that a byte of a cell's UTF-8 is on."""
    return bisect.bisect_right(_line_starts(main), byte)


@lru_cache(256)
def _line_starts(main: str) -> list[int]:
    starts = [0]
    for line in main.split("\n"):
        starts.append(starts[-1] + len(line.encode()) + 1)
    return starts[:-1]
