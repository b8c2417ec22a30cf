"""Every shape of reply has a decision, and none raises."""

from __future__ import annotations

import builtins
import keyword

import pytest
from pydantic_monty import Monty, NameLookupSnapshot

from holdfast.agent.rlm.check import check_cell, names_in
from holdfast.agent.rlm.functions import BUILTINS, RESERVED
from holdfast.agent.rlm.limits import MAX_CELL_CHARS
from holdfast.agent.rlm.replies import decide_reply

CELL = "```python\nx = 1\n```"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (CELL, "execute"),
        (f"First\n{CELL}\nthen\n```python\ny = 2\n```", "execute"),
        ("All done.", "finish_prose"),
        ("", "retry_malformed"),
        ("   \n", "retry_malformed"),
        ("```python\n\n```", "retry_malformed"),
        ("```python\nx = (", "retry_unclosed_cell"),
        ("```javascript\nlet x = 1\n```", "finish_prose"),
        ("```\nx = 1\n```", "execute"),
        ("```\nthis is no code\n```", "finish_prose"),
        ("```python\nfinish = 3\n```", "retry_check"),
        ("```python\nx = = 1\n```", "retry_check"),
        (f"```python\nx = '{'a' * MAX_CELL_CHARS}'\n```", "retry_malformed"),
        ("a" * 100_000, "finish_prose"),
    ],
)
def test_decisions(text: str, name: str) -> None:
    assert decide_reply(text, reserved={"finish"}).name == name


@pytest.mark.parametrize("name", ["max", "id", "type", "list", "ValueError"])
def test_a_name_of_the_interpreter_is_not_assigned(name: str) -> None:
    """It would not be looked up in the next cell, which would read the builtin."""
    for code in (f"{name} = 1", f"for {name} in [1]:\n    pass", f"def {name}():\n    pass"):
        decision = decide_reply(f"```python\n{code}\n```", reserved=RESERVED)
        assert decision.name == "retry_check"
        assert f"'{name}' is the runtime's" in decision.remark
    assert decide_reply(f"```python\nx = [{name} for {name} in [1]]\n```", reserved=RESERVED).name == "execute"


def test_the_interpreter_asks_for_every_name_but_its_own() -> None:
    with Monty(min_processes=1, max_processes=1) as pool:
        for name in filter(str.isidentifier, dir(builtins)):
            if keyword.iskeyword(name) or name.startswith("_"):
                continue
            with pool.checkout() as session:
                is_asked_for = isinstance(session.feed_start(f"{name}\nNone"), NameLookupSnapshot)
            assert is_asked_for == (name not in BUILTINS), name


def test_only_the_first_cell_is_run() -> None:
    assert decide_reply(f"{CELL}\n```python\ny = 2\n```").cell == "x = 1"


def test_a_native_call_is_refused_with_the_rule() -> None:
    decision = decide_reply(CELL, has_native_calls=True)
    assert decision.name == "retry_malformed"
    assert decision.remark.startswith("[POLICY]")


def test_a_reply_that_met_its_token_limit_is_asked_for_in_smaller_pieces() -> None:
    inside = decide_reply("```python\nrows = [\n  1,", is_cut_short=True)
    assert inside.name == "retry_output_limit"
    assert "1," in inside.remark
    assert "smaller cell" in inside.remark
    assert decide_reply("And so on and", is_cut_short=True).name == "retry_output_limit"


def test_prose_does_not_end_a_turn_that_must_end_with_a_value() -> None:
    decision = decide_reply("It is 3.", wants_value=True)
    assert decision.name == "request_finish"
    assert "finish(value)" in decision.remark


@pytest.mark.parametrize(
    "code",
    [
        "tool = 1",
        "tool: int = 1",
        "tool += 1",
        "(tool := 1)",
        "for tool in []:\n    pass",
        "with x as tool:\n    pass",
        "try:\n    pass\nexcept ValueError as tool:\n    pass",
        "import json as tool",
        "from json import loads as tool",
        "def tool():\n    pass",
        "class tool:\n    pass",
        "match x:\n    case [tool]:\n        pass",
        "match x:\n    case [*tool]:\n        pass",
        "match x:\n    case {**tool}:\n        pass",
        "def f():\n    global tool\n    tool = 1",
        "[y := 1 for tool in [tool := 2]]",
    ],
)
def test_a_name_of_the_runtime_is_not_assigned(code: str) -> None:
    (problem,) = check_cell(code, {"tool"})
    assert "'tool' is the runtime's" in problem


@pytest.mark.parametrize(
    "code", ["[tool for tool in [1]]", "def f():\n    tool = 1", "lambda tool: tool", "x = tool(1)"]
)
def test_a_name_of_the_runtime_may_be_used_inside(code: str) -> None:
    assert check_cell(code, {"tool"}) == []


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        ("del x", "forget"),
        ("def f():\n    yield 1", "list"),
        ("class A(B):\n    pass", "plain class"),
        ("next(x for x in y)", "list"),
        ("import os", "no module 'os'"),
        ("open('x')", "no open()"),
    ],
)
def test_what_the_interpreter_lacks_is_told_with_what_to_write_instead(code: str, hint: str) -> None:
    (problem,) = check_cell(code)
    assert hint in problem


def test_top_level_await_is_allowed() -> None:
    assert check_cell("import asyncio\nx = await asyncio.gather(llm_async('a'))") == []


def test_names_and_definitions_of_a_cell() -> None:
    code = "import re\nfrom math import pi as p\n@dec\ndef f(a):\n    return g(a)\nclass C:\n    x = 1\nt += s"
    names = names_in(code)
    assert {"dec", "g", "a", "s", "t"} <= names.read
    assert names.assigned == {"re", "p", "f", "C", "t"}
    assert [each.source for each in names.definitions] == [
        "import re",
        "from math import pi as p",
        "@dec\ndef f(a):\n    return g(a)",
        "class C:\n    x = 1",
    ]
