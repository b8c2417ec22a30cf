"""UCB1: which approach gets the next attempt, how attempts are judged, and what is lost when they fail."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import log, sqrt
from typing import Any

import pytest

from holdfast.core.queries import Failure, LlmQuery, Query
from holdfast.testing import rehearse, rehearsed
from tests.strategies.library.questions import asked, figures
from tests.strategies.library.rehearsals import by_role, most_calls
from tests.tables import each_row

NAME = "ucb"
TASK = "A slogan for a bakery."
ARMS = ["rhyme", "pun", "question", "promise"]
PLAN = "\n".join(f"{number}. {approach}" for number, approach in enumerate(ARMS, 1))


def world(worth: dict[str, Any]) -> Callable[[Query], Any]:
    """Attempts name their approach, and are judged by what that is worth."""

    def answer(query: Query) -> Any:
        assert isinstance(query, LlmQuery)
        match query.options["role"]:
            case "plan":
                return PLAN
            case "attempt":
                followed = re.search(r"approach:\n(\w+)\n\nThis is attempt (\d+)", query.prompt)
                assert followed
                return f"{followed[1]} {followed[2]}"
            case _:
                judged = re.search(r"Attempt:\n(\w+) ", query.prompt)
                assert judged
                return worth[judged[1]]

    return answer


def ucb1(worth: dict[str, float], pulls: int, exploration: float) -> dict[str, int]:
    """How often each approach is tried by the rule itself, when its attempts are all worth the same."""
    tried = dict.fromkeys(worth, 1)
    for attempts in range(len(worth), pulls):
        bounds = {arm: worth[arm] / 10 + exploration * sqrt(log(attempts) / count) for arm, count in tried.items()}
        tried[max(bounds, key=bounds.__getitem__)] += 1
    return tried


def test_tries_every_approach_in_one_pause_and_then_one_at_a_time() -> None:
    run = rehearse(NAME, {"task": TASK}, world(dict.fromkeys(ARMS, "SCORE: 5")))
    assert asked(run) == [["plan"], ["attempt"] * 4, ["judge"] * 4, *[["attempt"], ["judge"]] * 4]
    assert len(run.calls) == most_calls(NAME, {"task": TASK}) == 17


@each_row(("arms", "pulls"), [(4, 1), (2, 2), (3, 9), (4, 3)])
def test_never_makes_more_attempts_than_told(arms: int, pulls: int) -> None:
    ctx = {"task": TASK, "arms": arms, "pulls": pulls}
    run = rehearse(NAME, ctx, world(dict.fromkeys(ARMS, "SCORE: 5")))
    assert sum(each["pulls"] for each in run.result["approaches"]) == pulls
    assert len(run.result["approaches"]) == min(arms, pulls)
    assert len(run.calls) == most_calls(NAME, ctx) == 1 + 2 * pulls


@each_row("exploration", [0.0, 0.3, 1.414])
def test_the_highest_upper_confidence_bound_gets_the_next_attempt(exploration: float) -> None:
    worth = {"rhyme": 2.0, "pun": 9.0, "question": 5.0, "promise": 8.0}
    ctx = {"task": TASK, "pulls": 24, "exploration": exploration}
    run = rehearse(NAME, ctx, world({arm: f"SCORE: {score}" for arm, score in worth.items()}))
    tried = {each["approach"]: each["pulls"] for each in run.result["approaches"]}
    assert tried == ucb1(worth, 24, exploration)
    assert {each["approach"]: each["mean"] for each in run.result["approaches"]} == pytest.approx(worth)
    assert run.result["result"] == "pun 1"
    assert run.result["best"] == {"approach": "pun", "score": 9.0}


def test_prompts_carry_the_task_the_approach_the_attempt_and_the_criteria() -> None:
    ctx = {"task": TASK, "pulls": 5, "exploration": 0, "criteria": "It makes one hungry."}
    run = rehearse(NAME, ctx, world({**dict.fromkeys(ARMS, "SCORE: 3"), "pun": "SCORE: 9"}))
    assert all(prompt.startswith(f"Task:\n{TASK}\n\n") for prompt in run.prompts)
    assert "Propose 4 approaches" in run.prompts[0]
    assert "Follow this approach:\npun\n\nThis is attempt 1 " in run.prompts[2]
    assert "Attempt:\npun 1\n\nCriteria:\nIt makes one hungry.\n\n" in run.prompts[6]
    assert "Follow this approach:\npun\n\nThis is attempt 2 " in run.prompts[9]


@each_row(
    ("judgement", "score"),
    [
        ("On a scale of 1 to 10 it is fine.\nSCORE: 7", 7.0),
        ("**Score:** 8.5", 8.5),
        ("score: 3, no: SCORE: 4", 4.0),
        ("SCORE: 99", 10.0),
        ("SCORE: 0", 1.0),
        ("6", 6.0),
        ("It is delightful.", 5.0),
        ("", 5.0),
        ({"score": 9}, 9.0),
        (Failure("away"), 1.0),
    ],
)
def test_a_score_is_read_from_any_judgement(judgement: object, score: float) -> None:
    run = rehearse(NAME, {"task": TASK, "pulls": 1}, by_role(plan=PLAN, attempt="Bread!", judge=judgement))
    assert run.result["best"] == {"approach": "rhyme", "score": score}
    assert run.result["result"] == "Bread!"


@each_row("plan", ["", "I would not know.", "[]", "1.", '{"approaches": 4}'])
def test_without_approaches_the_task_is_attempted_directly(plan: str) -> None:
    run = rehearse(NAME, {"task": TASK, "pulls": 3}, by_role(plan=plan, attempt="Bread!", judge="SCORE: 5"))
    assert asked(run) == [["plan"], *[["attempt"], ["judge"]] * 3]
    assert run.logs == ["ucb: no approach could be read; the task is attempted directly"]
    assert run.result["result"] == "Bread!"


def test_fewer_approaches_than_asked_for_get_all_the_attempts() -> None:
    said = by_role(plan='["rhyme", "pun", "rhyme"]', attempt="Bread!", judge="SCORE: 5")
    run = rehearse(NAME, {"task": TASK, "pulls": 4}, said)
    assert [(each["approach"], each["pulls"]) for each in run.result["approaches"]] == [("rhyme", 2), ("pun", 2)]


def test_failed_and_empty_attempts_are_worth_nothing_and_are_not_judged() -> None:
    said = by_role(plan=PLAN, attempt=["", Failure("away"), "Bread!", " "], judge=["SCORE: 2"])
    run = rehearse(NAME, {"task": TASK, "pulls": 4}, said)
    assert asked(run) == [["plan"], ["attempt"] * 4, ["judge"]]
    assert [each["mean"] for each in run.result["approaches"]] == [0, 0, 2, 0]
    assert run.result["result"] == "Bread!"


def test_a_later_attempt_that_fails_counts_against_its_approach() -> None:
    said = by_role(plan="1. rhyme", attempt=["Bread!", Failure("away"), "Cake!"], judge=["SCORE: 6", "SCORE: 9"])
    run = rehearse(NAME, {"task": TASK, "pulls": 3}, said)
    assert run.result["approaches"] == [{"approach": "rhyme", "pulls": 3, "mean": 5.0}]
    assert run.result["result"] == "Cake!"


def test_attempts_that_could_not_be_judged_are_worth_little() -> None:
    said = by_role(plan=PLAN, attempt=["a", "b", "c", "d", "e"], judge=[Failure("away")] * 4 + ["SCORE: 2"])
    run = rehearse(NAME, {"task": TASK, "pulls": 5}, said)
    assert [each["mean"] for each in run.result["approaches"]] == [1.5, 1, 1, 1]
    assert run.result["result"] == "e"
    assert run.logs == ["ucb: nothing could be judged: away"]


def test_of_equal_attempts_the_first_is_the_result() -> None:
    said = by_role(plan=PLAN, attempt=["a", "b", "c", "d"], judge="SCORE: 7")
    assert rehearse(NAME, {"task": TASK, "pulls": 4}, said).result["result"] == "a"


def test_fails_when_all_first_attempts_do() -> None:
    run = rehearse(NAME, {"task": TASK}, by_role(plan=PLAN, attempt=Failure("the model is away")))
    assert len(run.calls) == 5
    assert "RuntimeError: the model is away" in (run.error or "")


async def test_a_spent_budget_leaves_the_best_so_far() -> None:
    ctx = {"task": TASK, "pulls": 50, "budget": {"max_llm_calls": 11}}
    run = await rehearsed(NAME, ctx, world({**dict.fromkeys(ARMS, "SCORE: 3"), "promise": "SCORE: 8"}))
    assert len(run.calls) == 11
    assert run.error is None
    assert run.result["result"] == "promise 1"
    assert sum(each["pulls"] for each in run.result["approaches"]) == 5


async def test_records_the_best_score() -> None:
    answer = world({"rhyme": "SCORE: 2", "pun": "SCORE: 8", "question": "SCORE: 3", "promise": "SCORE: 1"})
    assert await figures(NAME, {"task": TASK}, answer) == {"best_score": 8.0}


@each_row(
    ("ctx", "told"),
    [
        ({}, "ctx has no 'task'"),
        ({"task": TASK, "arms": 0}, "'arms' must be at least 1 and at most 20, got 0"),
        ({"task": TASK, "pulls": 0}, "'pulls' must be at least 1 and at most 200, got 0"),
        ({"task": TASK, "pulls": 201}, "'pulls' must be at least 1 and at most 200, got 201"),
        ({"task": TASK, "exploration": -1}, "'exploration' must be at least 0 and at most 10, got -1"),
        ({"task": TASK, "exploration": "much"}, "'exploration' must be float"),
    ],
)
def test_a_wrong_parameter_is_refused_before_anything_is_asked(ctx: dict[str, Any], told: str) -> None:
    run = rehearse(NAME, ctx)
    assert run.calls == []
    assert told in (run.error or "")
