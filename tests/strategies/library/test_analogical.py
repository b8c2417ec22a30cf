"""The bundled strategy analogical."""

from __future__ import annotations

from holdfast.core.queries import Failure
from holdfast.testing import rehearse
from tests.strategies.library.rehearsals import TASK, by_role, most_calls, pauses, roles, scripted
from tests.tables import each_row

RECALLED = "Two bags of five: 2 * 5 = 10."


def test_similar_problems_are_recalled_and_the_task_is_solved_by_them() -> None:
    run = rehearse("analogical", {"task": TASK}, scripted("analogical"))
    assert roles(run) == ["recall", "solve"]
    assert pauses(run) == [1, 2]
    assert len(run.calls) == most_calls("analogical", {"task": TASK}) == 2
    assert run.result == {
        "task": TASK,
        "concepts": "",
        "recalled": "1. Two bags of five apples: 2 * 5 = 10.\n2. Six rows of two: 6 * 2 = 12.",
        "solution": "As with the bags: 3 * 4 = 12.\nAnswer: 12",
        "result": "12",
    }


def test_with_knowledge_the_concepts_come_first_and_are_carried_on() -> None:
    ctx = {"task": TASK, "knowledge": True}
    run = rehearse("analogical", ctx, by_role(knowledge="Groups.", recall=RECALLED, solve="Answer: 12"))
    assert roles(run) == ["knowledge", "recall", "solve"]
    assert len(run.calls) == most_calls("analogical", ctx) == 3
    assert all("Core concepts:\nGroups.\n" in prompt for prompt in run.prompts[1:])
    assert run.result["concepts"] == "Groups."


def test_each_question_carries_the_task_and_what_was_recalled() -> None:
    run = rehearse("analogical", {"task": TASK}, by_role(recall=RECALLED, solve="Answer: 12"))
    assert all(prompt.startswith(f"Task:\n{TASK}\n\n") for prompt in run.prompts)
    assert f"Similar problems:\n{RECALLED}\n\nSolve the task as the similar problems were solved." in run.prompts[1]


@each_row(("count", "words"), [(1, "Recall one problem of"), (5, "Recall 5 problems, different from each other, of")])
def test_as_many_problems_are_asked_for_as_wanted(count: int, words: str) -> None:
    run = rehearse("analogical", {"task": TASK, "examples": count}, by_role(recall=RECALLED, solve="12"))
    assert words in run.prompts[0]


@each_row("nothing", ["", " \n", Failure("overloaded"), Failure("late", "timeout")])
def test_without_similar_problems_or_concepts_it_solves_the_task_alone(nothing: str | Failure) -> None:
    ctx = {"task": TASK, "knowledge": True}
    run = rehearse("analogical", ctx, by_role(knowledge=nothing, recall=nothing, solve="Answer: 12"))
    assert run.prompts[2].startswith(f"Task:\n{TASK}\n\nSolve the task step by step.")
    assert (run.result["concepts"], run.result["recalled"], run.result["result"]) == ("", "", "12")


@each_row(
    ("said", "result"),
    [
        ("3 * 4 = 12\n**Answer:** 12", "12"),
        ("Answer: 7\nNo, wait.\nFinal answer: 12", "12"),
        ("answer:\n- twelve\n- apples", "- twelve\n- apples"),
        ("The answer is twelve.", "The answer is twelve."),
        ("12, I think.\nAnswer:", "12, I think.\nAnswer:"),
        ("I cannot help with that.", "I cannot help with that."),
        ("", ""),
    ],
)
def test_the_answer_is_found_in_the_solution(said: str, result: str) -> None:
    run = rehearse("analogical", {"task": TASK}, by_role(recall=RECALLED, solve=said))
    assert (run.result["solution"], run.result["result"]) == (said, result)


def test_a_solution_that_fails_ends_it_with_the_reason() -> None:
    run = rehearse("analogical", {"task": TASK}, by_role(recall=RECALLED, solve=Failure("no model")))
    assert run.error is not None
    assert run.error.startswith("RuntimeError: no model (analogical.py:")


@each_row(
    ("ctx", "told"),
    [
        ({"task": None}, "analogical: ctx has no 'task'"),
        ({"task": TASK, "examples": 0}, "'examples' must be at least 1 and at most 10, got 0"),
        ({"task": TASK, "knowledge": 1}, "'knowledge' must be bool, got 1"),
    ],
)
def test_a_wrong_parameter_is_named(ctx: dict[str, object], told: str) -> None:
    run = rehearse("analogical", ctx)
    assert run.calls == []
    assert run.error is not None
    assert told in run.error
