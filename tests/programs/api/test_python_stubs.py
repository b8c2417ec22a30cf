"""The stubs that sandboxed strategies are checked against, given to the checker that will read them."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

import pytest
from pydantic_monty import Monty, MontyTypingError

from holdfast.programs.api import GROUPS
from holdfast.programs.api.python_stubs import render_python_stubs

Check = Callable[[str], list[str]]

EXAMPLES = {
    function.name: function.example.python
    for group in GROUPS
    for function in group.functions
    if function.example and function.example.python
}

STRATEGY = '''\
"""Asks twice at once, and counts."""

import asyncio
from typing import Any

META = {"name": "twice"}


async def run(ctx: dict[str, Any]) -> dict[str, Any]:
    first, second = await asyncio.gather(llm_async(ctx["task"]), llm_async(ctx["task"], temperature=1.0))
    more = llm_batch([first, {"prompt": second}], max_tokens=20)
    longest = parallel(more, lambda text: "Make it longer: " + text, post=lambda answer, text: len(answer) + len(text))
    state.update("runs", lambda runs: runs + 1, 0)
    names = [name.upper() for name in state.keys()]
    score = parse_score(ask("How good is it?", choices=["1", "10"]))
    best = match_enum(first, names) or "none"
    cards = card.find(where={"stats": {"score": {"gte": score}}}, limit=3)
    stats.record("longest", max(longest))
    log(f"{best}: {len(cards)} cards", "debug")
    left = budget_remaining()
    if left is not None and left["llm_calls"] == 0:
        sleep(1.5)
    return {**ctx, "result": vote([first, second])["winner"]}
'''

WRONG = {
    "llm(3)": "1:5: error[invalid-argument-type]",
    'x = 1\nasync def run(ctx):\n    return await llm("x")': "3:18: error[invalid-await]",
    'import asyncio\nawait asyncio.gather(llm("a"), llm("b"))': "2:7: error[no-matching-overload]",
    'state.got("x")': "1:1: error[unresolved-attribute]",
    'lmm("x")': "1:1: error[unresolved-reference]",
    'llm_async("x").upper()': "1:1: error[unresolved-attribute]",
    'chunk("x", sise=3)': "1:12: error[unknown-argument]",
    'chunk("x", mode="words")': "1:12: error[invalid-argument-type]",
    'match_enum("x", ["y"]).upper()': "1:1: error[unresolved-attribute]",
    "state.keys().upper()": "1:1: error[unresolved-attribute]",
    'card.list(pkg="panel").upper()': "1:1: error[unresolved-attribute]",
    'parallel(["a"], lambda text: text.nothing)': "1:30: error[unresolved-attribute]",
}

HIDDEN = ["Any", "Awaitable", "Callable", "Literal", "Sequence", "TypeVar", "builtins", "T", "_T", "_State", "_Card"]


@pytest.fixture(scope="module")
def check() -> Iterator[Check]:
    """What the type checker finds in a program, a line each."""

    with Monty() as pool:

        def found(source: str) -> list[str]:
            with pool.checkout(
                type_check=True, type_check_stubs=render_python_stubs(), type_check_format="concise"
            ) as session:
                try:
                    session.feed_start(source)
                except MontyTypingError as error:
                    return error.display().splitlines()
            return []

        yield found


def test_a_strategy_that_uses_the_api_rightly_passes(check: Check) -> None:
    assert check(STRATEGY) == []


@pytest.mark.parametrize("source", WRONG)
def test_a_wrong_call_is_found_with_its_line_and_column(source: str, check: Check) -> None:
    first, *_ = check(source)
    assert first.startswith(f"main.py:{WRONG[source]}"), first


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_of_the_table_passes(name: str, check: Check) -> None:
    assert check(EXAMPLES[name]) == []


@pytest.mark.parametrize("name", HIDDEN)
def test_what_the_stubs_need_for_themselves_is_no_name_of_a_strategy(name: str, check: Check) -> None:
    (found,) = [line for line in check(f"print({name})") if line]
    assert found == f"main.py:1:7: error[unresolved-reference] Name `{name}` used when not defined"


def test_every_function_in_the_stubs_says_what_it_does() -> None:
    defined = [node for node in ast.walk(ast.parse(render_python_stubs())) if isinstance(node, ast.FunctionDef)]
    assert len(defined) > 50
    assert [node.name for node in defined if not ast.get_docstring(node)] == []


def test_the_docstrings_are_in_the_words_of_python() -> None:
    stubs = render_python_stubs()
    assert "None if there is no such word." in stubs
    assert re.findall(r"\bnil\b|\balc\.", stubs) == []
