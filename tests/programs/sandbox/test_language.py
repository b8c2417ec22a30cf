"""The page about sandboxed Python: every row of its tables, run in the real interpreter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.core.events import CompletedEvent
from holdfast.core.limits import MAX_VALUE_BYTES, MAX_VALUE_DEPTH
from holdfast.core.queries import Failure, Query
from holdfast.programs.sandbox import limits, live_program
from holdfast.programs.sandbox.check import InvalidSourceError
from holdfast.programs.sandbox.features import MODULES
from tests.programs.sandbox.helpers import broken, code, converse, engine, failed, logged, result, run
from tests.programs.sandbox.language_cases import BEFORE, IN_MODULES, IN_THE_RUN, MISSING, PLACES, WORKS
from tests.tables import each_row

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "python.md"


def rows(heading: str) -> dict[str, list[str]]:
    """The table under a heading: its first cells, each with the others of its row."""
    section = PAGE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]
    return {first: rest for first, *rest in cells}


async def came_to(text: str) -> Any:
    """The result of a source, on an engine that minds timers."""
    async with engine(minds=True) as hf:
        return result((await converse(hf, await hf.start(code(text), ctx={"task": "t"})))[1])


# --- what works ----------------------------------------------------------------------------------------


def test_every_row_of_what_works_has_a_case() -> None:
    assert set(rows("What works")) == set(WORKS)


@each_row(("text", "value"), [case for cases in WORKS.values() for case in cases], ids=lambda part: str(part)[:30])
async def test_what_the_page_says_works_does(text: str, value: Any) -> None:
    assert await came_to(text) == value


# --- what is missing -----------------------------------------------------------------------------------


def test_every_row_of_what_is_missing_has_a_case_that_is_told_as_it_says() -> None:
    table = rows("What is missing")
    assert set(table) == set(MISSING)
    for label, cases in MISSING.items():
        said = table[label][1]
        assert {when for _, when, _ in cases} == {when for when in (BEFORE, IN_THE_RUN) if when in said}, label


@each_row(("text", "when", "words"), [case for cases in MISSING.values() for case in cases], ids=lambda part: part[:30])
async def test_what_the_page_says_is_missing_is_told_then(text: str, when: str, words: str) -> None:
    if when == IN_THE_RUN:
        assert words in (await broken(text)).error
        return
    async with engine() as hf:
        with pytest.raises(InvalidSourceError) as refused:
            await hf.start(code(text))
        assert words in str(refused.value)
        assert (await hf.sessions()).rows == []


async def test_an_optional_value_is_looked_at_before_it_is_used() -> None:
    async with engine() as hf:
        with pytest.raises(InvalidSourceError, match="`group` is not defined on `None`"):
            await hf.start(code("import re\nre.search('a', 'b').group(0)"))
    assert await came_to("import re\nfound = re.search('a', 'cab')\nfound.group(0) if found else None") == "a"


# --- where a question can be asked -----------------------------------------------------------------------


def test_every_place_of_the_page_has_a_case() -> None:
    assert set(rows("Where a question can be asked")) == set(PLACES)


@each_row(
    ("text", "can_wait"),
    [
        (text, rows("Where a question can be asked").get(label) == ["yes"])
        for label, texts in PLACES.items()
        for text in texts
    ],
    ids=lambda part: str(part)[:30],
)
async def test_a_question_can_be_asked_where_the_page_says(text: str, can_wait: bool) -> None:
    if can_wait:
        assert await came_to(text) == "<q>"
    else:
        assert "llm(…) cannot be called here" in (await broken(text)).error


# --- modules -------------------------------------------------------------------------------------------


def test_the_page_has_every_module_and_no_other() -> None:
    assert {label.strip("`") for label in rows("Modules")} == set(IN_MODULES) == MODULES


@each_row("module", sorted(IN_MODULES))
async def test_a_module_has_what_the_page_says(module: str) -> None:
    text, value = IN_MODULES[module]
    assert await came_to(text) == value


# --- errors, awaitables, values --------------------------------------------------------------------------


def failing(code: str) -> Any:
    def answer(query: Query) -> Failure:
        return Failure("no", code)

    return answer


CATCHES = """
try:
    {call}
    said = "nothing"
except (RuntimeError, TimeoutError, TypeError, ValueError) as error:
    said = f"{{type(error).__name__}}: {{error}}"
