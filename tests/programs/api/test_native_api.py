"""The API's table against the `ctx` of a native strategy: it has what the table says, with the same parameters."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from operator import attrgetter
from typing import Any

from holdfast.core.events import CompletedEvent
from holdfast.engine.holdfast import open_holdfast
from holdfast.programs.api import GROUPS, FunctionSpec
from holdfast.programs.api.languages import definition, native_spelling
from holdfast.programs.native.ctx import Context
from tests.tables import each_row

NATIVE = {
    function.name: function
    for group in GROUPS
    for function in group.functions
    if isinstance(native_spelling(function), str)
}
VALUES = {each.name for group in GROUPS for each in group.constants if each.native is not None}

# What the dict that others have as `ctx` can do by itself.
OF_A_DICT = {"get"}

# Those whose example is true of sandboxed Python only: another result, or a clock that tells the real time.
NOT_RUN = {"uuid", "now"}


async def live_context() -> Context:
    kept: list[Context] = []

    async def keeps_its_context(ctx: Context) -> None:
        kept.append(ctx)

    async with open_holdfast("memory:") as hf:
        await hf.start(keeps_its_context)
    return kept[0]


def parameters_told(function: FunctionSpec) -> list[tuple[str, str]]:
    """The names of parameters, each with how it is passed."""
    spelling = native_spelling(function)
    assert isinstance(spelling, str)
    arguments = definition(spelling)[1].args
    told = [(each.arg, "positional-only") for each in arguments.posonlyargs]
    told += [(each.arg, "positional or keyword") for each in arguments.args]
    told += [(each.arg, "keyword-only") for each in arguments.kwonlyargs]
    return told + ([(arguments.kwarg.arg, "variadic keyword")] if arguments.kwarg else [])


@each_row("name", NATIVE)
async def test_a_native_strategy_finds_a_function_with_the_parameters_of_the_table(name: str) -> None:
    method = attrgetter(name)(await live_context())
    there = [(each.name, each.kind.description) for each in inspect.signature(method).parameters.values()]
    assert there == parameters_told(NATIVE[name])


@each_row("name", NATIVE)
async def test_a_native_strategy_awaits_what_waits_and_nothing_else(name: str) -> None:
    method = attrgetter(name)(await live_context())
    gives = str(inspect.signature(method).return_annotation)
    is_awaited = inspect.iscoroutinefunction(method) or "Future" in gives or "Awaitable" in gives
    assert is_awaited == (NATIVE[name].waits != "no")


async def test_a_native_strategy_finds_nothing_that_the_table_lacks() -> None:
    ctx = await live_context()
    public = {name for name in dir(ctx) if not name.startswith("_")}
    areas = {name.partition(".")[0] for name in NATIVE if "." in name}
    assert public - {name for name in NATIVE if "." not in name} - areas - VALUES == OF_A_DICT
    for area in areas:
        found = {f"{area}.{name}" for name in dir(getattr(ctx, area)) if not name.startswith("_")}
        assert found - set(NATIVE) == set()


async def test_a_native_strategy_finds_the_values_of_the_table() -> None:
    ctx = await live_context()
    assert [name for name in VALUES if not hasattr(ctx, name)] == []


def examples() -> Iterator[tuple[str, str, Any]]:
    for name, function in NATIVE.items():
        example = function.example
        if example and example.python and example.gives is not None and name not in NOT_RUN:
            yield name, example.python, json.loads(example.gives)


@each_row(("name", "code", "gives"), [*examples()])
async def test_an_example_of_the_table_is_true_natively(name: str, code: str, gives: Any) -> None:
    first = name.partition(".")[0]

    async def runs_the_example(ctx: Context) -> Any:
        return eval(code, {first: getattr(ctx, first)})

    async with open_holdfast("memory:") as hf:
        event = await hf.start(runs_the_example)
    assert isinstance(event, CompletedEvent), event
    assert event.result == gives
