"""Least to most: problems are solved in turn with the solutions before them; bad plans and lost solutions."""

from __future__ import annotations

from typing import Any

from holdfast.core.queries import Failure
from holdfast.testing import rehearse
from tests.strategies.library.questions import asked, figures
from tests.strategies.library.rehearsals import by_role, most_calls
from tests.tables import each_row

NAME = "least_to_most"
TASK = "How often can she slide before it closes?"


def plan(count: int) -> str:
    return "\n".join(f"{number}. Problem {number}" for number in range(1, count + 1))


@each_row("count", [1, 5, 8])
def test_solves_one_problem_after_the_other_and_then_the_task(count: int) -> None:
    ctx = {"task": TASK, "subproblems": count}
    run = rehearse(NAME, ctx, by_role(plan=plan(count), solve="5 minutes", answer=" Three times. "))
    assert asked(run) == [["plan"], *[["solve"]] * count, ["answer"]]
    assert len(run.calls) == most_calls(NAME, ctx) == 2 + count
    assert run.result["result"] == "Three times."


def test_makes_at_most_seven_calls_by_default() -> None:
    run = rehearse(NAME, {"task": TASK}, by_role(plan=plan(30), solve="5 minutes", answer="3"))
    assert len(run.calls) == most_calls(NAME, {"task": TASK}) == 7


def test_each_prompt_carries_what_was_solved_before() -> None:
    run = rehearse(NAME, {"task": TASK}, by_role(plan=plan(2), solve=["5 minutes", "3 turns"], answer="3"))
    decompose, first, second, last = run.prompts
    one = "Solved so far:\nProblem: Problem 1\nSolution: 5 minutes"
    assert decompose.startswith(f"Task:\n{TASK}\n\nDecompose the task into simpler problems, at most 5")
    assert first == f"Task:\n{TASK}\n\nSolve this problem, and only this:\nProblem 1"
    assert second == f"Task:\n{TASK}\n\n{one}\n\nSolve this problem, and only this:\nProblem 2"
    assert last.startswith(f"Task:\n{TASK}\n\n{one}\n\nProblem: Problem 2\nSolution: 3 turns\n\nNow solve the task.")
    assert run.result["solved"] == [
        {"problem": "Problem 1", "solution": "5 minutes"},
        {"problem": "Problem 2", "solution": "3 turns"},
    ]


@each_row(
    ("planned", "problems"),
    [
        ("First:\n- Up\n- Down", ["Up", "Down"]),
        ("1) Up\n2) Up\n3) Down", ["Up", "Down"]),
        ('Here: ["Up", "Down", 3]', ["Up", "Down"]),
    ],
)
def test_problems_are_read_from_any_kind_of_list(planned: str, problems: list[str]) -> None:
    run = rehearse(NAME, {"task": TASK}, by_role(plan=planned, solve="5 minutes", answer="3"))
    assert [each["problem"] for each in run.result["solved"]] == problems


@each_row("planned", ["", "It cannot be decomposed.", "1.", "[]", '{"problems": 2}'])
def test_without_problems_the_task_is_solved_as_it_is(planned: str) -> None:
    run = rehearse(NAME, {"task": TASK}, by_role(plan=planned, answer="3"))
    assert asked(run) == [["plan"], ["answer"]]
    assert "Solved so far" not in run.prompts[1]
    assert run.result["solved"] == []
    assert run.result["result"] == "3"
    assert run.logs == ["least_to_most: no problems could be read; the task is solved as it is"]


def test_a_problem_that_fails_is_left_out_and_the_others_go_on() -> None:
    said = by_role(plan=plan(3), solve=["one", Failure("away"), "three"], answer="3")
    run = rehearse(NAME, {"task": TASK}, said)
    assert [each["solution"] for each in run.result["solved"]] == ["one", "three"]
    assert "Problem 2" not in run.prompts[-1]
    assert run.logs == ["least_to_most: problem 2 is left out: away"]


def test_an_empty_solution_is_left_out() -> None:
    run = rehearse(NAME, {"task": TASK}, by_role(plan=plan(2), solve=[" ", "two"], answer="3"))
    assert run.result["solved"] == [{"problem": "Problem 2", "solution": "two"}]


def test_fails_when_no_problem_is_solved() -> None:
    run = rehearse(NAME, {"task": TASK}, by_role(plan=plan(2), solve=[Failure("away"), Failure("late", "timeout")]))
    assert run.result is None
    assert "TimeoutError: late" in (run.error or "")


@each_row("failing", ["plan", "answer"])
def test_a_failed_question_that_all_depends_on_fails_the_session(failing: str) -> None:
    said = {"plan": plan(1), "solve": "one", "answer": "3", failing: Failure("the model is away")}
    run = rehearse(NAME, {"task": TASK}, by_role(**said))
    assert run.result is None
    assert "the model is away" in (run.error or "")


@each_row(("solutions", "result"), [(["one", "two"], "two"), (["one", ""], "one"), (["", ""], "")])
def test_an_empty_answer_leaves_the_last_solution(solutions: list[str], result: str) -> None:
    run = rehearse(NAME, {"task": TASK}, by_role(plan=plan(2), solve=solutions, answer=""))
    assert run.error is None
    assert run.result["result"] == result


async def test_records_how_many_problems_were_solved() -> None:
    answer = by_role(plan=plan(3), solve=["one", "", "three"], answer="3")
    assert await figures(NAME, {"task": TASK}, answer) == {"solved": 2}


@each_row(
    ("ctx", "told"),
    [
        ({}, "ctx has no 'task'"),
        ({"task": ["slide"]}, "'task' must be str"),
        ({"task": TASK, "subproblems": 0}, "'subproblems' must be at least 1 and at most 20, got 0"),
        ({"task": TASK, "subproblems": 21}, "'subproblems' must be at least 1 and at most 20, got 21"),
        ({"task": TASK, "subproblems": "few"}, "'subproblems' must be int"),
    ],
)
def test_a_wrong_parameter_is_refused_before_anything_is_asked(ctx: dict[str, Any], told: str) -> None:
    run = rehearse(NAME, ctx)
    assert run.calls == []
    assert told in (run.error or "")
