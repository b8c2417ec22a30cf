"""Sources that were changed, run in their sandboxes on changed answers: every session ends or asks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import TypeAlias

import hypothesis.strategies as st

from holdfast.alc.lua.kind import LuaKind
from holdfast.alc.lua.source import lua_code
from holdfast.core.events import CompletedEvent, FailedEvent, PausedEvent
from holdfast.core.records import Program
from holdfast.core.values import Json
from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.programs.sandbox.kind import PythonKind
from holdfast.programs.sandbox.source import python_code
from holdfast.testing.patience import HANG_S
from tests.fuzz.fuzzer import Fuzzer, assert_is_declared
from tests.fuzz.generation import ODD_TEXTS, Draw, changed_json, changed_text

LUA = [
    """
local M = { meta = { name = "m" } }
function M.run(ctx)
    local a = alc.llm("First: " .. tostring(ctx.task), { system = "Be brief.", max_tokens = 50 })
    local many = alc.llm_batch({ { prompt = "x" }, { prompt = "y" } })
    local found = alc.json_extract(a) or {}
    alc.log("info", "so " .. #many)
    return { first = a, n = alc.parse_score(many[1]), found = found, all = alc.map({1}, tostring) }
end
return M
""",
    """
local text = alc.llm("?")
for word in string.gmatch(text, "%w+") do alc.stats.record("words", #word) end
local ok, err = pcall(function() return alc.json_decode(text) end)
return { ok = ok, err = tostring(err), rep = string.rep("ab", 3), s = string.format("%5.1f|%q", 2, text) }
""",
]
PYTHON = [
    """
META = {"name": "m", "description": "x", "parameters": {"task": {"type": "str", "description": "x"}}}

async def run(ctx):
    a = llm("First: " + str(ctx.get("task")), max_tokens=50)
    many = llm_batch(["x", "y"])
    found = json_extract(a) or {}
    log("so " + str(len(many)))
    ctx["result"] = {"first": a, "n": parse_score(many[0]), "found": found, "list": [x * 2 for x in range(3)]}
    return ctx["result"]
""",
    """
import re
text = llm("?")
words = re.findall(r"\\w+", text)
try:
    found = {w: len(w) for w in words}
except ValueError as error:
    found = str(error)
[found, match_enum(text, ["yes", "no"]), list_items(text), f"{len(text):>5}"]
""",
]
LUA_WORDS = [
    "end",
    "while true do",
    "alc.llm(",
    "nil",
    "{",
    "}",
    "string.rep('x', 1e9)",
    "#",
    "..",
    "goto x",
    "coroutine.yield()",
    "error({})",
]
PYTHON_WORDS = [
    "while True: pass\n",
    "llm(",
    "None",
    "{",
    "}",
    "'x' * 10**9",
    "await ",
    "raise ValueError\n",
    "\n    ",
    "lambda: ",
    "yield ",
]


Run: TypeAlias = tuple[str, Json, list[str]]


@st.composite
def runs(draw: Draw, samples: list[str], words: list[str]) -> Run:
    """A source, what it works on, and the answers it gets."""
    code = (
        draw(changed_text(samples, most=2, words=words)) if draw(st.integers(0, 3)) else draw(st.sampled_from(samples))
    )
    ctx = {"task": "tea", "options": {"n": [1, 2]}}
    if draw(st.integers(0, 2)) == 0:
        ctx = draw(changed_json([ctx]))
    good = ['```json\\n{"score": 7}\\n```', "1. yes\\n2. no", "Score: 8/10"]
    answers = draw(st.lists(changed_text(good) | st.sampled_from(ODD_TEXTS), min_size=3, max_size=3))
    return code, ctx, answers


async def run(holdfast: Holdfast, program: Program, ctx: Json, answers: list[str]) -> None:
    async with asyncio.timeout(HANG_S):
        event = await holdfast.start(program, ctx=ctx)
        for _ in range(6):
            match event:
                case PausedEvent():
                    given = {each.id: answers[n % len(answers)] for n, each in enumerate(event.queries)}
                    event = await holdfast.feed(event.session_id, given)
                case CompletedEvent() | FailedEvent():
                    json.dumps(await holdfast.status(event.session_id)).encode()
                    return
                case _:
                    raise AssertionError(event)
        await holdfast.cancel(event.session_id)


def fuzz_running(
    fuzzer: Fuzzer,
    kind: LuaKind | PythonKind,
    make: Callable[[str], Program],
    inputs: st.SearchStrategy[Run],
    examples: int,
) -> None:
    with asyncio.Runner() as runner:
        holdfast = open_holdfast("memory:")
        holdfast.add_kind(kind)
        runner.run(holdfast.__aenter__())

        async def check(given: Run) -> None:
            code, ctx, answers = given
            try:
                await run(holdfast, make(code), ctx, answers)
            except Exception as error:
                assert_is_declared(error)

        try:
            fuzzer.run(lambda given: runner.run(check(given)), inputs, examples)
        finally:
            runner.run(holdfast.__aexit__(None, None, None))


def test_changed_lua_ends_or_asks(fuzzer: Fuzzer) -> None:
    fuzz_running(fuzzer, LuaKind(workers=1, deadline_s=0.5), lua_code, runs(LUA, LUA_WORDS), examples=60)


def python_in_a_moment(code: str) -> Program:
    return python_code(code, deadline_s=0.5)


def test_changed_python_ends_or_asks(fuzzer: Fuzzer) -> None:
    fuzz_running(fuzzer, PythonKind(workers=1), python_in_a_moment, runs(PYTHON, PYTHON_WORDS), examples=30)
