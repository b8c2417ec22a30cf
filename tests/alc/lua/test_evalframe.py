"""The interface of evalframe where the package is not installed: suites, cases, bindings, providers and variants."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.alc.lua.evaluation import Json, Lab, Reply

EF = 'local ef = require("evalframe")\n'

SUITE = (
    EF
    + """
local report = ef.suite "math" {
  provider = ef.providers.mock.map({ ["2+2"] = "4", ["7*8"] = "it is 56" }),
  ef.bind { ef.graders.exact_match, weight = 0.5 },
  ef.bind { ef.scorers.bool, ef.graders.contains, weight = 0.5 },
  cases = {
    ef.case "add" { input = "What is 2+2?", expected = "4", tags = { "basic" } },
    ef.case "mul" { input = "What is 7*8?", expected = "56", tags = { "basic" } },
  },
}:run()
"""
)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def test_a_suite_is_run_graded_and_counted(lab: Lab) -> None:
    report = lab.run(SUITE + "return report").result
    assert [result["score"] for result in report["results"]] == [1.0, 0.5]
    assert (report["name"], report["aggregated"]["passed"], len(report["failures"])) == ("math", 1, 1)
    assert report["aggregated"]["by_tag"]["basic"]["rate"] == 0.5


def test_a_report_is_summed_up_in_words(lab: Lab) -> None:
    summary, failure = lab.run(SUITE + "return { report:summary(), report.format_result(report.failures[1]) }").result
    assert summary.splitlines()[:3] == ["Suite: math", "Cases: 2  Pass: 1  Fail: 1", "pass@1: 0.50"]
    assert "95% CI: [" in summary
    assert "By tag:\n  basic                1/2 (0.50)" in summary
    assert failure.startswith("[FAIL] mul  score=0.500\n  exact_match: score=0.000 weight=0.50")


def test_a_scenario_that_requires_evalframe_is_run_by_alc_eval(lab: Lab) -> None:
    lab.scenario(
        "sums",
        EF + "return { ef.bind { ef.graders.contains }, cases = { ef.case { input = '2+2', expected = '4' } } }",
    )
    report = lab.evaluate("'sums', function(ctx) return 'it is 4' end")
    assert report["aggregated"]["pass_rate"] == 1.0


def test_an_installed_evalframe_comes_first(lab: Lab) -> None:
    lab.package("evalframe", "return { mine = true }")
    assert lab.run(EF + "return ef.mine").result is True


def test_a_case_is_checked_copied_and_cannot_be_changed(lab: Lab) -> None:
    told = lab.run(
        EF
        + """
        local expected = { "a", "b" }
        local c = ef.case "name" { input = "q", expected = expected, tags = { "t" } }
        expected[1] = "changed"
        local ok, why = pcall(function() c.input = "other" end)
        local case = require("evalframe.model.case")
        return { c.expected[1], c.name, ok, why, case.is_case(c), case.is_case({}), case.has_tag(c, "t") }
        """
    ).result
    assert told[:3] == ["a", "name", False]
    assert "Case is immutable" in told[3]
    assert told[4:] == [True, False, True]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("ef.case { name = 'x' }", "'input' is required"),
        ("ef.case { input = 42 }", "'input' must be string"),
        ("ef.case(42)", "expected table or string"),
        ("ef.case { input = 'q', expected = { 1 } }", "expected[1] must be string"),
        ("ef.bind { ef.scorers.bool }", "GraderDef required"),
        ("ef.bind { ef.graders.contains, ef.graders.regex }", "multiple GraderDef"),
        ("ef.bind { ef.graders.contains, weight = -1 }", "weight must be non-negative"),
        ("ef.grader 'x' {}", "requires 'check'"),
        ("ef.scorer 'x' {}", "requires 'score'"),
        ("ef.scorer 'x' { min = 5, max = 5 }", "min and max must differ"),
        ("ef.scorer 'x' { steps = { { 0, 0.0 } } }", "steps must be table with >= 2"),
        ("ef.scorer 'x' { steps = { { 0, 0.0 }, { 'x', 1.0 } } }", "must be {threshold, score}"),
        ("ef.suite 'x' { cases = {} }", "'provider' is required"),
        ("ef.llm_graders.yes_no('Is it?', {})", "'provider' is required"),
        ("ef.providers.mock.recording({})", "non-empty list"),
        ("ef.providers.claude_cli { model = 123 }", "'model' must be string"),
        ("ef.vary(42)", "name must be string"),
        ("ef.vary 'x' {}", "at least 1 entry"),
        ("ef.variants { base = {} }", "at least one vary dimension"),
        ("ef.variants { ef.vary 'a' { { x = 1 } }, mode = 'y' }", "mode must be 'cross' or 'zip'"),
    ],
)
def test_mistakes_are_told(lab: Lab, code: str, said: str) -> None:
    assert said in lab.run(f"{EF}return ({code})").error


def test_own_graders_and_scorers_are_used(lab: Lab) -> None:
    report = lab.run(
        EF
        + """
        local polite = ef.grader "polite" { check = function(r) return not r.text:find("no") end }
        local long = ef.scorer "long" { min = 0, max = 10 }
        return ef.suite "s" {
          provider = ef.providers.mock.static("hello"),
          ef.bind { polite },
          ef.bind "length" { long, ef.graders.length },
          cases = { ef.case { input = "q" } },
        }:run()
        """
    ).result
    assert [grade["score"] for grade in report["results"][0]["grades"]] == [1.0, 0.5]


def test_a_judge_asks_the_provider_that_it_was_given(lab: Lab) -> None:
    told = lab.run(
        EF
        + """
        local provider, log = ef.providers.mock.recording({ "Rating: 4" })
        local quality = ef.llm_graders.rubric("Is it clear?", { provider = provider })
        local report = ef.suite "s" {
          provider = ef.providers.mock.static("hello"),
          ef.bind { quality, ef.scorers.linear_1_5 },
          cases = { ef.case { input = "q" } },
        }:run()
        return { report.results[1].score, #log.calls, log.calls[1] }
        """
    ).result
    assert told[:2] == [0.75, 1]
    assert "Is it clear?" in told[2]


def test_providers_ask_the_sessions_model_and_run_strategies(lab: Lab) -> None:
    lab.package("shout", "return { run = function(ctx) ctx.result = { answer = ctx.task .. ctx.mark } return ctx end }")

    def answer(query: Json) -> Reply:
        return f"{query['prompt']} by {query['options']['model']}"

    told = lab.run(
        EF
        + """
        local model = ef.providers.claude_cli { model = "small" }
        local shout = ef.providers.algocline { strategy = "shout", opts = { mark = "!" } }
        local broken = ef.providers.algocline { strategy = { run = function() error("it broke") end } }
        return { model("hi").text, shout("hi").text, broken("hi").error }
        """,
        answer,
    ).result
    assert told[:2] == ["hi by small", "hi!"]
    assert "it broke" in told[2]


def test_variants_are_all_with_all_or_side_by_side(lab: Lab) -> None:
    told = lab.run(
        EF
        + """
        local function names(mode)
          local found = {}
          for i, v in ipairs(ef.variants {
            base = { temperature = 0.7, name = "base" },
            ef.vary "model" { { model = "a", name = "a" }, { model = "b", name = "b" } },
            ef.vary "scale" { { n = 1 }, { n = 2 }, { n = 3 } },
            mode = mode,
          }) do found[i] = v.name .. v.temperature end
          return found
        end
        return { #names(nil), names("zip") }
        """
    ).result
    assert told == [6, ["a_scale_10.7", "b_scale_20.7"]]


def test_figures_of_no_results_are_zero(lab: Lab) -> None:
    told = lab.run(
        EF
        + """
        local s = ef.stats
        local low, high = s.ci_95({ n = 3, mean = 0.95, std_dev = 0.1 })
        return { s.aggregate({}).total, s.describe({}).mean, s.pass_at_k(3, 1, 5), s.pass_at_k(10, 0, 1), high }
        """
    ).result
    assert told == [0, 0, 1.0, 0.0, 1.0]


def test_cases_are_read_from_a_file_that_can_do_nothing_else(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "cases.lua").write_text("return { { input = 'a', expected = '1' }, { input = 'b' } }")
    (tmp_path / "evil.lua").write_text("return { { input = io.open('/etc/passwd'):read('a') } }")
    code = EF + f"return #ef.load_cases('{tmp_path}/cases.lua')"
    assert lab.run(code, trusted=True).result == 2
    assert "files are not available in the sandbox" in lab.run(code).error
    evil = lab.run(EF + f"return ef.load_cases('{tmp_path}/evil.lua')", trusted=True).error
    assert "load_cases" in evil


def test_an_unknown_module_of_evalframe_is_not_found(lab: Lab) -> None:
    assert "module 'evalframe.nothing' not found" in lab.run("return require('evalframe.nothing')").error


# --- swarms ------------------------------------------------------------------------------------------

SWARM = (
    EF
    + """
local sw = require("evalframe.swarm")
local function runner(config)
  return {
    text = "grown: " .. config.input, success = true, ticks = 15, termination = "success",
    actions = {
      { tick = 2, worker = "w-0", action = "Water" },
      { tick = 4, worker = "w-1", action = "Weigh" },
      { tick = 7, worker = "w-0", action = "Prune" },
      { tick = 9, worker = "w-1", action = "Water" },
    },
    metrics = { harvest = 2.25 },
  }
end
local setup = {
  env = sw.env "greenhouse" { beds = { "north" } },
  actions = sw.actions { sw.action "Water" { description = "water" }, sw.action "Weigh" { description = "weigh it" } },
  swarm = sw.swarm { workers = 2, max_ticks = 20 },
}
local provider = sw.provider(runner, setup)
"""
)


def test_a_swarm_is_graded_by_its_trace(lab: Lab) -> None:
    report = lab.run(
        SWARM
        + """
        local g = sw.graders
        return ef.suite "swarm" {
          provider = provider,
          ef.bind { g.completed },
          ef.bind { g.efficiency { max_ticks = 20, optimal_ticks = 0 } },
          ef.bind { g.action_sequence { "Water", "Weigh", "Prune" } },
          ef.bind { g.action_sequence { "Prune", "Weigh" } },
          ef.bind { g.metric("harvest", { min = 1.0, max = 5.0 }) },
          ef.bind { g.action_count("Water", { max = 1 }) },
          ef.bind { g.all_workers_active { workers = 2 } },
          ef.bind { g.at_tick(4, function(s) return s.action_count == 2 end) },
          ef.bind { g.after_action("Weigh", function(s) return s.action_counts.Prune == nil end) },
          cases = { ef.case { input = "tomatoes" } },
        }:run()
        """
    ).result
    [result] = report["results"]
    assert result["response"]["text"] == "grown: tomatoes"
    assert [grade["score"] for grade in result["grades"]] == [1.0, 0.25, 1.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0]
    assert result["grades"][2]["grader"] == "sw.action_sequence:Water,Weigh,Prune"


def test_traces_are_analysed_one_by_one_and_together(lab: Lab) -> None:
    told = lab.run(
        SWARM
        + """
        local a, t = sw.analysis, provider("x")
        local sequences, coordination = a.action_sequences({ t, t }, 2), a.worker_coordination(t)
        return {
          sequences["Water,Weigh"].count, sequences["Water,Weigh"].rate,
          a.convergence({ t, t }).mean, a.convergence({ t }, "Weigh").mean, a.convergence({}).n,
          a.exploration_efficiency(t).unique_ratio, coordination.worker_count, coordination.workers["w-0"].count,
          a.action_validity(t, function(one) return one.action == "Water" end).rate,
          sw.trace_has_action(t, "Weigh"), #sw.trace_actions_by_worker(t, "w-1"),
        }
        """
    ).result
    assert told == [2, 1.0, 15.0, 4.0, 0, 0.75, 2, 2, 0.5, True, 2]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("sw.env(42)", "name must be string"),
        ("sw.env 'x' 'bad'", "spec must be a table"),
        ("sw.action 'x' {}", "description is required"),
        ("sw.actions {}", "at least 1 action"),
        ("sw.actions { { name = 'fake' } }", "must be an action"),
        ("sw.swarm { max_ticks = 1 }", "workers is required"),
        ("sw.swarm { workers = 0, max_ticks = 1 }", "workers must be a positive integer"),
        ("sw.trace { actions = {} }", "termination is required"),
        ("sw.trace { termination = 'gone', actions = {} }", "termination must be"),
        ("sw.trace { termination = 'success', actions = { { tick = 1 } } }", "actions[1].worker must be string"),
        ("sw.provider('x', setup)", "runner must be a function"),
        ("sw.provider(runner, {})", "env is required"),
        ("sw.graders.efficiency { max_ticks = 5, optimal_ticks = 5 }", "optimal_ticks must be less than max_ticks"),
        ("sw.graders.metric('x', {})", "min or max is required"),
        ("sw.analysis.action_sequences({}, 0)", "ngram_size must be >= 1"),
    ],
)
def test_mistakes_in_swarms_are_told(lab: Lab, code: str, said: str) -> None:
    assert said in lab.run(f"{SWARM}return ({code})").error


def test_a_runner_that_fails_fails_its_case(lab: Lab) -> None:
    told = lab.run(SWARM + "return sw.provider(function() error('refused') end, setup)('x')").result
    assert (told["text"], "refused" in told["error"]) == ("", True)
