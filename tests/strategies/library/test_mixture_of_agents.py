"""The bundled strategy mixture_of_agents."""

from __future__ import annotations

from typing import Any

from holdfast.core.queries import Failure, LlmQuery
from holdfast.testing import rehearse
from tests.strategies.library.questions import figures
from tests.strategies.library.rehearsals import TASK, by_role, most_calls, pauses, prompts_of, roles, scripted
from tests.tables import each_row

FAILED = Failure("overloaded")


def test_each_layer_is_one_pause_and_the_aggregator_the_last() -> None:
    run = rehearse("mixture_of_agents", {"task": TASK}, scripted("mixture_of_agents"))
    assert roles(run) == ["propose"] * 6 + ["aggregate"]
    assert pauses(run) == [1, 1, 1, 2, 2, 2, 3]
    assert len(run.calls) == most_calls("mixture_of_agents", {"task": TASK}) == 7
    assert run.result == {
        "task": TASK,
        "proposals": [["Three times four is twelve."] * 3, ["Three boxes of four are twelve."] * 3],
        "result": "Twelve: three boxes of four.",
    }


@each_row(("proposers", "layers"), [(1, 1), (2, 3), (8, 1)])
def test_other_shapes_cost_proposers_times_layers_and_one(proposers: int, layers: int) -> None:
    ctx = {"task": TASK, "proposers": proposers, "layers": layers}
    run = rehearse("mixture_of_agents", ctx, by_role(propose="p", aggregate="a"))
    assert len(run.calls) == most_calls("mixture_of_agents", ctx) == proposers * layers + 1
    assert run.pauses == layers + 1


def test_a_layer_sees_the_answers_of_the_one_before_and_the_aggregator_those_of_the_last() -> None:
    ctx = {"task": TASK, "proposers": 2}
    run = rehearse("mixture_of_agents", ctx, by_role(propose=["north", "south", "east", "west"], aggregate="a"))
    assert all(prompt.startswith(f"Task:\n{TASK}\n\n") for prompt in run.prompts)
    assert all("Proposal 1" not in prompt for prompt in run.prompts[:2])
    assert all("Proposal 1:\nnorth\n\nProposal 2:\nsouth\n\nImprove on them" in each for each in run.prompts[2:4])
    assert "Proposal 1:\neast\n\nProposal 2:\nwest\n\nMake one answer" in run.prompts[4]
    assert "north" not in run.prompts[4]


def test_proposers_of_one_model_are_told_to_look_in_different_ways() -> None:
    run = rehearse(
        "mixture_of_agents", {"task": TASK, "proposers": 6, "layers": 1}, by_role(propose="p", aggregate="a")
    )
    assert len(set(prompts_of(run, "propose"))) == 6
    assert all("model" not in call.query.options for call in run.calls if isinstance(call.query, LlmQuery))


def test_models_are_given_to_the_proposers_in_turn_and_not_to_the_aggregator() -> None:
    ctx = {"task": TASK, "layers": 1, "models": ["small", "large"]}
    run = rehearse("mixture_of_agents", ctx, by_role(propose="p", aggregate="a"))
    options = [call.query.options for call in run.calls if isinstance(call.query, LlmQuery)]
    assert [each.get("model") for each in options] == ["small", "large", "small", None]


def test_proposers_that_fail_or_say_nothing_are_left_out_of_their_layer() -> None:
    said = [FAILED, "south", "", "east", Failure("late", "timeout"), "west"]
    run = rehearse("mixture_of_agents", {"task": TASK}, by_role(propose=said, aggregate="a"))
    assert run.result["proposals"] == [["south"], ["east", "west"]]
    assert "Proposal 1:\nsouth\n\nImprove on them" in run.prompts[3]
    assert run.logs == ["llm_each: item 1 failed: overloaded", "llm_each: item 2 failed: late"]


@each_row(
    ("nothing", "logs"),
    [("", []), (FAILED, ["mixture_of_agents: the layer failed, the one before it stands: overloaded"])],
)
def test_a_layer_that_comes_to_nothing_leaves_the_one_before(nothing: str | Failure, logs: list[str]) -> None:
    said = ["north", "south", nothing, nothing]
    run = rehearse("mixture_of_agents", {"task": TASK, "proposers": 2}, by_role(propose=said, aggregate="a"))
    assert run.result["proposals"] == [["north", "south"], []]
    assert "Proposal 1:\nnorth\n\nProposal 2:\nsouth\n\nMake one answer" in run.prompts[4]
    assert run.result["result"] == "a"
    assert run.logs == logs


@each_row("nothing", ["", " \n", FAILED, Failure("late", "timeout")])
def test_without_an_aggregate_the_first_proposal_of_the_last_layer_is_the_result(nothing: str | Failure) -> None:
    said = ["north", "south", "east", "west"]
    run = rehearse("mixture_of_agents", {"task": TASK, "proposers": 2}, by_role(propose=said, aggregate=nothing))
    assert run.result["result"] == "east"


def test_without_any_proposal_there_is_nothing_to_aggregate() -> None:
    run = rehearse("mixture_of_agents", {"task": TASK, "layers": 1}, by_role(propose=["", " ", ""]))
    assert len(run.calls) == 3
    assert (run.result["proposals"], run.result["result"]) == ([[]], "")


def test_if_the_whole_first_layer_fails_that_is_the_end() -> None:
    run = rehearse("mixture_of_agents", {"task": TASK}, by_role(propose=FAILED))
    assert len(run.calls) == 3
    assert run.error is not None
    assert run.error.startswith("RuntimeError: overloaded (mixture_of_agents.py:")


async def test_the_number_of_proposals_is_recorded() -> None:
    said = by_role(propose=["a", "", "b", "c", "d", "e"], aggregate="f")
    assert await figures("mixture_of_agents", {"task": TASK}, said) == {"proposals": 5}


@each_row(
    ("given", "told"),
    [
        ({"task": None}, "mixture_of_agents: ctx has no 'task'"),
        ({"proposers": 13}, "'proposers' must be at least 1 and at most 12, got 13"),
        ({"layers": 0}, "'layers' must be at least 1 and at most 6, got 0"),
        ({"models": "small"}, "'models' must be list"),
    ],
)
def test_a_wrong_parameter_is_named(given: dict[str, Any], told: str) -> None:
    run = rehearse("mixture_of_agents", {"task": TASK, **given})
    assert run.calls == []
    assert run.error is not None
    assert told in run.error
