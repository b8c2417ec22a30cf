"""Strategies in other languages from Lua: `alc.child`, and names in `alc.fork` and `alc.pipe` that are no package; and
the questions that are not to a model."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.alc.lua.source import lua_code, source_of
from holdfast.core.events import PausedEvent
from holdfast.core.queries import ChildQuery, Failure, HumanQuery, Query, TimerQuery, ToolQuery, Value
from holdfast.core.records import PausedRecord
from holdfast.engine.sync import SyncHoldfast, open_sync
from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import strategy
from holdfast.testing.patience import HANG_S, until_so
from tests.alc.lua.sessions import Run, asked, echo, engine, failed, install, result, run


@pytest.fixture(scope="module")
def hf() -> Iterator[SyncHoldfast]:
    with open_sync("memory:") as opened:
        yield opened


@pytest.fixture(autouse=True)
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "python").mkdir()
    (tmp_path / "python" / "python_once.py").write_text(PYTHON)
    monkeypatch.setenv("HOLDFAST_STRATEGIES_PATH", str(tmp_path / "python"))
    return install(tmp_path, monkeypatch, PACKAGES)


PACKAGES = {
    "lua_twice": (
        "return { run = function(ctx) ctx.result = alc.llm('lua 1 ' .. ctx.task) .. alc.llm('lua 2') return ctx end }"
    ),
    "lua_nested": "return { run = function(ctx) return alc.fork({ 'across_once', 'lua_twice' }, ctx) end }",
}


PYTHON = """
def run(ctx):
    ctx["result"] = llm("python " + ctx["task"])
    return ctx
