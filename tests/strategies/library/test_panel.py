"""Panel: rounds in parallel, positions carried from round to round, roles given and made up, lost voices."""

from __future__ import annotations

from typing import Any

from holdfast.core.queries import Failure
from holdfast.testing import rehearse
from tests.strategies.library.questions import asked, figures
from tests.strategies.library.rehearsals import by_role, most_calls
from tests.tables import each_row

NAME = "panel"
TASK = "Shall we move to another database?"
MADE_UP = "1. An engineer\n2. A customer\n3. An auditor"
ROLES = ["a cook", "a guest"]


@each_row(("rounds", "count"), [(1, 2), (2, 3), (4, 5)])
def test_given_roles_debate_in_one_pause_a_round(rounds: int, count: int) -> None:
    ctx = {"task": TASK, "rounds": rounds, "roles": [f"role {number}" for number in range(count)]}
    run = rehearse(NAME, ctx, by_role(debate="Yes.", answer="We move."))
    assert asked(run) == [*[["debate"] * count] * rounds, ["answer"]]
    assert len(run.calls) == most_calls(NAME, ctx) == rounds * count + 1
    assert run.result["result"] == "We move."


def test_makes_up_three_roles_and_makes_eight_calls_by_default() -> None:
    run = rehearse(NAME, {"task": TASK}, by_role(plan=MADE_UP, debate="Yes.", answer="We move."))
    assert asked(run) == [["plan"], ["debate"] * 3, ["debate"] * 3, ["answer"]]
    assert len(run.calls) == most_calls(NAME, {"task": TASK}) == 8
    assert [each["role"] for each in run.result["positions"]] == ["An engineer", "A customer", "An auditor"]


def test_makes_up_as_many_roles_as_told() -> None:
    ctx = {"task": TASK, "panelists": 2, "rounds": 1}
    run = rehearse(NAME, ctx, by_role(plan=MADE_UP, debate="Yes.", answer="We move."))
    assert asked(run) == [["plan"], ["debate"] * 2, ["answer"]]
    assert len(run.calls) == most_calls(NAME, ctx)
    assert "the roles of 2 people" in run.prompts[0]


def test_each_role_speaks_for_itself_and_then_hears_the_others() -> None:
    positions = ["cook one", "guest one", "cook two", "guest two"]
    run = rehearse(NAME, {"task": TASK, "roles": ROLES}, by_role(debate=positions, answer="We move."))
    assert all(f"Task:\n{TASK}\n\n" in prompt for prompt in run.prompts)
    first, second, again, also, last = run.prompts
    assert first.startswith("You are: a cook\n\n")
    assert second.startswith("You are: a guest\n\n")
    assert not any("one" in prompt for prompt in (first, second))
    assert "Your position so far:\ncook one\n\nWhat the others say:\na guest:\nguest one\n\n" in again
    assert "Your position so far:\nguest one\n\nWhat the others say:\na cook:\ncook one\n\n" in also
    assert "a cook:\ncook two\n\na guest:\nguest two\n\n" in last
    assert not any(before in last for before in ("cook one", "guest one"))
    assert run.result["positions"] == [
        {"role": "a cook", "position": "cook two"},
        {"role": "a guest", "position": "guest two"},
    ]


@each_row("plan", ["", "I would rather not.", "1. Only one", "[1, 2]", Failure("away")])
def test_roles_that_cannot_be_read_are_replaced_by_stock_ones(plan: object) -> None:
    run = rehearse(NAME, {"task": TASK, "rounds": 1}, by_role(plan=plan, debate="Yes.", answer="We move."))
    assert asked(run) == [["plan"], ["debate"] * 3, ["answer"]]
    assert run.logs[-1] == "panel: no roles could be read; stock ones debate"
    assert run.prompts[2].startswith("You are: a sceptic who looks for what is wrong\n\n")
    assert run.result["result"] == "We move."


