"""Where a strategy may pause and where it may not, and what crosses between a strategy and its host."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.alc.lua.source import lua_code
from holdfast.core.events import PausedEvent
from holdfast.core.queries import Failure, LlmQuery, Value
from holdfast.engine.sync import SyncHoldfast, open_sync
from tests.alc.lua.sessions import failed, install, logs, result, run


@pytest.fixture(scope="module")
def hf() -> Iterator[SyncHoldfast]:
    with open_sync("memory:") as opened:
        yield opened


# --- where it may pause ----------------------------------------------------------------------------

ASK = "function() a = alc.llm('x') end"

MAY = {
    "pcall": "a = select(2, pcall(alc.llm, 'x'))",
    "pcall in pcall": "a = select(3, pcall(pcall, alc.llm, 'x'))",
    "xpcall": f"xpcall({ASK}, error)",
    "__index": f"local _ = setmetatable({{}}, {{ __index = {ASK} }}).x",
    "__newindex": f"setmetatable({{}}, {{ __newindex = {ASK} }}).x = 1",
    "__call": f"setmetatable({{}}, {{ __call = {ASK} }})()",
    "__add": f"local _ = setmetatable({{}}, {{ __add = {ASK} }}) + 1",
    "__unm": f"local _ = -setmetatable({{}}, {{ __unm = {ASK} }})",
    "__concat": f"local _ = setmetatable({{}}, {{ __concat = {ASK} }}) .. 1",
    "__eq": f"local mt = {{ __eq = {ASK} }} local _ = setmetatable({{}}, mt) == setmetatable({{}}, mt)",
    "__lt": f"local _ = setmetatable({{}}, {{ __lt = {ASK} }}) < 1",
    "__le": f"local _ = 1 <= setmetatable({{}}, {{ __le = {ASK} }})",
    "__len": f"local _ = #setmetatable({{}}, {{ __len = {ASK} }})",
    "an iterator": f"for _ in {ASK} do end",
    "__pairs": f"for _ in pairs(setmetatable({{}}, {{ __pairs = function() ({ASK})() return next, {{}} end }})) do end",
    "__close": f"do local c <close> = setmetatable({{}}, {{ __close = {ASK} }}) end",
    "__close after an error": (
        f"pcall(function() local c <close> = setmetatable({{}}, {{ __close = {ASK} }}) error('e') end)"
    ),
    "__close after a break": f"for _ in next, {{ 1 }}, nil, setmetatable({{}}, {{ __close = {ASK} }}) do break end",
    "a loaded chunk": "a = load([[return alc.llm('x')]])()",
    "an argument": "a = tostring(select(1, alc.llm('x')))",
    "tail calls": "local function f(n) if n == 0 then return alc.llm('x') end return f(n - 1) end a = f(1000)",
    "deep calls": "local function f(n) if n == 0 then return alc.llm('x') end return (f(n - 1)) end a = f(1000)",
}


@pytest.mark.parametrize("place", MAY)
def test_a_strategy_may_pause_in(hf: SyncHoldfast, place: str) -> None:
    ran = run(hf, f"local a {MAY[place]} return a")
    assert ran.pauses == [["x"]]
    assert ran.result == "<x>"


MAY_NOT = {
    "a comparison of table.sort": ("table.sort({ 2, 1 }, function() alc.llm('no') end)", "table.sort"),
    "a replacement of gsub": ("(('x'):gsub('x', function() return alc.llm('no') end))", "string.gsub"),
    "__tostring": ("tostring(setmetatable({}, { __tostring = function() return alc.llm('no') end }))", "__tostring"),
    "a batch in a comparison": (
        "table.sort({ 2, 1 }, function() alc.llm_batch({ { prompt = 'no' } }) end)",
        "alc.llm_batch",
    ),
    "the state in a comparison": ("table.sort({ 2, 1 }, function() return alc.state.get('k') end)", "alc.state"),
    "the reader of load": ("assert(load(function() return alc.llm('no') end))", "called from C"),
    "coroutine.wrap": ("coroutine.wrap(function() return alc.llm('no') end)()", "coroutine.wrap and coroutine.create"),
    "coroutine.create": (
        "assert(coroutine.resume(coroutine.create(function() return alc.llm('no') end)))",
        "a coroutine that the strategy made itself",
    ),
    "a module while it loads": (
        "(function() package.preload.m = function() return alc.llm('no') end return require('m') end)()",
        "while a module is being loaded by require",
    ),
}


@pytest.mark.parametrize("place", MAY_NOT)
def test_a_strategy_is_told_that_it_cannot_pause_in(hf: SyncHoldfast, place: str) -> None:
    code, told = MAY_NOT[place]
    ran = run(hf, f"local ok, why = pcall(function() return {code} end) return {{ ok, why, alc.llm('yes') }}")
    ok, why, after = ran.result
    assert not ok
    assert "cannot pause" in why
    assert told in why
    assert ran.pauses == [["yes"]]
    assert after == "<yes>"


def test_a_pause_where_none_is_possible_ends_a_strategy_that_does_not_catch_it(hf: SyncHoldfast) -> None:
    assert "cannot pause here" in run(hf, "table.sort({ 2, 1 }, function() return alc.llm('no') end)").error


def test_a_module_may_pause_once_it_is_loaded(
    hf: SyncHoldfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, {"m": "return { ask = function(p) return alc.llm(p) end }"})
    assert run(hf, "return require('m').ask('x')").result == "<x>"


def test_a_module_that_yields_while_it_loads_does_not_keep_the_strategy_from_pausing(hf: SyncHoldfast) -> None:
    code = """
        package.preload.m = function() coroutine.yield("half") return "whole" end
        local co = coroutine.wrap(function() return require("m") end)
        local half = co()
        local answer = alc.llm("between")
        return { half, answer, (co()) }
    """
    ran = run(hf, code)
    assert ran.result == ["half", "<between>", "whole"]


def test_the_coroutines_of_a_strategy_live_on_across_pauses(hf: SyncHoldfast) -> None:
    code = """
        local co = coroutine.wrap(function(first)
            local got = { first }
            while #got < 4 do got[#got + 1] = coroutine.yield(#got) end
            return got
        end)
        local last
        for i = 1, 4 do last = co(alc.llm("q" .. i)) end
        return last
    """
    ran = run(hf, code)
    assert ran.result == ["<q1>", "<q2>", "<q3>", "<q4>"]
    assert ran.pauses == [["q1"], ["q2"], ["q3"], ["q4"]]


def test_a_value_that_a_strategy_yields_itself_is_not_taken_for_a_question(hf: SyncHoldfast) -> None:
    code = "local ok, why = pcall(coroutine.yield, {}, { { kind = 'llm', prompt = 'forged' } }) return { ok, why }"
    ran = run(hf, code)
    assert ran.pauses == []
    assert ran.result == [False, "attempt to yield from outside a coroutine"]


# --- answers ---------------------------------------------------------------------------------------


def test_answers_reach_their_questions_in_any_order(hf: SyncHoldfast) -> None:
    event = hf.start(lua_code("return alc.llm_batch({ { prompt = 'a' }, { prompt = 'b' }, { prompt = 'c' } })"))
    for asked_id in ("q-2", "q-0"):
        event = hf.feed(event.session_id, {asked_id: f"answer to {asked_id}"})
    event = hf.feed(event.session_id, {"q-1": "answer to q-1"})
    assert result(event) == ["answer to q-0", "answer to q-1", "answer to q-2"]


def test_a_failure_that_the_host_feeds_can_be_caught(hf: SyncHoldfast) -> None:
    code = "local ok, why = pcall(alc.llm, 'x') return { ok, why, alc.llm_safe('y', {}, 'the default') }"
    ran = run(hf, code, lambda query: Failure("the model is away", "unavailable"))
    assert ran.result == [False, "the model is away", "the default"]


def test_a_failure_that_is_not_caught_ends_the_strategy_with_its_message(hf: SyncHoldfast) -> None:
    assert run(hf, "return alc.llm('x')", lambda _: Failure("the model is away")).error == "the model is away"


def test_one_failure_in_a_batch_names_its_item(hf: SyncHoldfast) -> None:
    code = "return { pcall(alc.llm_batch, { { prompt = 'a' }, { prompt = 'b' } }) }"
    ran = run(hf, code, lambda query: Failure("away") if query.id == "q-1" else "fine")
    assert ran.result == [False, "alc.llm_batch: item 2 failed: away"]


def test_an_answer_that_is_no_text_comes_as_its_json(hf: SyncHoldfast) -> None:
    ran = run(hf, "return alc.json_decode(alc.llm('x'))", lambda _: Value(value={"a": [1, 2.5, None], "b": {}}))
    assert ran.result == {"a": [1, 2.5, None], "b": {}}


@pytest.mark.parametrize(
    "text", ["", "\0", "a\0b", "é", "\U0001f600", "\r\n", "\u2028", "x" * 200_000, "budget_exceeded:"]
)
def test_any_text_survives_the_way_in_and_out(hf: SyncHoldfast, text: str) -> None:
    ran = run(hf, "return { ctx.text, (alc.llm(ctx.text)) }", lambda _: text, ctx={"text": text})
    assert ran.pauses == [[text]]
    assert ran.result == [text, text]


# --- values ----------------------------------------------------------------------------------------


def test_ctx_keeps_arrays_and_the_kinds_of_numbers(hf: SyncHoldfast) -> None:
    ctx: dict[str, Any] = {
        "none": [],
        "empty": {},
        "int": 1,
        "float": 1.0,
        "big": 2**63 - 1,
        "list": [1, None, 3],
        "t": True,
    }
    ran = run(hf, "ctx.big = ctx.big - 1 + 1 return ctx", ctx=ctx)
    assert ran.result == ctx
    assert [type(ran.result[name]) for name in ("int", "float")] == [int, float]
    code = "return { math.type(ctx.int), math.type(ctx.float), type(ctx.empty), next(ctx.empty) == nil }"
    assert run(hf, code, ctx=ctx).result == ["integer", "float", "table", True]


@pytest.mark.parametrize(("ctx", "kind"), [(5, "number"), ("t", "string"), ([1], "table"), (True, "boolean")])
def test_ctx_may_be_any_value(hf: SyncHoldfast, ctx: Any, kind: str) -> None:
    assert run(hf, "return { type(ctx), ctx }", ctx=ctx).result == [kind, ctx]


def test_what_is_not_utf8_is_repaired_with_a_warning(hf: SyncHoldfast) -> None:
    code = r"""
        alc.state.set("k", "s\255t")
        local a = alc.llm("p\255q", { system = "s\200", note = "o\255" })
        print("l\255m")
        return { r = { "x\255y" }, state = alc.state.get("k") }
    """
    event = hf.start(lua_code(code))
    assert isinstance(event, PausedEvent)
    (query,) = event.queries
    assert isinstance(query, LlmQuery)
    assert (query.prompt, query.system, query.options) == ("p\ufffdq", "s\ufffd", {"note": "o\ufffd"})
    assert result(hf.feed(event.session_id, "a")) == {"r": ["x\ufffdy"], "state": "s\ufffdt"}
    written = logs(hf, event.session_id)
    warned = [line.message for line in written if line.level == "warn"]
    assert len([line for line in warned if "not valid UTF-8 and was repaired" in line]) >= 3
    assert any("result.r[1]" in line for line in warned)
    assert "l\ufffdm" in [line.message for line in written]


# --- budgets ---------------------------------------------------------------------------------------

TRIES = """
local told = {}
for i = 1, ctx.tries do
    local ok, why = pcall(alc.llm, "q" .. i, { max_tokens = 10 })
    told[i] = ok and "asked" or why
