"""The bundled strategy calibrate."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.budget import Budget
from holdfast.core.queries import Failure
from holdfast.testing import rehearse, rehearsed
from tests.strategies.library.questions import figures
from tests.strategies.library.rehearsals import TASK, by_role, most_calls, pauses, prompts_of, roles, scripted
from tests.tables import each_row

SURE = "Answer: 12\nConfidence: 95"
UNSURE = "Answer: 7\nConfidence: 30"
FAILED = Failure("overloaded")


def test_a_sure_answer_costs_one_call() -> None:
    run = rehearse("calibrate", {"task": TASK}, by_role(answer=SURE))
    assert len(run.calls) == 1
    assert run.prompts[0].startswith(f"Task:\n{TASK}\n\n")
    assert run.result == {
        "task": TASK,
        "first_answer": "12",
        "confidence": 0.95,
        "escalated": False,
        "result": "12",
    }


def test_an_unsure_answer_goes_to_a_panel_in_one_pause() -> None:
    run = rehearse("calibrate", {"task": TASK}, scripted("calibrate"))
    assert roles(run) == ["answer"] + ["sample"] * 5
    assert pauses(run) == [1, 2, 2, 2, 2, 2]
    assert len(run.calls) == most_calls("calibrate", {"task": TASK}) == 6
    assert run.result == {
        "task": TASK,
        "first_answer": "12",
        "confidence": 0.55,
        "escalated": True,
        "votes": {"winner": "12", "count": 4, "total": 5},
        "result": "12",
    }


def test_the_panel_does_not_see_the_first_answer_and_each_sample_is_numbered() -> None:
    ctx = {"task": TASK, "samples": 3}
    run = rehearse("calibrate", ctx, by_role(answer=UNSURE, sample="Answer: 12"))
    asked = prompts_of(run, "sample")
    assert len(run.calls) == most_calls("calibrate", ctx) == 4
    assert [f"Sample {number} of 3:" in prompt for number, prompt in enumerate(asked, 1)] == [True, True, True]
    assert all(f"Task:\n{TASK}\n" in prompt and "7" not in prompt for prompt in asked)
    assert run.result["result"] == "12"


@each_row(
    ("threshold", "said", "escalated"),
    [
        (0.8, "Answer: 12\nConfidence: 80", False),
        (0.8, "Answer: 12\nConfidence: 79", True),
        (1, "Answer: 12\nConfidence: 100", False),
        (1.0, "Answer: 12\nConfidence: 99", True),
        (0, "Answer: 12\nConfidence: 0", False),
        (0, "Confidence: 100", True),
    ],
)
def test_it_escalates_below_the_threshold_and_without_an_answer(threshold: float, said: str, escalated: bool) -> None:
    run = rehearse("calibrate", {"task": TASK, "threshold": threshold}, by_role(answer=said, sample="Answer: 12"))
    assert run.result["escalated"] is escalated
    assert len(run.calls) == (6 if escalated else 1)


@each_row(
    ("said", "answer", "confidence"),
    [
        ("**Answer:** 12\n**Confidence:** 90%", "12", 0.9),
        ("Answer: 12, confidence: 85 out of 100", "12", 0.85),
        ("Answer: 12\nConfidence (0-100): 70", "12", 0.7),
        ("Answer: 12\nConfidence: 9/10", "12", 0.9),
        ("Answer: 12\nConfidence: 0.9", "12", 0.9),
        ("Answer: 12\nConfidence: 99.5", "12", 0.995),
        ("Answer: 12\nConfidence: 1", "12", 0.01),
        ("Answer: 12\nConfidence: 900", "12", 0.0),
        ("Answer: 12\nConfidence: high", "12", 0.0),
        ("Answer: 7\nConfidence: 90\nNo:\nAnswer: 12\nConfidence: 40", "12", 0.4),
        ("Twelve, no doubt.", "Twelve, no doubt.", 0.0),
        ("", "", 0.0),
    ],
)
def test_answer_and_confidence_are_read_however_they_are_written(said: str, answer: str, confidence: float) -> None:
    run = rehearse("calibrate", {"task": TASK, "samples": 1}, by_role(answer=said, sample=""))
    assert run.result["first_answer"] == answer
    assert run.result["confidence"] == pytest.approx(confidence)


def test_answers_that_differ_in_case_blanks_or_a_full_stop_are_one() -> None:
    said = ["Answer: 7", "Answer: Twelve  apples.", "Answer: 7.5", "Answer: twelve apples", "I give up."]
    run = rehearse("calibrate", {"task": TASK}, by_role(answer=UNSURE, sample=said))
    assert run.result["votes"] == {"winner": "Twelve  apples.", "count": 2, "total": 5}
    assert run.result["result"] == "Twelve  apples."


def test_samples_that_fail_or_are_empty_do_not_vote() -> None:
    said = [FAILED, "Answer: 12", "", Failure("late", "timeout"), "Answer: 12"]
    run = rehearse("calibrate", {"task": TASK}, by_role(answer=UNSURE, sample=said))
    assert run.result["votes"] == {"winner": "12", "count": 2, "total": 2}
    assert run.result["result"] == "12"
    assert run.logs == ["llm_each: item 1 failed: overloaded", "llm_each: item 4 failed: late"]


def test_an_empty_panel_leaves_the_first_answer() -> None:
    run = rehearse("calibrate", {"task": TASK}, by_role(answer=UNSURE, sample=" "))
    assert run.result["votes"] == {"winner": "", "count": 0, "total": 0}
    assert run.result["result"] == "7"


def test_a_panel_that_fails_leaves_the_first_answer_and_says_so() -> None:
    run = rehearse("calibrate", {"task": TASK, "samples": 2}, by_role(answer=UNSURE, sample=FAILED))
    assert run.result["result"] == "7"
    assert run.result["escalation_failed"] == "overloaded"


async def test_a_budget_too_small_for_the_panel_leaves_the_first_answer() -> None:
    run = await rehearsed("calibrate", {"task": TASK}, by_role(answer=UNSURE), budget=Budget(max_llm_calls=3))
    assert len(run.calls) == 1
    assert run.result["result"] == "7"
    assert "budget_exceeded: max_llm_calls" in run.result["escalation_failed"]


def test_a_first_answer_that_fails_ends_it() -> None:
    run = rehearse("calibrate", {"task": TASK}, by_role(answer=FAILED))
    assert run.error is not None
    assert run.error.startswith("RuntimeError: overloaded (calibrate.py:")


async def test_confidence_escalation_and_agreement_are_recorded() -> None:
    said = by_role(answer=UNSURE, sample=["Answer: 12", "Answer: 12", "Answer: 7", "Answer: 12"])
    left = await figures("calibrate", {"task": TASK, "samples": 4}, said)
    assert left == {"confidence": 0.3, "escalated": True, "agreement": 0.75}


# --- escalation to another strategy ----------------------------------------------------------------------------


def test_it_escalates_to_a_strategy_by_name_with_its_parameters() -> None:
    ctx = {"task": TASK, "strategy": "plan_and_solve", "options": {"steps": 2}}
    run = rehearse("calibrate", ctx, by_role(answer=[UNSURE, "12"], plan="1. Count.\n2. Multiply.", solve="3 * 4 = 12"))
    assert roles(run) == ["answer", "plan", "solve", "answer"]
    assert f"Task:\n{TASK}\n" in run.prompts[1]
    assert "in at most 2 steps" in run.prompts[1]
    assert most_calls("calibrate", ctx) == 1
    assert run.result["result"] == "12"
    assert "votes" not in run.result


def test_a_strategy_that_fails_leaves_the_first_answer_and_says_so() -> None:
    ctx = {"task": TASK, "strategy": "plan_and_solve"}
    run = rehearse("calibrate", ctx, by_role(answer=UNSURE, plan="1.", solve=FAILED))
    assert run.result["result"] == "7"
    assert "RuntimeError: overloaded" in run.result["escalation_failed"]


def test_a_strategy_without_a_result_leaves_the_first_answer() -> None:
    ctx = {"task": TASK, "strategy": "step_back"}
    run = rehearse("calibrate", ctx, by_role(answer=[UNSURE, ""], abstract="Q?", principles="P"))
    assert run.result["result"] == "7"
    assert "escalation_failed" not in run.result


def test_a_strategy_that_nobody_knows_is_an_error() -> None:
    run = rehearse("calibrate", {"task": TASK, "strategy": "no_such_one"}, by_role(answer=UNSURE))
    assert run.error is not None
    assert "program_not_found:" in run.error
    assert "no_such_one" in run.error


@each_row(
    ("given", "told"),
    [
        ({"task": None}, "calibrate: ctx has no 'task'"),
        ({"threshold": 80}, "'threshold' must be at least 0 and at most 1, got 80"),
        ({"samples": 0}, "'samples' must be at least 1 and at most 50, got 0"),
        ({"strategy": ["cot"]}, "'strategy' must be str"),
        ({"options": "steps=2"}, "'options' must be dict"),
    ],
)
def test_a_wrong_parameter_is_named(given: dict[str, Any], told: str) -> None:
    run = rehearse("calibrate", {"task": TASK, **given})
    assert run.calls == []
    assert run.error is not None
    assert told in run.error
