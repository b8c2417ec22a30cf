"""Pairwise rank: every pair in both orders in one pause, position bias, undecided and lost comparisons."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from holdfast.core.queries import Failure, LlmQuery, Query
from holdfast.testing import rehearse
from tests.strategies.library.questions import asked, figures
from tests.strategies.library.rehearsals import by_role, most_calls
from tests.tables import each_row

NAME = "pairwise_rank"
TASK = "A headline about eggs."


def taste(*best_first: str) -> Callable[[Query], str]:
    """A judge that always prefers what comes first in its own order."""

    def answer(query: Query) -> str:
        first, second = compared(query)
        return f"I like it more.\nVERDICT: {'A' if best_first.index(first) < best_first.index(second) else 'B'}"

    return answer


def compared(query: Query) -> tuple[str, str]:
    assert isinstance(query, LlmQuery)
    found = re.search(r"\n\nA:\n(.*)\n\nB:\n(.*)\n\nWhich", query.prompt)
    assert found
    return found[1], found[2]


@each_row("count", [2, 3, 6])
def test_compares_every_two_items_in_both_orders_in_one_pause(count: int) -> None:
    items = [f"item {number}" for number in range(count)]
    run = rehearse(NAME, {"task": TASK, "items": items}, by_role(compare="VERDICT: A"))
    assert asked(run) == [["compare"] * (count * (count - 1))]
    assert len(run.calls) == most_calls(NAME, {"task": TASK, "items": items})
    pairs = [compared(call.query) for call in run.calls]
    assert len(set(pairs)) == len(pairs)
    assert {(first, second) for first, second in pairs} == {(second, first) for first, second in pairs}


def test_the_items_come_back_with_the_best_one_first() -> None:
    run = rehearse(NAME, {"task": TASK, "items": ["good", "bad", "best"]}, taste("best", "good", "bad"))
    assert run.result["result"] == ["best", "good", "bad"]
    assert run.result["ranking"] == [
        {"item": "best", "points": 2.0, "index": 2},
        {"item": "good", "points": 1.0, "index": 0},
        {"item": "bad", "points": 0.0, "index": 1},
    ]


def test_makes_up_four_candidates_and_makes_thirteen_calls_by_default() -> None:
    judge = taste("d", "c", "b", "a")
    run = rehearse(NAME, {"task": TASK}, lambda query: "1. a\n2. b\n3. c\n4. d" if query.id == "q-0" else judge(query))
    assert asked(run) == [["propose"], ["compare"] * 12]
    assert len(run.calls) == most_calls(NAME, {"task": TASK}) == 13
    assert run.result["result"] == ["d", "c", "b", "a"]


def test_makes_up_as_many_candidates_as_told() -> None:
    ctx = {"task": TASK, "candidates": 3}
    run = rehearse(NAME, ctx, by_role(propose="1. a\n2. b\n3. c\n4. d", compare="A"))
    assert len(run.calls) == most_calls(NAME, ctx) == 7
    assert "Write 3 different candidates" in run.prompts[0]
    assert run.prompts[0].startswith(f"Task:\n{TASK}\n\n")


def test_prompts_carry_the_task_and_the_criteria() -> None:
    run = rehearse(NAME, {"task": TASK, "items": ["a", "b"], "criteria": "It is short."}, by_role(compare="A"))
    start = f"Task:\n{TASK}\n\nCriteria:\nIt is short.\n\n"
    assert [prompt.startswith(start) for prompt in run.prompts] == [True, True]
    assert [compared(call.query) for call in run.calls] == [("a", "b"), ("b", "a")]


@each_row("favoured", ["VERDICT: A", "VERDICT: B"])
def test_a_judge_that_favours_a_place_decides_nothing(favoured: str) -> None:
    run = rehearse(NAME, {"task": TASK, "items": ["x", "y", "z"]}, by_role(compare=favoured))
    assert run.result["result"] == ["x", "y", "z"]
    assert [each["points"] for each in run.result["ranking"]] == [1.0, 1.0, 1.0]


@each_row(
    ("said", "points"),
    [
        (["VERDICT: B", "VERDICT: A"], [0.0, 1.0]),
        (["**Verdict:** b.", "verdict is unclear\nverdict: a"], [0.0, 1.0]),
        (["B", "A."], [0.0, 1.0]),
        (["Option B", "answer: (a)"], [0.0, 1.0]),
        (["VERDICT: A, no:\nVERDICT: B", "VERDICT: A"], [0.0, 1.0]),
        (["B is better than A.", "A is better than B."], [0.5, 0.5]),
        (["", ""], [0.5, 0.5]),
        (["VERDICT: both", "VERDICT: C"], [0.5, 0.5]),
        (["A tie.", "A tie."], [0.5, 0.5]),
        (["VERDICT: B", Failure("away")], [0.5, 0.5]),
        (["I cannot compare those.", "VERDICT: A"], [0.5, 0.5]),
    ],
)
def test_only_a_clear_verdict_in_both_orders_is_a_win(said: list[object], points: list[float]) -> None:
    run = rehearse(NAME, {"task": TASK, "items": ["x", "y"]}, by_role(compare=said))
    assert run.error is None
    assert {each["item"]: each["points"] for each in run.result["ranking"]} == {"x": points[0], "y": points[1]}


def test_lost_comparisons_do_not_lose_the_others() -> None:
    judge = taste("z", "y", "x")
    run = rehearse(
        NAME,
        {"task": TASK, "items": ["x", "y", "z"]},
        lambda query: Failure("away") if query.id == "q-0" else judge(query),
    )
    assert run.result["result"] == ["z", "x", "y"]
    assert [each["points"] for each in run.result["ranking"]] == [2.0, 0.5, 0.5]


def test_fails_when_every_comparison_does() -> None:
    run = rehearse(NAME, {"task": TASK, "items": ["x", "y"]}, by_role(compare=Failure("the model is away")))
    assert run.result is None
    assert "RuntimeError: the model is away" in (run.error or "")


@each_row(
    ("proposed", "result"),
    [("", [""]), ("Eggs!", ["Eggs!"]), ("1. Eggs!", ["Eggs!"]), ("1. Eggs!\n2. Eggs!", ["Eggs!"])],
)
def test_a_single_candidate_is_not_compared(proposed: str, result: list[str]) -> None:
    run = rehearse(NAME, {"task": TASK}, by_role(propose=proposed))
    assert len(run.calls) == 1
    assert run.result["result"] == result


def test_fails_without_candidates() -> None:
    run = rehearse(NAME, {"task": TASK}, by_role(propose=Failure("away")))
    assert run.result is None
    assert "away" in (run.error or "")


def test_one_item_needs_no_call() -> None:
    run = rehearse(NAME, {"task": TASK, "items": ["x"]})
    assert run.calls == []
    assert run.result["result"] == ["x"]
    assert most_calls(NAME, {"task": TASK, "items": ["x"]}) == 0


def test_items_may_be_any_json_and_come_back_as_they_are() -> None:
    items = [{"title": "Eggs"}, ["Eggs", 12]]
    run = rehearse(NAME, {"task": TASK, "items": items}, by_role(compare=["VERDICT: B", "VERDICT: A"]))
    assert compared(run.calls[0].query) == ('{"title": "Eggs"}', '["Eggs", 12]')
    assert run.result["result"] == [["Eggs", 12], {"title": "Eggs"}]


def test_the_same_item_twice_is_ranked_twice() -> None:
    run = rehearse(NAME, {"task": TASK, "items": ["x", "x"]}, by_role(compare="VERDICT: A"))
    assert run.result["result"] == ["x", "x"]
    assert [each["index"] for each in run.result["ranking"]] == [0, 1]


async def test_records_the_share_of_pairs_that_both_orders_agree_on() -> None:
    answer = by_role(compare=["A", "B", "A", "A", "A", "B"])
    assert await figures(NAME, {"task": TASK, "items": ["x", "y", "z"]}, answer) == {"decided": 2 / 3}


@each_row(
    ("ctx", "told"),
    [
        ({"items": ["x", "y"]}, "ctx has no 'task'"),
        ({"task": TASK, "items": "x, y"}, "'items' must be list"),
        ({"task": TASK, "items": list(range(31))}, "'items' must be at most 30, got 31; rank a selection"),
        ({"task": TASK, "candidates": 1}, "'candidates' must be at least 2 and at most 12, got 1"),
    ],
)
def test_a_wrong_parameter_is_refused_before_anything_is_asked(ctx: dict[str, Any], told: str) -> None:
    run = rehearse(NAME, ctx)
    assert run.calls == []
    assert told in (run.error or "")
