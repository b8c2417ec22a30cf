"""Graders: what each says of an answer, how scorers turn that into a score, and how replies of judges are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.core.values import Json
from holdfast.strategies.evaluation.data.case import Case, make_case
from holdfast.strategies.evaluation.errors import GraderError
from holdfast.strategies.evaluation.graders.checks import chosen_letter
from holdfast.strategies.evaluation.graders.grade import Grade, GradedAnswer, answer_text
from holdfast.strategies.evaluation.graders.judges import (
    agreed,
    find_rating,
    find_yes_no,
    judge_prompt,
    pairwise_prompts,
    read_human,
    read_pairwise,
    read_verdict,
)
from holdfast.strategies.evaluation.graders.numerals import answer_number, numerals
from holdfast.strategies.evaluation.graders.scorers import make_scorer
from holdfast.strategies.evaluation.graders.spec import grade_here, make_grader
from holdfast.strategies.evaluation.plan import Plan


def case(**row: Any) -> Case:
    return make_case({"input": "q", **row}, "test")


def score(grader: Any, text: str, **row: Any) -> float | None:
    return grade_here(make_grader(grader), GradedAnswer(text, text, case(**row), 250)).score


@pytest.mark.parametrize(
    ("grader", "text", "expected", "result"),
    [
        ("exact_match", "Lima", ["Quito", "Lima"], 1.0),
        ("exact_match", "Lima.", ["Lima"], 0.0),
        ("contains", "It is Lima.", ["Lima"], 1.0),
        ("contains", "It is Lima.", ["lima"], 0.0),
        ("starts_with", "Lima, Peru", ["Lima"], 1.0),
        ("ends_with", "in Lima", ["Lima"], 1.0),
        ("flexible_match", "So: Lima!", ["Lima"], 1.0),
        ("regex", "order 66", [r"\d+$"], 1.0),
        ("numeric", "That makes 1,234.50 euros", ["1234.5"], 1.0),
        ("numeric", "about 1,234.6", ["1234.5"], 0.0),
        ("approx", "about 1,234.6", ["1234.5"], 1.0),
        ("numeric", "The result is −3", ["-3"], 1.0),
        ("json_valid", '{"a": 1}', [], 1.0),
        ("json_valid", "{a: 1}", [], 0.0),
        ("not_empty", "x", [], 1.0),
        ("valid_json_response", "", [], 0.0),
    ],
)
def test_texts_and_numbers(grader: str, text: str, expected: list[str], result: float) -> None:
    assert score(grader, text, expected=expected) == result


def test_numbers_as_models_write_them() -> None:
    assert [each.value for each in numerals("3-4 of 1,234 cost -2.5e3, gpt-4 and .5; 1,2345")] == [
        3.0,
        4.0,
        1234.0,
        -2500.0,
        4.0,
        0.5,
        1.0,
        2345.0,
    ]
    assert answer_number("none") is None


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("B", "B"),
        ("(b)", "B"),
        ("The answer is C.", "C"),
        ("Answer: **A**", "A"),
        ("blue", "B"),
        ("A is wrong, and so is C.\n\nB) because", "B"),
        ("I like all of them", None),
        ("Answer: Z", None),
    ],
)
def test_choices(text: str, letter: str | None) -> None:
    assert chosen_letter(text, ["red", "blue", "green"]) == letter


def test_a_choice_is_right_by_letter_or_by_text() -> None:
    for expected in ("B", "blue"):
        assert score("choice", "Answer: B", choices=["red", "blue"], expected=expected) == 1.0
    assert score("choice", "A", choices=["red", "blue"], expected="purple") is None


def test_schemas() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    grader = {"grader": "json_schema", "schema": schema}
    assert score(grader, 'Here: {"n": 3}') == 1.0
    assert score(grader, '{"n": "three"}') == 0.0


@pytest.mark.parametrize(
    ("scorer", "value", "expected"),
    [
        ("bool", True, 1.0),
        ("linear_1_5", 4, 0.75),
        ("linear_0_100", 250, 1.0),
        ("pass_80", 0.79, 0.0),
        ("band_1_5", 3, 0.5),
        ("inverse_linear", 1000, 0.5),
        ({"min": 10, "max": 0}, 2.5, 0.75),
        ({"pass": 3}, 3, 1.0),
        ({"steps": [[0, 1], [40, 0.25]]}, 41, 0.25),
    ],
)
def test_scorers(scorer: Json, value: Json, expected: float) -> None:
    assert make_scorer(scorer, "g")(value) == expected


def test_lengths_and_times_need_a_scorer() -> None:
    assert score({"grader": "length", "scorer": {"steps": [[0, 1], [5, 0]]}}, "four") == 1.0
    assert score({"grader": "latency", "scorer": "inverse_linear"}, "x") == 0.8
    with pytest.raises(GraderError, match="add a scorer"):
        make_grader("length")


def test_functions_and_files(tmp_path: Path) -> None:
    def polite(answer: str, case: Case) -> bool:
        return "please" in answer

    assert score(polite, "please") == 1.0
    file = tmp_path / "mine.py"
    file.write_text(
        "def half(answer, case):\n    return 0.5\n\ndef broken(answer, case):\n    raise KeyError(answer)\n"
    )
    assert score(f"python:{file}:half", "x") == 0.5
    assert score(f"python:{file}:broken", "x") is None
    before = make_grader(f"python:{file}:half").digest
    file.write_text("def half(answer, case):\n    return 0.25 + 0.25 * len(answer)\n")
    assert make_grader(f"python:{file}:half").digest != before
    with pytest.raises(GraderError, match="has no function"):
        make_grader(f"python:{file}:nothing")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("perfect", "there is none of that name"),
        ({"grader": "contains", "case": False}, "unknown option case"),
        ({"grader": "contains", "judge": "m"}, "only graders that ask a model"),
        ({"grader": "contains", "weight": -1}, "weight"),
        ({"grader": "numeric", "tolerance": -1}, "tolerance"),
        ({"grader": "pairwise"}, "baseline"),
        ({"grader": "exact_match", "scorer": "no"}, "unknown scorer"),
        ({"name": "x"}, "names its grader"),
        ("sql:x", "unknown kind"),
    ],
)
def test_graders_that_cannot_be_used_are_refused(given: Any, why: str) -> None:
    with pytest.raises(GraderError, match=why):
        make_grader(given)


def test_name_and_weight_do_not_change_the_digest() -> None:
    plain = make_grader("contains")
    assert make_grader({"grader": "contains", "name": "has it", "weight": 3}).digest == plain.digest
    assert make_grader({"grader": "contains", "scorer": "pass_50"}).digest != plain.digest


@pytest.mark.parametrize(
    ("reply", "rating"),
    [
        ("4", 4),
        ('{"rating": 3, "why": "5 things"}', 3),
        ("On a scale of 1 to 5, I give it a 2.", 2),
        ("Rating: **4**\nbecause 1 and 2", 4),
        ("4/5", 4),
        ("3 out of 5", 3),
        ("There are 17 reasons.\n5\n", 5),
        ("no number here", None),
    ],
)
def test_ratings_are_found(reply: str, rating: float | None) -> None:
    assert find_rating(reply, 1, 5) == rating


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [("Yes", True), ("No, because yes men", False), ("It seems so: yes", True), ("Hm", None), ("", None)],
)
def test_verdicts_are_found(reply: str, verdict: bool | None) -> None:
    assert find_yes_no(reply) is verdict


def test_replies_of_judges_become_grades() -> None:
    assert read_verdict("llm_rubric", {}, "4") == Grade(0.75, 4)
    high = read_verdict("llm_rubric", {"scale_min": 0, "scale_max": 10}, "12")
    assert (high.score, high.grade) == (1.0, 10)
    assert high.why is not None
    assert read_verdict("llm_yes_no", {}, "perhaps").score is None
    answer = GradedAnswer("Lima", "Lima", case(rubric="Be kind"))
    assert "Be kind" in judge_prompt("llm_rubric", {}, answer)
    with pytest.raises(ValueError, match="needs an expected answer"):
        judge_prompt("llm_factuality", {}, answer)


def test_several_judges_agree_by_majority_or_mean() -> None:
    yes, no = Grade(1.0, True), Grade(0.0, False)
    assert agreed("llm_yes_no", [yes, yes, no]).score == 1.0
    assert agreed("llm_yes_no", [yes, no]).score is None
    assert agreed("llm_rubric", [Grade(1.0, 5), Grade(0.5, 3), Grade(None)]).score == 0.75


def test_pairs_that_change_with_the_order_are_ties() -> None:
    first, second = pairwise_prompts({}, GradedAnswer("mine", "mine", case()), "theirs")
    assert first.index("mine") < first.index("theirs")
    assert second.index("theirs") < second.index("mine")
    assert read_pairwise(["A", "B"]).score == 1.0
    assert read_pairwise(["B", "Response A"]).score == 0.0
    assert read_pairwise(["A", "A"]).score == 0.5
    assert read_pairwise(["Tie", "tie."]).score == 0.5
    assert read_pairwise(["A", "who knows"]).score is None


@pytest.mark.parametrize(
    ("said", "result"), [("yes", 1.0), (False, 0.0), ("0.25", 0.25), (1, 1.0), ("fail", 0.0), ("7", None)]
)
def test_what_people_say(said: Json, result: float | None) -> None:
    assert read_human(said).score == result


def test_the_text_of_a_result() -> None:
    assert answer_text({"result": {"answer": "42", "why": "so"}}) == "42"
    assert answer_text({"output": "x"}) == "x"
    assert answer_text({"n": 1}) == '{"n":1}'
    assert answer_text(None) == ""


def test_a_judge_of_the_family_under_test_is_told() -> None:
    grader = {"grader": "llm_yes_no", "judge": "openai:gpt-5"}
    frozen, _ = Plan(strategies=["model"], models=["openai:gpt-4o"], data=[{"input": "q"}], graders=[grader]).freeze()
    assert "judges prefer their own family" in frozen.warnings[0]
