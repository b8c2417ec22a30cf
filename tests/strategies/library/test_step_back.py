"""The bundled strategy step_back."""

from __future__ import annotations

from holdfast.core.queries import Failure
from holdfast.testing import rehearse
from tests.strategies.library.rehearsals import TASK, by_role, most_calls, pauses, prompts_of, roles, scripted
from tests.tables import each_row

GENERAL = "How are equal groups counted?"


def test_the_general_question_is_asked_then_answered_then_the_task() -> None:
    run = rehearse("step_back", {"task": TASK}, scripted("step_back"))
    assert roles(run) == ["abstract", "principles", "answer"]
    assert pauses(run) == [1, 2, 3]
    assert len(run.calls) == most_calls("step_back", {"task": TASK}) == 3
    assert run.result == {
        "task": TASK,
        "step_back_question": "How are things counted that come in equal groups?",
        "principles": "Groups of equal size are multiplied.",
        "result": "There are 3 groups of 4, so 12.",
    }


def test_each_question_carries_the_task_and_what_was_found_before() -> None:
    run = rehearse("step_back", {"task": TASK}, by_role(abstract=f" {GENERAL}\n", principles="Multiply.", answer="12"))
    assert all(f":\n{TASK}\n" in prompt for prompt in run.prompts)
    assert f"Question:\n{GENERAL}\n" in run.prompts[1]
    assert f"What is known in general ({GENERAL}):\nMultiply.\n" in run.prompts[2]


@each_row("nothing", ["", "  \n", Failure("overloaded"), Failure("late", "timeout")])
def test_without_a_general_question_it_asks_for_the_principles_of_such_tasks(nothing: str | Failure) -> None:
    run = rehearse("step_back", {"task": TASK}, by_role(abstract=nothing, principles="Multiply.", answer="12"))
    fallback = "Which facts and principles does a task like this rest on?"
    assert f"Question:\n{fallback}\n" in run.prompts[1]
    assert run.result["step_back_question"] == fallback
    assert run.result["result"] == "12"


@each_row("nothing", ["", "\n", Failure("overloaded"), Failure("late", "timeout")])
def test_without_principles_the_task_is_reasoned_about_directly(nothing: str | Failure) -> None:
    run = rehearse("step_back", {"task": TASK}, by_role(abstract=GENERAL, principles=nothing, answer="12"))
    assert prompts_of(run, "answer") == [
        f"Task:\n{TASK}\n\nAnswer the task. Reason step by step, and end with the answer itself."
    ]
    assert (run.result["principles"], run.result["result"]) == ("", "12")


def test_an_empty_answer_is_an_empty_result() -> None:
    run = rehearse("step_back", {"task": TASK}, by_role(abstract=GENERAL, principles="Multiply.", answer=" "))
    assert (run.error, run.result["result"]) == (None, "")


def test_an_answer_that_fails_ends_it_with_the_reason() -> None:
    run = rehearse("step_back", {"task": TASK}, by_role(abstract="Q?", principles="P", answer=Failure("no model")))
    assert run.result is None
    assert run.error is not None
    assert run.error.startswith("RuntimeError: no model (step_back.py:")


@each_row(
    ("ctx", "told"), [({}, "step_back: ctx has no 'task'"), ({"task": 12}, "step_back: 'task' must be str, got 12")]
)
def test_a_wrong_parameter_is_named(ctx: dict[str, object], told: str) -> None:
    run = rehearse("step_back", ctx)
    assert run.calls == []
    assert run.error is not None
    assert told in run.error
