"""Chain of thought: two calls, the reasoning carried to the answer, and bad answers."""

from __future__ import annotations

from holdfast.core.queries import Failure
from holdfast.testing import rehearse
from tests.strategies.library.questions import asked
from tests.strategies.library.rehearsals import TASK, by_role, most_calls
from tests.tables import each_row


def test_reasons_first_and_answers_second() -> None:
    run = rehearse("cot", {"task": TASK}, ["4 + 4 + 4 = 12", " 12\n"])
    assert asked(run) == [["reason"], ["answer"]]
    assert len(run.calls) == most_calls("cot", {"task": TASK}) == 2
    assert run.result == {"task": TASK, "reasoning": "4 + 4 + 4 = 12", "result": "12"}


def test_quotes_the_task_twice_and_carries_the_reasoning() -> None:
    run = rehearse("cot", {"task": TASK}, ["4 + 4 + 4 = 12", "12"])
    assert [prompt.startswith(f"Task:\n{TASK}\n\n") for prompt in run.prompts] == [True, True]
    assert "Reasoning:\n4 + 4 + 4 = 12\n\n" in run.prompts[1]
    assert "4 + 4" not in run.prompts[0]


def test_asks_for_a_number_of_steps_only_when_told() -> None:
    assert "in 3 numbered steps" in rehearse("cot", {"task": TASK, "steps": 3}).prompts[0]
    assert "numbered" not in rehearse("cot", {"task": TASK}).prompts[0]


@each_row(
    ("reasoning", "answer", "result"),
    [("It is 12.", "", "It is 12."), ("It is 12.", " \n", "It is 12."), ("", "12", "12"), ("", "", "")],
)
def test_an_empty_answer_leaves_the_reasoning(reasoning: str, answer: str, result: str) -> None:
    run = rehearse("cot", {"task": TASK}, by_role(reason=reasoning, answer=answer))
    assert run.error is None
    assert run.result["result"] == result


def test_a_refusal_is_an_answer_like_any_other() -> None:
    run = rehearse("cot", {"task": TASK}, by_role(reason="I cannot help with that.", answer="No answer."))
    assert run.result["result"] == "No answer."


@each_row("failing", ["reason", "answer"])
def test_a_failed_question_fails_the_session(failing: str) -> None:
    said = {"reason": "r", "answer": "a", failing: Failure("the model is away")}
    run = rehearse("cot", {"task": TASK}, by_role(**said))
    assert run.result is None
    assert run.error is not None
    assert "the model is away" in run.error


@each_row(
    ("ctx", "told"),
    [
        ({}, "cot: ctx has no 'task'"),
        ({"task": 7}, "'task' must be str"),
        ({"task": TASK, "steps": -1}, "'steps' must be at least 0 and at most 50, got -1"),
        ({"task": TASK, "steps": 51}, "'steps' must be at least 0 and at most 50, got 51"),
        ({"task": TASK, "steps": "3"}, "'steps' must be int"),
        ({"task": TASK, "steps": True}, "'steps' must be int"),
    ],
)
def test_a_wrong_parameter_is_refused_before_anything_is_asked(ctx: dict[str, object], told: str) -> None:
    run = rehearse("cot", ctx)
    assert run.calls == []
    assert told in (run.error or "")
