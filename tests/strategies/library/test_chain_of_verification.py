"""Chain of verification: the questions are answered in one pause without the draft; bad plans and lost answers."""

from __future__ import annotations

from holdfast.core.queries import Failure, LlmQuery
from holdfast.testing import rehearse
from tests.strategies.library.questions import asked, figures
from tests.strategies.library.rehearsals import by_role, most_calls
from tests.tables import each_row

NAME = "chain_of_verification"
TASK = "Where and when was Ada Lovelace born?"
DRAFT = "In Paris, in 1815."
FINAL = "In London, in 1815."


def plan(count: int) -> str:
    return "\n".join(f"{number}. Question number {number}?" for number in range(1, count + 1))


@each_row("questions", [1, 4, 9])
def test_asks_the_questions_in_one_pause(questions: int) -> None:
    said = by_role(draft=DRAFT, plan=plan(questions), verify="London.", answer=FINAL)
    run = rehearse(NAME, {"task": TASK, "questions": questions}, said)
    assert asked(run) == [["draft"], ["plan"], ["verify"] * questions, ["answer"]]
    assert len(run.calls) == most_calls(NAME, {"task": TASK, "questions": questions}) == 3 + questions
    assert run.result["result"] == FINAL
    assert run.result["draft"] == DRAFT


def test_makes_at_most_seven_calls_by_default() -> None:
    said = by_role(draft=DRAFT, plan=plan(30), verify="London.", answer=FINAL)
    assert len(rehearse(NAME, {"task": TASK}, said).calls) == most_calls(NAME, {"task": TASK}) == 7


def test_whoever_answers_a_question_sees_neither_the_draft_nor_the_task() -> None:
    run = rehearse(NAME, {"task": TASK}, by_role(draft=DRAFT, plan=plan(2), verify="London.", answer=FINAL))
    for number, prompt in enumerate(run.prompts[2:4], 1):
        assert prompt.startswith(f"Question:\nQuestion number {number}?\n\n")
        assert DRAFT not in prompt
        assert TASK not in prompt


def test_the_last_prompt_carries_the_draft_and_what_was_found() -> None:
    said = by_role(draft=DRAFT, plan=plan(2), verify=["London.", "In 1815."], answer=FINAL)
    run = rehearse(NAME, {"task": TASK}, said)
    draft, planned, *_, final = run.prompts
    assert all(prompt.startswith(f"Task:\n{TASK}\n\n") for prompt in (draft, planned, final))
    assert f"Draft of an answer:\n{DRAFT}\n\n" in planned
    assert f"Draft of an answer:\n{DRAFT}\n\n" in final
    assert "- Question number 1? London.\n- Question number 2? In 1815.\n" in final
    assert run.result["checks"] == [
        {"question": "Question number 1?", "answer": "London."},
        {"question": "Question number 2?", "answer": "In 1815."},
    ]


@each_row("grounded", [True, False])
def test_the_host_looks_up_only_the_questions_and_only_if_told(grounded: bool) -> None:
    said = by_role(draft=DRAFT, plan=plan(2), verify="London.", answer=FINAL)
    run = rehearse(NAME, {"task": TASK, "grounded": grounded}, said)
    flags = [call.query.grounded for call in run.calls if isinstance(call.query, LlmQuery)]
    assert flags == [False, False, grounded, grounded, False]


@each_row(
    ("planned", "questions"),
    [
        ("Here they are:\n- Where?\n* When?\n", ["Where?", "When?"]),
        ("  1) Where?\n  2) Where?\n  3) When?", ["Where?", "When?"]),
        ('```json\n["Where?", "When?", 7, ""]\n```', ["Where?", "When?"]),
        ([["Where?", "When?"]], ["Where?", "When?"]),
    ],
)
def test_questions_are_read_from_any_kind_of_list(planned: object, questions: list[str]) -> None:
    run = rehearse(NAME, {"task": TASK}, by_role(draft=DRAFT, plan=planned, verify="Yes.", answer=FINAL))
    assert [check["question"] for check in run.result["checks"]] == questions


@each_row("planned", ["", "I see nothing to check.", "1.\n2.", "[1, 2]", {"questions": 3}])
def test_without_questions_the_draft_is_the_answer(planned: object) -> None:
    run = rehearse(NAME, {"task": TASK}, by_role(draft=DRAFT, plan=planned))
    assert len(run.calls) == 2
    assert run.result["result"] == DRAFT
    assert run.result["checks"] == []
    assert run.logs == ["chain_of_verification: no question could be read; the draft is not checked"]


def test_lost_and_empty_answers_are_left_out() -> None:
    answers = ["London.", Failure("away"), "", "In 1815."]
    run = rehearse(NAME, {"task": TASK}, by_role(draft=DRAFT, plan=plan(4), verify=answers, answer=FINAL))
    assert [check["answer"] for check in run.result["checks"]] == ["London.", "In 1815."]
    assert "Question number 2?" not in run.prompts[-1]
    assert run.logs == ["llm_each: item 2 failed: away", "chain_of_verification: 2 of 4 have no answer"]
    assert run.result["result"] == FINAL


def test_fails_when_no_question_is_answered() -> None:
    run = rehearse(NAME, {"task": TASK}, by_role(draft=DRAFT, plan=plan(3), verify=Failure("away")))
    assert run.result is None
    assert "RuntimeError: away" in (run.error or "")


def test_empty_answers_to_all_questions_leave_the_draft() -> None:
    run = rehearse(NAME, {"task": TASK}, by_role(draft=DRAFT, plan=plan(3), verify=" "))
    assert len(run.calls) == 5
    assert run.result["result"] == DRAFT


def test_an_empty_last_answer_leaves_the_draft() -> None:
    run = rehearse(NAME, {"task": TASK}, by_role(draft=DRAFT, plan=plan(2), verify="London.", answer=""))
    assert run.result["result"] == DRAFT


@each_row("failing", ["draft", "plan", "answer"])
def test_a_failed_question_that_all_depends_on_fails_the_session(failing: str) -> None:
    said = {"draft": DRAFT, "plan": plan(1), "verify": "London.", "answer": FINAL, failing: Failure("away")}
    run = rehearse(NAME, {"task": TASK}, by_role(**said))
    assert run.result is None
    assert "away" in (run.error or "")


async def test_records_how_many_questions_there_were() -> None:
    answer = by_role(draft=DRAFT, plan=plan(3), verify="London.", answer=FINAL)
    assert await figures(NAME, {"task": TASK}, answer) == {"checks": 3}


@each_row(
    ("ctx", "told"),
    [
        ({}, "ctx has no 'task'"),
        ({"task": TASK, "questions": 0}, "'questions' must be at least 1 and at most 20, got 0"),
        ({"task": TASK, "questions": ["Where?"]}, "'questions' must be int"),
        ({"task": TASK, "grounded": "yes"}, "'grounded' must be bool"),
    ],
)
def test_a_wrong_parameter_is_refused_before_anything_is_asked(ctx: dict[str, object], told: str) -> None:
    run = rehearse(NAME, ctx)
    assert run.calls == []
    assert told in (run.error or "")
