"""The strategy `rlm`: cells that the host's model writes, what stays of them, how they end, and what is no cell."""

from __future__ import annotations

from typing import Any

from holdfast.core.queries import Failure
from holdfast.testing import Rehearsal, rehearse
from tests.strategies.library.questions import asked, figures
from tests.strategies.library.rehearsals import by_role, most_calls, prompts_of
from tests.tables import each_row

NAME = "rlm"
TASK = "How many errors are in the log?"
LOG = "ok\nERROR a\nok\nERROR b\n"


def cell(code: str, before: str = "") -> str:
    return f"{before}\n```python\n{code}\n```"


def worked(*replies: Any, ask: Any = "yes", answer: Any = "no idea", **ctx: Any) -> Rehearsal:
    """A run whose model writes these replies."""
    said = by_role(cell=list(replies), ask=ask, answer=answer)
    return rehearse(NAME, {"task": TASK, "text": LOG, **ctx}, said)


def told(run: Rehearsal) -> list[str]:
    """What the model was told after each reply that did not end it."""
    return [came for _, came in run.result["transcript"]]


def test_variables_functions_and_imports_stay_and_prose_ends_it() -> None:
    run = worked(
        cell(
            "import math\ndef errors(t):\n    found = t.count('ERROR')\n\n    return found\nn = errors(text)", "Count."
        ),
        cell("print(n, errors('ERROR'), math.floor(1.5))"),
        "There are 2.",
    )
    assert run.error is None
    assert told(run) == ["[OUTPUT]\n(nothing was printed)", "[OUTPUT]\n2 1 1"]
    assert run.result["result"] == "There are 2."
    assert run.result["value"] is None
    assert "n (int)" in run.prompts[1]
    assert LOG not in "".join(run.prompts)


@each_row(
    ("code", "value", "result"),
    [
        ("finish('two')", "two", "two"),
        ("finish({'n': text.count('ERROR')})", {"n": 2}, '{"n": 2}'),
        ("try:\n    finish(1)\nexcept Exception:\n    finish(2)\nfinally:\n    print(3)", 1, "1"),
        ("try:\n    finish(1)\nexcept SystemExit:\n    pass\nfinish(2)", 1, "1"),
        ("finish(0)", 0, "0"),
    ],
)
def test_the_first_finish_ends_it_with_its_value(code: str, value: object, result: str) -> None:
    run = worked(cell(code))
    assert (run.result["value"], run.result["result"]) == (value, result)
    assert len(run.calls) == 1


def test_cells_ask_models_one_by_one_and_many_at_once() -> None:
    run = worked(cell("print(llm('one'), llm_batch(['two', 'three']))\nfinish(llm_batch([]))"), ask=["a", "b", "c"])
    assert asked(run) == [["cell"], ["ask"], ["ask", "ask"]]
    assert prompts_of(run, "ask") == ["one", "two", "three"]
    assert run.result["value"] == []


def test_nothing_is_asked_after_finish_or_beyond_the_calls_that_are_allowed() -> None:
    after = "try:\n    finish(1)\nexcept SystemExit:\n    pass\nllm('late')"
    assert len(worked(cell(after)).calls) == 1
    run = worked(cell("llm('one')"), cell("llm_batch(['two', 'three'])"), "ok", calls=2)
    assert prompts_of(run, "ask") == ["one"]
    assert "[ERROR] RuntimeError: 2 calls of models are asked for, and 1 are left" in told(run)[1]


@each_row(
    ("code", "why"),
    [
        ("x = 1 / 0", "[ERROR] ZeroDivisionError: division by zero"),
        ("x = = 1", "[ERROR] SyntaxError"),
        ("nowhere", "[ERROR] NameError"),
        ("raise SystemExit('now')", "[ERROR] SystemExit: now"),
        ("finish({1, 2})", "[ERROR] TypeError"),
        ("def f(n):\n    return f(n + 1)\nf(0)", "[ERROR] RecursionError"),
        ("x = [1] * 10\nwhile True:\n    x = x + x", "[POLICY] The cell was stopped: "),
        ("import os\nos.remove('a')", "[ERROR] "),
    ],
)
def test_a_cell_that_fails_is_told_why_and_the_variables_of_before_stay(code: str, why: str) -> None:
    run = worked(cell("y = 5"), cell(code), cell("print(y)"), "ok")
    assert run.error is None
    assert why in told(run)[1]
    assert told(run)[2] == "[OUTPUT]\n5"


def test_what_would_come_back_as_something_else_is_not_kept_and_named() -> None:
    run = worked(
        cell("a = (1, 2)\nb = {1}\nc = [1]\nd = range(3)\ne = 1\nf = lambda: 1"), cell("e = {2}"), cell("e"), "ok"
    )
    assert told(run)[0].endswith("Not kept, for only plain data is: a (tuple), b (set), d (range), f (function)")
    assert "e (set)" in told(run)[1]
    assert "NameError" in told(run)[2]
    assert "c (list), e (int)" in run.prompts[1]


def test_a_text_with_lines_that_look_like_definitions_does_no_harm() -> None:
    run = worked(cell('r = """\nfrom here on\n```\ndef is a word\n"""\nprint(len(r))'), cell("print(r[1:5])"), "ok")
    assert told(run)[1] == "[OUTPUT]\nfrom"


def test_long_output_is_cut() -> None:
    run = worked(cell("print('a' * 10000)"), "ok")
    assert told(run)[0].endswith("a\n[… 4000 more characters …]")


@each_row("reply", ["```python\nx = (", "", "```python\n```", " \n"])
def test_a_reply_without_a_whole_cell_is_asked_again(reply: str) -> None:
    run = worked(reply, "There are 2.")
    assert run.result["result"] == "There are 2."
    assert "[POLICY] Begin the block with ```python" in told(run)[0]


@each_row("reply", ["```json\n{}\n```", "It is `x`.", "```\nx = 1\n```"])
def test_other_blocks_are_prose(reply: str) -> None:
    assert worked(reply).result["result"] == reply


def test_when_the_cells_are_spent_it_answers_from_what_is_there() -> None:
    run = worked(*[cell("print(1)")] * 3, cells=3, answer="About 2.")
    assert asked(run)[-1] == ["answer"]
    assert run.result["result"] == "About 2."
    assert len(run.calls) == 4 <= (most_calls(NAME, {"task": TASK, "cells": 3}) or 0)
    assert worked(cell("1"), cells=1, answer=" ").result["result"] == "There is no answer."


def test_a_sub_call_that_fails_is_an_error_of_the_cell() -> None:
    run = worked(cell("x = 1\nllm('one')"), cell("print(x)"), "ok", ask=Failure("away"))
    assert "[ERROR] RuntimeError: away" in told(run)[0]
    assert told(run)[1] == "[OUTPUT]\n1"


def test_old_cells_are_left_out_of_a_long_transcript() -> None:
    run = worked(*[cell(f"# {n}\nprint('a' * 5900)") for n in range(12)], cells=12)
    last = run.prompts[-1]
    assert len(last) < 70_000
    assert "# 11" in last
    assert "# 0\n" not in last


async def test_it_counts_its_cells() -> None:
    said = by_role(cell=[cell("x = 1"), cell("finish(x)")])
    assert await figures(NAME, {"task": TASK}, said) == {"cells": 2}
