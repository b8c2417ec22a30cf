"""The three languages compose the same questions: each is run, and what it asks is compared."""

from __future__ import annotations

import pytest

from holdfast.alc.lua.source import lua_code
from holdfast.core.queries import LlmQuery
from holdfast.core.records import Program
from holdfast.programs import prompts
from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import strategy
from holdfast.programs.sandbox.source import python_code
from holdfast.strategies.rehearsal import rehearsed

REQUEST, BAD = "List {request} and {answer} as %s JSON.", "Sorry: {request}, [1, %d"


@strategy(name="prompts-native")
async def native(ctx: Context) -> object:
    return [await ctx.llm_json(REQUEST), ctx.cache_info()["max_entries"]]


LANGUAGES = {
    "native": native.program,
    "python": python_code(f"[llm_json({REQUEST!r}), cache_info()['max_entries']]"),
    "lua": lua_code(f'local found = alc.llm_json("{REQUEST}") return {{ found, alc.cache_info().max_entries }}'),
}


@pytest.mark.parametrize("language", LANGUAGES)
async def test_every_language_asks_for_json_again_with_the_same_words(language: str) -> None:
    program: Program = LANGUAGES[language]
    done = await rehearsed(program, None, [BAD, '{"a": 1}'])
    assert done.error is None
    assert done.result == [{"a": 1}, prompts.MAX_CACHED]
    first, second = (call.query for call in done.calls)
    assert isinstance(first, LlmQuery)
    assert isinstance(second, LlmQuery)
    assert (first.prompt, first.system) == (REQUEST, None)
    assert second.prompt == prompts.json_repair_prompt(REQUEST, BAD)
    assert second.system == prompts.JSON_ONLY


def test_the_second_question_holds_the_request_and_the_answer_as_they_are() -> None:
    asked = prompts.json_repair_prompt(REQUEST, BAD)
    assert asked.index(REQUEST) < asked.index(BAD)
    assert asked.count(BAD) == 1
