"""`alc.pipe`: strategies one after the other."""

from __future__ import annotations

from pathlib import Path

from tests.alc.lua.scripted import Fails, run
from tests.tables import each_row


def test_pipe_hands_the_result_of_a_stage_to_the_next_as_its_task() -> None:
    code = """
        local given = {task = "start", keep = 1}
        local out = alc.pipe({
            function(c) c.result = c.task .. "+a" return c end,
            function(c) c.result = {c.task} return c end,
            function(c) c.result = c.task return c end,
        }, given)
        return {out, given}
    """
    out, given = run(code).result
    assert given == {"task": "start", "keep": 1}
    assert out["result"] == '["start+a"]'
    assert (out["task"], out["keep"]) == ('["start+a"]', 1)
    assert out["pipe_history"] == [
        {"strategy": "(inline-1)", "result": "start+a"},
        {"strategy": "(inline-2)", "result": ["start+a"]},
        {"strategy": "(inline-3)", "result": '["start+a"]'},
    ]


def test_the_last_stage_and_a_stage_without_result_leave_the_task() -> None:
    code = """
        local same = function(c) return c end
        local out = alc.pipe({same, function(c) c.result = 7 return c end}, {task = "t"})
        local text = alc.pipe({function(c) c.result = 7.0 return c end, same}, {})
        return {out.task, text.task}
    """
    assert run(code).result == ["t", "7.0"]


def test_pipe_runs_packages_by_name_and_they_may_ask(tmp_path: Path) -> None:
    (tmp_path / "shout").mkdir()
    (tmp_path / "shout" / "init.lua").write_text(
        'local M = {} function M.run(ctx) ctx.result = alc.llm("shout: " .. ctx.task) return ctx end return M'
    )
    code = 'return alc.pipe({"shout", "shout"}, {task = "hi"})'
    ended = run(code, lambda query: query["prompt"].upper(), packages=tmp_path)
    assert [query["prompt"] for (query,) in ended.asked] == ["shout: hi", "shout: SHOUT: HI"]
    assert ended.result["pipe_history"][1] == {"strategy": "shout", "result": "SHOUT: SHOUT: HI"}


def test_an_error_of_a_stage_ends_the_pipe_by_default() -> None:
    code = 'return alc.pipe({function() error("broken", 0) end, function() error("never", 0) end}, {})'
    assert run(code).error == "broken"
    assert run(code.replace("{})", '{}, {on_error = "abort"})')).error == "broken"


@each_row("on_error", ["skip", "continue"])
def test_a_failed_stage_can_be_passed_over_with_ctx_as_it_was(on_error: str) -> None:
    code = """
        local stages = {}
        local out = alc.pipe({
            function(c) c.result = "one" return c end,
            function(c) c.result = "half" c.junk = 1 error("broken", 0) end,
            function() error({code = 5}) end,
            function(c) c.result = c.task .. "!" return c end,
        }, {task = "t"}, {on_error = ctx.on_error, on_stage = function(i, name, c)
            stages[#stages + 1] = i .. name .. c.result
        end})
        return {out, stages}
    """
    ended = run(code, ctx={"on_error": on_error})
    out, stages = ended.result
    assert out["result"] == "one!"
    assert "junk" not in out
    assert stages == ["1(inline-1)one", "4(inline-4)one!"]
    assert out["pipe_history"] == [
        {"strategy": "(inline-1)", "result": "one"},
        {"strategy": "(inline-2)", "error": "broken"},
        {"strategy": "(inline-3)", "error": '{"code":5}'},
        {"strategy": "(inline-4)", "result": "one!"},
    ]
    assert [text.split(": ")[0] for text in ended.logged("warn")] == ["alc.pipe"] * 2


def test_a_stage_may_pause_where_errors_are_passed_over() -> None:
    code = """
        return alc.pipe({
            function(c) c.result = alc.llm("a") return c end,
            function(c) c.result = alc.llm("b") return c end,
        }, {}, {on_error = "skip"})
    """
    ended = run(code, lambda query: Fails("no host") if query["prompt"] == "a" else "fine")
    assert ended.result["pipe_history"] == [
        {"strategy": "(inline-1)", "error": "no host"},
        {"strategy": "(inline-2)", "result": "fine"},
    ]


def test_the_history_survives_a_stage_that_returns_a_table_of_its_own() -> None:
    code = """
        return alc.pipe({
            function(c) c.result = 1 return c end,
            function() return {result = 2} end,
        }, {}).pipe_history
    """
    assert [entry["result"] for entry in run(code).result] == [1, 2]


@each_row(
    ("arguments", "why"),
    [
        ("{}, {}", "strategies must be a non-empty array"),
        ("nil, {}", "strategies must be a non-empty array"),
        ("{print}, nil", "ctx must be a table"),
        ("{5}, {}", "strategy[1] must be a string or function"),
        ("{function(c) return c end, {}}, {}", "strategy[2] must be a string or function"),
        ("{function() end}, {}", "strategy '(inline-1)' must return a table (ctx)"),
        ("{function() end}, {}, {on_error = 'skip'}", "strategy '(inline-1)' must return a table (ctx)"),
        ("{'string'}, {}", "strategy 'string' must export run(ctx)"),
    ],
)
def test_pipe_says_what_is_wrong(arguments: str, why: str) -> None:
    assert run(f"\nalc.pipe({arguments})").error == f"test:2: alc.pipe: {why}"


@each_row("opts", ["nil", "{on_error = 'skip'}"])
def test_a_strategy_that_cannot_be_loaded_always_ends_the_pipe(opts: str) -> None:
    error = run(f"alc.pipe({{'no_such_strategy'}}, {{}}, {opts})").error
    assert "alc.pipe: failed to load strategy 'no_such_strategy': " in error
