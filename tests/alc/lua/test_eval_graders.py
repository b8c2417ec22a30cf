"""The graders, scorers and judges of `alc.eval`, and the global `std`: what each makes of an answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.alc.lua.evaluation import Failure, Json, Lab, Reply


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def quoted(text: str) -> str:
    """A Lua string of any bytes."""
    return '"' + "".join(f"\\{byte:03d}" for byte in text.encode()) + '"'


def grade(lab: Lab, entry: str, text: str, case: str = "", answer: Any = None) -> Json:
    """What one binding makes of one answer."""
    scenario = f"{{ {entry}, cases={{{{input='q', {case}}}}} }}"
    code = f"return alc.eval({scenario}, function() return {quoted(text)} end)"
    found: Json = lab.run(code, answer).result["results"][0]["grades"][0]
    return found


# --- graders ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "case", "holds"),
    [
        ("exact_match", "4", "expected='4'", True),
        ("exact_match", "4 ", "expected='4'", False),
        ("exact_match", "東京", "expected={'Tokyo', '東京'}", True),
        ("exact_match", "4", "expected=4", True),
        ("exact_match", "true", "expected=true", True),
        ("exact_match", "4", "", False),
        ("exact_match", "nil", "expected=alc.null", False),
        ("contains", "it is 4.", "expected='4'", True),
        ("contains", "a.c", "expected='a%.c'", False),
        ("contains", "no", "expected={'yes', 'maybe'}", False),
        ("starts_with", "Yes, it is", "expected='Yes'", True),
        ("starts_with", "Oh, Yes", "expected='Yes'", False),
        ("ends_with", "so: Yes", "expected='Yes'", True),
        ("ends_with", "Yes, so", "expected='Yes'", False),
        ("ends_with", "anything", "expected=''", True),
        ("flexible_match", "it is 4", "expected='4'", True),
        ("flexible_match", "it is 5", "expected='4'", False),
        ("regex", "order 66", "expected='%d%d$'", True),
        ("regex", "order 66", "expected='^%d'", False),
        ("regex", "order 66", "expected='^x', context={pattern='^order'}", True),
        ("regex", "order 66", "", False),
        ("json_valid", '{"a": [1, null]}', "", True),
        ("json_valid", "{a: 1}", "", False),
        ("json_valid", "", "", False),
        ("not_empty", " ", "", True),
        ("not_empty", "", "", False),
        ("valid_json_response", "[]", "", True),
        ("valid_json_response", "", "", False),
        ("numeric", "The answer is 1,234.50.", "expected='1234.5'", True),
        ("numeric", "first 3, then 4", "expected=4", True),
        ("numeric", "0.30000000000000004", "expected='0.3'", True),
        ("numeric", "0.31", "expected='0.3'", False),
        ("numeric", "about -7", "expected=-7", True),
        ("numeric", "\u22127", "expected=-7", True),
        ("numeric", "gpt-4", "expected=4", True),
        ("numeric", "3-4", "expected=4", True),
        ("numeric", "1e3", "expected=1000", True),
        ("numeric", "x = .5", "expected=0.5", True),
        ("numeric", "10", "expected=9, context={tolerance=0.2}", True),
        ("numeric", "none at all", "expected=4", False),
        ("numeric", "0", "expected=0", True),
        ("approx", "3.15", "expected='3.14159'", True),
        ("approx", "3.5", "expected='3.14159'", False),
    ],
)
def test_a_grader_finds_what_it_is_named_after(lab: Lab, name: str, text: str, case: str, holds: bool) -> None:
    found = grade(lab, f"'{name}'", text, case)

    assert found == {"grader": name, "grade": holds, "score": 1.0 if holds else 0.0, "weight": 1.0}


def test_a_number_cannot_be_compared_with_a_case_that_expects_none(lab: Lab) -> None:
    assert "no expected value that is a number" in grade(lab, "'numeric'", "4", "expected='four'")["error"]


def test_a_tolerance_is_given_with_the_grader(lab: Lab) -> None:
    assert grade(lab, "{'numeric', tolerance=0.5}", "5", "expected=4")["grade"] is True
    for bad in ("'a'", "-1", "1/0", "0/0"):
        error = lab.error(f"{{ {{'numeric', tolerance={bad}}}, cases={{{{input='q'}}}} }}, function() return '' end")
        assert error == "alc.eval: entry #1: tolerance must be a number from 0 up"


def test_a_long_text_of_digits_and_blanks_is_graded_in_no_time(lab: Lab) -> None:
    code = """
      local text = ("  1-2 . , "):rep(40000)
      return alc.eval({cases={{input=text, expected='2'}}, graders={'numeric'}}, function(ctx) return ctx.task end)
    """
    assert lab.run(code).result["aggregated"]["passed"] == 1


def test_length_and_latency_are_figures_for_a_scorer(lab: Lab) -> None:
    assert grade(lab, "{'length', 'linear_0_100'}", "x" * 25)["score"] == 0.25
    assert grade(lab, "'length'", "xyz") == {"grader": "length", "grade": 3, "score": 1.0, "weight": 1.0}
    assert grade(lab, "{'latency', 'inverse_linear'}", "x")["score"] == 1.0


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ("function() error('grader broke', 0) end", "grader broke"),
        ("function() error({}) end", "{}"),
        ("function() return nil, 'cannot tell' end", "cannot tell"),
        ("{'not_empty', function() error('scorer broke', 0) end}", "the scorer failed: scorer broke"),
        ("{'not_empty', function() return 0/0 end}", "the scorer returned a number that is not finite"),
        ("{'not_empty', function() return 1e999 end}", "the scorer returned a number that is not finite"),
        ("{'not_empty', function() return 'high' end}", "the scorer returned string instead of a finite number"),
        ("{'regex', name='r'}", "malformed pattern"),
    ],
)
def test_a_grader_or_scorer_that_breaks_costs_its_points_and_says_why(lab: Lab, entry: str, told: str) -> None:
    found = grade(lab, entry, "text", "expected='%'")

    assert told in found["error"]
    assert found["score"] == 0.0


def test_a_grader_that_breaks_leaves_the_other_graders_and_cases_alone(lab: Lab) -> None:
    report = lab.evaluate(
        "{ function(r) if r.text == 'b' then error('no') end return true end, 'not_empty',"
        " cases={{input='a'}, {input='b'}, {input='c'}} }, function(ctx) return ctx.task end"
    )

    assert [result["score"] for result in report["results"]] == [1.0, 0.5, 1.0]


@pytest.mark.parametrize(
    ("returned", "shown"),
    [("'some text'", "some text"), ("{1, print}", [1, None]), ("print", None), ("{a={b=print}}", {"a": {}})],
)
def test_a_grade_that_no_scorer_understands_is_shown_with_a_warning(lab: Lab, returned: str, shown: object) -> None:
    found = grade(lab, f"function() return {returned} end", "text")

    assert found.get("grade") == shown
    assert "which its scorer counts as 0" in found["warning"]


@pytest.mark.parametrize(("given", "taken"), [("5", 1.0), ("-0.5", 0.0)])
def test_a_score_outside_of_its_range_is_cut_with_a_warning(lab: Lab, given: str, taken: float) -> None:
    found = grade(lab, f"{{'not_empty', function() return {given} end}}", "x")

    assert found["score"] == taken
    assert f"the scorer gave {given}, outside of 0 to 1" in found["warning"]


def test_a_grade_nested_without_end_is_kept_as_far_as_json_reaches(lab: Lab) -> None:
    deep = "function() local t = {} for _ = 1, 100000 do t = {t} end return t end"

    assert grade(lab, deep, "x")["score"] == 0.0
    assert lab.evaluate(f"{{cases={{{{input='q', context=({deep})()}}}}}}, function() return '' end")["results"]


def test_weights_without_bounds_do_not_spoil_the_figures(lab: Lab) -> None:
    entries = "{'not_empty', weight=1e308}, {'not_empty', weight=1e308}"

    report = lab.evaluate(f"{{ {entries}, cases={{{{input='q'}}}} }}, function() return 'x' end")

    assert report["aggregated"]["scores"]["mean"] == 0.0


def test_a_grader_of_its_own_has_a_name_and_may_ask_a_model(lab: Lab) -> None:
    found = grade(
        lab, "{name='tone', grader=function(r) return alc.llm(r.text) == 'kind' end}", "hello", "", lambda _: "kind"
    )

    assert found == {"grader": "tone", "grade": True, "score": 1.0, "weight": 1.0}
    assert grade(lab, "function() return true end", "x")["grader"] == "custom_1"
    assert grade(lab, "{name='a table', check=function() return true end}", "x")["grader"] == "a table"


def test_a_grader_cannot_change_the_case_that_the_report_shows(lab: Lab) -> None:
    spoil = "function(r, c) c.input = 'spoiled'; c.expected[1] = 'spoiled'; c.tags[1] = 'spoiled' return true end"

    report = lab.evaluate(
        f"{{cases={{{{input='a', expected='e', tags={{'t'}}}}}}, graders={{{spoil}}}}}, function() return '' end"
    )

    assert report["results"][0]["case"] == {"input": "a", "name": "", "expected": ["e"], "context": {}, "tags": ["t"]}


def test_a_program_that_replaces_text_functions_does_not_reach_the_graders(lab: Lab) -> None:
    code = """
      string.find = function() return 1 end
      return alc.eval({cases={{input='a', expected='zzz'}}, graders={'contains'}}, function(ctx) return ctx.task end)
    """
    assert lab.run(code).result["aggregated"]["passed"] == 0


# --- scorers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scorer", "value", "score"),
    [
        ("'bool'", "true", 1.0),
        ("'bool'", "0.25", 0.25),
        ("'bool'", "7", 1.0),
        ("'bool'", "'x'", 0.0),
        ("'bool'", "nil", 0.0),
        ("'linear_1_5'", "3", 0.5),
        ("'linear_1_5'", "0", 0.0),
        ("'linear_1_10'", "10", 1.0),
        ("'linear_0_100'", "40", 0.4),
        ("'linear_0_100'", "true", 0.0),
        ("'pass_50'", "0.5", 1.0),
        ("'pass_80'", "0.79", 0.0),
        ("'pass_80'", "true", 1.0),
        ("'band_1_5'", "2", 0.0),
        ("'band_1_5'", "3.5", 0.5),
        ("'band_1_5'", "5", 1.0),
        ("'inverse_linear'", "1000", 0.5),
        ("'inverse_linear'", "0", 1.0),
        ("{min=10, max=0}", "2.5", 0.75),
        ("{pass=3}", "3", 1.0),
        ("{steps={{5, 1}, {0, 0.2}}}", "4", 0.2),
        ("{score=function(v) return v / 10 end}", "5", 0.5),
        ("function(v) return 1 - v end", "0.75", 0.25),
    ],
)
def test_a_scorer_makes_a_score_of_a_grade(lab: Lab, scorer: str, value: str, score: float) -> None:
    assert grade(lab, f"{{function() return {value} end, {scorer}}}", "x")["score"] == pytest.approx(score, abs=1e-15)


@pytest.mark.parametrize(
    ("scorer", "told"),
    [
        ("'nope'", "unknown scorer 'nope'"),
        ("5", "a scorer must be a name, a function"),
        ("{}", "a scorer must be a name, a function"),
        ("{min=1, max=1}", "two different numbers"),
        ("{min='a', max=1}", "two different numbers"),
        ("{pass='a'}", "a scorer's pass must be a number"),
        ("{steps={{1, 1}}}", "at least two"),
        ("{steps={{1, 1}, {2}}}", "steps[2] must be {threshold, score}"),
    ],
)
def test_a_scorer_that_makes_no_sense_is_told_before_anything_runs(lab: Lab, scorer: str, told: str) -> None:
    error = lab.error(f"{{ {{'length', {scorer}}}, cases={{{{input='q'}}}} }}, function() end")

    assert error.startswith("alc.eval: entry #1 (length): ")
    assert told in error


# --- judges -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "rating"),
    [
        ("4", 4),
        (" 4.5 \n", 4.5),
        ("**4**", 4),
        ("4/5", 4),
        ("Rating: 4", 4),
        ("Rating (1-5): 4", 4),
        ("On a scale of 1 to 5, I would give it a 4.", 4),
        ("I see 3 problems.\n\n2", 2),
        ("2 facts are wrong, so my rating is 3 out of 5.", 3),
        ("Three criteria, 2 of them met: 3/5", 3),
        ('{"rating": 4, "reason": "2 slips"}', 4),
        ('```json\n{"score": "3"}\n```', 3),
        ("Score = 5. There were 2 nice touches.", 5),
        ("評価: 4", 4),
    ],
)
@pytest.mark.parametrize("judge", ["llm_rubric", "llm_factuality"])
def test_a_rating_is_read_however_the_judge_writes_it(lab: Lab, judge: str, reply: str, rating: float) -> None:
    found = grade(lab, f"'{judge}'", "the answer", "expected='e'", lambda _: reply)

    assert found == {"grader": judge, "grade": rating, "score": (rating - 1) / 4, "weight": 1.0}


@pytest.mark.parametrize(("reply", "rating"), [("10", 5), ("0", 1), ("-3", 1), ("85 %", 5)])
def test_a_rating_outside_of_the_scale_is_cut_with_a_warning(lab: Lab, reply: str, rating: int) -> None:
    found = grade(lab, "'llm_rubric'", "the answer", "", lambda _: reply)

    assert found["grade"] == rating
    assert "outside of 1 to 5" in found["warning"]


@pytest.mark.parametrize("reply", ["excellent!", "", "なし", "x" * 300])
def test_a_judge_without_a_number_gives_no_points_and_is_quoted(lab: Lab, reply: str) -> None:
    found = grade(lab, "'llm_rubric'", "the answer", "", lambda _: reply)

    assert found["error"].startswith("the judge did not return a number: " + reply[:90])
    assert len(found["error"]) < 160
    assert found["score"] == 0.0


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ("Yes", True),
        ("yes.", True),
        ("No", False),
        ("**No**, it is wrong", False),
        ("The answer is yes", True),
        ("It has no errors I can see, so: Yes", True),
        ('{"answer": "no"}', False),
        ("True", True),
    ],
)
def test_a_yes_or_no_is_read_however_the_judge_writes_it(lab: Lab, reply: str, verdict: bool) -> None:
    found = grade(lab, "'llm_yes_no'", "the answer", "", lambda _: reply)

    assert found == {"grader": "llm_yes_no", "grade": verdict, "score": 1.0 if verdict else 0.0, "weight": 1.0}


def test_a_judge_that_does_not_decide_is_an_error_of_that_grade(lab: Lab) -> None:
    assert "neither yes nor no: Perhaps" in grade(lab, "'llm_yes_no'", "a", "", lambda _: "Perhaps")["error"]


def test_a_judge_asks_once_in_the_role_of_a_grader_with_all_it_has_to_know(lab: Lab) -> None:
    asked: list[Json] = []

    def answer(query: Json) -> Reply:
        asked.append(query)
        return "5"

    entries = "{'llm_rubric', rubric='Be brief.'}, {'llm_yes_no', question='Is it polite?'}, 'llm_factuality'"
    scenario = f"{{ {entries}, cases={{{{input='Why?', expected={{'E1', 'E2'}}}}}} }}"
    code = f"return alc.eval({scenario}, function() return 'Because.' end)"
    run = lab.run(code, lambda query: "Yes" if "polite" in query["prompt"] else answer(query))

    prompts = run.prompts
    assert len(prompts) == 3
    for prompt in prompts:
        assert "Why?" in prompt
        assert "Because." in prompt
    assert "Be brief." in prompts[0]
    assert "from 1 (worst) to 5 (best)" in prompts[0]
    assert "Is it polite?" in prompts[1]
    assert "E1\nor: E2" in prompts[2]
    assert [query["options"] for query in asked] == [{"role": "grader"}] * 2
    assert run.result["results"][0]["passed"]


def test_a_case_may_bring_its_own_rubric(lab: Lab) -> None:
    run = lab.run(
        "return alc.eval({ {'llm_rubric', rubric='of the binding'},"
        " cases={{input='a', rubric='of the case'}, {input='b'}} }, function() return 'x' end)",
        lambda _: "5",
    )

    assert "of the case" in run.prompts[0]
    assert "of the binding" not in run.prompts[0]
    assert "of the binding" in run.prompts[1]
    assert run.result["results"][0]["case"]["rubric"] == "of the case"


def test_a_rubric_may_have_another_scale_and_is_scored_on_it(lab: Lab) -> None:
    found = grade(lab, "{'llm_rubric', scale_min=0, scale_max=10}", "a", "", lambda _: "On 0 to 10: 7")

    assert (found["grade"], found["score"]) == (7, 0.7)


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ("{'llm_rubric', rubric=5}", "rubric must be a non-empty text, got number"),
        ("{'llm_yes_no', question=''}", "question must be a non-empty text"),
        ("{'llm_rubric', scale_min=5, scale_max=1}", "scale_min and scale_max must be integers"),
        ("{'llm_rubric', scale_max=4.5}", "scale_min and scale_max must be integers"),
    ],
)
def test_a_judge_with_bad_options_is_told_before_anything_runs(lab: Lab, entry: str, told: str) -> None:
    assert told in lab.error(f"{{ {entry}, cases={{{{input='q'}}}} }}, function() end")


def test_a_judge_that_gets_no_answer_fails_its_grade_only(lab: Lab) -> None:
    found = grade(lab, "'llm_rubric'", "a", "", lambda _: Failure("the host is gone"))

    assert found["error"] == "the host is gone"


def test_no_judge_is_asked_about_an_answer_that_is_not_there(lab: Lab) -> None:
    report = lab.evaluate("{cases={{input='q', expected='e'}}, graders={'llm_factuality'}}, function() error('x') end")

    assert report["aggregated"]["passed"] == 0


def test_factuality_needs_something_to_compare_with(lab: Lab) -> None:
    assert "the case has none" in grade(lab, "'llm_factuality'", "a")["error"]


# --- std --------------------------------------------------------------------------------------------------------------


def test_std_is_a_global_that_packages_find_without_metamethods(lab: Lab) -> None:
    lab.package("looks", "return { found = rawget(_G, 'std') ~= nil }")

    assert lab.run("return require('looks').found").result is True


def test_std_gives_json_and_the_time_of_the_session(lab: Lab) -> None:
    run = lab.run("return { std.json.decode(std.json.encode({a={1, 2}})), std.time.now() }")

    assert run.result == [{"a": [1, 2]}, 1_700_000_000.0]


@pytest.mark.parametrize("call", ["std.fs.read", "std.fs.is_file"])
def test_files_are_refused_in_the_sandbox_with_what_to_do(lab: Lab, call: str) -> None:
    error = lab.run(f"return {call}('/etc/hostname')").error

    assert f"{call}: '/etc/hostname': files are not available in the sandbox; run the strategy trusted" in error
    assert "the path must be a non-empty string, got nil" in lab.run(f"return {call}()").error


def test_a_trusted_program_reads_files_through_std(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("こんにちは", encoding="utf-8")
    (tmp_path / "empty.txt").write_text("", encoding="utf-8")
    code = f"""
      local at = '{tmp_path}'
      return {{ std.fs.read(at .. '/data.txt'), std.fs.is_file(at .. '/data.txt'), std.fs.is_file(at .. '/empty.txt'),
        std.fs.is_file(at), std.fs.is_file(at .. '/none') }}
    """

    assert lab.run(code, trusted=True).result == ["こんにちは", True, True, False, False]
    assert "std.fs.read:" in lab.run(f"return std.fs.read('{tmp_path}/none')", trusted=True).error
    assert "std.fs.read:" in lab.run(f"return std.fs.read('{tmp_path}')", trusted=True).error
