"""Skeleton of thought: the points are written in one pause; skeletons that cannot be read, points that are lost."""

from __future__ import annotations

from typing import Any

from holdfast.core.queries import Failure
from holdfast.testing import rehearse
from tests.strategies.library.questions import asked, figures
from tests.strategies.library.rehearsals import by_role, most_calls
from tests.tables import each_row

NAME = "skeleton_of_thought"
TASK = "How does one grow beans?"


def skeleton(count: int) -> str:
    return "\n".join(f"{number}. Point {number}" for number in range(1, count + 1))


@each_row("points", [1, 6, 13])
def test_writes_all_points_in_one_pause(points: int) -> None:
    ctx = {"task": TASK, "points": points}
    run = rehearse(NAME, ctx, by_role(plan=skeleton(points), write="Text."))
    assert asked(run) == [["plan"], ["write"] * points]
    assert len(run.calls) == most_calls(NAME, ctx) == 1 + points


def test_makes_at_most_seven_calls_by_default() -> None:
    run = rehearse(NAME, {"task": TASK}, by_role(plan=skeleton(20), write="Text."))
    assert len(run.calls) == most_calls(NAME, {"task": TASK}) == 7


def test_the_answer_is_put_together_in_the_order_of_the_skeleton() -> None:
    run = rehearse(NAME, {"task": TASK}, by_role(plan="1. Sow\n2. Water", write=[" In May. ", "Daily."]))
    assert run.result == {
        "task": TASK,
        "skeleton": ["Sow", "Water"],
        "result": "1. Sow\nIn May.\n\n2. Water\nDaily.",
    }


def test_each_point_is_asked_for_with_the_task_and_the_whole_skeleton() -> None:
    ctx = {"task": TASK, "points": 4, "sentences": 9}
    run = rehearse(NAME, ctx, by_role(plan="- Sow\n- Water", write="Text."))
    assert all(prompt.startswith(f"Task:\n{TASK}\n\n") for prompt in run.prompts)
    assert "at most 4" in run.prompts[0]
    for number, point in enumerate(("Sow", "Water"), 1):
        prompt = run.prompts[number]
        assert "Skeleton of the answer:\n1. Sow\n2. Water\n\n" in prompt
        assert f"Write out point {number} and nothing else, in about 9 sentences: {point}" in prompt


@each_row(
    ("planned", "points"),
    [
        ("Gladly!\n\n* Sow\n• Water", ["Sow", "Water"]),
        ("1) Sow\n2) Sow\n3) Water", ["Sow", "Water"]),
        ('["Sow", "Water", null]', ["Sow", "Water"]),
        ("   1. Sow\n\n   2. Water\n\nThat is all.", ["Sow", "Water"]),
    ],
)
def test_points_are_read_from_any_kind_of_list(planned: str, points: list[str]) -> None:
    run = rehearse(NAME, {"task": TASK}, by_role(plan=planned, write="Text."))
    assert run.result["skeleton"] == points


@each_row("planned", ["", "I cannot help with that.", "1.", "{}", "[3, 4]"])
def test_without_a_skeleton_the_task_is_asked_directly(planned: str) -> None:
    run = rehearse(NAME, {"task": TASK}, by_role(plan=planned, answer="In May. "))
    assert asked(run) == [["plan"], ["answer"]]
    assert run.prompts[1].startswith(f"Task:\n{TASK}\n\n")
    assert run.result["result"] == "In May."
    assert run.result["skeleton"] == []
    assert run.logs == ["skeleton_of_thought: no skeleton could be read; the task is asked directly"]


@each_row("nothing", ["", " \n", Failure("away"), Failure("late", "timeout")])
def test_a_point_that_is_lost_keeps_its_title(nothing: object) -> None:
    run = rehearse(NAME, {"task": TASK}, by_role(plan=skeleton(3), write=["One.", nothing, "Three."]))
    assert run.result["result"] == "1. Point 1\nOne.\n\n2. Point 2\n\n3. Point 3\nThree."
    assert run.logs[-1] == "skeleton_of_thought: 1 of 3 points were not written out"


def test_fails_when_every_point_does() -> None:
    run = rehearse(NAME, {"task": TASK}, by_role(plan=skeleton(3), write=Failure("the model is away")))
    assert run.result is None
    assert "RuntimeError: the model is away" in (run.error or "")


@each_row("planned", [Failure("away"), "no list"])
def test_a_failed_question_that_all_depends_on_fails_the_session(planned: object) -> None:
    run = rehearse(NAME, {"task": TASK}, by_role(plan=planned, answer=Failure("away")))
    assert run.result is None
    assert "away" in (run.error or "")


async def test_records_how_many_points_there_were() -> None:
    assert await figures(NAME, {"task": TASK}, by_role(plan=skeleton(3), write="Text.")) == {"points": 3}


@each_row(
    ("ctx", "told"),
    [
        ({}, "ctx has no 'task'"),
        ({"task": TASK, "points": 0}, "'points' must be at least 1 and at most 30, got 0"),
        ({"task": TASK, "points": ["Sow"]}, "'points' must be int"),
        ({"task": TASK, "sentences": 31}, "'sentences' must be at least 1 and at most 30, got 31"),
    ],
)
def test_a_wrong_parameter_is_refused_before_anything_is_asked(ctx: dict[str, Any], told: str) -> None:
    run = rehearse(NAME, ctx)
    assert run.calls == []
    assert told in (run.error or "")
