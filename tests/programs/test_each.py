"""`llm_each` in the three languages: one pause, in which a failure costs only its own answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.alc.lua.source import lua_code
from holdfast.core.events import AcceptedEvent, FailedEvent
from holdfast.core.queries import Failure, LlmQuery
from holdfast.core.records import PausedRecord, Program
from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.programs.errors import QueryFailedError
from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import Strategy, strategy
from holdfast.programs.sandbox.source import python_code
from tests.programs.sandbox.helpers import forget
from tests.programs.surface import asked, logged, quiet, result

PYTHON = """
def run(ctx):
    try:
        return llm_each(ctx["items"], role="sample")
    except TimeoutError as error:
        return f"late: {error}"
    except RuntimeError as error:
        return [f"failed: {error}", llm("One at least?")]
"""

LUA = """
local items = {}
for i, item in ipairs(ctx.items) do items[i] = { prompt = item, role = "sample" } end
local ok, came = pcall(alc.llm_each, items)
if ok then return came end
return { "failed: " .. came, alc.llm("One at least?") }
"""


@strategy(name="asks-each")
async def native(ctx: Context) -> Any:
    try:
        return await ctx.llm_each(ctx["items"], role="sample")
    except QueryFailedError as error:
        return f"late: {error}" if error.code == "timeout" else [f"failed: {error}", await ctx.llm("One at least?")]


PROGRAMS: dict[str, Program | Strategy] = {"python": python_code(PYTHON), "lua": lua_code(LUA), "native": native}
NOTHING = {"python": None, "lua": False, "native": None}
NAMES = {"python": "llm_each", "lua": "alc.llm_each", "native": "llm_each"}
ITEMS = {"items": ["a", "b", "c"]}

every_language = pytest.mark.parametrize("language", PROGRAMS)


@pytest.fixture
async def hf() -> AsyncIterator[Holdfast]:
    async with open_holdfast("memory:") as opened:
        yield opened


async def pauses(hf: Holdfast, session_id: str) -> list[PausedRecord]:
    return [entry.record async for entry in hf.store.journal(session_id) if isinstance(entry.record, PausedRecord)]


@every_language
async def test_a_question_that_failed_has_no_answer_and_the_others_go_on(hf: Holdfast, language: str) -> None:
    event = await hf.start(PROGRAMS[language], ctx=ITEMS)
    session_id = event.session_id
    assert [(query.prompt, query.options) for query in asked(event)] == [(p, {"role": "sample"}) for p in "abc"]
    assert isinstance(await hf.feed(session_id, {"q-2": Failure("no idea")}), AcceptedEvent)
    assert isinstance(await hf.feed(session_id, {"q-0": "A"}), AcceptedEvent)
    assert result(await hf.feed(session_id, {"q-1": "B"})) == ["A", "B", NOTHING[language]]
    assert await logged(hf, session_id) == [("warn", f"{NAMES[language]}: item 3 failed: no idea")]
    assert [(len(paused.queries), paused.wake) for paused in await pauses(hf, session_id)] == [(3, "all")]


@every_language
async def test_all_answers_come_in_the_order_of_the_questions(hf: Holdfast, language: str) -> None:
    event = await hf.start(PROGRAMS[language], ctx=ITEMS)
    event = await hf.feed(event.session_id, {"q-1": "B", "q-2": "C", "q-0": "A"})
    assert result(event) == ["A", "B", "C"]
    assert await logged(hf, event.session_id) == []


@every_language
async def test_if_all_failed_the_first_error_is_raised_and_can_be_caught(hf: Holdfast, language: str) -> None:
    event = await hf.start(PROGRAMS[language], ctx=ITEMS)
    event = await hf.feed(event.session_id, {"q-2": Failure("third")})
    event = await hf.feed(event.session_id, {"q-1": Failure("second"), "q-0": Failure("first")})
    assert [query.prompt for query in asked(event)] == ["One at least?"]
    assert result(await hf.feed(event.session_id, "yes")) == ["failed: first", "yes"]
    assert await logged(hf, event.session_id) == []


@every_language
async def test_questions_that_do_not_fit_into_the_budget_are_not_asked(hf: Holdfast, language: str) -> None:
    event = await hf.start(PROGRAMS[language], ctx=ITEMS, budget={"max_llm_calls": 2})
    assert [query.prompt for query in asked(event)] == ["One at least?"]
    failed, answer = result(await hf.feed(event.session_id, "yes"))
    assert failed.startswith("failed: budget_exceeded: max_llm_calls")
    assert answer == "yes"
    assert await logged(hf, event.session_id) == []


@every_language
async def test_no_questions_are_no_answers(hf: Holdfast, language: str) -> None:
    assert result(await hf.start(PROGRAMS[language], ctx={"items": []})) == []


@pytest.mark.parametrize("program", [PROGRAMS["python"], PROGRAMS["native"]])
async def test_the_error_is_that_of_the_first_question_in_its_kind_too(
    hf: Holdfast, program: Program | Strategy
) -> None:
    event = await hf.start(program, ctx={"items": ["a", "b"]})
    event = await hf.feed(event.session_id, {"q-1": Failure("down"), "q-0": Failure("no answer", "timeout")})
    assert result(event) == "late: no answer"


@pytest.mark.parametrize(
    ("language", "is_lost"), [("python", False), ("python", True), ("lua", False), ("native", False)]
)
async def test_what_has_come_is_there_after_a_restart(tmp_path: Path, language: str, is_lost: bool) -> None:
    answered: list[dict[str, Any]] = [{"q-1": Failure("no b")}, {"q-0": "A"}, {"q-2": "C"}]
    async with quiet(tmp_path) as hf:
        event = await hf.start(PROGRAMS[language], ctx=ITEMS, id="s")
        lines = await logged(hf, "s")
    for given in answered:
        if is_lost:
            forget(tmp_path)
        async with quiet(tmp_path) as hf:
            event = await hf.feed("s", given)
            lines = await logged(hf, "s")
    assert result(event) == ["A", NOTHING[language], "C"]
    assert [line for line in lines if line[0] == "warn"] == [("warn", f"{NAMES[language]}: item 2 failed: no b")]


@pytest.mark.parametrize("language", ["python", "native"])
async def test_options_of_an_item_go_before_those_of_all(hf: Holdfast, language: str) -> None:
    items = ["a", {"prompt": "b", "max_tokens": 3, "role": "own"}]
    first, second = asked(await hf.start(PROGRAMS[language], ctx={"items": items}))
    assert first == LlmQuery(id="q-0", prompt="a", options={"role": "sample"})
    assert second == LlmQuery(id="q-1", prompt="b", max_tokens=3, options={"role": "own"})


@pytest.mark.parametrize(
    ("language", "items", "told"),
    [
        ("python", '["a", 5]', "llm_each: item 2 must be a prompt, or a dict with the key 'prompt'"),
        ("python", '"ab"', "llm_each: items must be a list of prompts or dicts, got str"),
        ("lua", '{{prompt = "a"}, 5}', "strategy:1: alc.llm_each: item 2 must be a table with a prompt, got number"),
        ("lua", "{{}}", "strategy:1: alc.llm_each: prompt of item 1 must be a string, got nil"),
        ("lua", '"ab"', "strategy:1: alc.llm_each: items must be an array, got string"),
    ],
)
async def test_it_says_which_item_is_wrong_before_it_asks(hf: Holdfast, language: str, items: str, told: str) -> None:
    source = f"def run(ctx):\n    return llm_each(eval({items!r}))"
    event = await hf.start(lua_code(f"alc.llm_each({items})") if language == "lua" else python_code(source))
    assert isinstance(event, FailedEvent), event
    assert told in event.error


async def test_a_native_strategy_is_told_which_item_is_wrong(hf: Holdfast) -> None:
    async def wrong_items(ctx: Context) -> Any:
        return await ctx.llm_each(["a", {"system": "s"}])

    event = await hf.start(wrong_items)
    assert isinstance(event, FailedEvent)
    assert "llm_each: item 2 has no 'prompt'" in event.error


async def test_an_answer_that_is_no_text_comes_as_its_json_in_the_sandboxes(hf: Holdfast) -> None:
    for language in ("python", "lua"):
        event = await hf.start(PROGRAMS[language], ctx={"items": ["a"]})
        assert result(await hf.feed(event.session_id, {"q-0": {"n": [1]}})) == ['{"n":[1]}']