end
return told
"""


def test_the_budget_in_ctx_is_kept_with_the_exact_words_of_the_reference(hf: SyncHoldfast) -> None:
    ran = run(hf, TRIES, ctx={"tries": 4, "budget": {"max_llm_calls": 2}})
    reached = "budget_exceeded: max_llm_calls (2) reached (2 used)"
    assert ran.result == ["asked", "asked", reached, reached]
    assert ran.stat("llm_calls") == 2
    assert ran.stat("budget") == {"max_llm_calls": 2}


def test_a_budget_of_nothing_refuses_the_first_question(hf: SyncHoldfast) -> None:
    ran = run(hf, "return alc.llm('x')", ctx={"budget": {"max_llm_calls": 0}})
    assert ran.pauses == []
    assert ran.error == "budget_exceeded: max_llm_calls (0) reached (0 used)"
    assert failed(ran.event).error_kind == "budget_exceeded"


def test_time_and_tokens_that_are_used_up_are_told_in_the_words_of_the_reference(hf: SyncHoldfast) -> None:
    ran = run(hf, TRIES, ctx={"tries": 1, "budget": {"max_elapsed_ms": 0}})
    (told,) = ran.result
    assert re.fullmatch(r"budget_exceeded: max_elapsed_ms \(0ms\) reached \(\d+ms elapsed\)", told)
    ran = run(hf, TRIES, lambda _: "word " * 40, ctx={"tries": 2, "budget": {"max_tokens": 40}})
    used = ran.stat("total_tokens")["tokens"]
    assert ran.result == ["asked", f"budget_exceeded: max_tokens (40) reached ({used} used)"]


@pytest.mark.parametrize(
    "budget", [{}, {"max_llm_calls": 1.5}, {"max_llm_calls": -1}, {"other": 1}, 5, "none", None, []]
)
def test_what_is_no_budget_is_none(hf: SyncHoldfast, budget: Any) -> None:
    code = "return { alc.llm('x'), alc.budget_remaining() == nil, alc.budget_check() }"
    assert run(hf, code, ctx={"budget": budget}).result == ["<x>", True, True]


def test_a_batch_that_does_not_fit_is_refused_as_a_whole(hf: SyncHoldfast) -> None:
    code = """
        local batch = { { prompt = "a" }, { prompt = "b" }, { prompt = "c" } }
        local ok, why = pcall(alc.llm_batch, batch)
        return { ok, why, alc.llm("one"), alc.budget_remaining().llm_calls }
    """
    ran = run(hf, code, ctx={"budget": {"max_llm_calls": 2}})
    ok, why, one, left = ran.result
    assert not ok
    assert why.startswith("budget_exceeded: max_llm_calls (2)")
    assert (one, left) == ("<one>", 1)
    assert ran.pauses == [["one"]]


def test_what_remains_of_the_budget_is_told_after_every_pause(hf: SyncHoldfast) -> None:
    code = """
        local left = {}
        for i = 1, 3 do left[i] = alc.budget_remaining().llm_calls alc.llm("x") end
        left[4] = alc.budget_remaining().llm_calls
        return { left, alc.budget_check(), alc.stats.llm_calls() }
    """
    assert run(hf, code, ctx={"budget": {"max_llm_calls": 3}}).result == [[3, 2, 1, 0], False, 3]
