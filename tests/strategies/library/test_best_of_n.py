"""The bundled strategy best_of_n."""

from __future__ import annotations

from typing import Any

from holdfast.core.queries import Failure
from holdfast.testing import rehearse
from tests.strategies.library.questions import figures
from tests.strategies.library.rehearsals import TASK, by_role, most_calls, pauses, prompts_of, roles, scripted
from tests.tables import each_row

FAILED = Failure("overloaded")
FOUR = ["one", "two", "three", "four"]


def test_candidates_are_one_pause_and_verifications_another_and_the_best_wins() -> None:
    run = rehearse("best_of_n", {"task": TASK}, scripted("best_of_n"))
    assert roles(run) == ["candidate"] * 4 + ["verify"] * 4
    assert pauses(run) == [1] * 4 + [2] * 4
    assert len(run.calls) == most_calls("best_of_n", {"task": TASK}) == 8
    assert [(each["answer"], each["score"]) for each in run.result["scored"]] == [
        ("3 + 4 = 7", 5),
        ("3 * 4 = 12", 95),
        ("4 + 4 + 4 = 12", 90),
        ("It cannot be known.", 0),
    ]
    assert (run.result["score"], run.result["result"]) == (95, "3 * 4 = 12")


@each_row("n", [1, 2, 7])
def test_other_numbers_of_candidates_cost_twice_as_many_calls(n: int) -> None:
    ctx = {"task": TASK, "n": n}
    said = by_role(candidate=[f"candidate {number}" for number in range(n)], verify="Score: 50")
    run = rehearse("best_of_n", ctx, said)
    assert len(run.calls) == most_calls("best_of_n", ctx) == 2 * n
    assert run.pauses == 2


def test_a_verifier_sees_the_task_one_candidate_and_the_criteria() -> None:
    ctx = {"task": TASK, "n": 2, "criteria": "Is it a whole number?"}
    run = rehearse("best_of_n", ctx, by_role(candidate=["twelve", "seven"], verify=["Score: 1", "Score: 2"]))
    assert [f"Candidate {number} of 2:" in prompt for number, prompt in enumerate(run.prompts[:2], 1)] == [True, True]
    first, second = prompts_of(run, "verify")
    assert first.startswith(f"Task:\n{TASK}\n\nProposed solution:\ntwelve\n\n")
    assert "Is it a whole number?" in first
    assert "seven" not in first
    assert "Proposed solution:\nseven\n" in second
    assert run.result["result"] == "seven"


def test_equal_candidates_are_verified_once() -> None:
    said = by_role(candidate=["Twelve.", " twelve.\n", "7", "TWELVE."], verify=["Score: 80", "Score: 10"])
    run = rehearse("best_of_n", {"task": TASK}, said)
    assert len(run.calls) == 6
    assert [(each["answer"], each["count"]) for each in run.result["scored"]] == [("Twelve.", 3), ("7", 1)]


def test_of_equal_scores_the_one_written_most_often_wins_then_the_first() -> None:
    often = rehearse("best_of_n", {"task": TASK}, by_role(candidate=["a", "b", "b", "c"], verify="Score: 60"))
    first = rehearse("best_of_n", {"task": TASK}, by_role(candidate=FOUR, verify="Score: 60"))
    assert often.result["result"] == "b"
    assert first.result["result"] == "one"


@each_row(
    ("verdict", "score"),
    [
        ("Fine.\n**Score:** 88", 88),
        ("Score (0-100): 71.5", 71.5),
        ("Score: 9/10", 90),
        ("Score: 8 out of 10", 80),
        ("A first score: 20. After checking:\nScore: 75", 75),
        ("Score: 250", 100),
        ("Score: -3", 0),
        ("It looks right to me, 100%.", None),
        ("I cannot judge this.", None),
        ("", None),
    ],
)
def test_scores_are_read_however_they_are_written(verdict: str, score: float | None) -> None:
    run = rehearse("best_of_n", {"task": TASK, "n": 1}, by_role(candidate="12", verify=verdict))
    assert (run.result["score"], run.result["result"]) == (score, "12")


def test_a_candidate_without_a_score_comes_after_one_with_the_worst() -> None:
    said = by_role(candidate=["a", "a", "b"], verify=["No idea.", "Score: 0"])
    run = rehearse("best_of_n", {"task": TASK, "n": 3}, said)
    assert (run.result["score"], run.result["result"]) == (0, "b")


def test_candidates_that_fail_or_are_empty_are_left_out() -> None:
    said = by_role(candidate=[FAILED, "", "twelve", Failure("late", "timeout")], verify="Score: 40")
    run = rehearse("best_of_n", {"task": TASK}, said)
    assert [each["answer"] for each in run.result["scored"]] == ["twelve"]
    assert len(run.calls) == 5
    assert run.logs == ["llm_each: item 1 failed: overloaded", "llm_each: item 4 failed: late"]


def test_without_any_text_nothing_is_verified() -> None:
    run = rehearse("best_of_n", {"task": TASK}, by_role(candidate=["", " ", "\n", FAILED]))
    assert len(run.calls) == 4
    assert (run.result["scored"], run.result["score"], run.result["result"]) == ([], None, "")


def test_without_any_score_the_candidate_written_most_often_wins() -> None:
    run = rehearse("best_of_n", {"task": TASK}, by_role(candidate=["a", "b", "b", "c"], verify=FAILED))
    assert (run.result["score"], run.result["result"]) == (None, "b")
    assert run.logs == ["best_of_n: no candidate could be verified: overloaded"]


def test_if_all_candidates_fail_that_is_the_end() -> None:
    run = rehearse("best_of_n", {"task": TASK}, by_role(candidate=FAILED))
    assert len(run.calls) == 4
    assert run.error is not None
    assert run.error.startswith("RuntimeError: overloaded (best_of_n.py:")


async def test_the_best_score_and_the_number_of_candidates_are_recorded() -> None:
    said = by_role(candidate=["a", "b", "b", "c"], verify=["Score: 3", "Score: 70", "Score: 5"])
    assert await figures("best_of_n", {"task": TASK}, said) == {"best_score": 70, "different": 3}


@each_row(
    ("given", "told"),
    [
        ({"task": None}, "best_of_n: ctx has no 'task'"),
        ({"n": 0}, "'n' must be at least 1 and at most 50, got 0"),
        ({"n": 2.5}, "'n' must be int, got 2.5"),
        ({"criteria": 3}, "'criteria' must be str, got 3"),
    ],
)
def test_a_wrong_parameter_is_named(given: dict[str, Any], told: str) -> None:
    run = rehearse("best_of_n", {"task": TASK, **given})
    assert run.calls == []
    assert run.error is not None
    assert told in run.error