"""


@strategy(name="across_once")
async def once(ctx: Context) -> Any:
    return {**ctx.data, "result": await ctx.llm(f"native {ctx.task}")}


@strategy(name="across_twice")
async def twice(ctx: Context) -> Any:
    return [await ctx.llm("first"), await ctx.llm("second")]


@strategy(name="across_breaks")
async def breaks(ctx: Context) -> Any:
    raise ValueError("native and broken")


def ids(event: Any) -> list[str]:
    assert isinstance(event, PausedEvent), event
    return [query.id for query in event.queries]


# --- forks ----------------------------------------------------------------------------------------------


def test_a_fork_runs_strategies_of_other_languages_in_the_pause_of_its_packages(hf: SyncHoldfast) -> None:
    code = "return alc.fork({ 'lua_twice', 'across_once', 'across_twice', 'python_once' }, { task = 't' })"
    event = hf.start(lua_code(code))
    assert ids(event) == ["q-0", "q-1.q-0", "q-2.q-0", "q-3.q-0"]
    assert asked(event) == ["lua 1 t", "native t", "first", "python t"]
    ran = Run(hf, event, echo)
    assert ran.result == [
        {"strategy": "lua_twice", "ok": True, "result": {"task": "t", "result": "<lua 1 t><lua 2>"}},
        {"strategy": "across_once", "ok": True, "result": {"task": "t", "result": "<native t>"}},
        {"strategy": "across_twice", "ok": True, "result": ["<first>", "<second>"]},
        {"strategy": "python_once", "ok": True, "result": {"task": "t", "result": "<python t>"}},
    ]
    assert ran.stat("llm_calls") == 6
    assert ran.stat("children")["llm_calls"] == 4


def test_forks_inside_forks_reach_other_languages_too(hf: SyncHoldfast) -> None:
    ran = run(hf, "return alc.fork({ 'lua_nested', 'across_once' }, { task = 't' })[1].result[1].result.result")
    assert ran.pauses[0] == ["native t", "lua 1 t", "native t"]
    assert ran.result == "<native t>"


@pytest.mark.parametrize(
    ("name", "told"),
    [("across_breaks", "native and broken"), ("nowhere_at_all", "no strategy has that name")],
)
def test_a_strategy_of_another_language_that_fails_is_told_as_a_package_is(
    hf: SyncHoldfast, name: str, told: str
) -> None:
    ran = run(hf, f"return alc.fork({{ '{name}', 'across_once' }}, {{ task = 't' }})")
    first, second = ran.result
    assert (first["strategy"], first["ok"], second["ok"]) == (name, False, True)
    assert told in first["error"]
    aborted = run(hf, f"return alc.fork({{ '{name}' }}, {{}}, {{ on_error = 'abort' }})")
    assert aborted.error.startswith(f"alc.fork: strategy '{name}' failed: ")


def test_children_of_a_fork_share_the_budget_of_the_session(hf: SyncHoldfast) -> None:
    ctx = {"budget": {"max_llm_calls": 3}}
    ran = run(hf, "local first = alc.llm('one') return { first, alc.fork({ 'across_twice' }, {}) }", ctx=ctx)
    assert ran.result[1][0]["result"] == ["<first>", "<second>"]
    spent = run(hf, "alc.llm('1') alc.llm('2') return alc.fork({ 'across_twice' }, {})[1]", ctx=ctx)
    assert "budget_exceeded: max_llm_calls (1) reached" in spent.result["error"]
    assert spent.stat("llm_calls") == 3
    code = "alc.fork({ 'across_twice' }, {}) return { alc.budget_remaining().llm_calls, alc.stats.llm_calls() }"
    assert run(hf, code, ctx=ctx).result == [1, 2]


async def test_a_name_that_was_no_package_stays_none_in_every_replay(tmp_path: Path, packages: Path) -> None:
    url = f"sqlite:///{tmp_path}/sessions.db"
    code = "local e = alc.fork({ 'across_once' }, { task = 't' }) return { e[1].result.result, alc.llm('after') }"
    program = lua_code(code)
    assert "across_once" in (source_of(program).absent or [])
    async with engine(url) as hf:
        assert ids(await hf.start(program, id="p")) == ["q-0.q-0"]
    (packages / "across_once").mkdir()
    (packages / "across_once" / "init.lua").write_text("return { run = function() return { result = 'lua' } end }")
    async with engine(url) as hf:
        assert asked(await hf.feed("p", "A")) == ["after"]
    async with engine(url) as hf:
        assert result(await hf.feed("p", "B")) == ["A", "B"]


async def test_the_fork_goes_on_in_another_process_wherever_it_was_left(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/sessions.db"
    async with engine(url) as hf:
        await hf.start(lua_code("return alc.fork({ 'lua_twice', 'across_twice' }, { task = 't' })"), id="p")
    event: Any = None
    for _ in range(4):
        async with engine(url) as hf:
            event = await hf.resume("p")
            if isinstance(event, PausedEvent):
                event = await hf.feed("p", {query.id: echo(query) for query in event.queries})
    assert [entry["ok"] for entry in result(event)] == [True, True]


# --- pipes ----------------------------------------------------------------------------------------------


def test_a_pipe_goes_through_strategies_of_other_languages(hf: SyncHoldfast) -> None:
    ran = run(hf, "return alc.pipe({ 'across_once', 'lua_twice', 'across_once' }, { task = 't', kept = 7 })")
    assert ran.pauses == [["native t"], ["lua 1 <native t>"], ["lua 2"], ["native <lua 1 <native t>><lua 2>"]]
    assert (ran.result["result"], ran.result["kept"]) == ("<native <lua 1 <native t>><lua 2>>", 7)
    assert [entry["strategy"] for entry in ran.result["pipe_history"]] == ["across_once", "lua_twice", "across_once"]


def test_a_stage_of_another_language_that_fails_is_skipped_or_ends_the_pipe(hf: SyncHoldfast) -> None:
    skipped = run(hf, "return alc.pipe({ 'across_breaks', 'across_once' }, { task = 't' }, { on_error = 'skip' })")
    assert skipped.result["result"] == "<native t>"
    assert "native and broken" in skipped.result["pipe_history"][0]["error"]
    assert "native and broken" in run(hf, "return alc.pipe({ 'across_breaks' }, { task = 't' })").error


@pytest.mark.parametrize("opts", ["nil", "{ on_error = 'skip' }"])
def test_a_stage_that_nothing_is_found_for_always_ends_the_pipe(hf: SyncHoldfast, opts: str) -> None:
    error = run(hf, f"return alc.pipe({{ 'nowhere_at_all' }}, {{}}, {opts})").error
    assert "alc.pipe: failed to load strategy 'nowhere_at_all': " in error


def test_a_stage_of_another_language_must_return_a_table_too(hf: SyncHoldfast) -> None:
    @strategy(name="across_text")
    async def text(ctx: Context) -> str:
        return "no ctx"

    error = run(hf, "return alc.pipe({ 'across_text' }, {})").error
    assert "alc.pipe: strategy 'across_text' must return a table (ctx)" in error


# --- children -------------------------------------------------------------------------------------------


def test_a_child_is_a_session_of_its_own_also_for_a_package(hf: SyncHoldfast) -> None:
    event = hf.start(lua_code("return alc.child('lua_twice', { task = 't' }).result"))
    assert ids(event) == ["q-0.q-0"]
    assert Run(hf, event, echo).result == "<lua 1 t><lua 2>"
    assert hf.status(f"{event.session_id}.q-0")["strategy"] == "lua_twice"


def test_a_child_that_fails_is_an_error_that_can_be_caught(hf: SyncHoldfast) -> None:
    ran = run(hf, "local ok, why = pcall(alc.child, 'across_breaks') return { ok, why }")
    assert ran.result[0] is False
    assert "native and broken" in ran.result[1]


@pytest.mark.parametrize("name", ["os:getcwd", "tests/engine/shown_child.py", "/etc/passwd.lua", "../lua_twice"])
def test_a_child_is_started_by_its_name_only(hf: SyncHoldfast, name: str) -> None:
    error = run(hf, f"return alc.child('{name}')").error
    assert "no strategy has that name" in error


def test_a_package_is_looked_for_where_the_program_looked(
    hf: SyncHoldfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = lua_code("return alc.child('lua_twice', { task = 't' }).result")
    monkeypatch.setenv("HOLDFAST_PACKAGES_PATH", str(tmp_path / "empty"))
    assert Run(hf, hf.start(program), echo).result == "<lua 1 t><lua 2>"


# --- persons, tools, timers -----------------------------------------------------------------------------


def one_query(hf: SyncHoldfast, code: str) -> tuple[str, Query]:
    event = hf.start(lua_code(code), wait=0)

    def pauses() -> list[PausedRecord]:
        entries = hf._wait(hf._hf.store.read(event.session_id))
        return [entry.record for entry in entries if isinstance(entry.record, PausedRecord)]

    [paused] = until_so(pauses)
    [query] = paused.queries
    return event.session_id, query


def test_a_person_is_asked_with_choices_and_a_limit(hf: SyncHoldfast) -> None:
    code = "return { said = alc.ask('Which?', { choices = { 'left', 'right' }, timeout_ms = 60000 }) }"
    session, query = one_query(hf, code)
    assert query == HumanQuery(id="q-0", prompt="Which?", choices=["left", "right"], timeout_ms=60_000)
    assert result(hf.feed(session, "left")) == {"said": "left"}
    _, plain = one_query(hf, "return alc.ask('Yes?')")
    assert plain == HumanQuery(id="q-0", prompt="Yes?")


def test_a_tool_is_called_with_named_arguments_and_gives_any_value(hf: SyncHoldfast) -> None:
    session, query = one_query(hf, "return alc.tool('read', { path = 'a.txt', lines = { 1, 2 } })")
    assert query == ToolQuery(id="q-0", name="read", arguments={"path": "a.txt", "lines": [1, 2]})
    assert result(hf.feed(session, Value(value={"text": "x", "size": 1}))) == {"text": "x", "size": 1}
    _, bare = one_query(hf, "return alc.tool('look')")
    assert bare == ToolQuery(id="q-0", name="look")


def test_a_tool_that_fails_is_an_error_that_can_be_caught(hf: SyncHoldfast) -> None:
    session, _ = one_query(hf, "local ok, why = pcall(alc.tool, 'read', {}) return { ok, why }")
    assert result(hf.feed(session, Failure("no such file"))) == [False, "no such file"]


def test_sleep_waits_for_the_clock(hf: SyncHoldfast) -> None:
    session, query = one_query(hf, "local before = alc.time() alc.sleep(0.25) return alc.time() - before")
    assert query == TimerQuery(id="q-0", delay_ms=250)
    assert 0.2 < hf.result(session, timeout=HANG_S) < 10


async def test_all_kinds_of_questions_share_the_pause_of_a_fork(tmp_path: Path, packages: Path) -> None:
    for name, call in {"asks": "alc.ask('who')", "tools": "alc.tool('t')", "sleeps": "alc.sleep(3600)"}.items():
        (packages / name).mkdir()
        (packages / name / "init.lua").write_text(f"return {{ run = function() return {call} end }}")
    async with engine() as hf:
        event = await hf.start(
            lua_code("return alc.fork({ 'asks', 'tools', 'sleeps', 'across_once' }, { task = 't' })")
        )
        assert ids(event) == ["q-0", "q-1", "q-3.q-0"]
        pending = (await hf.store.load(event.session_id)).pending
        kinds = [type(each.query) for each in pending.values()]
        assert kinds == [HumanQuery, ToolQuery, TimerQuery, ChildQuery]
        event = await hf.feed(event.session_id, {"q-0": "me", "q-1": {"done": True}, "q-3.q-0": "N", "q-2": None})
        entries = result(event)
        told = [entry.get("result") for entry in entries]  # a result that is nil is none
        assert told == ["me", {"done": True}, None, {"task": "t", "result": "N"}]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("alc.ask()", "alc.ask: prompt must be a string, got nil"),
        ("alc.ask('x', 'left')", "alc.ask: opts must be a table, got string"),
        ("alc.ask('x', { choices = 'left' })", "alc.ask: choices must be an array, got string"),
        ("alc.ask('x', { choices = { {} } })", "alc.ask: a choice must be a string, got table"),
        ("alc.ask('x', { timeout_ms = 'soon' })", "alc.ask: timeout_ms must be a number of milliseconds"),
        ("alc.ask('x', { timeout_ms = 0.5 })", "alc.ask: timeout_ms must be a number of milliseconds"),
        ("alc.tool({})", "alc.tool: name must be a string, got table"),
        ("alc.tool('t', 'x')", "alc.tool: args must be a table, got string"),
        ("alc.tool('t', { 1, 2 })", "alc.tool: args must have names"),
        ("alc.tool('t', { f = print })", "cannot serialize <function>"),
        ("alc.tool('holdfast.state', { op = 'get' })", "alc.tool: 'holdfast.state' is a tool of the runtime itself"),
        ("alc.sleep()", "alc.sleep: seconds must be a number, and not negative"),
        ("alc.sleep(-1)", "alc.sleep: seconds must be a number, and not negative"),
        ("alc.sleep(0/0)", "alc.sleep: seconds must be a number, and not negative"),
        ("alc.sleep(1e15)", "delay_ms must lie between 0 and"),
        ("alc.child(7 == 7)", "alc.child: program must be a string, got boolean"),
        ("alc.child('x', print)", "cannot serialize <function>"),
    ],
)
def test_a_question_that_makes_no_sense_is_an_error_of_the_program(hf: SyncHoldfast, call: str, told: str) -> None:
    assert told in failed(hf.start(lua_code(f"return {call}"))).error


async def test_questions_wait_where_a_program_may_wait_and_nowhere_else(hf: SyncHoldfast) -> None:
    code = "local ok, why = pcall(coroutine.wrap(function() return alc.child('across_once') end)) return { ok, why }"
    ok, why = await asyncio.to_thread(lambda: run(hf, code).result)
    assert not ok
    assert "alc.child: cannot pause inside a coroutine" in why
