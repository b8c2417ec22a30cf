"""Reads a cell before it is run: what it may not do, which names it reads and assigns, and what it defines.

Nothing is run to find that out. A cell that this Python cannot parse is left to the interpreter, except that its
syntax error is reported at once.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from functools import lru_cache

import msgspec

from holdfast.agent.rlm.variables import Definition
from holdfast.programs.sandbox.features import MODULES

SHOWN_PROBLEMS = 8
"""Problems that one check reports: a model mends these first."""


class CellNames(msgspec.Struct, frozen=True):
    """What a cell has to do with names."""

    read: frozenset[str]
    """Names that it may read, wherever in it."""
    assigned: frozenset[str]
    """Names that it may assign at its top level, definitions included."""
    definitions: tuple[Definition, ...]


def parse_cell(code: str) -> ast.Module | SyntaxError:
    """The tree of a cell, or what is wrong with it. A cell may `await` at its top level."""
    try:
        return compile(  # type: ignore[no-any-return]
            code, "<cell>", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True
        )
    except SyntaxError as error:
        return error
    except (ValueError, RecursionError, MemoryError) as error:
        return SyntaxError(str(error) or "the code is nested too deeply")


@lru_cache(256)
def names_in(code: str) -> CellNames:
    """The names of a cell; none if it cannot be parsed."""
    tree = parse_cell(code)
    if isinstance(tree, SyntaxError):
        return CellNames(frozenset(), frozenset(), ())
    read = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store)}
    changed = (node.target for node in ast.walk(tree) if isinstance(node, ast.AugAssign))
    read |= {target.id for target in changed if isinstance(target, ast.Name)}
    read |= {name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names}
    return CellNames(frozenset(read), frozenset(assigned_names(tree)), tuple(_definitions(tree, code)))


def assigned_names(tree: ast.Module) -> dict[str, ast.AST]:
    """The names that a cell assigns at its top level, or by `global` in a function, with the first place of each."""
    found: dict[str, ast.AST] = {}
    open_nodes: list[ast.AST] = list(reversed(tree.body))
    while open_nodes:
        node = open_nodes.pop()
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.setdefault(name, node)
                for each in ast.walk(node):
                    for shared in each.names if isinstance(each, ast.Global) else ():
                        found.setdefault(shared, each)
                continue
            case ast.Lambda():
                continue
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                for each in ast.walk(node):
                    if isinstance(each, ast.NamedExpr):
                        found.setdefault(each.target.id, each)
                continue
            case ast.Name(id=name, ctx=ast.Store()):
                found.setdefault(name, node)
            case ast.alias(name=name, asname=asname):
                found.setdefault(asname or name.split(".")[0], node)
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                found.setdefault(name, node)
            case ast.MatchMapping(rest=str(name)):
                found.setdefault(name, node)
            case _:
                pass
        open_nodes += reversed(list(ast.iter_child_nodes(node)))
    return found


def check_cell(code: str, reserved: Collection[str] = ()) -> list[str]:
    """What is wrong with a cell, in words that a model can act on; empty if it may be run."""
    tree = parse_cell(code)
    if isinstance(tree, SyntaxError):
        line = (tree.text or "").strip()
        where = f"line {tree.lineno}: " if tree.lineno else ""
        return [f"{where}{tree.msg}" + (f"\n    {line[:200]}" if line else "")]
    problems = [
        f"line {getattr(place, 'lineno', 1)}: '{name}' is the runtime's and cannot be assigned; use another name"
        for name, place in assigned_names(tree).items()
        if name in reserved
    ]
    try:
        problems += [f"line {getattr(node, 'lineno', 1)}: {text}" for node in ast.walk(tree) for text in _lacking(node)]
    except RecursionError:
        return ["the code is nested too deeply; split it into several statements"]
    return problems[:SHOWN_PROBLEMS]


def _lacking(node: ast.AST) -> Iterator[str]:
    """What a node uses that the interpreter lacks, with what to write instead."""
    match node:
        case ast.ClassDef(name=name, bases=bases, keywords=keywords) if bases or keywords:
            yield f"class {name}: there is no inheritance; use a plain class, a dataclass or a dict"
        case ast.Yield() | ast.YieldFrom():
            yield "there are no generators; build a list and return it"
        case ast.Delete():
            yield "there is no `del`; use `.pop(…)`, or forget('name') for a variable"
        case ast.AsyncFor() | ast.AsyncWith():
            yield "there is no `async for` and no `async with`"
        case ast.TryStar():
            yield "there is no `except*`; use `except`"
        case ast.Call(func=ast.Name(id="next"), args=[ast.GeneratorExp(), *_]):
            yield "next() takes no generator here; use a list, as in `[… for …][0]`"
        case ast.Call(func=ast.Name(id=("open" | "input" | "globals" | "vars" | "dir") as name)):
            yield f"there is no {name}()"
        case ast.Import(names=aliases):
            for alias in aliases:
                yield from _missing_module(alias.name)
        case ast.ImportFrom(module=str() as module):
            yield from _missing_module(module)
        case _:
            pass


def _missing_module(name: str) -> Iterator[str]:
    if name.split(".", maxsplit=1)[0] not in MODULES:
        yield f"there is no module '{name}'; there are {', '.join(sorted(MODULES))}"


def _definitions(tree: ast.Module, code: str) -> Iterator[Definition]:
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield Definition([name], _source_of(node, code))
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names = [alias.asname or alias.name.split(".")[0] for alias in aliases]
                yield Definition(names, _source_of(node, code))
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda()):
                yield Definition([name], _source_of(node, code))
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=called)) if _is_namedtuple(called):
                yield Definition([name], _source_of(node, code))
            case _:
                pass


def _source_of(node: ast.stmt, code: str) -> str:
    """The text of a statement, decorators included."""
    first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
    lines = code.split("\n")[first - 1 : node.end_lineno]
    if first == node.lineno:
        return ast.get_source_segment(code, node) or "\n".join(lines)
    return "\n".join(lines)


def _is_namedtuple(called: ast.expr) -> bool:
    match called:
        case ast.Name(id="namedtuple") | ast.Attribute(attr="namedtuple"):
            return True
        case _:
            return False
