"""`alc.fork`: one pause a generation, in an order that is always the same, within the budget, each child by itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.alc.lua.source import lua_package
from holdfast.core.queries import Failure, LlmQuery, Query
from holdfast.engine.sync import SyncHoldfast, open_sync
from tests.alc.lua.sessions import Run, echo, install, logs, run


@pytest.fixture(scope="module")
def hf() -> Iterator[SyncHoldfast]:
    with open_sync("memory:") as opened:
        yield opened


@pytest.fixture(autouse=True)
def _packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, PACKAGES)


PACKAGES = {
    "asks": "return { run = function(ctx) return alc.llm(ctx.task .. ' of ' .. (ctx.who or 'asks')) end }",
    "twice": "return { run = function(ctx) local a = alc.llm('first') return a .. alc.llm('second') end }",
    "batch": ("return { run = function(ctx) return alc.llm_batch({ { prompt = 'b1' }, { prompt = 'b2' } }) end }"),
    "none": "return { run = function(ctx) return { quiet = true } end }",
    "breaks": "return { run = function(ctx) error('broken', 0) end }",
    "late": "return { run = function(ctx) alc.llm('before') error({ code = 7 }) end }",
    "library": "return { helper = 1 }",
    "nested": """return { run = function(ctx)
        local e = alc.fork({ "asks", "twice" }, ctx)
        return { e[1].result, e[2].result }
    end }""",
    "keeps": (
        "return { run = function(ctx) alc.state.set('k', ctx.task) local n = alc.state.incr('n')"
        " return { alc.state.get('k'), n, alc.llm('with state') } end }"
    ),
    "talks": (
        "return { run = function(ctx) print('printed') alc.log('warn', 'logged') alc.stats.record('s', 5)"
        " alc.progress(1, 2, 'half') local a = alc.llm('x') return { alc.stats.get('s'), a } end }"
    ),
    "thief_a": "return { run = function() string.stolen = coroutine.running() return alc.llm('a') end }",
    "thief_b": (
        "return { run = function() coroutine.resume(string.stolen, { { ok = true, value = 'forged' } })"
        " return { pcall(coroutine.close, string.stolen) } end }"
    ),
    "gives_a_function": "return { run = function() return print end }",
    "yields": "return { run = function() return coroutine.yield(1) end }",
    "global": "shared = (shared or 0) + 1 return { run = function() shared = shared + 1 return shared end }",
}


def test_a_generation_of_children_is_one_pause(hf: SyncHoldfast) -> None:
    code = "return alc.fork({ 'twice', 'batch', 'none', 'asks' }, { task = 't' })"
    ran = run(hf, code)
    assert ran.pauses == [["first", "b1", "b2", "t of asks"], ["second"]]
    assert ran.result == [
        {"strategy": "twice", "ok": True, "result": "<first><second>"},
        {"strategy": "batch", "ok": True, "result": ["<b1>", "<b2>"]},
        {"strategy": "none", "ok": True, "result": {"quiet": True}},
        {"strategy": "asks", "ok": True, "result": "<t of asks>"},
    ]
    assert (ran.stat("llm_calls"), ran.stat("pauses"), ran.stat("rounds")) == (5, 2, 2)


def test_forks_inside_forks_share_the_pause_of_their_generation(hf: SyncHoldfast) -> None:
    ran = run(
        hf, "local e = alc.fork({ 'nested', 'twice', 'nested' }, { task = 't' }) return { e[1].result, e[3].result }"
    )
    assert ran.pauses == [["t of asks", "first", "first", "t of asks", "first"], ["second", "second", "second"]]
    assert ran.result == [["<t of asks>", "<first><second>"]] * 2


def test_forks_come_in_the_same_order_every_time(hf: SyncHoldfast) -> None:
    code = "return alc.fork({ 'nested', 'batch', 'asks', 'keeps', 'twice', 'late' }, { task = 't' })"
    runs = [run(hf, code) for _ in range(3)]
    assert runs[0].pauses == runs[1].pauses == runs[2].pauses
    names = ["nested", "batch", "asks", "keeps", "twice", "late"]
    assert [entry["strategy"] for entry in runs[0].result] == names


@pytest.mark.parametrize("options", ["nil", "{}", "{ on_error = 'skip' }"])
def test_a_child_that_fails_is_told_and_the_others_go_on(hf: SyncHoldfast, options: str) -> None:
    ran = run(hf, f"return alc.fork({{ 'breaks', 'asks', 'late', 'library', 'missing' }}, {{ task = 't' }}, {options})")
    broken, fine, late, library, missing = ran.result
    assert broken == {"strategy": "breaks", "ok": False, "error": "broken"}
    assert fine == {"strategy": "asks", "ok": True, "result": "<t of asks>"}
    assert (late["ok"], late["error"]) == (False, '{"code":7}')
    assert "run" in library["error"]
    assert "there is no such package" in missing["error"]


def test_abort_raises_the_first_error_once_all_have_finished(hf: SyncHoldfast) -> None:
    ran = run(hf, "return alc.fork({ 'twice', 'late', 'breaks' }, {}, { on_error = 'abort' })")
    assert ran.pauses == [["first", "before"], ["second"]]
    assert ran.error == "alc.fork: strategy 'late' failed: {\"code\":7}"


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("alc.fork({}, {})", "alc.fork: strategies must be a non-empty array"),
        ("alc.fork('asks', {})", "alc.fork: strategies must be a non-empty array"),
        (
            "alc.fork({ '../asks' }, {})",
            "alc.fork: invalid strategy name '../asks' (only alphanumeric and underscore allowed)",
        ),
        (
            "alc.fork({ 'as ks' }, {})",
            "alc.fork: invalid strategy name 'as ks' (only alphanumeric and underscore allowed)",
        ),
        ("alc.fork({ 'asks' }, print)", "cannot serialize <function>"),
    ],
)
def test_a_fork_that_makes_no_sense_is_refused(hf: SyncHoldfast, call: str, told: str) -> None:
    assert told in run(hf, f"return {call}").error


def test_a_result_that_no_child_could_hand_over_is_the_error_of_that_child(hf: SyncHoldfast) -> None:
    function, beside, yields = run(hf, "return alc.fork({ 'gives_a_function', 'none', 'yields' }, {})").result
    assert "cannot serialize <function>" in function["error"]
    assert "yield from outside a coroutine" in yields["error"]
    assert beside["ok"]


def test_children_have_globals_and_a_ctx_of_their_own(hf: SyncHoldfast) -> None:
    code = """
        local given = { list = { 1 } }
        shared = 100
        local e = alc.fork({ "global", "global" }, given)
        return { shared, e[1].result, e[2].result, require("global").run(), given }
    """
    assert run(hf, code).result == [100, 2, 2, 102, {"list": [1]}]


def test_each_child_has_its_own_namespace_of_the_state(hf: SyncHoldfast) -> None:
    code = """
        alc.state.set("k", "the parent's")
        local e = alc.fork({ "keeps", "keeps" }, { task = ctx.task })
        local shown = { alc.state.show("fork-0", "k"), alc.state.show("fork-1", "k") }
        return { alc.state.get("k"), e[1].result, e[2].result, shown }
    """
    ran = run(hf, code, ctx={"task": "mine", "_ns": "pausing"})
    parent, first, second, shown = ran.result
    assert parent == "the parent's"
    assert [first[0], first[2]] == [second[0], second[2]] == ["mine", "<with state>"]
    assert shown == ["mine", "mine"]
    assert ran.pauses == [["with state", "with state"]]


def test_what_children_say_is_marked_with_who_said_it(hf: SyncHoldfast) -> None:
    ran = run(hf, "alc.stats.record('s', 1) return { alc.fork({ 'talks' }, {})[1].result, alc.stats.get('s') }")
    assert ran.result == [[5, "<x>"], 1]
    said = [(line.level, line.message) for line in logs(hf, ran.id)]
    assert ("warn", "[fork-0 talks] logged") in said
    assert ran.event.stats["custom"] == {"s": 1, "fork-0.s": 5}


def test_the_budget_of_forks_is_reserved_before_anything_is_asked(hf: SyncHoldfast) -> None:
    ran = run(hf, "return alc.fork({ 'asks', 'asks', 'asks' }, { task = 't' })", ctx={"budget": {"max_llm_calls": 2}})
    assert ran.pauses == [["t of asks", "t of asks"]]
    assert [entry["ok"] for entry in ran.result] == [True, True, False]
    assert ran.result[2]["error"] == "budget_exceeded: max_llm_calls (2) reached (2 used)"
    assert ran.stat("llm_calls") == 2


def test_a_batch_in_a_fork_that_does_not_fit_leaves_the_calls_to_its_siblings(hf: SyncHoldfast) -> None:
    ran = run(hf, "return alc.fork({ 'asks', 'batch', 'asks' }, { task = 't' })", ctx={"budget": {"max_llm_calls": 2}})
    assert ran.pauses == [["t of asks", "t of asks"]]
    assert [entry["ok"] for entry in ran.result] == [True, False, True]
    assert ran.result[1]["error"].startswith("budget_exceeded: max_llm_calls (2)")


def test_the_budget_holds_in_forks_inside_forks(hf: SyncHoldfast) -> None:
    ran = run(hf, "return alc.fork({ 'nested', 'nested' }, { task = 't' })", ctx={"budget": {"max_llm_calls": 3}})
    assert sum(map(len, ran.pauses)) <= 3
    assert ran.stat("llm_calls") == sum(map(len, ran.pauses))


def test_a_failure_reaches_the_child_that_asked_and_no_other(hf: SyncHoldfast) -> None:
    def answer(query: Query) -> Any:
        return Failure("away") if isinstance(query, LlmQuery) and query.prompt == "b2" else echo(query)

    entries = run(hf, "return alc.fork({ 'asks', 'batch', 'twice' }, { task = 't' })", answer).result
    assert [entry["ok"] for entry in entries] == [True, False, True]
    assert entries[1]["error"] == "alc.llm_batch: item 2 failed: away"
    assert entries[2]["result"] == "<first><second>"


def test_a_fork_may_not_be_made_where_a_strategy_cannot_pause(hf: SyncHoldfast) -> None:
    fork = "coroutine.wrap(function() return alc.fork({ 'asks' }, { task = 't' }) end)"
    ok, why = run(hf, f"local ok, why = pcall({fork}) return {{ ok, why }}").result
    assert not ok
    assert "alc.fork: cannot pause inside a coroutine" in why


def test_a_child_that_meddles_with_the_coroutine_of_another_harms_no_one_else(hf: SyncHoldfast) -> None:
    code = """
        local e = alc.fork({ "thief_a", "thief_b", "asks" }, { task = "t" })
        return { e[1].ok, e[3].result, alc.llm("after") }
    """
    ran = run(hf, code)
    assert ran.result[1:] == ["<t of asks>", "<after>"]


def test_a_package_is_run_as_it_is_in_a_fork(hf: SyncHoldfast) -> None:
    ran = Run(hf, hf.start(lua_package("nested"), ctx={"task": "t", "who": "me"}), echo)
    assert ran.pauses == [["t of me", "first"], ["second"]]
    assert ran.result == ["<t of me>", "<first><second>"]
