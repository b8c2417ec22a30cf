"""What a source uses that sandboxed Python lacks, and which calls are wrong: found by reading it, all at once, in words
that an author can act on."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Literal

import msgspec

from holdfast.programs.findings import SourceFinding
from holdfast.programs.sandbox.calls import AWAITABLE, FUNCTIONS, PRIVATE
from holdfast.programs.sandbox.cell import prelude_names


def look_through(code: str) -> list[SourceFinding]:
    """The findings of a source that this Python can parse; none for one that it cannot: the interpreter says why."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    try:
        found = [finding for node in ast.walk(tree) for finding in _of_node(node)]
    except RecursionError:
        return []
    lines = code.split("\n")
    return [_in_characters(finding, lines) for finding in (*found, *_shadowed(tree), *_imports(tree))]


def _in_characters(finding: SourceFinding, lines: list[str]) -> SourceFinding:
    """With the column counted in characters; Python's own tree counts bytes."""
    line = lines[finding.line - 1] if finding.line <= len(lines) else ""
    before = line.encode("utf-8", "replace")[: finding.column - 1]
    return msgspec.structs.replace(finding, column=len(before.decode("utf-8", "replace")) + 1)


def _at(node: ast.AST, rule: str, message: str, level: Literal["error", "warning"] = "error") -> SourceFinding:
    return SourceFinding(getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1, level, rule, message)


def _of_node(node: ast.AST) -> Iterator[SourceFinding]:
    match node:
        case ast.ClassDef(name=name, bases=bases, keywords=keywords) if bases or keywords:
            instead = "raise RuntimeError or ValueError" if name.endswith("Error") else "use a plain class or a dict"
            yield _at(node, "no-inheritance", f"class {name}: sandboxed Python has no inheritance; {instead}")
        case ast.Yield() | ast.YieldFrom():
            yield _at(node, "no-generators", "sandboxed Python has no generators; build a list and return it")
        case ast.Delete():
            yield _at(node, "no-del", "sandboxed Python has no `del`; use `.pop(…)`, or assign None")
        case ast.AsyncFor() | ast.AsyncWith():
            yield _at(node, "no-async-blocks", "sandboxed Python has no `async for` and `async with`")
        case ast.TryStar():
            yield _at(node, "no-except-star", "sandboxed Python has no `except*`; use `except`")
        case ast.Await(value=call) if (name := _called(call)) in _PLAIN:
            yield _at(call, "plain-call-awaited", _plain_awaited(name))
        case ast.Call(func=ast.Attribute(value=ast.Name(id="asyncio"), attr=attribute), args=args):
            yield from _of_asyncio(node, attribute, args)
        case ast.FunctionDef(name=name) if name in _IGNORED:
            yield _at(node, "no-method", f"sandboxed Python never calls {name}; give the class a method with a name")
        case ast.FunctionDef(decorator_list=decorators):
            for decorator in decorators:
                if isinstance(decorator, ast.Name) and decorator.id in ("property", "staticmethod", "classmethod"):
                    yield _at(decorator, "no-descriptors", f"sandboxed Python has no @{decorator.id}; use a method")
        case ast.Expr(value=ast.Call() as call) if (name := _called(call)).endswith(AWAITABLE) and name in FUNCTIONS:
            yield _at(
                call, "never-awaited", f"{name}(…) is never awaited, so it is never asked: write `await {name}(…)`"
            )
        case _:
            pass


def _of_asyncio(node: ast.AST, attribute: str, args: list[ast.expr]) -> Iterator[SourceFinding]:
    if attribute == "gather":
        for argument in args:
            inner = argument.value if isinstance(argument, ast.Starred) else argument
            inner = inner.elt if isinstance(inner, ast.ListComp | ast.GeneratorExp) else inner
            if (name := _called(inner)) in _PLAIN:
                yield _at(inner, "plain-call-awaited", _plain_awaited(name))
    elif attribute not in ("run", "sleep"):
        yield _at(node, "no-asyncio", f"sandboxed Python has no asyncio.{attribute}; it has gather, run and sleep")


def _plain_awaited(name: str) -> str:
    awaited = f"{name}{AWAITABLE}"
    instead = f"drop the await, or call {awaited}(…)" if awaited in FUNCTIONS else "drop the await"
    return f"{name}(…) waits for its answer by itself and gives no awaitable: {instead}"


def _called(node: ast.expr) -> str:
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""


def _shadowed(tree: ast.Module) -> Iterator[SourceFinding]:
    """Names of the API that the source gives another meaning, at its top, where that is for good."""
    for name, place in hidden(tree).items():
        yield _at(place, "shadowed", f"'{name}' hides the function of that name: from here on it is yours", "warning")


def hidden(tree: ast.Module) -> dict[str, ast.AST]:
    """The names of the API that a source binds at its top, each with the first place where it does."""
    found: dict[str, ast.AST] = {}
    inside: list[ast.AST] = list(reversed(tree.body))
    while inside:
        node = inside.pop()
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.setdefault(name, node)
                for each in (inner for inner in ast.walk(node) if isinstance(inner, ast.Global)):
                    for shared in each.names:
                        found.setdefault(shared, each)
                continue
            case ast.Name(id=name, ctx=ast.Store()) | ast.alias(asname=str(name)) | ast.alias(name=name, asname=None):
                found.setdefault(name, node)
            case ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                continue
            case _:
                pass
        inside += reversed(list(ast.iter_child_nodes(node)))
    return {name: place for name, place in found.items() if name in API}


def _imports(tree: ast.Module) -> Iterator[SourceFinding]:
    for node in ast.walk(tree):
        modules: list[str] = []
        match node:
            case ast.Import(names=aliases):
                modules = [alias.name for alias in aliases]
            case ast.ImportFrom(module=str() as module, level=0):
                modules = [module]
            case ast.ImportFrom(level=level) if level:
                yield _at(node, "no-module", "a strategy is one file: it has no modules beside it")
            case _:
                pass
        for module in modules:
            if module.split(".")[0] == "holdfast":
                message = (
                    "this is a native strategy, because it imports holdfast: run it with --trusted, or as FILE.py:name"
                )
                yield _at(node, "native", message)
            elif module.split(".")[0] not in MODULES:
                known = ", ".join(sorted(MODULES))
                yield _at(node, "no-module", f"sandboxed Python has no module '{module}'; it has {known}")


_IGNORED = frozenset(
    ["__bool__", "__format__", "__len__", "__lt__", "__le__", "__gt__", "__ge__", "__getattr__", "__getattribute__"]
)
"""Methods that Python calls by itself, and the interpreter does not."""

MODULES = frozenset(
    [
        *("__future__", "asyncio", "base64", "collections", "copy", "csv", "dataclasses", "datetime", "decimal"),
        *("functools", "hashlib", "itertools", "json", "math", "random", "re", "time", "tomllib", "typing"),
        "unicodedata",
    ]
)
"""The modules of the standard library that a strategy may import."""

_PLAIN = frozenset(name for name in FUNCTIONS if not name.endswith(AWAITABLE) and not name.startswith(PRIVATE)) | {
    "llm_json",
    "llm_safe",
    "parallel",
    "pipe",
    "cache",
}

API = frozenset(name for name in FUNCTIONS if not name.startswith(PRIVATE)) | prelude_names()
"""Every name that a strategy may call."""
