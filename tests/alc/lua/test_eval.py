"""`alc.eval`: what a scenario and a strategy may be, and what a case that goes wrong does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.alc.lua.evaluation import Failure, Json, Lab, Refusal, Reply

ECHO = "function(ctx) return ctx.task end"

# A package with the shapes of evalframe: bindings with a mark, frozen cases, and a look at the global `std`.
EVALFRAME = """
local std = rawget(_G, "std")
assert(std and std.json.decode and std.fs.read and std.time.now, "no std")
local BINDING, CASE = {}, {}
local ef = { graders = {}, scorers = {} }
function ef.bind(spec)
  return { _tag = BINDING, grader = spec[1], scorer = spec[2] or ef.scorers.bool, weight = spec.weight or 1.0 }
end
function ef.case(name)
  return function(spec)
    local data = { _tag = CASE, name = name, input = spec.input, expected = { spec.expected } }
    data.context, data.tags = {}, spec.tags or {}
    return setmetatable({}, { __index = data, __newindex = function() error("frozen") end, __metatable = false })
  end
end
ef.scorers.bool = { name = "_bool", score = function(v) return v and 1.0 or 0.0 end }
ef.graders.contains = { name = "contains", check = function(r, c)
  return r.text:find(c.expected[1], 1, true) ~= nil
end }
ef.graders.exact = { name = "exact_match", check = function(r, c)
  assert(c._tag == CASE)
  return r.text == c.expected[1]
end }
return ef
"""

MATH_BASIC = """
local ef = require("evalframe")
return {
  ef.bind { ef.graders.contains, weight = 0.6 },
  ef.bind { ef.graders.exact, weight = 0.4 },
  cases = {
    ef.case "sum" { input = "2+2", expected = "4", tags = { "plus" } },
    ef.case "product" { input = "7*8", expected = "56" },
  },
}
"""


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def scores_of(report: Json) -> list[float]:
    return [result["score"] for result in report["results"]]


# --- scenarios --------------------------------------------------------------------------------------------------------


def test_a_simple_scenario_is_graded_by_exact_match_unless_it_says_otherwise(lab: Lab) -> None:
    report = lab.evaluate(f"{{cases={{{{input='a', expected='a'}}, {{input='b', expected='c'}}}}}}, {ECHO}")

    assert [result["passed"] for result in report["results"]] == [True, False]
    assert report["name"] == "(inline):inline"
    first = report["results"][0]
    assert first["case"] == {"input": "a", "name": "", "expected": ["a"], "context": {}, "tags": []}
    assert first["response"] == {"text": "a", "latency_ms": 0.0}
    assert first["grades"] == [{"grader": "exact_match", "grade": True, "score": 1.0, "weight": 1.0}]
    assert report["failures"] == [report["results"][1]]
    assert "card_id" not in report


def test_the_full_form_lists_bindings_with_weights_and_scorers(lab: Lab) -> None:
    report = lab.evaluate(
        "{ {'contains', weight=0.6}, {'exact_match', weight=0.4}, {'length', {min=0, max=10}, weight=0},"
        f" cases={{{{input='the 4', expected='4'}}}} }}, {ECHO}"
    )

    assert scores_of(report) == [0.6]
    assert [grade["score"] for grade in report["results"][0]["grades"]] == [1.0, 0.0, 0.5]
    assert not report["results"][0]["passed"]


def test_a_scenario_made_with_evalframe_is_run_with_its_own_graders_and_cases(lab: Lab) -> None:
    lab.package("evalframe", EVALFRAME)
    lab.package("math_basic", MATH_BASIC)
    lab.package(
        "calc", "return { run = function(ctx) ctx.result = ctx.task == '2+2' and '4' or 'it is 56'; return ctx end }"
    )

    report = lab.evaluate("'math_basic', 'calc'")

    assert report["name"] == "calc:math_basic"
    assert scores_of(report) == [1.0, 0.6]
    assert report["aggregated"]["by_tag"]["plus"]["rate"] == 1.0
    assert report["results"][0]["case"] == {
        "input": "2+2", "name": "sum", "expected": ["4"], "context": {}, "tags": ["plus"],
    }  # fmt: skip


def test_a_scenario_is_looked_for_among_packages_first_and_then_among_the_stored_ones(lab: Lab) -> None:
    lab.package("both", "return { cases = {{input='from the package', expected='x'}} }")
    lab.scenario("both", "return { cases = {{input='from the file', expected='x'}} }")
    lab.scenario("stored", "return { cases = {{input='from the file', expected='x'}} }")

    assert lab.evaluate(f"'both', {ECHO}")["results"][0]["response"]["text"] == "from the package"
    report = lab.evaluate(f"'stored', {ECHO}")
    assert report["results"][0]["response"]["text"] == "from the file"
    assert report["name"] == "(inline):stored"


def test_a_package_that_is_no_scenario_does_not_hide_the_stored_one(lab: Lab) -> None:
    lab.package("cot", "return { run = function(ctx) return 'yes' end }")
    lab.scenario("cot", "return { cases = {{input='q', expected='yes'}} }")

    assert lab.evaluate("'cot', 'cot'")["aggregated"]["passed"] == 1


def test_a_scenario_that_is_nowhere_says_where_it_was_looked_for(lab: Lab) -> None:
    error = lab.error(f"'nowhere', {ECHO}")

    assert error.startswith("alc.eval: could not resolve scenario 'nowhere'")
    assert "no package 'nowhere' is installed" in error
    assert str(lab.scenarios / "nowhere.lua") in error


def test_a_scenario_file_sees_the_globals_of_the_program_and_nothing_more(lab: Lab) -> None:
    lab.scenario(
        "peeks", "return { cases = {{input=type(alc.llm) .. ' ' .. tostring(debug), expected='function nil'}} }"
    )

    assert lab.evaluate(f"'peeks', {ECHO}")["aggregated"]["passed"] == 1


def test_a_scenario_body_may_ask_a_model_for_its_cases(lab: Lab) -> None:
    lab.scenario("asks", "local word = alc.llm('a word?') return { cases = {{input=word, expected=word}} }")

    assert lab.evaluate(f"'asks', {ECHO}", lambda _: "heron")["results"][0]["case"]["input"] == "heron"


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("return {", "failed to load scenario 's'"),
        ("error('broken inside')", "broken inside"),
        ("error({})", "failed to load scenario 's'"),
        ("return 5", "resolved to number, expected table"),
        ("", "resolved to nil, expected table"),
    ],
)
def test_a_broken_scenario_file_is_an_error_that_names_it(lab: Lab, source: str, told: str) -> None:
    lab.scenario("s", source)

    assert told in lab.error(f"'s', {ECHO}")


def test_a_scenario_package_that_is_there_but_broken_is_not_passed_over(lab: Lab) -> None:
    lab.package("s", "error('broken package')")
    lab.scenario("s", "return { cases = {{input='a', expected='a'}} }")

    assert "broken package" in lab.error(f"'s', {ECHO}")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("", "scenario is required"),
        ("alc.null, 'x'", "scenario is required"),
        ("5, 'x'", "scenario must be a string or table, got number"),
        ("'', 'x'", "scenario is an empty name"),
        (f"{{}}, {ECHO}", "scenario 'inline' has no cases"),
        (f"{{name='named', graders={{'contains'}}}}, {ECHO}", "scenario 'named' has no cases"),
        (f"{{cases={{}}}}, {ECHO}", "its list of cases is empty"),
        (f"{{cases='a'}}, {ECHO}", "cases must be a list of tables, got string"),
        (f"{{cases={{a={{input='x'}}}}}}, {ECHO}", "cases must be a list, not a map"),
        (f"{{cases={{{{input='x'}}, nil, {{input='y'}}}}}}, {ECHO}", "cases has a hole at 2"),
        (f"{{cases={{{{input='x'}}, 'y'}}}}, {ECHO}", "case #2 must have an 'input' field; it is a string"),
        (f"{{cases={{{{expected='x'}}}}}}, {ECHO}", "case #1 must have an 'input' field"),
        (f"{{cases={{{{input={{}}}}}}}}, {ECHO}", "case #1: 'input' must be text, got table"),
        (f"{{cases={{{{input='x', name={{}}}}}}}}, {ECHO}", "case #1: 'name' must be text, got table"),
        (f"{{cases={{{{input='x', name='n', expected=print}}}}}}, {ECHO}", "case #1 (n): 'expected' must be text"),
        (f"{{cases={{{{input='x', expected={{{{}}}}}}}}}}, {ECHO}", "case #1: expected[1] must be text, got table"),
        (f"{{cases={{{{input='x', expected={{a='b'}}}}}}}}, {ECHO}", "'expected' must be a list of texts, not a map"),
        (f"{{cases={{{{input='x', tags='t'}}}}}}, {ECHO}", "case #1: 'tags' must be a table, got string"),
        (f"{{cases={{{{input='x', context=1}}}}}}, {ECHO}", "case #1: 'context' must be a table, got number"),
        (f"{{cases={{{{input='x'}}}}, graders='contains'}}, {ECHO}", "graders must be a list"),
        (f"{{cases={{{{input='x'}}}}, graders={{}}}}, {ECHO}", "graders is an empty list"),
        (
            f"{{cases={{{{input='x'}}}}, graders={{'nope'}}}}, {ECHO}",
            "unknown grader 'nope' (there are approx, contains",
        ),
        (f"{{cases={{{{input='x'}}}}, graders={{5}}}}, {ECHO}", "grader must be a string name or function, got number"),
        (f"{{ {{weight=1}}, cases={{{{input='x'}}}} }}, {ECHO}", "entry #1 is a table without a grader"),
        (f"{{ 'contains', nil, 'regex', cases={{{{input='x'}}}} }}, {ECHO}", "each entry stands has a hole at 2"),
        (
            f"{{ {{'contains', weight=-1}}, cases={{{{input='x'}}}} }}, {ECHO}",
            "weight must be a number from 0 up, got -1",
        ),
        (
            f"{{ {{'contains', weight='a'}}, cases={{{{input='x'}}}} }}, {ECHO}",
            "weight must be a number from 0 up, got string",
        ),
        ("{cases={{input='x'}}}, nil", "strategy must be a package name or a function, got nil"),
        ("{cases={{input='x'}}}, ''", "got an empty name"),
        ("{cases={{input='x'}}}, 'absent'", "strategy 'absent' could not be loaded: module 'absent' not found"),
        ("{cases={{input='x'}}, provider=5}, 'absent'", "provider must be a function, got number"),
        (f"{{cases={{{{input='x'}}}}}}, {ECHO}, 5", "opts must be a table, got number"),
        (
            f"{{cases={{{{input='x'}}}}}}, {ECHO}, {{strategy_opts='a'}}",
            "opts.strategy_opts must be a table, got string",
        ),
        (f"{{cases={{{{input='x'}}}}}}, {ECHO}, {{card_pkg=5}}", "opts.card_pkg must be a string, got number"),
        (f"{{cases={{{{input='x'}}}}}}, {ECHO}, {{auto_card=true}}", "auto_card needs opts.card_pkg"),
    ],
)
def test_what_is_wrong_with_a_scenario_is_told_before_anything_is_asked(lab: Lab, arguments: str, told: str) -> None:
    error = lab.error(arguments)

    assert error.startswith("alc.eval: ")
    assert told in error


def test_a_library_cannot_be_evaluated(lab: Lab) -> None:
    lab.package("shapes", "return { check = function() end }")

    assert "package 'shapes' has no run(ctx): it is a library" in lab.error("{cases={{input='x'}}}, 'shapes'")


def test_bindings_win_over_graders_and_the_log_says_so(lab: Lab) -> None:
    run = lab.run(f"return alc.eval({{ 'not_empty', graders={{'regex'}}, cases={{{{input='x'}}}} }}, {ECHO})")

    assert [grade["grader"] for grade in run.result["results"][0]["grades"]] == ["not_empty"]
    assert any("the graders are not used" in line for line in run.logged("warn"))


# --- strategies -------------------------------------------------------------------------------------------------------


def test_a_strategy_gets_the_input_as_task_and_its_options(lab: Lab) -> None:
    lab.package("shows", "return { run = function(ctx) return ctx.task .. ' ' .. ctx.rounds .. ' ' .. #ctx.list end }")

    report = lab.evaluate("{cases={{input='q', expected='q 3 2'}}}, 'shows', {strategy_opts={rounds=3, list={1, 2}}}")

    assert report["aggregated"]["passed"] == 1


@pytest.mark.parametrize("options", ["{seen={}}", "alc.json_decode('{\"seen\": []}')"])
def test_what_a_strategy_does_to_its_options_does_not_reach_the_next_case(lab: Lab, options: str) -> None:
    report = lab.evaluate(
        "{cases={{input='a', expected='1'}, {input='b', expected='1'}}},"
        f" function(ctx) table.insert(ctx.seen, ctx.task) return #ctx.seen end, {{strategy_opts={options}}}"
    )

    assert report["aggregated"]["passed"] == 2


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        ("'plain'", "plain"),
        ("42", "42"),
        ("true", "true"),
        ("{result='in result'}", "in result"),
        ("{result={answer='in answer'}}", "in answer"),
        ("{result={summary='in summary', text='no'}}", "in summary"),
        ("{result={output='in output'}}", "in output"),
        ("{result={text='in text'}}", "in text"),
        ("{answer='at the top'}", "at the top"),
        ("{result={b=1, a={2}}}", '{"a":[2],"b":1}'),
        ("{result=3.5}", "3.5"),
    ],
)
def test_the_text_of_a_result_is_found_where_strategies_put_it(lab: Lab, returned: str, text: str) -> None:
    report = lab.evaluate(f"{{cases={{{{input='q'}}}}}}, function() return {returned} end")

    assert report["results"][0]["response"]["text"] == text
    assert "error" not in report["results"][0]["response"]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("return", "the strategy returned nothing"),
        ("return alc.null", "the strategy returned nothing"),
        ("return {result=alc.null}", "the strategy returned nothing"),
        ("return print", "the strategy returned a function instead of an answer"),
        ("return {result=function() end}", "the strategy returned a function instead of an answer"),
        ("return coroutine.create(print)", "the strategy returned a thread instead of an answer"),
        ("return {result={callback=print}}", "cannot serialize <function>"),
        ("local t = {} t.t = t return t", "cannot serialize a recursive table"),
        ("error('it broke')", "it broke"),
        ("error({code=5})", '{"code":5}'),
        ("error()", "nil"),
        ("local x = nil; return x.field", "attempt to index a nil value"),
    ],
)
def test_a_case_that_fails_is_a_failed_case_with_its_error(lab: Lab, body: str, told: str) -> None:
    report = lab.evaluate(
        f"{{cases={{{{input='bad', expected=''}}, {{input='good', expected='good'}}}}}},"
        f" function(ctx) if ctx.task == 'good' then return 'good' end {body} end"
    )

    bad, good = report["results"]
    assert told in bad["response"]["error"]
    assert (bad["passed"], bad["score"], bad["response"]["text"]) == (False, 0.0, "")
    assert bad["grades"][0]["error"] == "not graded: there is no answer"
    assert good["passed"]


def test_cases_run_one_after_the_other_and_pause_like_any_code(lab: Lab) -> None:
    lab.package("asks", "return { run = function(ctx) ctx.result = alc.llm('Q: ' .. ctx.task); return ctx end }")

    def answer(query: Json) -> Reply:
        return Failure("no model today") if query["prompt"] == "Q: b" else query["prompt"][3:].upper()

    run = lab.run("return alc.eval({cases={{input='a', expected='A'}, {input='b'}, {input='c'}}}, 'asks')", answer)

    assert run.prompts == ["Q: a", "Q: b", "Q: c"]
    assert [len(queries) for queries in run.asked] == [1, 1, 1]
    assert [result["response"].get("error") for result in run.result["results"]] == [None, "no model today", None]


def test_latency_is_the_time_of_the_session_between_question_and_answer(lab: Lab) -> None:
    report = lab.evaluate(
        "{ {'latency', 'inverse_linear'}, cases={{input='a'}} }, function(ctx) return alc.llm(ctx.task) end",
        lambda _: "x",
        step_ms=1000,
    )

    assert report["results"][0]["response"]["latency_ms"] == pytest.approx(1000.0)
    assert scores_of(report) == [pytest.approx(0.5)]


def test_a_scenario_may_bring_its_own_provider(lab: Lab) -> None:
    provider = """function(input)
      if input == 'text' then return 'T' end
      if input == 'table' then return { text = 'T', model = 'm-1', latency_ms = 7, extra = 'e' } end
      if input == 'error' then return { text = 'T', error = 'went away' } end
      if input == 'empty' then return {} end
      return 5
    end"""
    names = ("text", "table", "error", "empty", "number")
    cases = ", ".join(f"{{input='{name}', expected='T'}}" for name in names)
    grader = "function(response) return response.extra == 'e' or response.text == 'T' end"

    report = lab.evaluate(f"{{cases={{{cases}}}, provider={provider}, graders={{{grader}}}}}, 'not_there'")

    assert [result["passed"] for result in report["results"]] == [True, True, False, False, False]
    responses = {name: result["response"] for name, result in zip(names, report["results"], strict=True)}
    assert responses["table"] == {"text": "T", "model": "m-1", "latency_ms": 7}
    assert responses["error"]["error"] == "went away"
    assert responses["empty"]["error"] == "the provider's table has no text in it"
    assert responses["number"]["error"] == "the provider returned number, expected text or a table"
    assert report["name"] == "not_there:inline"


# --- budgets ----------------------------------------------------------------------------------------------------------


SPENT = "budget_exceeded: max_llm_calls (1) reached (1 used)"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("return alc.llm(ctx.task)", SPENT),
        ("local ok, v = pcall(alc.llm, ctx.task) return ok and v or error('step 1: ' .. v, 0)", f"step 1: {SPENT}"),
    ],
)
def test_a_used_up_budget_ends_the_evaluation_and_names_what_was_not_run(lab: Lab, body: str, told: str) -> None:

    def answer(query: Json) -> Reply:
        return "A" if query["prompt"] == "a" else Refusal(SPENT)

    cases = "{input='a', expected='A'}, {input='b', name='second'}, {input='c', name='third'}, {input='d'}"
    run = lab.run(f"return alc.eval({{cases={{{cases}}}}}, function(ctx) {body} end)", answer)
    report = run.result

    assert run.prompts == ["a", "b"]
    assert report["stopped"] == told
    assert [case["input"] for case in report["not_run"]] == ["c", "d"]
    assert report["aggregated"]["total"] == 2
    assert report["aggregated"]["pass_rate"] == 0.5
    assert report["results"][1]["response"]["error"] == told
    assert f"stopped early, 2 not run: {told}" in report["summary"]


def test_a_budget_that_is_used_up_by_a_judge_ends_the_evaluation_too(lab: Lab) -> None:
    def answer(query: Json) -> Reply:
        return Refusal("budget_exceeded: max_tokens (9) reached (9 used)")

    report = lab.evaluate(
        f"{{cases={{{{input='a'}}, {{input='b'}}}}, graders={{'llm_yes_no', 'not_empty'}}}}, {ECHO}", answer
    )

    assert [case["input"] for case in report["not_run"]] == ["b"]
    assert [grade["error"] for grade in report["results"][0]["grades"]] == [
        "budget_exceeded: max_tokens (9) reached (9 used)",
        "not graded: the budget is used up",
    ]