said
"""

SOON = 'exec("{}")'
"""Calls that the check before the run would not let through."""


@each_row(
    ("call", "answer", "said"),
    [
        ("llm('q')", failing("failed"), "RuntimeError: no"),
        ("llm('q')", failing("refused"), "RuntimeError: refused: no"),
        ("llm('q')", failing("timeout"), "TimeoutError: no"),
        (SOON.format("llm(5)"), failing("failed"), "TypeError: llm: prompt must be str, got int"),
        (SOON.format("sleep(-1)"), failing("failed"), "ValueError: sleep: seconds must be a number, 0 or more, got -1"),
    ],
)
async def test_what_goes_wrong_is_the_error_that_the_page_says(call: str, answer: Any, said: str) -> None:
    assert await run(CATCHES.format(call=call), answer) == said


async def test_a_spent_budget_and_a_failed_child_are_runtime_errors() -> None:
    said = await run(CATCHES.format(call="[llm('a'), llm('b')]"), budget={"max_llm_calls": 1})
    assert said.startswith("RuntimeError: budget_exceeded:")
    said = await run(CATCHES.format(call="child('cot', {})"))
    assert said.startswith("RuntimeError: ")
    assert "'task'" in said


async def test_an_error_is_told_with_its_line_and_the_lines_that_led_there() -> None:
    text = "def inner(x):\n    return int(x)\ndef run(ctx):\n    return inner('x')\n"
    lines = (await broken(text, file="mine.py")).error.splitlines()
    assert lines[0] == "ValueError: invalid literal for int() with base 10: 'x' (mine.py:2:12)"
    assert [line.strip() for line in lines[2:]] == [
        'File "mine.py", line 4, in run',
        "return inner('x')",
        'File "mine.py", line 2, in inner',
        "return int(x)",
    ]


@each_row(
    ("text", "words"),
    [
        ("async def run(ctx):\n    return await llm('x')", "drop the await, or call llm_async(…)"),
        ("import asyncio\nawait asyncio.gather(llm('x'))", "drop the await, or call llm_async(…)"),
        ("llm_async('x')\n1", "write `await llm_async(…)`"),
    ],
)
async def test_the_wrong_one_of_plain_and_awaitable_is_told_before_the_run(text: str, words: str) -> None:
    async with engine() as hf:
        with pytest.raises(InvalidSourceError) as refused:
            await hf.start(code(text))
    assert words in str(refused.value)


async def test_an_awaitable_that_nobody_awaits_goes_with_the_next_pause_or_is_not_asked() -> None:
    async with engine() as hf:
        pauses, _ = await converse(hf, await hf.start(code("kept = llm_async('a')\nllm('b')")))
        assert pauses[0] == ["a", "b"]
        event = await hf.start(code("kept = llm_async('a')\n1"))
        assert result(event) == 1
        assert "never awaited, so not asked" in (await logged(hf.store, event.session_id))[0]


@each_row("text", ["2**70", "{1, 2}", "b'a'", "{1: 2}", "float('inf')", "import datetime\ndatetime.date(2026, 1, 1)"])
async def test_a_result_that_is_not_json_is_refused(text: str) -> None:
    assert (await broken(text)).to_json()["error_kind"] == "invalid_result"


async def test_tuples_leave_as_lists_and_a_step_sees_one_time() -> None:
    assert await came_to("(1, ('a',))") == [1, ["a"]]
    assert await came_to("import time\nfirst = time.time()\nfor _ in range(1000):\n    pass\ntime.time() - first") == 0


async def test_the_globals_are_there_without_an_import() -> None:
    async with engine() as hf:
        event = await hf.start(
            code("[ctx['task'], env['PLACE'], len(uuid())]", env={"PLACE": "here"}), ctx={"task": "t"}
        )
        assert isinstance(event, CompletedEvent)
        assert event.result == ["t", "here", 36]


# --- limits ----------------------------------------------------------------------------------------------


def test_the_page_has_the_limits_that_the_code_has() -> None:
    table = {label: cells[0] for label, cells in rows("Limits").items()}
    assert table == {
        "computing between two questions": (
            f"{limits.DEADLINE_S:g} s (`--deadline`, at most {limits.MAX_DEADLINE_S:g} s)"
        ),
        "memory of the interpreter": f"{limits.MEMORY_MIB} MiB (`--memory`, at most {limits.MAX_MEMORY_MIB} MiB)",
        "calls inside calls": f"{limits.MAX_RECURSION}",
        "calls of the API in a session": f"{limits.MAX_SUSPENSIONS:,}",
        "all questions of one pause": f"{limits.MAX_ASKED_BYTES >> 20} MiB",
        "items in the arguments of one call": f"{limits.MAX_ITEMS:,}",
        "figures that a session records": f"{limits.MAX_FIGURE_BYTES:,} bytes",
        "text printed in one step": f"{limits.MAX_PRINTED_CHARS:,} characters, {limits.MAX_PRINTED_LINES:,} lines",
        "lines logged in one step": f"{limits.MAX_NOTED_CHARS:,} characters, {limits.MAX_NOTES:,} lines",
        "a value that is asked, answered or returned": f"{MAX_VALUE_BYTES >> 20} MiB, nested {MAX_VALUE_DEPTH} deep",
        "the source": f"{limits.MAX_CODE_CHARS:,} characters",
        "faults that a refusal lists": f"{limits.MAX_FINDINGS}",
    }


@each_row(
    ("text", "kind", "options"),
    [
        ("while True:\n    pass", "deadline", {"deadline_s": 0.3}),
        ("try:\n    while True:\n        pass\nexcept BaseException:\n    pass", "deadline", {"deadline_s": 0.3}),
        ("'x' * (9 * 1024 * 1024)", "memory", {"memory_mib": 8}),
        ("while True:\n    now()", "suspensions", {"deadline_s": 600.0}),
        ("def f():\n    return f()\nf()", "RecursionError", {}),
    ],
    ids=["deadline", "caught", "memory", "suspensions", "recursion"],
)
async def test_a_limit_ends_the_session_with_its_kind(
    text: str, kind: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_program, "MAX_SUSPENSIONS", 5_000)  # the real one takes half a minute
    async with engine() as hf:
        event = failed(await hf.start(code(text, **options)))
    assert event.to_json()["error_kind"] == kind
