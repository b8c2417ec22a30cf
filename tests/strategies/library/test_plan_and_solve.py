"""The bundled strategy plan_and_solve."""

from __future__ import annotations

from holdfast.core.queries import Failure
from holdfast.testing import rehearse
from tests.strategies.library.rehearsals import TASK, by_role, most_calls, pauses, roles, scripted
from tests.tables import each_row

PLAN = "1. Count the boxes.\n2. Multiply."


def test_it_plans_then_works_then_states_the_answer() -> None:
    run = rehearse("plan_and_solve", {"task": TASK}, scripted("plan_and_solve"))
    assert roles(run) == ["plan", "solve", "answer"]
    assert pauses(run) == [1, 2, 3]
    assert len(run.calls) == most_calls("plan_and_solve", {"task": TASK}) == 3
    assert run.result == {
        "task": TASK,
        "plan": "1. Count the boxes.\n2. Multiply by what is in each.",
        "solution": "1. There are 3 boxes.\n2. 3 * 4 = 12.",
        "result": "12",
    }


def test_each_question_carries_the_task_and_what_came_before() -> None:
    run = rehearse("plan_and_solve", {"task": TASK}, by_role(plan=PLAN, solve="3 * 4 = 12", answer="12"))
    assert all(prompt.startswith(f"Task:\n{TASK}\n") for prompt in run.prompts)
    assert f"Plan:\n{PLAN}\n\nWork through the plan step by step" in run.prompts[1]
    assert "Worked solution:\n3 * 4 = 12\n" in run.prompts[2]


def test_a_careful_run_asks_for_what_is_given_and_for_intermediate_results() -> None:
    careful = rehearse("plan_and_solve", {"task": TASK}, by_role(plan=PLAN, solve="s", answer="a"))
    plain = rehearse("plan_and_solve", {"task": TASK, "careful": False}, by_role(plan=PLAN, solve="s", answer="a"))
    assert "First list what is given" in careful.prompts[0]
    assert "every intermediate result" in careful.prompts[1]
    assert plain.prompts[0].startswith(f"Task:\n{TASK}\n\nDevise a plan, one numbered step a line.")
    assert plain.prompts[1].endswith("leaving nothing out.")


def test_the_number_of_steps_is_asked_for() -> None:
    run = rehearse("plan_and_solve", {"task": TASK, "steps": 4}, by_role(plan=PLAN, solve="s", answer="a"))
    assert "Devise a plan in at most 4 steps" in run.prompts[0]


@each_row("nothing", ["", "  ", Failure("overloaded"), Failure("late", "timeout")])
def test_without_a_plan_the_task_itself_is_worked_through(nothing: str | Failure) -> None:
    run = rehearse("plan_and_solve", {"task": TASK}, by_role(plan=nothing, solve="3 * 4 = 12", answer="12"))
    assert run.prompts[1].startswith(f"Task:\n{TASK}\n\nWork through the task step by step")
    assert (run.result["plan"], run.result["result"]) == ("", "12")


@each_row("nothing", ["", "\n\n", Failure("overloaded"), Failure("late", "timeout")])
def test_without_an_answer_alone_the_worked_solution_is_the_result(nothing: str | Failure) -> None:
    run = rehearse("plan_and_solve", {"task": TASK}, by_role(plan=PLAN, solve="3 * 4 = 12", answer=nothing))
    assert run.result["result"] == "3 * 4 = 12"


def test_a_solution_that_fails_ends_it_with_the_reason() -> None:
    run = rehearse("plan_and_solve", {"task": TASK}, by_role(plan=PLAN, solve=Failure("no model")))
    assert len(run.calls) == 2
    assert run.error is not None
    assert run.error.startswith("RuntimeError: no model (plan_and_solve.py:")


@each_row(
    ("ctx", "told"),
    [
        ({}, "plan_and_solve: ctx has no 'task'"),
        ({"task": TASK, "steps": 51}, "'steps' must be at least 0 and at most 50, got 51"),
        ({"task": TASK, "steps": True}, "'steps' must be int"),
        ({"task": TASK, "careful": "yes"}, "'careful' must be bool"),
    ],
)
def test_a_wrong_parameter_is_named(ctx: dict[str, object], told: str) -> None:
    run = rehearse("plan_and_solve", ctx)
    assert run.calls == []
    assert run.error is not None
    assert told in run.error
