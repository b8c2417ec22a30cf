"""Self-consistency: independent samples in one pause, how answers are read and compared, lost samples."""

from __future__ import annotations

from holdfast.core.queries import Failure, LlmQuery
from holdfast.testing import rehearse
from tests.strategies.library.questions import asked, figures
from tests.strategies.library.rehearsals import TASK, by_role, most_calls
from tests.tables import each_row

NAME = "self_consistency"


@each_row("samples", [1, 5, 12])
def test_asks_every_sample_in_one_pause(samples: int) -> None:
    run = rehearse(NAME, {"task": TASK, "samples": samples}, by_role(reason="3 times 4.\nANSWER: 12"))
    assert asked(run) == [["reason"] * samples]
    assert samples == most_calls(NAME, {"task": TASK, "samples": samples})
    assert run.result["result"] == "12"


def test_makes_five_calls_by_default() -> None:
    assert len(rehearse(NAME, {"task": TASK}).calls) == most_calls(NAME, {"task": TASK}) == 5


def test_the_samples_are_the_same_task_asked_in_different_ways_and_sampled_freely() -> None:
    run = rehearse(NAME, {"task": TASK, "temperature": 1.2, "samples": 2})
    assert run.prompts[0] != run.prompts[1]  # a host that can't set a temperature would answer the same twice
    for prompt in run.prompts:
        assert prompt.startswith(f"Task:\n{TASK}\n\n")
        assert '"ANSWER:"' in prompt
    temperatures = [call.query.options["temperature"] for call in run.calls if isinstance(call.query, LlmQuery)]
    assert temperatures == [1.2, 1.2]


def test_the_most_frequent_answer_wins_whatever_the_reasoning() -> None:
    said = ["3 + 4\nANSWER: 7", "3 * 4\nANSWER: 12", "4 + 4 + 4\nANSWER: 12", "by sight\nANSWER: 12", "ANSWER: 7"]
    run = rehearse(NAME, {"task": TASK}, said)
    assert run.result["result"] == "12"
    assert run.result["votes"] == [{"answer": "12", "count": 3}, {"answer": "7", "count": 2}]
    assert run.result["agreement"] == 0.6
    assert run.result["paths"] == said


def test_answers_are_compared_without_case_marks_and_full_stops() -> None:
    said = ["ANSWER: Rome", "ANSWER: **Paris**", "**Answer:** paris.", "answer : PARIS", "ANSWER: Rome"]
    run = rehearse(NAME, {"task": "Which city?"}, said)
    assert run.result["votes"] == [{"answer": "Paris", "count": 3}, {"answer": "Rome", "count": 2}]
    assert run.result["result"] == "Paris"


def test_of_equally_frequent_answers_the_first_given_wins() -> None:
    run = rehearse(NAME, {"task": TASK, "samples": 4}, [f"ANSWER: {each}" for each in (7, 12, 12, 7)])
    assert run.result["result"] == "7"


@each_row(
    ("said", "answer"),
    [
        ("It must be\n\ntwelve\n", "twelve"),
        ("ANSWER: 7, no:\nANSWER: 12", "12"),
        ("ANSWER:\n12", "12"),
        ("3 times 4 is 12.\nANSWER:", "3 times 4 is 12."),
        ("I cannot help with that.", "I cannot help with that."),
        ("", ""),
        (" \n ", ""),
        ("ANSWER:", ""),
        ("**", ""),
        ({"answer": 12}, '{"answer":12}'),
    ],
)
def test_an_answer_without_the_mark_is_its_last_line(said: object, answer: str) -> None:
    run = rehearse(NAME, {"task": TASK, "samples": 1}, [said])
    assert run.error is None
    assert run.result["result"] == answer


def test_samples_without_an_answer_do_not_vote() -> None:
    run = rehearse(NAME, {"task": TASK}, ["", "", "", "ANSWER: 12", "..."])
    assert run.result["result"] == "12"
    assert run.result["votes"] == [{"answer": "12", "count": 1}]
    assert run.result["agreement"] == 0.2


def test_lost_samples_do_not_lose_the_others() -> None:
    said = [Failure("away"), "ANSWER: 12", Failure("late", "timeout"), "ANSWER: 7", "ANSWER: 12"]
    run = rehearse(NAME, {"task": TASK}, said)
    assert run.result["result"] == "12"
    assert len(run.result["paths"]) == 3
    assert run.logs == ["llm_each: item 1 failed: away", "llm_each: item 3 failed: late"]


def test_fails_when_every_sample_does() -> None:
    run = rehearse(NAME, {"task": TASK, "samples": 3}, lambda query: Failure(f"away at {query.id}"))
    assert run.result is None
    assert "RuntimeError: away at q-0" in (run.error or "")


async def test_records_how_much_the_samples_agree() -> None:
    answer = by_role(reason=[f"ANSWER: {each}" for each in (12, 12, 7, 12)])
    assert await figures(NAME, {"task": TASK, "samples": 4}, answer) == {"agreement": 0.75}


@each_row(
    ("ctx", "told"),
    [
        ({}, "ctx has no 'task'"),
        ({"task": TASK, "samples": 0}, "'samples' must be at least 1 and at most 50, got 0"),
        ({"task": TASK, "samples": 51}, "'samples' must be at least 1 and at most 50, got 51"),
        ({"task": TASK, "temperature": "hot"}, "'temperature' must be float"),
        ({"task": TASK, "temperature": 2.5}, "'temperature' must be at least 0 and at most 2, got 2.5"),
    ],
)
def test_a_wrong_parameter_is_refused_before_anything_is_asked(ctx: dict[str, object], told: str) -> None:
    run = rehearse(NAME, ctx)
    assert run.calls == []
    assert told in (run.error or "")
