"""Tree of thoughts: levels of proposals and ratings in parallel, the beam, and levels that come to nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.core.queries import Failure, LlmQuery, Query
from holdfast.testing import rehearse
from tests.strategies.library.questions import asked, figures
from tests.strategies.library.rehearsals import by_role, most_calls
from tests.tables import each_row

NAME = "tree_of_thoughts"
TASK = "Make 24 of 4, 9, 10 and 13."


def plan(*steps: str) -> str:
    return "\n".join(f"{number}. {step}" for number, step in enumerate(steps, 1))


def steps_in(query: Query) -> list[str]:
    """The steps that a prompt shows."""
    assert isinstance(query, LlmQuery)
    return re.findall(r"^\d+\. (.*)$", query.prompt, re.MULTILINE)


def world(rate: Callable[[Sequence[str]], int], branching: int = 3) -> Callable[[Query], str]:
    """Every beginning can be gone on with by a, b, c…; it is rated by a function of its steps."""

    def answer(query: Query) -> str:
        assert isinstance(query, LlmQuery)
        match query.options["role"]:
            case "propose":
                return plan(*"abcdefgh"[:branching])
            case "judge":
                return f"So so.\nSCORE: {rate(steps_in(query))}"
            case _:
                return "The answer: " + "".join(steps_in(query))

    return answer


def count_of_b(steps: Sequence[str]) -> int:
    return 1 + list(steps).count("b")


def test_a_level_is_one_pause_of_proposals_and_one_of_ratings() -> None:
    run = rehearse(NAME, {"task": TASK}, world(count_of_b))
    level = [["propose"] * 2, ["judge"] * 6]
    assert asked(run) == [["propose"], ["judge"] * 3, *level, *level, ["answer"]]
    assert len(run.calls) == most_calls(NAME, {"task": TASK}) == 21


@each_row(("depth", "branching", "beam"), [(1, 1, 1), (1, 5, 3), (2, 4, 4), (4, 2, 1)])
def test_makes_as_many_calls_as_it_says(depth: int, branching: int, beam: int) -> None:
    ctx = {"task": TASK, "depth": depth, "branching": branching, "beam": beam}
    run = rehearse(NAME, ctx, world(count_of_b, branching))
    assert len(run.calls) == most_calls(NAME, ctx) == 2 + branching + (depth - 1) * beam * (1 + branching)
    assert run.pauses == 2 * depth + 1
    assert len(run.result["steps_taken"]) == depth


def test_a_beam_wider_than_the_first_level_costs_less_than_it_says() -> None:
    ctx = {"task": TASK, "depth": 2, "branching": 2, "beam": 5}
    run = rehearse(NAME, ctx, world(count_of_b, 2))
    assert asked(run) == [["propose"], ["judge"] * 2, ["propose"] * 2, ["judge"] * 4, ["answer"]]
    assert len(run.calls) < most_calls(NAME, ctx)  # type: ignore[operator]


def test_the_best_beginnings_go_on_and_lead_to_the_answer() -> None:
    run = rehearse(NAME, {"task": TASK}, world(count_of_b))
    assert run.result["steps_taken"] == ["b", "b", "b"]
    assert run.result["result"] == "The answer: bbb"
    first, second, third = run.result["tree"]
    assert [each["steps"] for each in first] == [["b"], ["a"], ["c"]]
    assert [each["score"] for each in first] == [2.0, 1.0, 1.0]
    assert [each["steps"] for each in second] == [
        ["b", "b"],
        ["b", "a"],
        ["b", "c"],
        ["a", "b"],
        ["a", "a"],
        ["a", "c"],
    ]
    assert [each["score"] for each in third] == [4.0, 3.0, 3.0, 3.0, 2.0, 2.0]


def test_a_weak_beginning_inside_the_beam_can_win_later() -> None:
    def rate(steps: Sequence[str]) -> int:
        return {"a": 5, "b": 4, "c": 1}.get("".join(steps), 10 if list(steps) == ["b", "c"] else 2)

    run = rehearse(NAME, {"task": TASK, "depth": 2}, world(rate))
    assert run.result["steps_taken"] == ["b", "c"]
    narrow = rehearse(NAME, {"task": TASK, "depth": 2, "beam": 1}, world(rate))
    assert narrow.result["steps_taken"] == ["a", "a"]


def test_prompts_carry_the_task_and_the_steps_so_far() -> None:
    run = rehearse(NAME, {"task": TASK, "depth": 2, "beam": 1, "branching": 2}, world(count_of_b, 2))
    propose, rate, _, again, *_, final = run.prompts
    assert all(prompt.startswith(f"Task:\n{TASK}\n\n") for prompt in run.prompts)
    assert "Steps so far:\n(none yet)\n\nThis is step 1 of 2. Propose 2 different next steps." in propose
    assert "Steps so far:\n1. a\n\n" in rate
    assert "Steps so far:\n1. b\n\nThis is step 2 of 2." in again
    assert "Steps:\n1. b\n2. b\n\n" in final


@each_row(
    ("rating", "score"),
    [
        ("Between 1 and 10 I say:\nSCORE: 7", 7.0),
        ("**SCORE**: 7.5", 7.5),
        ("8", 8.0),
        ("SCORE: 400", 10.0),
        ("hopeless", 5.0),
        ("", 5.0),
    ],
)
def test_a_score_is_read_from_any_rating(rating: str, score: float) -> None:
    said = by_role(propose=plan("a"), judge=rating, answer="24")
    run = rehearse(NAME, {"task": TASK, "depth": 1}, said)
    assert run.result["tree"] == [[{"steps": ["a"], "score": score}]]


def test_equal_ratings_keep_the_order_of_the_proposals() -> None:
    run = rehearse(NAME, {"task": TASK, "depth": 2}, world(lambda _: 5))
    assert run.result["steps_taken"] == ["a", "a"]


def test_more_proposals_than_asked_for_are_cut_and_repeated_ones_count_once() -> None:
    said = by_role(propose=plan("a", "a", "b", "c", "d"), judge="SCORE: 5", answer="24")
    run = rehearse(NAME, {"task": TASK, "depth": 1}, said)
    assert [each["steps"] for each in run.result["tree"][0]] == [["a"], ["b"], ["c"]]


@each_row("nothing", ["", "I have no idea.", "[]", '{"steps": 2}'])
def test_without_steps_the_task_is_answered_as_it_is(nothing: str) -> None:
    run = rehearse(NAME, {"task": TASK}, by_role(propose=nothing, answer="24"))
    assert asked(run) == [["propose"], ["answer"]]
    assert "Steps:\n(none yet)\n\n" in run.prompts[1]
    assert run.logs == ["tree_of_thoughts: there are no steps at level 1; the search ends before it"]
    assert run.result["result"] == "24"
    assert run.result["tree"] == []


@each_row("nothing", ["", Failure("away")])
def test_a_later_level_without_steps_ends_the_search(nothing: object) -> None:
    said = by_role(propose=[plan("a", "b"), nothing, nothing], judge=["SCORE: 3", "SCORE: 8"], answer="24")
    run = rehearse(NAME, {"task": TASK}, said)
    assert asked(run) == [["propose"], ["judge"] * 2, ["propose"] * 2, ["answer"]]
    assert run.result["steps_taken"] == ["b"]
    assert run.result["result"] == "24"


def test_a_later_level_whose_ratings_all_fail_ends_the_search() -> None:
    said = by_role(propose=plan("a"), judge=["SCORE: 3", Failure("away")], answer="24")
    run = rehearse(NAME, {"task": TASK, "branching": 1}, said)
    assert asked(run) == [["propose"], ["judge"], ["propose"], ["judge"], ["answer"]]
    assert run.result["steps_taken"] == ["a"]
    assert run.logs == [
        "tree_of_thoughts: all questions of a level failed: away",
        "tree_of_thoughts: there are no steps at level 2; the search ends before it",
    ]


def test_lost_proposals_and_ratings_do_not_lose_the_others() -> None:
    said = by_role(
        propose=[plan("a", "b"), Failure("away"), plan("c", "d")],
        judge=["SCORE: 3", "SCORE: 2", Failure("away"), "SCORE: 2"],
        answer="24",
    )
    run = rehearse(NAME, {"task": TASK, "depth": 2}, said)
    assert run.result["steps_taken"] == ["b", "d"]
    assert run.result["tree"][1] == [{"steps": ["b", "d"], "score": 2.0}, {"steps": ["b", "c"], "score": 1.0}]


@each_row("failing", ["propose", "judge", "answer"])
def test_fails_when_all_questions_of_the_first_level_or_the_last_one_do(failing: str) -> None:
    said = {"propose": plan("a", "b"), "judge": "SCORE: 5", "answer": "24", failing: Failure("the model is away")}
    run = rehearse(NAME, {"task": TASK}, by_role(**said))
    assert run.result is None
    assert "the model is away" in (run.error or "")


def test_an_empty_answer_leaves_the_steps() -> None:
    said = by_role(propose=plan("13 - 9"), judge="SCORE: 5", answer=" ")
    assert rehearse(NAME, {"task": TASK, "depth": 2}, said).result["result"] == "1. 13 - 9\n2. 13 - 9"


async def test_records_the_best_score() -> None:
    assert await figures(NAME, {"task": TASK}, world(count_of_b)) == {"best_score": 4.0}


@each_row(
    ("ctx", "told"),
    [
        ({}, "ctx has no 'task'"),
        ({"task": TASK, "depth": 0}, "'depth' must be at least 1 and at most 10, got 0"),
        ({"task": TASK, "branching": 11}, "'branching' must be at least 1 and at most 10, got 11"),
        ({"task": TASK, "beam": 0}, "'beam' must be at least 1 and at most 10, got 0"),
        ({"task": TASK, "beam": [2]}, "'beam' must be int"),
    ],
)
def test_a_wrong_parameter_is_refused_before_anything_is_asked(ctx: dict[str, Any], told: str) -> None:
    run = rehearse(NAME, ctx)
    assert run.calls == []
    assert told in (run.error or "")
