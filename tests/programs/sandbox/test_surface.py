"""The API's table against sandboxed Python: a strategy can call what the table says, so, and nothing else."""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterator
from typing import Any

from holdfast.programs.api import GROUPS, FunctionSpec
from holdfast.programs.api.languages import definition, twin_of
from holdfast.programs.sandbox import prelude
from holdfast.programs.sandbox.calls import FUNCTIONS, PRIVATE
from holdfast.programs.sandbox.cell import prelude_names
from holdfast.programs.sandbox.source import python_code
from holdfast.strategies.rehearsal import rehearsed
from tests.tables import each_row

AREAS = {"state": prelude._State, "stats": prelude._Stats, "card": prelude._Card}


def spelled() -> Iterator[str]:
    for group in GROUPS:
        for function in group.functions:
            if isinstance(function.python, str):
                yield function.python
                if function.has_twin:
                    yield twin_of(function.python)


SIGNATURES = {signature.partition("(")[0]: signature for signature in spelled()}


def parameters_told(signature: str) -> list[tuple[str, str, str]]:
    """The names of parameters, how each is passed, and what it is if it is left out."""
    arguments: ast.arguments = definition(signature)[1].args
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(plain) - len(arguments.defaults)) + list(arguments.defaults)
    told = []
    for each, default in zip(plain, defaults, strict=True):
        kind = "positional-only" if each in arguments.posonlyargs else "positional or keyword"
        told.append((each.arg, kind, _written(default)))
    for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        told.append((each.arg, "keyword-only", _written(default)))
    return [*told, (arguments.kwarg.arg, "variadic keyword", "")] if arguments.kwarg else told


def parameters_there(name: str) -> list[tuple[str, str, str]]:
    area, _, own = name.rpartition(".")
    function: Any = getattr(AREAS[area], own) if area else FUNCTIONS.get(name) or getattr(prelude, name)
    there = list(inspect.signature(function).parameters.values())
    if area or name in FUNCTIONS:
        there = there[1:]  # `self`
    return [
        (each.name, each.kind.description, "" if each.default is each.empty else repr(each.default)) for each in there
    ]


def _written(default: ast.expr | None) -> str:
    return "" if default is None else repr(ast.literal_eval(default))


@each_row("name", SIGNATURES)
def test_a_strategy_finds_a_function_with_the_parameters_of_the_table(name: str) -> None:
    assert parameters_there(name) == parameters_told(SIGNATURES[name])


def test_a_strategy_finds_nothing_that_the_table_lacks() -> None:
    public = {name for name in FUNCTIONS if not name.startswith(PRIVATE)} | prelude_names()
    own = {f"{area}.{name}" for area, kind in AREAS.items() for name in vars(kind) if not name.startswith("_")}
    assert (public - AREAS.keys()) | own == set(SIGNATURES)


def examples() -> Iterator[tuple[str, str, Any]]:
    for group in GROUPS:
        for function in group.functions:
            if _runs(function):
                assert function.example is not None
                yield function.name, function.example.python, json.loads(function.example.gives or "null")


def _runs(function: FunctionSpec) -> bool:
    example = function.example
    return bool(example and example.python and example.gives is not None and function.name not in ("now", "uuid"))


@each_row(("name", "code", "gives"), [*examples()])
async def test_an_example_of_the_table_is_true_in_the_sandbox(name: str, code: str, gives: Any) -> None:
    run = await rehearsed(python_code(code))
    assert run.error is None
    assert run.result == gives


def asking() -> Iterator[tuple[str, str]]:
    for group in GROUPS:
        for function in group.functions:
            if function.example and function.example.python and not _runs(function):
                yield function.name, function.example.python


@each_row(("name", "code"), [*asking()])
async def test_an_example_that_waits_can_be_run(name: str, code: str) -> None:
    run = await rehearsed(python_code(code), {"task": "Why?"})
    # What the examples speak of is not there: a card, a mirror.
    assert run.error is None or "not found" in run.error or "unknown_sink" in run.error, run.error
