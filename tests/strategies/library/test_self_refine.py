"""Self-refine: drafts, criticism and revisions in turn, when it stops, and bad answers."""

from __future__ import annotations

from holdfast.core.queries import Failure
from holdfast.testing import rehearse
from tests.strategies.library.questions import asked, figures
from tests.strategies.library.rehearsals import by_role, most_calls
from tests.tables import each_row

NAME = "self_refine"
TASK = "Say in one sentence why sessions survive."
REVISE = "- Too long.\nVERDICT: revise"
GOOD = "It is what was asked for.\nVERDICT: good"


@each_row("rounds", [1, 3, 6])
def test_revises_in_every_round_while_there_is_criticism(rounds: int) -> None:
    said = by_role(draft="v0", critique=REVISE, revise=[f"v{number + 1}" for number in range(rounds)])
    run = rehearse(NAME, {"task": TASK, "rounds": rounds}, said)
    assert asked(run) == [["draft"], *[["critique"], ["revise"]] * rounds]
    assert len(run.calls) == most_calls(NAME, {"task": TASK, "rounds": rounds}) == 1 + 2 * rounds
    assert run.result["drafts"] == [f"v{number}" for number in range(rounds + 1)]
    assert run.result["result"] == f"v{rounds}"
    assert run.result["approved"] is False


def test_makes_at_most_seven_calls_by_default() -> None:
    run = rehearse(NAME, {"task": TASK}, by_role(draft="v0", critique=REVISE, revise=["v1", "v2", "v3"]))
    assert len(run.calls) == most_calls(NAME, {"task": TASK}) == 7


def test_stops_when_the_criticism_finds_nothing() -> None:
    run = rehearse(NAME, {"task": TASK}, by_role(draft="v0", critique=[REVISE, GOOD], revise=["v1"]))
    assert asked(run) == [["draft"], ["critique"], ["revise"], ["critique"]]
    assert run.result["result"] == "v1"
    assert run.result["approved"] is True
    assert run.result["feedback"] == [REVISE, GOOD]


def test_a_good_first_draft_is_not_touched() -> None:
    run = rehearse(NAME, {"task": TASK}, by_role(draft=" v0 \n", critique=GOOD))
    assert len(run.calls) == 2
    assert run.result == {
        "task": TASK,
        "drafts": ["v0"],
        "feedback": [GOOD],
        "approved": True,
        "result": "v0",
    }


def test_prompts_carry_the_task_the_draft_the_criteria_and_the_criticism() -> None:
    said = by_role(draft="v0", critique=["- Dull.\nVERDICT: revise", GOOD], revise=["v1"])
    run = rehearse(NAME, {"task": TASK, "criteria": "It makes one laugh."}, said)
    draft, critique, revise, again = run.prompts
    assert all(prompt.startswith(f"Task:\n{TASK}\n\n") for prompt in run.prompts)
    assert "Draft:" not in draft
    assert "Draft:\nv0\n\nCriteria:\nIt makes one laugh.\n\n" in critique
    assert "Draft:\nv0\n\nCriticism:\n- Dull.\nVERDICT: revise\n\n" in revise
    assert "Draft:\nv1\n\n" in again
    assert "v0" not in again


@each_row(
    ("criticism", "is_good"),
    [
        ("VERDICT: good", True),
        ("**Verdict:** Good.", True),
        ("VERDICT: revise\nOn second thoughts, VERDICT: good", True),
        ("A good start, but dull.", False),
        ("VERDICT: good, if it were shorter.\nVERDICT: revise", False),
        ("VERDICT: not good", False),
        ("good", False),
        ({"verdict": "good"}, True),
    ],
)
def test_only_the_verdict_good_ends_it(criticism: object, is_good: bool) -> None:
    run = rehearse(NAME, {"task": TASK, "rounds": 1}, by_role(draft="v0", critique=criticism, revise="v1"))
    assert run.result["approved"] is is_good
    assert run.result["result"] == ("v0" if is_good else "v1")


@each_row("criticism", ["", " \n", Failure("away"), Failure("late", "timeout")])
def test_without_criticism_the_draft_stays(criticism: object) -> None:
    run = rehearse(NAME, {"task": TASK}, by_role(draft="v0", critique=[criticism]))
    assert run.result["result"] == "v0"
    assert run.result["feedback"] == []
    assert run.result["approved"] is False
    assert run.logs[-1] == "self_refine: there was no criticism; the draft stays as it is"


@each_row("revision", ["", "v1", Failure("away")])
def test_a_revision_that_changes_nothing_ends_it(revision: object) -> None:
    run = rehearse(NAME, {"task": TASK}, by_role(draft="v0", critique=REVISE, revise=["v1", revision]))
    assert len(run.calls) == 5
    assert run.result["drafts"] == ["v0", "v1"]
    assert run.result["result"] == "v1"
    assert run.logs[-1] == "self_refine: the revision changed nothing; the draft stays as it is"


def test_an_empty_draft_is_criticised_like_any_other() -> None:
    run = rehearse(NAME, {"task": TASK, "rounds": 1}, by_role(draft="", critique=REVISE, revise="v1"))
    assert run.result["result"] == "v1"


def test_fails_without_a_draft() -> None:
    run = rehearse(NAME, {"task": TASK}, by_role(draft=Failure("the model is away")))
    assert len(run.calls) == 1
    assert "the model is away" in (run.error or "")


async def test_records_how_often_it_revised() -> None:
    answer = by_role(draft="v0", critique=[REVISE, REVISE, GOOD], revise=["v1", "v2"])
    assert await figures(NAME, {"task": TASK}, answer) == {"revisions": 2}


@each_row(
    ("ctx", "told"),
    [
        ({"rounds": 2}, "ctx has no 'task'"),
        ({"task": TASK, "rounds": 0}, "'rounds' must be at least 1 and at most 10, got 0"),
        ({"task": TASK, "rounds": 1.5}, "'rounds' must be int"),
        ({"task": TASK, "criteria": ["short"]}, "'criteria' must be str"),
    ],
)
def test_a_wrong_parameter_is_refused_before_anything_is_asked(ctx: dict[str, object], told: str) -> None:
    run = rehearse(NAME, ctx)
    assert run.calls == []
    assert told in (run.error or "")