@each_row(
    ("nothing", "logs"),
    [(Failure("away"), ["llm_each: item 1 failed: away"]), ("", []), (" \n", [])],
)
def test_a_voice_that_falls_silent_is_heard_with_what_it_said_before(nothing: object, logs: list[str]) -> None:
    said = by_role(debate=["cook one", "guest one", nothing, "guest two"], answer="We move.")
    run = rehearse(NAME, {"task": TASK, "roles": ROLES}, said)
    assert [each["position"] for each in run.result["positions"]] == ["cook one", "guest two"]
    assert run.logs == logs


@each_row("nothing", ["", " \n", Failure("away"), Failure("late", "timeout")])
def test_a_voice_that_never_says_anything_is_left_out(nothing: object) -> None:
    said = by_role(debate=[nothing, "guest one", nothing, "guest two"], answer="We move.")
    run = rehearse(NAME, {"task": TASK, "roles": ROLES}, said)
    assert run.result["positions"] == [{"role": "a guest", "position": "guest two"}]
    assert "Your position so far:\n(none)\n\n" in run.prompts[2]
    assert "a cook" not in run.prompts[4]


def test_a_later_round_that_fails_ends_the_debate_and_keeps_the_positions() -> None:
    said = by_role(debate=["cook one", "guest one", Failure("away"), Failure("away")], answer="We move.")
    run = rehearse(NAME, {"task": TASK, "roles": ROLES, "rounds": 4}, said)
    assert asked(run) == [["debate"] * 2, ["debate"] * 2, ["answer"]]
    assert [each["position"] for each in run.result["positions"]] == ["cook one", "guest one"]
    assert run.logs == ["panel: nobody spoke in round 2, which ends the debate: away"]


def test_fails_when_nobody_speaks_in_the_first_round() -> None:
    run = rehearse(NAME, {"task": TASK, "roles": ROLES}, by_role(debate=Failure("the model is away")))
    assert len(run.calls) == 2
    assert "RuntimeError: the model is away" in (run.error or "")


def test_empty_positions_of_all_are_told_to_the_moderator() -> None:
    run = rehearse(NAME, {"task": TASK, "roles": ROLES, "rounds": 1}, by_role(debate="", answer="We move."))
    assert "(nobody took a position)" in run.prompts[-1]
    assert run.result["positions"] == []


def test_without_a_conclusion_the_positions_are_the_result() -> None:
    run = rehearse(NAME, {"task": TASK, "roles": ROLES, "rounds": 1}, by_role(debate=["Yes.", "No."], answer=" "))
    assert run.result["result"] == "a cook:\nYes.\n\na guest:\nNo."


def test_fails_without_a_moderator() -> None:
    run = rehearse(NAME, {"task": TASK, "roles": ROLES}, by_role(debate="Yes.", answer=Failure("away")))
    assert run.result is None
    assert "away" in (run.error or "")


async def test_records_how_many_were_heard() -> None:
    answer = by_role(debate=["Yes.", "", "No."], answer="We move.")
    assert await figures(NAME, {"task": TASK, "roles": ["a", "b", "c"], "rounds": 1}, answer) == {"panelists": 2}


@each_row(
    ("ctx", "told"),
    [
        ({}, "ctx has no 'task'"),
        ({"task": TASK, "roles": "a cook"}, "'roles' must be list"),
        ({"task": TASK, "roles": ["a cook"]}, "'roles' must be two or more texts, got ['a cook']"),
        ({"task": TASK, "roles": ["a cook", 7]}, "'roles' must be two or more texts"),
        ({"task": TASK, "roles": ["a cook", " "]}, "'roles' must be two or more texts"),
        ({"task": TASK, "panelists": 1}, "'panelists' must be at least 2 and at most 10, got 1"),
        ({"task": TASK, "rounds": 0}, "'rounds' must be at least 1 and at most 6, got 0"),
    ],
)
def test_a_wrong_parameter_is_refused_before_anything_is_asked(ctx: dict[str, Any], told: str) -> None:
    run = rehearse(NAME, ctx)
    assert run.calls == []
    assert told in (run.error or "")
